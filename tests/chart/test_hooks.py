"""What runs before, after and beside the release: the migration, the declared schedules, `helm test`."""

import ast
import asyncio
import os
import sys
from pathlib import Path

import pytest
import yaml
from sqlalchemy import text

from app.config import Settings
from app.persistence.database import Database
from tests.chart.manifests import (
    WEIGHT,
    annotations,
    as_text,
    container,
    containers,
    environment,
    hooks,
    only,
    pods,
    settings_of,
)
from tests.chart.rendering import CHART, Renderer, Values
from tests.chart.values import CREATED, DEFAULTS, DOCUMENT, EVERYTHING, LEAST, MINIMAL, every_values
from tests.support.api_server import serving
from tests.support.carillon import working
from tests.support.source import parse


@pytest.mark.parametrize("values", [MINIMAL, CREATED, EVERYTHING])
@pytest.mark.parametrize("event", ["pre-install", "pre-upgrade"])
def test_the_migration_comes_after_what_it_needs(render: Renderer, values: Values, event: str) -> None:
    """Account, Secret and network policy first, each lighter than the Job, which is the last."""
    found = hooks(render(values), event)
    assert "Job" == found[-1]["kind"]
    assert [True] * (len(found) - 1) == [
        int(annotations(item)[WEIGHT]) < int(annotations(found[-1])[WEIGHT]) for item in found[:-1]
    ]


@pytest.mark.parametrize("values", [MINIMAL, CREATED, EVERYTHING])
def test_the_migration_needs_nothing_that_comes_later(render: Renderer, values: Values) -> None:
    """The hook runs before the release's objects exist: it refers to hooks and to what was there before."""
    manifests = render(values)
    pod = only(manifests, "Job", "-migrate")["spec"]["template"]["spec"]
    made = {(item["kind"], item["metadata"]["name"]) for item in hooks(manifests, "pre-install")}
    assert ("ServiceAccount", pod["serviceAccountName"]) in made
    assert "configMap" not in as_text([pod])
    later = {item["metadata"]["name"] for item in manifests if item["kind"] == "Secret"} - {name for _, name in made}
    used = {entry.get("valueFrom", {}).get("secretKeyRef", {}).get("name") for entry in pod["containers"][0]["env"]}
    assert set() == later & used


def test_the_migration_has_the_same_settings(render: Renderer) -> None:
    """What the hook is given in place equals the ConfigMap that does not exist yet."""
    manifests = render(EVERYTHING)
    variables = environment(container(manifests, "migrate"))
    settings = settings_of(manifests)
    assert settings == {name: variables[name]["value"] for name in settings}


def test_the_migration_can_be_switched_off(render: Renderer) -> None:
    """Then nothing runs before the release, and every process waits until somebody has migrated."""
    manifests = render(LEAST)
    assert [] == hooks(manifests, "pre-install") + hooks(manifests, "pre-upgrade")
    waiting = [pod["spec"].get("initContainers") for pod in pods(manifests) if pod.get("kind") != "Pod"]
    assert [["migrate", "--wait"]] * 3 == [item[0]["args"] for item in waiting]
    assert {"CARILLON_DATABASE_URL"} == set(environment(waiting[0][0]))


def test_nobody_waits_for_a_migration_that_has_run(render: Renderer) -> None:
    """With the hook there is no container to wait in."""
    assert [] == [pod for pod in pods(render(EVERYTHING)) if "initContainers" in pod["spec"]]


@every_values
def test_jobs_are_hooks_that_can_run_again(render: Renderer, values: Values) -> None:
    """A Job cannot be changed: each is made anew, and one that failed stays to be looked at."""
    for job in (item for item in render(values) if item["kind"] == "Job"):
        assert "before-hook-creation,hook-succeeded" == annotations(job)["helm.sh/hook-delete-policy"]
        assert "Never" == job["spec"]["template"]["spec"]["restartPolicy"]


def test_jobs_end(render: Renderer) -> None:
    """Tries and time are bounded, below helm's own five minutes unless said otherwise."""
    spec = only(render(DEFAULTS), "Job")["spec"]
    assert (3, 280) == (spec["backoffLimit"], spec["activeDeadlineSeconds"])
    assert {(0, 3600)} == {
        (item["spec"]["backoffLimit"], item["spec"]["activeDeadlineSeconds"])
        for item in render(EVERYTHING)
        if item["kind"] == "Job"
    }


def test_schedules_arrive_as_they_were_written(render: Renderer) -> None:
    """A file for each document: large numbers, windows and templates come through unharmed."""
    data = only(render(EVERYTHING), "ConfigMap", "-schedules")["data"]
    assert {"billing.yaml", "reports.yaml"} == set(data)
    assert DOCUMENT == yaml.safe_load(data["billing.yaml"])


def test_schedules_are_applied_after_the_release(render: Renderer) -> None:
    """After every install, upgrade and rollback, from the ConfigMap, with a worker's environment."""
    manifests = render(EVERYTHING)
    for event in ("post-install", "post-upgrade", "post-rollback"):
        assert ["Job"] == [item["kind"] for item in hooks(manifests, event)]
    item, worker = container(manifests, "apply"), container(manifests, "worker")
    assert {"name": "schedules", "mountPath": "/schedules", "readOnly": True} in item["volumeMounts"]
    volumes = only(manifests, "Job", "-schedules")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "schedules", "configMap": {"name": "bells-schedules"}} in volumes
    assert worker["envFrom"] == item["envFrom"]
    assert [entry for entry in worker["env"] if entry["name"] != "CARILLON_METRICS_PORT"] == item["env"]


