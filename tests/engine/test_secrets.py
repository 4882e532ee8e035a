"""Secrets in runs: whose they are, where they go, and what callbacks may say of them."""

import itertools
import os
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import msgspec
import pytest
from aiohttp import web
from msgspec.structs import replace
from sqlalchemy import text

from app.actions.builtin import BUILTIN
from app.actions.catalog import Action, ActionFailedError, Catalog, Result
from app.actions.context import ActionContext, NoPorts, PluginScheduleChanges, PluginScheduleInput, RefusedError
from app.actions.http_client import HttpCaller, Sender
from app.actions.secrets import RunSecrets, SecretStore
from app.actions.ssrf_guard import AddressGuard
from app.clock import now
from app.config import Settings
from app.domain.access import Actor, Role
from app.domain.secrets import Secret
from app.domain.workflows import TRIGGER_TYPE, Edge, Node, Workflow
from app.engine.node_resources import SecretFinder
from app.engine.ringing import Ringer
from app.engine.workflow_walk import ERROR_CHARACTERS, Dispatched, Walk
from app.persistence.database import Database
from app.queue.bell import Bell, RedisPool
from app.services.admission import admission_of
from app.services.executions import UNREADABLE, ManualRunService
from app.services.plugin_schedules import Collaborators, PluginSchedules
from app.services.schedules import ScheduleService
from app.services.workflows import WorkflowService
from tests.support.api_server import serving
from tests.support.callbacks import Target, ended, is_parked, told
from tests.support.carillon import Carillon, Json, fire_and_read, http_node, make_due, until, working
from tests.support.http_sink import Sink

VALUE = "planted-hush-1"


@pytest.fixture
async def elsewhere() -> AsyncIterator[Sink]:
    """Another target, to which no secret may go."""
    async with Sink() as opened:
        yield opened


async def keep(carillon: Carillon, sink: Sink, name: str = "TOKEN", **values: Any) -> Json:
    """A secret for one target."""
    body = {"name": name, "value": VALUE, "allowed_hosts": [sink.url.removeprefix("http://")], **values}
    made: Json = await carillon.call("POST", "/secrets/", 201, json=body)
    return made


