"""Objects of Kubernetes become schedules and workflows: a real API of Carillon, and an API server on loopback.

Covers app.kubernetes.api_server, app.kubernetes.declarations, app.kubernetes.leadership, app.kubernetes.passes,
app.kubernetes.watches.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import structlog
from msgspec.structs import replace
from sqlalchemy import text

from app.config import Settings, SettingsError
from app.domain.declarations import Kind
from app.domain.kubernetes_objects import Resource
from app.kubernetes.api_server import ApiServerError, in_cluster
from app.kubernetes.leadership import Leadership
from app.kubernetes.operator import _NamespaceLoops, carillon_server, run_operator
from app.kubernetes.passes import Passes
from app.kubernetes.watches import ObjectCache
from app.observability.logs import Outage
from app.persistence.database import Database
from tests.support.carillon import ADMIN_TOKEN, Carillon, until
from tests.support.kubernetes_api import KubernetesApi
from tests.support.tls_front import Authority
from tests.support.watched_process import free_port

Json = dict[str, Any]
FLOW: Json = {"nodes": [{"id": "start", "type": "trigger_schedule"}, {"id": "work", "type": "core.noop"}]}
FLOW = {**FLOW, "edges": [{"from": "start", "to": "work"}]}
NIGHTLY: Json = {"workflow": "report", "cron": "30 2 * * *"}


class Cluster:
    """The API server of a cluster, and the files of the operator's pod."""

    def __init__(self, api: KubernetesApi, folder: Path, url: str) -> None:
        self.api = api
        self.tokens = folder / "tokens"
        self.tokens.mkdir()
        (self.tokens / "_default").write_text(f"{ADMIN_TOKEN}\n")
        self.token_file = folder / "token"
        self.token_file.write_text(api.token)
        self.settings = Settings(operator_url=url, operator_tokens_dir=str(self.tokens))

    @asynccontextmanager
    async def operator(self, **settings: Any) -> AsyncIterator[asyncio.Event]:
        """Run an operator for the duration of the block, or until the event is set."""
        stopping = asyncio.Event()
        address = self.api.address(str(self.token_file))
        running = asyncio.create_task(run_operator(replace(self.settings, **settings), address, stopping))
        try:
            yield stopping
        finally:
            stopping.set()
            await asyncio.wait_for(running, 60)

    async def ready(self, plural: str, name: str, status: str = "True", namespace: str = "shop") -> Json:
        """Wait until the newest generation of an object is ready, or not; return its status and the condition."""

        async def check() -> Json | None:
            found = self.api.read(plural, namespace, name)
            told = (found or {}).get("status", {})
            conditions = told.get("conditions", [{}])
            is_seen = found is not None and told.get("observedGeneration") == found["metadata"]["generation"]
            return {**told, **conditions[0]} if is_seen and conditions[0].get("status") == status else None

        return await until(check)

    async def gone(self, plural: str, name: str, namespace: str = "shop") -> None:
        """Wait until there is no such object."""

        async def check() -> bool:
            return self.api.read(plural, namespace, name) is None

        await until(check)


@pytest.fixture
async def cluster(carillon: Carillon, tmp_path: Path) -> AsyncIterator[Cluster]:
    """A cluster beside a Carillon."""
    async with KubernetesApi(Authority(tmp_path)) as api:
        yield Cluster(api, tmp_path, str(carillon._client.base_url))


async def schedules(carillon: Carillon, namespace: str = "shop") -> dict[str, Json]:
    """Return the schedules of a namespace by name."""
    answer = await carillon.request("GET", "/schedules/", params={"namespace": namespace})
    return {item["name"]: item for item in answer.json()["items"]}


async def test_objects_are_applied_and_say_how_they_do(cluster: Cluster, carillon: Carillon) -> None:
    """A schedule and its workflow appear, whichever comes first; errors are told by field, and an edit mends them."""
    await cluster.api.apply("schedules", "shop", "nightly", {**NIGHTLY, "labels": {"team": "shop"}})
    await cluster.api.apply("schedules", "shop", "wrong", {"workflow": "report", "cron": "61 * * * *", "paused": True})
    async with cluster.operator():
        missing = await cluster.ready("schedules", "nightly", "False")
        assert ("Invalid", "workflow: The namespace has no workflow 'report'.") == (
            missing["reason"],
            missing["message"],
        )
        await cluster.api.apply("workflows", "shop", "report", FLOW)
        status = await cluster.ready("schedules", "nightly")
        stored = (await schedules(carillon))["nightly"]
        assert (stored["id"], stored["next_run_at"], "active", None) == (
            status["id"],
            status["nextRunAt"],
            status["state"],
            status.get("lastOutcome"),
        )
        assert {"team": "shop"} == stored["labels"]
        assert "Applied" == (await cluster.ready("workflows", "report"))["reason"]
        wrong = await cluster.ready("schedules", "wrong", "False")
        assert "Invalid" == wrong["reason"]
        assert wrong["message"].startswith("cron: ")
        await cluster.api.apply("schedules", "shop", "wrong", {"workflow": "report", "every": "5m", "paused": True})
        assert "paused" == (await cluster.ready("schedules", "wrong"))["state"]
        found = cluster.api.read("schedules", "shop", "nightly")
        assert found is not None
        assert ["carillon.dev/finalizer"] == found["metadata"]["finalizers"]
        events = (await carillon.request("GET", "/audit/", params={"object_id": stored["id"]})).json()["items"]
        assert [("file", "admin")] == [(event["via"], event["actor"]) for event in events]


