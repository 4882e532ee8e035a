"""``/api/v1/workflows`` and ``/api/v1/executions``.

Covers app.api.executions, app.persistence.workflows, app.services.executions, app.services.views.executions,
app.services.workflows.
"""

import msgspec
import pytest
from sqlalchemy import text

from app.persistence.database import Database
from tests.support.carillon import Carillon, Json

TRIGGER = {"id": "start", "type": "trigger_schedule"}
HTTP = {"id": "call", "type": "core.http_request"}


async def test_a_workflow_comes_back_as_it_was_sent(carillon: Carillon) -> None:
    """With defaults filled in."""
    body = {
        "name": "report",
        "nodes": [
            {"id": "start", "type": "trigger_schedule", "config": {}},
            {
                "id": "call",
                "type": "core.http_request",
                "config": {"method": "POST", "url": "http://127.0.0.1:9000/hook", "json": {"a": 1}},
            },
        ],
        "edges": [{"from": "start", "to": "call"}],
    }
    made = await carillon.call("POST", "/workflows/", 201, json=body)
    assert body == {name: made[name] for name in body}
    assert isinstance(made["id"], int)
    assert made["active"]
    assert made == await carillon.call("GET", f"/workflows/{made['id']}/")


@pytest.mark.parametrize(
    ("nodes", "edges", "field"),
    [
        ([TRIGGER, TRIGGER], [], "nodes"),
        ([TRIGGER, {"id": "a", "type": "no.such"}], [], "nodes[1].type"),
        ([TRIGGER], [{"from": "start", "to": "ghost"}], "edges[0].to"),
        ([TRIGGER, {"id": "a", "type": "core.noop"}], [{"from": "a", "to": "a"}], "edges"),
        ([TRIGGER, {"id": "a", "type": "core.http_request"}], [], "nodes[1].config.url"),
        ([TRIGGER, {"id": "a", "type": "core.http_request", "config": {"url": "ftp://x"}}], [], "nodes[1].config.url"),
        (
            [TRIGGER, {"id": "a", "type": "core.http_request", "config": {"url": "http://x", "y": 1}}],
            [],
            "nodes[1].config.y",
        ),
        (
            [
                TRIGGER,
                {"id": "a", "type": "core.http_request", "config": {"url": "http://x", "headers": {"a": "b\r\nc"}}},
            ],
            [],
            "nodes[1].config.headers",
        ),
        ([TRIGGER, {"id": "a", "type": "core.delay", "config": {"seconds": -1}}], [], "nodes[1].config.seconds"),
        (
            [TRIGGER, {**HTTP, "config": {"url": "http://x.test/", "expect_status": []}}],
            [],
            "nodes[1].config.expect_status",
        ),
        ([], [], "nodes"),
        ([{"id": "", "type": "core.noop"}], [], "nodes[0].id"),
        ([TRIGGER], [{"from": "start"}], "edges[0].to"),
    ],
)
async def test_a_bad_graph_is_422_and_named(
    standing: Carillon, nodes: list[Json], edges: list[Json], field: str
) -> None:
    """Cycles, dangling edges, unknown types, duplicate ids, bad configurations."""
    body = {"name": "w", "nodes": nodes, "edges": edges}
    problem = await standing.call("POST", "/workflows/", 422, json=body)
    assert any(error["field"].startswith(field) for error in problem["errors"]), problem


@pytest.mark.parametrize(
    ("config", "field", "message"),
    [
        (
            {"scheduled_job": "x"},
            ".scheduled_job",
            "There is no field 'scheduled_job'. Did you mean 'scheduled_job_id'?",
        ),
        ({"scheduled_job_id": "nightly"}, ".scheduled_job_id", "Expected the id of a schedule (a UUID) or null."),
        (
            {"scheduled_job_id": 5},
            ".scheduled_job_id",
            "Expected the id of a schedule (a UUID) or null, got an integer.",
        ),
        ({"name": ["a"]}, ".name", "Expected a string of at most 255 characters or null, got an array."),
        ({"name": "*" * 256}, ".name", "Expected a string of at most 255 characters or null."),
        ({"name": "a", "on": "schedule"}, ".on", "There is no field 'on'."),
    ],
)
async def test_a_triggers_filters_are_checked(standing: Carillon, config: Json, field: str, message: str) -> None:
    """A misspelt filter would match every schedule."""
    body = {"name": "w", "nodes": [{**TRIGGER, "config": config}]}
    problem = await standing.call("POST", "/workflows/", 422, json=body)
    expected = {"field": f"nodes[0].config{field}", "message": f"Node 'start': {message}"}
    assert [expected] == problem["errors"]


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"scheduled_job_id": None, "name": ""},
        {"scheduled_job_id": ""},
        {"scheduled_job_id": "0198A0C0-0000-7000-8000-000000000001", "name": "report-[0-9]?*"},
    ],
)
async def test_a_triggers_filters_may_be_empty(standing: Carillon, config: Json) -> None:
    """Then they match every schedule."""
    await standing.call("POST", "/workflows/", 201, json={"name": "w", "nodes": [{**TRIGGER, "config": config}]})


