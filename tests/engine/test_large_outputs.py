"""Outputs of nodes are bounded wherever they come from."""

from typing import Any
from uuid import UUID

import msgspec
import pytest
from aiohttp import web

from app.config import Settings
from app.domain.workflows import OUTPUT_BYTES
from app.persistence.database import Database
from tests.support.callbacks import Target, call, ended, told
from tests.support.carillon import Carillon, Json, engine_of, http_node, make_due, until, working
from tests.support.http_sink import Sink

LIST = {"id": "work", "type": "scheduler_tools", "config": {"tool": "list_schedules", "arguments": {"limit": 500}}}
AFTER = {"id": "after", "type": "core.log", "config": {"message": "answered {{ nodes.call.output.status }}"}}


def size(value: Any) -> int:
    """In bytes of JSON."""
    return len(msgspec.json.encode(value))


async def outputs_of(
    carillon: Carillon, settings: Settings, database: Database, *nodes: Json
) -> tuple[str, dict[str, Any]]:
    """How a run of these nodes ended, and what each of them left."""
    schedule = await carillon.schedule(await carillon.workflow(*nodes))
    due = await make_due(database, schedule)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    (run,) = await carillon.runs(schedule)
    shown = await carillon.call("GET", f"/executions/{run['id']}/")
    return shown["status"], {node["node_id"]: node["output"] for node in shown["nodes"]}


async def test_a_list_of_schedules_is_cut(carillon: Carillon, settings: Settings, database: Database) -> None:
    """Its first items are there, and it says that there are more."""
    workflow = await carillon.workflow()
    batch = [{"name": f"s{number}", "workflow_id": workflow["id"], "interval_seconds": 300} for number in range(150)]
    await carillon.call("POST", "/schedules/batch/", 201, json={"schedules": batch})
    status, outputs = await outputs_of(carillon, settings, database, LIST)
    assert ("success", True) == (status, outputs["work"]["truncated"])
    assert size(outputs["work"]) <= OUTPUT_BYTES
    assert 10 < len(outputs["work"]["schedules"]) < 150


@pytest.mark.parametrize("character", ["x", "\x01", '"'])
async def test_an_answer_is_cut_as_it_is_kept(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink, character: str
) -> None:
    """Not as it came: as JSON a character may take six bytes. Later nodes see the same."""

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(text=character * 60_000)

    sink.answer = answer
    status, outputs = await outputs_of(carillon, settings, database, http_node(sink.url), AFTER)
    assert ("success", 200) == (status, outputs["call"]["status"])
    assert size(outputs["call"]) <= OUTPUT_BYTES
    assert (character != "x") == outputs["call"]["truncated"]


async def test_what_a_callback_says_is_cut(carillon: Carillon, target: Target, database: Database) -> None:
    """It is an output too."""
    schedule = await carillon.schedule(await carillon.workflow(call("first", target.url)))
    await make_due(database, schedule)

    async def called() -> bool:
        return bool(target.calls)

    async with working(told(carillon)):
        await until(called)
        response = await target.call_back(status="success", output=["y" * 200_000])
        assert 200 == response.status_code, response.text
        (node,) = (await ended(carillon, schedule))["nodes"]
    assert node["output"]["truncated"]
    assert size(node["output"]) <= OUTPUT_BYTES