async def test_drift_is_put_right_but_a_pause_stays(cluster: Cluster, carillon: Carillon, database: Database) -> None:
    """An edit through the API is undone by the next pass; a pause by a person is shown and not lifted."""
    await cluster.api.apply("workflows", "shop", "report", FLOW)
    await cluster.api.apply("schedules", "shop", "nightly", NIGHTLY)
    async with cluster.operator(operator_resync_seconds=0.2):
        job = (await cluster.ready("schedules", "nightly"))["id"]
        await carillon.request("POST", f"/schedules/{job}/pause/", json={})
        await carillon.request("PATCH", f"/schedules/{job}/", json={"cron": "0 5 * * *", "max_retries": 9})

        async def is_mended() -> bool:
            stored = (await schedules(carillon))["nightly"]
            return (stored["cron"], stored["max_retries"]) == ("30 2 * * *", 3)

        async def is_shown() -> bool:
            found = cluster.api.read("schedules", "shop", "nightly")
            return found is not None and found["status"].get("state") == "paused"

        await until(is_mended)
        await until(is_shown)
        assert "paused" == (await schedules(carillon))["nightly"]["status"]
    async with database.transaction() as connection:
        stored = await connection.scalar(text("SELECT count(*) FROM idempotency_keys"))
    # Passes are many; their answers are not stored for repetitions.
    assert 0 == stored


async def test_an_outage_of_carillon_changes_no_objects(cluster: Cluster) -> None:
    """What was applied stays ready; what is new says why it is not, and is applied when Carillon is back."""
    await cluster.api.apply("workflows", "shop", "report", FLOW)
    async with cluster.operator():
        await cluster.ready("workflows", "report")
    await cluster.api.apply("workflows", "shop", "other", FLOW)
    async with cluster.operator(operator_url=f"http://127.0.0.1:{free_port()}", operator_resync_seconds=0.2):
        assert "Unreachable" == (await cluster.ready("workflows", "other", "False"))["reason"]
        # Deleted meanwhile: it stays until Carillon can say what becomes of it.
        await cluster.api.delete("workflows", "shop", "report")
        assert "Unreachable" == (await cluster.ready("workflows", "report", "False"))["reason"]
    async with cluster.operator():
        await cluster.ready("workflows", "other")
        await cluster.gone("workflows", "report")


async def test_deletion_follows_the_policy(cluster: Cluster, carillon: Carillon) -> None:
    """The schedule is deleted, paused or kept; a workflow that schedules run stays until they are gone."""
    await cluster.api.apply("workflows", "shop", "report", FLOW)
    for policy in ("delete", "pause", "keep"):
        await cluster.api.apply("schedules", "shop", policy, {**NIGHTLY, "deletionPolicy": policy})
    # A second object of the same name: the older one has it, and deleting this one touches nothing.
    await cluster.api.apply("schedules", "shop", "zz-second", {**NIGHTLY, "name": "keep"})
    async with cluster.operator(operator_resync_seconds=0.2):
        await cluster.ready("schedules", "keep")
        assert "NameTaken" == (await cluster.ready("schedules", "zz-second", "False"))["reason"]
        for name in ("delete", "pause", "zz-second", "keep"):
            await cluster.api.delete("schedules", "shop", name)
            await cluster.gone("schedules", name)
        stored = await schedules(carillon)
        assert {"pause": "paused", "keep": "active"} == {name: item["status"] for name, item in stored.items()}
        await cluster.api.delete("workflows", "shop", "report")
        in_use = await cluster.ready("workflows", "report", "False")
        assert "InUse" == in_use["reason"]
        assert "'keep'" in in_use["message"]
        for item in stored.values():
            await carillon.request("DELETE", f"/schedules/{item['id']}/")
        await cluster.gone("workflows", "report")
    assert [] == (await carillon.request("GET", "/workflows/")).json()["items"]


