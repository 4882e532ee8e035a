"""Clients that are generated from the OpenAPI document: what they are generated from, and a schedule's life by one.

Covers app.api.openapi_examples, app.api.operation_details.
"""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator, FormatChecker

from tests.support.carillon import ADMIN_TOKEN, Carillon, Json
from tests.support.unconnected_api import DOCUMENT

# Programs call these by their names. Every call is listed; a name that is here is never given to another call, and
# never taken away.
OPERATION_IDS = Path(__file__).with_name("operation_ids.txt")


def operations() -> Iterator[tuple[str, Json]]:
    """Every call with its description."""
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_names_of_calls_stay() -> None:
    """Each is its area and a verb; all are published, and still name the same call."""
    calls = {operation["operationId"]: name for name, operation in operations()}
    published = dict(line.split(" ", 1) for line in OPERATION_IDS.read_text().splitlines())
    assert published == calls, f"Names that {OPERATION_IDS.name} lacks or has for another call."
    assert [] == [name for name in calls if not (name.isascii() and name.isidentifier() and "_" in name)]
    assert "POST /api/v1/schedules/{schedule_id}/pause/" == calls["schedules_pause"]


def test_every_call_is_explained() -> None:
    """By a summary, and a description that says who may make it and what its headers do."""
    for name, operation in operations():
        assert operation["summary"].endswith("."), name
        assert operation["description"].endswith("."), name
    pause = DOCUMENT["paths"]["/api/v1/schedules/{schedule_id}/pause/"]["post"]
    assert "Needs the scope `operate`." in pause["description"]
    assert {"schedule_id", "If-Match", "Idempotency-Key"} == {one["name"] for one in pause["parameters"]}
    assert {"409", "412", "422"} <= pause["responses"].keys()
    read = DOCUMENT["paths"]["/api/v1/schedules/{schedule_id}/"]["get"]
    assert ("If-None-Match", True) == (read["parameters"][-1]["name"], "304" in read["responses"])
    secret = DOCUMENT["paths"]["/api/v1/tokens/"]["post"]
    assert "Idempotency-Key" not in {one["name"] for one in secret.get("parameters", ())}


def test_every_body_and_response_has_an_example_that_fits() -> None:
    """By its schema, formats included."""
    wrong = []
    for name, operation in operations():
        contents = [operation.get("requestBody", {}).get("content", {})]
        contents += [response.get("content", {}) for response in operation["responses"].values()]
        for media_type, content in (item for one in contents for item in one.items()):
            validator = Draft202012Validator(
                {**content["schema"], "components": DOCUMENT["components"]}, format_checker=FormatChecker()
            )
            wrong += [(name, media_type, error.message) for error in validator.iter_errors(content["example"])]
    assert [] == wrong


@pytest.fixture(scope="module")
def client_package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """A typed client, generated without a warning."""
    folder = tmp_path_factory.mktemp("generated")
    source = folder / "openapi.json"
    source.write_bytes(msgspec.json.encode(DOCUMENT))
    config = folder / "config.yaml"
    config.write_text("post_hooks: []\n")
    options = ("--path", source, "--config", config, "--output-path", folder / "carillon_client", "--meta", "none")
    command = (sys.executable, "-m", "openapi_python_client", "generate", "--fail-on-warning", *options)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    yield importlib.import_module("carillon_client")
    sys.path.remove(str(folder))


async def test_a_schedule_lives_by_a_generated_client(carillon: Carillon, client_package: ModuleType) -> None:
    """Created by key, changed, paused, run, resumed, listed and deleted: every answer is of its type."""
    name = client_package.__name__
    models: Any = importlib.import_module(f"{name}.models")
    client = client_package.AuthenticatedClient(str(carillon._client.base_url), ADMIN_TOKEN)
    client.set_async_httpx_client(carillon._client)

    async def call(area: str, verb: str, *values: Any, **named: Any) -> Any:
        module: Any = importlib.import_module(f"{name}.api.{area}.{area}_{verb}")
        return await module.asyncio_detailed(*values, client=client, **named)

    carillon._client.headers["Authorization"] = f"Bearer {ADMIN_TOKEN}"
    nodes = [models.NodeInput.from_dict({"id": "start", "type": "trigger_schedule"})]
    workflow = (await call("workflows", "create", body=models.WorkflowInput(name="w", nodes=nodes))).parsed
    body = models.ScheduleInput(name="report", workflow_id=workflow.id, every="1h", max_retries=5)
    made = await call("schedules", "put_by_key", "billing/report", body=body, if_none_match="*")
    assert (201, "report", 5) == (made.status_code, made.parsed.name, made.parsed.max_retries)
    again = await call("schedules", "put_by_key", "billing/report", body=body, if_none_match="*")
    assert (412, "precondition_failed") == (again.status_code, again.parsed.code)
    schedule_id, tag = made.parsed.id, made.headers["etag"]
    known = await call("schedules", "read", schedule_id, if_none_match=tag)
    assert 304 == known.status_code
    changes = models.ScheduleChanges(cron="0 3 * * *", labels=models.ScheduleChangesLabels.from_dict({"env": "prod"}))
    changed = await call("schedules", "change", schedule_id, body=changes, if_match=tag)
    assert ("0 3 * * *", None) == (changed.parsed.cron, changed.parsed.interval_seconds)
    stale = await call("schedules", "pause", schedule_id, if_match=tag)
    assert 412 == stale.status_code
    paused = await call("schedules", "pause", schedule_id, body=models.NoteInput(note="away"))
    assert models.Status.PAUSED == paused.parsed.status
    runs = [await call("schedules", "run", schedule_id, idempotency_key="once") for _ in range(2)]
    assert 1 == len({run.parsed.id for run in runs})
    assert "true" == runs[1].headers["idempotency-replayed"]
    page = (await call("schedules", "list_all", label=["env=prod"], status=models.Status.PAUSED, limit=5)).parsed
    assert [schedule_id] == [item.id for item in page.items]
    assert 200 == (await call("schedules", "resume", schedule_id)).status_code
    assert 204 == (await call("schedules", "remove", schedule_id)).status_code
    gone = await call("schedules", "read", schedule_id)
    assert (404, "not_found") == (gone.status_code, gone.parsed.code)
