"""Runs that change nothing: they are run before their claim, and written with it.

Covers app.engine.fast_ticks, app.engine.runner, app.persistence.fast_path.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from app.config import Settings
from app.engine.runner import _finished
from app.persistence.database import Database
from tests.engine.test_plain_nodes import Firing, firing
from tests.support.carillon import Carillon, Json

NOOP: Json = {"id": "work", "type": "core.noop", "config": {"description": "nothing"}}


def count_ahead(engine: Firing) -> list[bool]:
    """Note for each run that is tried before its claim whether it could be run."""
    noted: list[bool] = []
    runner = engine.engine.runner
    run_ahead = runner.run_ahead

    def noting(*args: Any) -> Any:
        ahead = run_ahead(*args)
        noted.append(ahead is not None)
        return ahead

    # Never undone: the engine is the test's own.
    pytest.MonkeyPatch().setattr(runner, "run_ahead", noting)
    return noted


async def test_a_run_that_changes_nothing_is_written_with_its_claim(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """The first has to read its workflow; after that the account is the same, from one statement."""
    schedule = await carillon.schedule(await carillon.workflow(NOOP))
    settled = []
    async with firing(carillon, settings, database) as engine:
        engine.engine.on_settled = lambda outcome, _settled: settled.append(str(outcome.execution_id))
        ahead = count_ahead(engine)
        runs = [await engine.fire(schedule) for _ in range(3)]
        assert {} == engine.engine.owned
        assert 0 == engine.engine.places.used
    assert [False, True, True] == ahead
    assert [run["id"] for run in runs] == settled
    for run in runs:
        assert ("success", "") == (run["status"], run["error"])
        assert [("work", "success", {"description": "nothing"})] == [
            (node["node_id"], node["status"], node["output"]) for node in run["nodes"]
        ]
        assert run["scheduled_for"] <= run["started_at"] <= run["finished_at"]
    after = await carillon.get(schedule)
    assert (3, 3, 0, 0) == tuple(
        after[name] for name in ("run_count", "current_repeat", "current_retry", "error_count")
    )
    assert (runs[-1]["id"], "success") == (after["last_success_execution_id"], after["last_outcome"])
    outcomes = {(entry["outcome"], entry["execution_id"]) for entry in await carillon.ledger(schedule)}
    assert {("fired", run["id"]) for run in runs} == outcomes
    explained = await carillon.call("GET", f"/schedules/{schedule['id']}/explain/?at={runs[-1]['scheduled_for']}")
    assert "fired" == explained["outcome"]


@pytest.mark.parametrize(
    ("edit", "status"),
    [({"nodes": [{"id": "work", "type": "core.fail", "config": {}}]}, "failed"), ({"active": False}, "failed")],
    ids=["other nodes", "not active"],
)
async def test_an_edit_of_the_workflow_is_obeyed(
    carillon: Carillon, settings: Settings, database: Database, edit: Json, status: str
) -> None:
    """What was run by the old one is dropped."""
    workflow = await carillon.workflow(NOOP)
    schedule = await carillon.schedule(workflow)
    if "nodes" in edit:
        edit = {"nodes": [workflow["nodes"][0], *edit["nodes"]]}
    async with firing(carillon, settings, database) as engine:
        ahead = count_ahead(engine)
        await engine.fire(schedule)
        await engine.fire(schedule)
        await carillon.call("PATCH", f"/workflows/{workflow['id']}/", json=edit)
        run = await engine.fire(schedule)
    assert [False, True, True] == ahead
    assert status == run["status"]
    assert 1 == (await carillon.get(schedule))["error_count"]


async def test_the_last_repeat_ends_the_schedule(carillon: Carillon, settings: Settings, database: Database) -> None:
    """It is no plain success, so that it is claimed and settled."""
    schedule = await carillon.schedule(await carillon.workflow(NOOP), total_repeats=3)
    async with firing(carillon, settings, database) as engine:
        for _ in range(3):
            await engine.fire(schedule)
    after = await carillon.get(schedule)
    assert ("done", "repeat_limit", 3, None) == tuple(
        after[name] for name in ("status", "status_reason", "run_count", "next_run_at")
    )


async def test_an_action_that_waits_although_it_is_declared_as_pure_is_left_to_a_task() -> None:
    """It ends at its first wait; the result of one that does not wait is returned."""
    ended = []

    async def work(*, waits: bool) -> str:
        try:
            if waits:
                await asyncio.sleep(0)
        finally:
            ended.append(waits)
        return "done"

    def result(coroutine: Coroutine[Any, Any, str]) -> str | None:
        return _finished(coroutine)

    assert "done" == result(work(waits=False))
    assert result(work(waits=True)) is None
    assert [False, True] == ended