async def test_watches_go_on_after_faults(cluster: Cluster, carillon: Carillon) -> None:
    """A broken watch goes on from its last bookmark, an expired one lists again, and conflicts are retried."""
    await cluster.api.apply("workflows", "shop", "report", FLOW)
    async with cluster.operator():
        await cluster.ready("workflows", "report")
        await _until_watching(cluster)
        await cluster.api.bookmark()
        # Another pod's token is refused; the file has the new one.
        cluster.api.token = "another-token"
        cluster.token_file.write_text("another-token")
        cluster.api.requests.clear()
        await cluster.api.break_watches()
        await _until_watching(cluster)
        again = [path for method, path in cluster.api.requests if "watch=true" in path]
        assert all("resourceVersion=" in path for path in again)
        assert [] == [path for _, path in cluster.api.requests if "limit=" in path]
        cluster.api.conflicts_to_make = 3
        await cluster.api.apply("schedules", "shop", "nightly", NIGHTLY)
        await cluster.ready("schedules", "nightly")
        assert 0 == cluster.api.conflicts_to_make
        await cluster.api.compact()
        await cluster.api.apply("schedules", "shop", "hourly", {**NIGHTLY, "cron": "0 * * * *"})
        await cluster.ready("schedules", "hourly")
        assert [] != [path for _, path in cluster.api.requests if "limit=" in path]
    assert {"nightly", "hourly"} == set(await schedules(carillon))


async def _until_watching(cluster: Cluster) -> None:
    async def check() -> bool:
        return all(cluster.api.watching[plural] for plural in ("schedules", "workflows"))

    await until(check)


async def test_one_operator_leads_and_gives_the_lease_back(cluster: Cluster) -> None:
    """A second one stands by and is ready; it takes over when the first one stops, without waiting for the end."""
    async with cluster.operator() as first_stops:
        await _until_watching(cluster)
        holder = _holder(cluster)
        port = free_port()
        async with cluster.operator(metrics_port=port):
            await _until_answered(f"http://127.0.0.1:{port}/health/ready")
            assert holder == _holder(cluster)
            await cluster.api.apply("workflows", "shop", "report", FLOW)
            await cluster.ready("workflows", "report")
            first_stops.set()

            async def is_taken_over() -> bool:
                return _holder(cluster) not in {holder, ""}

            await until(is_taken_over)
            await cluster.api.apply("workflows", "shop", "other", FLOW)
            await cluster.ready("workflows", "other")
            counted = 'carillon_operator_objects{kind="workflow",ready="true"} 2.0'
            await _until_answered(f"http://127.0.0.1:{port}/metrics", counted)
    assert "" == _holder(cluster)


class SilentServer:
    """An API server with one Lease, which can stop to answer."""

    namespace = "system"

    def __init__(self) -> None:
        self.answering = asyncio.Event()
        self.answering.set()
        self._lease: Json | None = None

    async def get(self, _path: str) -> Json:
        """Return the Lease."""
        await self.answering.wait()
        if self._lease is None:
            raise ApiServerError(404, "not found")
        return self._lease

    async def replace(self, _path: str, body: Json) -> Json:
        """Store the Lease."""
        await self.answering.wait()
        self._lease = body
        return body

    create = replace


async def test_a_leader_without_answers_stops_before_another_may_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server that accepts requests and never answers does not keep a leader at work past its time."""
    monkeypatch.setattr("app.kubernetes.leadership.RENEW_WITHIN_SECONDS", 1.0)
    monkeypatch.setattr("app.kubernetes.leadership.RELEASE_SECONDS", 0.1)
    monkeypatch.setattr("app.kubernetes.leadership.RETRY_SECONDS", 0.2)
    server: Any = SilentServer()
    begun, ended, stopping = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    leadership = Leadership(server, "lease", "one", Outage(structlog.get_logger(), away="away", back="back"))
    leading = asyncio.create_task(leadership.lead(work, stopping))
    await asyncio.wait_for(begun.wait(), 60)
    server.answering.clear()
    await asyncio.wait_for(ended.wait(), 60)
    assert not leadership.is_leading
    stopping.set()
    await asyncio.wait_for(leading, 60)


class CountedPasses:
    """Passes that do nothing."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def run(self, _namespace: str) -> bool:
        """Make a pass."""
        self.begun.set()
        return True