def test_no_schedules_no_job(render: Renderer) -> None:
    """Without documents there is nothing to apply."""
    assert [] == hooks(render(DEFAULTS), "post-install")


def test_later_values_add_documents(render: Renderer) -> None:
    """Documents have names, so that one file of values adds to another's instead of replacing it."""
    more = ("--set", "schedules.more.namespace=more")
    data = only(render({"schedules": {"billing": DOCUMENT}}, *more), "ConfigMap", "-schedules")["data"]
    assert {"billing.yaml", "more.yaml"} == set(data)


def test_helm_test_asks_the_api(render: Renderer) -> None:
    """A pod that calls the Service, with the admin's token where there is one."""
    manifests = render(EVERYTHING)
    (pod,) = hooks(manifests, "test")
    command = pod["spec"]["containers"][0]["command"]
    assert ["python", "-c"] == command[:2]
    assert ast.dump(parse((CHART / "files" / "test.py").read_text())) == ast.dump(parse(command[2]))
    variables = environment(container(manifests, "test"))
    assert "http://bells.bells.svc:8080" == variables["CARILLON_PUBLIC_URL"]["value"]
    expected = {"CARILLON_PUBLIC_URL", "CARILLON_SCHEDULES_ENABLED"}
    assert expected == set(environment(container(render(LEAST), "test")))


def test_the_log_of_helm_test_can_be_read(render_by_each: Renderer) -> None:
    """A pod that is deleted when it has succeeded has no log: `helm test --logs` would fail with either helm."""
    (pod,) = hooks(render_by_each(MINIMAL), "test")
    assert "before-hook-creation" == annotations(pod)["helm.sh/hook-delete-policy"]


async def test_helm_test_sees_a_schedule_fire(settings: Settings) -> None:
    """The script as it is in the chart, against a real API with a worker; it leaves nothing behind."""
    async with serving(settings) as carillon, working(settings):
        url = str((await carillon.raw("GET", "/health/live")).url).removesuffix("/health/live")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(CHART / "files" / "test.py")),
            env={
                "CARILLON_PUBLIC_URL": url,
                "CARILLON_ADMIN_TOKEN": settings.admin_token,
                "CARILLON_SCHEDULES_ENABLED": "true",
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said = (await process.communicate())[0].decode()
        assert 0 == process.returncode, said
        assert "A schedule fired." in said
        assert [] == (await carillon.call("GET", "/workflows/"))["items"]


def test_every_container_is_known(render: Renderer) -> None:
    """What runs: two processes, four Jobs and a test."""
    expected = {"partitions", "api", "worker", "migrate", "check", "apply", "test"}
    assert expected == {item["name"] for item in containers(render(EVERYTHING))}


@every_values
def test_wrong_input_ends_a_job_at_once(render: Renderer, values: Values) -> None:
    """Exit code 2 fails the Job without another attempt, and an evicted pod is not counted as one."""
    for job in (item for item in render(values) if item["kind"] == "Job"):
        (name,) = [item["name"] for item in job["spec"]["template"]["spec"]["containers"]]
        failing, ignoring = job["spec"]["podFailurePolicy"]["rules"]
        codes = {"containerName": name, "operator": "In", "values": [2]}
        assert {"action": "FailJob", "onExitCodes": codes} == failing
        assert "Ignore" == ignoring["action"]


def test_documents_are_tried_before_anything_changes(render: Renderer) -> None:
    """After the migration a dry run reads the same documents, with hooks alone, while the old pods still run."""
    manifests = render(EVERYTHING)
    for event in ("pre-install", "pre-upgrade"):
        jobs = [item["metadata"]["name"] for item in hooks(manifests, event) if item["kind"] == "Job"]
        assert ["bells-migrate", "bells-schedules-check"] == jobs
    assert [] == hooks(manifests, "pre-rollback")
    documents = [only(manifests, "ConfigMap", name)["data"] for name in ("-schedules", "-schedules-check")]
    assert documents[0] == documents[1]
    pod = only(manifests, "Job", "-schedules-check")["spec"]["template"]["spec"]
    made = {(item["kind"], item["metadata"]["name"]) for item in hooks(manifests, "pre-install")}
    used = {("ConfigMap", volume["configMap"]["name"]) for volume in pod["volumes"] if "configMap" in volume}
    assert used | {("ServiceAccount", pod["serviceAccountName"])} <= made


@pytest.mark.parametrize(("cron", "code"), [("0 2 * * *", 0), ("0 2 31 2 *", 2)])
async def test_the_dry_run_finds_a_refused_document(
    render: Renderer, database: Database, tmp_path: Path, cron: str, code: int
) -> None:
    """Run with the arguments and settings of its container: it needs no Redis, writes nothing, and ends with code 2."""
    schedule = {"name": "nightly", "workflow": "invoice", "cron": cron}
    manifests = render({"schedules": {"billing": {**DOCUMENT, "schedules": [schedule]}}})
    for name, document in only(manifests, "ConfigMap", "-schedules-check")["data"].items():
        (tmp_path / name).write_text(document)
    item = container(manifests, "check")
    given = {name: entry["value"] for name, entry in environment(item).items() if "value" in entry}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app.cli", *(str(tmp_path) if word == "/schedules" else word for word in item["args"])),
        env={**os.environ, **given, "CARILLON_DATABASE_URL": database.url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert code == process.returncode, said.decode()
    assert (code == 0) or b"billing.yaml" in said
    async with database.reading() as connection:
        assert 0 == (await connection.execute(text("SELECT count(*) FROM scheduled_jobs"))).scalar_one()