async def test_a_member_sends_what_is_theirs(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their own before what is shared with them; in all fields that take one."""
    monkeypatch.setenv("CARILLON_SECRET_LENT", "planted-lent")
    mia = await carillon.member()
    me = (await mia.call("GET", "/me/"))["id"]
    await keep(mia, sink)
    await keep(carillon, sink, value="planted-admins", shared_with="all")
    await keep(carillon, sink, "SHARED", value="planted-shared", shared_with=[me])
    lent = {"shared_with": [me], "allowed_hosts": ["127.0.0.1"]}
    await carillon.call("PUT", "/secrets/LENT/", 201, json=lent)
    call = http_node(
        f"{sink.url}/{{{{ secret.TOKEN }}}}",
        headers={"X-Key": "Bearer {{ secret['SHARED'] }}"},
        json={"a": ["{{ secret.LENT }}"], "b": "{{ secret.TOKEN }}, {{ secret.SHARED }}"},
    )
    execution = await fire_and_read(mia, settings, database, await mia.schedule(await mia.workflow(call)))
    assert "success" == execution["status"], execution
    (seen,) = sink.calls
    assert (f"/{VALUE}", "Bearer planted-shared") == (seen.path, seen.headers["x-key"])
    assert {"a": ["planted-lent"], "b": f"{VALUE}, planted-shared"} == seen.json


async def test_a_filled_in_url_is_judged_again(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink, elsewhere: Sink
) -> None:
    """The run fails, says what to do, and sends nothing: neither to another host nor to another port."""
    mia = await carillon.member()
    await keep(mia, sink)
    call = http_node("{{ trigger.payload.url }}", headers={"X-Key": "{{ secret.TOKEN }}"})
    workflow = await mia.workflow(call)
    for url in (elsewhere.url, elsewhere.url.replace("127.0.0.1", "localhost"), elsewhere.url + "/?" + sink.url):
        schedule = await mia.schedule(workflow, trigger_payload={"url": url}, max_retries=0)
        execution = await fire_and_read(mia, settings, database, schedule)
        assert "failed" == execution["status"]
        assert "The secret 'TOKEN' may not be sent to" in execution["error"]
        assert "PUT /api/v1/secrets/TOKEN/" in execution["error"]
    good = await mia.schedule(workflow, trigger_payload={"url": sink.url})
    assert "success" == (await fire_and_read(mia, settings, database, good))["status"]
    assert (0, 1) == (len(elsewhere.calls), len(sink.calls))


async def test_a_share_that_is_taken_back_is_gone(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """The run is blocked with the name of the secret and of the user."""
    mia = await carillon.member()
    await keep(carillon, sink, shared_with=[(await mia.call("GET", "/me/"))["id"]])
    schedule = await mia.schedule(await mia.workflow(http_node(sink.url, body="{{ secret.TOKEN }}")))
    assert "success" == (await fire_and_read(mia, settings, database, schedule))["status"]
    await carillon.call("PUT", "/secrets/TOKEN/", json={"shared_with": []})
    execution = await fire_and_read(mia, settings, database, schedule)
    assert ("blocked", "Node 'call': There is no secret 'TOKEN' for the user 'mia'.") == (
        execution["status"],
        execution["error"],
    )
    assert 1 == len(sink.calls)


async def test_nodes_written_before_are_judged_when_they_run(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """What no write would take today is blocked: other actions, other fields, filters."""
    await keep(carillon, sink)
    bad: list[Json] = [
        {"id": "work", "type": "core.log", "config": {"message": "{{ secret.TOKEN }}"}},
        {"id": "work", "type": "core.http_request", "config": {"url": sink.url, "method": "{{ secret.TOKEN }}"}},
        {"id": "work", "type": "core.http_request", "config": {"url": sink.url, "body": "{{ secret.TOKEN | upper }}"}},
        {"id": "work", "type": "core.http_request", "config": {"url": sink.url, "json": "{{ secret | tojson }}"}},
    ]
    for node in bad:
        workflow = await carillon.workflow()
        nodes = [{"id": "start", "type": "trigger_schedule"}, node]
        async with database.transaction() as connection:
            await connection.execute(
                text("UPDATE workflows SET nodes = CAST(:nodes AS jsonb) WHERE id = :id"),
                {"nodes": msgspec.json.encode(nodes).decode(), "id": workflow["id"]},
            )
        execution = await fire_and_read(carillon, settings, database, await carillon.schedule(workflow))
        assert "blocked" == execution["status"], execution
        assert VALUE not in repr(execution).lower()
    assert [] == sink.calls


async def test_what_a_target_sends_back_does_not_go_on(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink, elsewhere: Sink
) -> None:
    """A later node could carry it to any host."""
    await keep(carillon, sink)

    async def echo(request: web.Request) -> web.StreamResponse:
        return web.json_response({"echo": await request.text()})

    sink.answer = echo
    workflow = await carillon.workflow(
        http_node(sink.url, body="{{ secret.TOKEN }}"),
        {"id": "on", "type": "core.http_request", "config": {"url": elsewhere.url, "json": "{{ nodes.call.output }}"}},
    )
    assert "success" == (await fire_and_read(carillon, settings, database, await carillon.schedule(workflow)))["status"]
    assert "***" == elsewhere.calls[0].json["body"]["echo"]
    assert VALUE.encode() not in elsewhere.calls[0].body


@pytest.mark.parametrize("filling", [60, 186, 193, 199, 1990])
async def test_texts_are_hidden_before_they_are_cut(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink, filling: int
) -> None:
    """Wherever a secret lies across the place of the cut, no part of it is left."""
    await keep(carillon, sink, value="Q" + "Z" * 40)

    async def echo(request: web.Request) -> web.StreamResponse:
        return web.Response(status=500, text="." * filling + await request.text())

    sink.answer = echo
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url, body="{{ secret.TOKEN }}")))
    execution = await fire_and_read(carillon, settings, database, schedule)
    assert "failed" == execution["status"]
    assert "QZ" not in repr(execution)


async def test_a_url_that_is_secret_as_a_whole_is_not_shown_in_part(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """An error says whom it leads to, and no more."""
    await keep(carillon, sink, value=f"{sink.url}/services/T0/XYZ?x=1")

    async def refuse(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=500)

    sink.answer = refuse
    schedule = await carillon.schedule(await carillon.workflow(http_node("{{ secret.TOKEN }}")))
    execution = await fire_and_read(carillon, settings, database, schedule)
    assert f"Node 'call': POST {sink.url} answered 500, expected 2xx" == execution["error"]
    assert "/services/T0/XYZ" == sink.calls[0].path


async def test_a_configuration_that_secrets_spoil_is_not_quoted(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """What an action says of a bad value may be a part of it."""
    await keep(carillon, sink, value="planted\u2100host/rest", allowed_hosts=["*"])
    schedule = await carillon.schedule(await carillon.workflow(http_node("http://{{ secret.TOKEN }}")))
    execution = await fire_and_read(carillon, settings, database, schedule)
    assert "blocked" == execution["status"]
    assert "planted" not in execution["error"]


async def test_what_is_cut_off_by_the_cap_leaves_no_part(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """An answer that is too long may end within a secret."""
    await keep(carillon, sink, value="Q" + "Z" * 40)

    async def echo(request: web.Request) -> web.StreamResponse:
        return web.Response(text="." * (64 * 1024 - 20) + await request.text())

    sink.answer = echo
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url, body="{{ secret.TOKEN }}")))
    execution = await fire_and_read(carillon, settings, database, schedule)
    assert ("success", True) == (execution["status"], execution["nodes"][0]["output"]["truncated"])
    assert "Q" not in execution["nodes"][0]["output"]["body"]


async def test_a_callback_is_kept_without_what_its_run_was_shown(
    settings: Settings, database: Database, target: Target
) -> None:
    """In output and error, whichever node was shown it; a resumed run hides it too."""

    async def remember(request: web.Request) -> web.StreamResponse:
        # To a node that was not shown it, after the run was put aside.
        return web.Response(status=202) if "X-Key" in request.headers else web.Response(text=f"it was {VALUE}")

    target.answer = remember
    async with serving(settings) as carillon:
        await keep(carillon, target)
        await keep(carillon, target, "OTHER", value="planted-other")
        work = http_node(target.url, await_callback=True, headers={"X-Key": "{{ secret.TOKEN }}"})
        after = {"id": "after", "type": "core.log", "config": {"message": "{{ nodes.call.output.a }}"}}
        last = {"id": "last", "type": "core.http_request", "config": {"url": target.url, "body": "{{ secret.OTHER }}"}}
        for status in ("success", "failed"):
            schedule = await carillon.schedule(await carillon.workflow(work, after, last), max_retries=0)
            await make_due(database, schedule)
            async with working(told(carillon)):
                await until(lambda: is_parked(database))
                said: Json = {"output": {"a": f"x {VALUE.upper()}", VALUE: "planted-other"}, "error": f"bad {VALUE}"}
                assert 200 == (await target.call_back(-1, status=status, **said)).status_code
                execution = await ended(carillon, schedule)
            assert status == execution["status"], execution
            assert "planted" not in repr(execution).lower()
            assert "***" in repr(execution)
        assert "planted" not in await callbacks_as_text(database)


async def callbacks_as_text(database: Database) -> str:
    """All that is kept of callbacks."""
    async with database.transaction() as connection:
        rows = await connection.execute(text("SELECT to_jsonb(c)::text FROM callbacks AS c"))
        return " ".join(rows.scalars()).lower()


@pytest.mark.parametrize("change", ["unknown to the API", "replaced", "deleted"])
async def test_a_callback_that_cannot_be_judged_is_left_out(
    settings: Settings, database: Database, target: Target, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Where the API does not know the value that the run was shown, a note stands for what was said."""
    monkeypatch.setenv("CARILLON_SECRET_OUTER", VALUE)
    async with serving(settings) as carillon:
        await keep(carillon, target)
        name = "OUTER" if change == "unknown to the API" else "TOKEN"
        work = http_node(target.url, await_callback=True, headers={"X-Key": f"{{{{ secret.{name} }}}}"})
        schedule = await carillon.schedule(await carillon.workflow(work), max_retries=0)
        await make_due(database, schedule)
        async with working(told(carillon)):
            await until(lambda: is_parked(database))
            if change == "unknown to the API":
                monkeypatch.delenv("CARILLON_SECRET_OUTER")
            elif change == "replaced":
                await carillon.call("PUT", "/secrets/TOKEN/", json={"value": "planted-new"})
            else:
                await carillon.call("DELETE", "/secrets/TOKEN/", 204)
            said: Json = {"output": [VALUE], "error": f"bad {VALUE}"}
            assert 200 == (await target.call_back(status="failed", **said)).status_code
            execution = await ended(carillon, schedule)
        assert f"Node 'call': {UNREADABLE}" == execution["error"]
        assert VALUE not in await callbacks_as_text(database)


async def test_a_run_for_two_shows_what_both_may_use(
    carillon: Carillon, database: Database, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An admin's schedule on a member's workflow does not hand the member's nodes what is the admin's."""
    monkeypatch.setenv("CARILLON_SECRET_OUTER", "planted-outer")
    mia = await carillon.member()
    me = (await mia.call("GET", "/me/"))["id"]
    admin = Actor((await carillon.call("GET", "/me/"))["id"], "admin", Role.ADMIN)
    await keep(carillon, sink, "PRIVATE")
    await keep(carillon, sink, "SHARED", shared_with=[me])
    names = frozenset({"OUTER", "PRIVATE", "SHARED"})
    finder = SecretFinder(database, SecretStore({"CARILLON_SECRET_OUTER": "planted-outer"}))
    assert set(names) == (await finder.find(admin, admin.user_id, names)).keys()
    assert {"SHARED"} == (await finder.find(admin, me, names)).keys()
    assert {} == await finder.find(admin, 999_999, names)


class PluginConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A plugin's action with a field that takes secrets."""

    key: str
    url: str


async def send_key(config: PluginConfig, context: ActionContext) -> Any:
    """Send a key to whatever host the plugin likes."""
    answer = await context.http.call("POST", config.url, {"X-Key": config.key}, b"", "message")
    return answer.body.decode()


def context_of(secrets: RunSecrets, http: HttpCaller) -> ActionContext:
    """A node's context, by hand."""
    return ActionContext(
        execution_id=UUID(int=1),
        scheduled_job_id=UUID(int=2),
        slot=now(),
        attempt=1,
        event={},
        source="s",
        node_id="n",
        caller=http,
        sender=Sender(1),
        ports=NoPorts(),
        plugin=None,  # type: ignore[arg-type]  # not used
        callback=None,  # type: ignore[arg-type]  # not used
        lease_holds=lambda: True,
        secrets=secrets,
    )


async def test_a_plugins_action_cannot_call_other_hosts_either(settings: Settings, sink: Sink, elsewhere: Sink) -> None:
    """The client that it is handed refuses them, whatever the action does with the URL."""
    host = sink.url.removeprefix("http://")
    token = Secret(name="TOKEN", value=VALUE, host_lists=((host,),), owner_id=1)

    async def find(_names: frozenset[str]) -> dict[str, Secret]:
        return {"TOKEN": token}

    async def echo(request: web.Request) -> web.StreamResponse:
        return web.Response(text=f"it is {request.headers['X-Key']}")

    sink.answer = elsewhere.answer = echo
    action = Action(name="x.send", config=PluginConfig, handler=send_key, secret_fields=("key",))

    async def run(url: str) -> Result:
        secrets = RunSecrets(find, "mia", frozenset)
        node = Node("n", "x.send", {"key": "{{ secret.TOKEN }}", "url": url})
        async with HttpCaller(AddressGuard(settings.allowed_hosts)) as http:
            return await Catalog([action]).run(node, context_of(secrets, http), dict)

    assert "it is ***" == (await run(sink.url)).output  # type: ignore[union-attr]
    with pytest.raises(Exception, match="may not be sent to"):
        await run(elsewhere.url)
    assert [] == elsewhere.calls
    blocked = await run("{{ secret.TOKEN }}")
    assert "takes secrets only in key" in blocked.reason  # type: ignore[union-attr]


async def raise_all(config: PluginConfig, _context: ActionContext) -> Any:
    """Fail with a long text that ends in the key."""
    raise ActionFailedError("." * (ERROR_CHARACTERS - 5) + config.key)


async def test_whatever_an_action_says_is_hidden_before_it_is_cut_or_goes_on() -> None:
    """What it answers, for later nodes too, and what it raises."""
    told: list[str] = []

    async def give_back(config: PluginConfig, _context: ActionContext) -> Any:
        told.append(config.url)
        return {"key": config.key, "url": config.url}

    actions = [
        Action(name=name, config=PluginConfig, handler=handler, secret_fields=("key",))
        for name, handler in (("x.give", give_back), ("x.fail", raise_all))
    ]
    nodes = (
        Node("start", TRIGGER_TYPE),
        Node("a", "x.give", {"key": "{{ secret.TOKEN }}", "url": ""}),
        Node("b", "x.give", {"key": "", "url": "{{ nodes.a.output.key }}"}),
        Node("c", "x.fail", {"key": "{{ secret.TOKEN }}", "url": ""}),
    )
    edges = tuple(Edge(one.id, other.id) for one, other in itertools.pairwise(nodes))
    workflow = Workflow(id=1, user_profile_id=1, name="w", active=True, nodes=nodes, edges=edges)
    dispatched = Dispatched(workflow, nodes[0], {}, Actor(1, "mia", Role.MEMBER))

    async def find(_names: frozenset[str]) -> dict[str, Secret]:
        return {"TOKEN": Secret(name="TOKEN", value=VALUE, host_lists=(), owner_id=1)}

    secrets = RunSecrets(find, "mia", frozenset)
    http = HttpCaller(AddressGuard(()))
    walk = Walk(dispatched, Catalog(actions), lambda _: context_of(secrets, http), dict)
    result = await walk.run()
    assert result is not None
    assert [{"key": "***", "url": ""}, {"key": "", "url": "***"}] == [one.output for one in walk.results[:2]]
    assert ["", "***"] == told
    assert "." * (ERROR_CHARACTERS - 5) + "***" == result.error


async def test_a_plugins_schedule_is_held_to_the_same(
    settings: Settings, database: Database, redis: RedisPool, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin is a user like others: the environment's secrets are not its own."""
    monkeypatch.setenv("CARILLON_SECRET_TOKEN", VALUE)
    config = {"url": sink.url, "body": "{{ secret.TOKEN }}"}
    wanted = PluginScheduleInput(name="call", action="core.http_request", config=config, every="5m")
    async with serving(settings) as carillon:
        ringer, catalog = Ringer(Bell(redis)), Catalog(BUILTIN)
        admission = admission_of(catalog, SecretStore(os.environ))
        services = Collaborators(
            database=database,
            ringer=ringer,
            schedules=ScheduleService(database, ringer),
            workflows=WorkflowService(database, ringer, admission),
            manual_runs=ManualRunService(database, ringer),
        )
        schedules = PluginSchedules("x", services, may_schedule=True)
        with pytest.raises(RefusedError, match="There is no secret 'TOKEN' for you"):
            await schedules.create(wanted)
        made = await schedules.create(replace(wanted, config={"url": sink.url}))
        with pytest.raises(RefusedError, match="There is no secret 'TOKEN' for you"):
            await schedules.update(made.id, PluginScheduleChanges(config=config))
        lent = {"shared_with": "all", "allowed_hosts": ["127.0.0.1"]}
        await carillon.call("PUT", "/secrets/TOKEN/", 201, json=lent)
        ensured = await schedules.ensure(wanted)
        assert ensured is not None
        assert config == ensured.config


async def test_the_poison_pill_is_blocked(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """Five thousand references to one large text end in words, and nothing is sent; nor is a body that is too large."""
    workflow = await carillon.workflow(http_node(sink.url, json=["{{trigger.payload.s}}"] * 5000))
    schedule = await carillon.schedule(workflow, max_retries=1000)
    async with database.transaction() as connection:
        await connection.execute(
            text("UPDATE scheduled_jobs SET trigger_payload = jsonb_build_object('s', repeat('x', 200000))")
        )
    execution = await fire_and_read(carillon, settings, database, schedule)
    assert "blocked" == execution["status"]
    assert "larger than 1048576 bytes" in execution["error"]
    # Control characters take six bytes each in JSON: only the encoded body shows how large it is.
    loud = await carillon.schedule(
        await carillon.workflow(http_node(sink.url, json="{{ trigger.payload.s }}")), max_retries=0
    )
    async with database.transaction() as connection:
        await connection.execute(
            text("UPDATE scheduled_jobs SET trigger_payload = jsonb_build_object('s', repeat(chr(1), 200000))")
        )
    execution = await fire_and_read(carillon, settings, database, loud)
    assert ("failed", True) == (execution["status"], "at most 1048576 are allowed" in execution["error"])
    assert [] == sink.calls