@pytest.mark.parametrize("steps", range(5))
async def test_a_change_does_not_undo_the_end_of_the_work(steps: int) -> None:
    """A change that arrives some steps of the event loop before the end must not swallow it: the work went on."""
    loops = _NamespaceLoops(60.0, Outage(structlog.get_logger(), away="away", back="back"))
    cache, passes = ObjectCache(loops.mark), CountedPasses()
    cache.store(Resource(kind=Kind.WORKFLOW, namespace="shop", name="report"))
    running = asyncio.create_task(loops.run(cache, cast("Passes", passes), []))
    await asyncio.wait_for(passes.begun.wait(), 60)
    for _ in range(10):
        await asyncio.sleep(0)
    loops.mark("shop")
    for _ in range(steps):
        await asyncio.sleep(0)
    running.cancel()
    ended, _ = await asyncio.wait({running}, timeout=2)
    running.cancel()
    assert {running} == ended


def _holder(cluster: Cluster) -> str:
    lease = cluster.api.read("leases", "system", "carillon-operator")
    assert lease is not None
    return str(lease["spec"]["holderIdentity"])


async def _until_answered(url: str, expected: str = "") -> None:
    """Wait until an address answers 200 with this text."""
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:

        async def check() -> bool:
            try:
                answer = await client.get(url)
            except httpx.TransportError:
                return False
            return answer.status_code == 200 and expected in answer.text

        await until(check)


async def test_a_namespace_belongs_to_the_user_of_its_token(cluster: Cluster, carillon: Carillon) -> None:
    """Each namespace has its owner; without a token, with a refused one, or as a stranger nothing is applied."""
    mia = (await carillon.request("POST", "/users/", json={"username": "mia", "role": "member"})).json()
    token = (await carillon.request("POST", f"/users/{mia['id']}/tokens/", json={"name": "k8s"})).json()["token"]
    (cluster.tokens / "_default").unlink()
    (cluster.tokens / "shop").write_text(token)
    (cluster.tokens / "bad").write_text("no-token-of-anybody")
    (cluster.tokens / "taken").write_text(ADMIN_TOKEN)
    mias = carillon.with_token(token)
    await mias.request(
        "POST", "/apply/", json={"documents": [{"namespace": "c1.taken", "workflows": [{**FLOW, "name": "a"}]}]}
    )
    for namespace in ("shop", "bad", "none", "taken", "unseen"):
        await cluster.api.apply("workflows", namespace, "report", FLOW)
    watched = {"operator_namespaces": "shop, bad, none, taken", "operator_namespace_prefix": "c1."}
    async with cluster.operator(**watched, operator_resync_seconds=0.2):
        await cluster.ready("workflows", "report")
        reasons = {name: await cluster.ready("workflows", "report", "False", name) for name in ("bad", "none", "taken")}
        assert {"bad": "Refused", "none": "NoToken", "taken": "Invalid"} == {
            name: status["reason"] for name, status in reasons.items()
        }
        assert "It belongs to" in reasons["taken"]["message"]
        # What was never applied can be deleted without Carillon.
        for namespace in ("bad", "taken"):
            await cluster.api.delete("workflows", namespace, "report")
            await cluster.gone("workflows", "report", namespace)
        # Once there is a token the objects are applied, without a change of theirs.
        (cluster.tokens / "none").write_text(token)
        await cluster.ready("workflows", "report", "True", "none")
    listed = (await carillon.request("GET", "/workflows/")).json()["items"]
    assert {mia["id"]} == {item["user_profile_id"] for item in listed}
    unseen = cluster.api.read("workflows", "unseen", "report")
    assert unseen is not None
    assert "finalizers" not in unseen["metadata"]
    exported = (await mias.request("GET", "/export/", headers={"Accept": "application/json"})).json()["documents"]
    assert {"c1.shop", "c1.none", "c1.taken"} == {document["namespace"] for document in exported}


def test_what_is_missing_is_named_before_anything_starts(tmp_path: Path) -> None:
    """Outside of a pod, without the files of its account, without a URL and with a wrong one."""
    with pytest.raises(SettingsError, match="KUBERNETES_SERVICE_HOST is not set"):
        in_cluster({})
    with pytest.raises(SettingsError, match="service account cannot be read"):
        in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)
    (tmp_path / "namespace").write_text("bells")
    found = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}, tmp_path)
    assert "https://[fd00::1]:6443" == found.url
    assert ("bells", str(tmp_path / "token")) == (found.namespace, found.token_file)
    with pytest.raises(SettingsError, match="CARILLON_OPERATOR_URL is not set"):
        carillon_server(Settings(operator_tokens_dir="/tokens"))
    with pytest.raises(SettingsError, match="CARILLON_OPERATOR_URL: 'ftp://x' is not the address of a server"):
        carillon_server(Settings(operator_url="ftp://x", operator_tokens_dir="/tokens"))