async def test_what_an_earlier_release_stored_can_be_changed_elsewhere(carillon: Carillon, database: Database) -> None:
    """Configurations are checked when nodes are written, and only then."""
    log = {"id": "say", "type": "core.log", "config": {"message": "x"}}
    workflow = await carillon.workflow(log)
    old = [{**TRIGGER, "config": {"schedule": "x"}}, {**log, "config": {"message": "{{ nowhere | default(1) }}"}}]
    async with database.transaction() as connection:
        await connection.execute(
            text("UPDATE workflows SET nodes = CAST(:nodes AS jsonb)"), {"nodes": msgspec.json.encode(old).decode()}
        )
    path = f"/workflows/{workflow['id']}/"
    changed = await carillon.call("PATCH", path, json={"name": "other", "edges": []})
    assert ("other", {"schedule": "x"}) == (changed["name"], changed["nodes"][0]["config"])
    problem = await carillon.call("PATCH", path, 422, json={"nodes": old})
    fields = ["nodes[0].config.schedule", "nodes[1].config.message"]
    assert fields == [error["field"] for error in problem["errors"]]


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ payload.x }}", "'payload', which is not known. Known: trigger, schedule, slot, execution, nodes, secret."),
        ("{{ trigger.payload.x | default(event) }}", "'event', which is not known."),
        ("{{ trigger.__class__ }}", "cannot use '__class__'"),
        ("{{ trigger['__init__'] }}", "cannot use '__init__'"),
    ],
)
async def test_a_template_with_a_name_that_cannot_exist_is_refused(
    standing: Carillon, template: str, words: str
) -> None:
    """Members that JSON may have are not."""
    say = {"id": "say", "type": "core.log", "config": {"message": template}}
    problem = await standing.call("POST", "/workflows/", 422, json={"name": "w", "nodes": [TRIGGER, say]})
    assert ["nodes[1].config.message"] == [error["field"] for error in problem["errors"]]
    assert words in problem["errors"][0]["message"]
    say["config"] = {"message": "{{ trigger.payload._links.__typename }} {{ execution.attempt }}"}
    await standing.call("POST", "/workflows/", 201, json={"name": "w", "nodes": [TRIGGER, say]})


async def test_a_change_is_checked_against_the_whole_graph(carillon: Carillon) -> None:
    """New edges with the old nodes."""
    workflow = await carillon.workflow()
    path = f"/workflows/{workflow['id']}/"
    await carillon.call("PATCH", path, 422, json={"edges": [{"from": "start", "to": "ghost"}]})
    changed = await carillon.call("PATCH", path, json={"name": "other", "active": False})
    assert ("other", False, workflow["nodes"]) == (changed["name"], changed["active"], changed["nodes"])


async def test_deleting_a_workflow_deletes_its_schedules(carillon: Carillon) -> None:
    """204."""
    schedule = await carillon.schedule()
    await carillon.call("DELETE", f"/workflows/{schedule['workflow_id']}/", 204)
    await carillon.call("GET", f"/schedules/{schedule['id']}/", 404)
    await carillon.call("GET", f"/workflows/{schedule['workflow_id']}/", 404)


async def test_executions_are_listed_with_filters(carillon: Carillon) -> None:
    """By schedule, workflow and status."""
    first, second = await carillon.schedule(), await carillon.schedule()
    for schedule in (first, second):
        await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    assert 2 == (await carillon.call("GET", "/executions/"))["total"]
    for params in ({"scheduled_job_id": first["id"]}, {"workflow_id": first["workflow_id"]}):
        (only,) = (await carillon.call("GET", "/executions/", params=params))["items"]
        assert first["id"] == only["scheduled_job_id"]
    assert 0 == (await carillon.call("GET", "/executions/", params={"status": "success"}))["total"]


async def test_a_pending_execution_can_be_cancelled_once(carillon: Carillon) -> None:
    """Then it has ended, and says by whom."""
    schedule = await carillon.schedule()
    execution = await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    cancelled = await carillon.call("POST", f"/executions/{execution['id']}/cancel/")
    assert ("cancelled", "Cancelled by admin.") == (cancelled["status"], cancelled["error"])
    problem = await carillon.call("POST", f"/executions/{execution['id']}/cancel/", 400)
    assert "Cannot cancel execution with status 'cancelled'." == problem["detail"]
