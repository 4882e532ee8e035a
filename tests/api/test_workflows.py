"""``/api/v1/workflows`` and ``/api/v1/executions``.

Covers app.api.executions, app.persistence.workflows, app.services.executions, app.services.views.executions,
app.services.workflows.
"""

import pytest

from tests.support.carillon import Carillon, Json

TRIGGER = {"id": "start", "type": "trigger_schedule"}


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
