"""Backfills from the request to the ledger: progress, former outcomes, workers that die, cancelling.

Covers app.services.backfills, app.persistence.backfills, app.engine.backfills.
"""

from datetime import timedelta
from uuid import UUID

import pytest

from app import clock
from app.config import Settings
from app.domain.limits import DEFAULT_CAPS
from app.domain.trigger_event import rfc3339
from app.engine import backfills
from app.engine.bulk_operations import OperationRunner
from app.engine.ringing import Ringer
from app.persistence.database import Database
from app.persistence.sql_batches import fetch
from app.queue.bell import Bell, RedisPool
from tests.api.test_agent_leases import lease_of
from tests.support.carillon import Carillon, Json, engine_of, make_due, moment, until, working

# A schedule whose anchor was moved into the past was created before that, by its history too.
AGED = (
    "UPDATE scheduled_jobs SET created_at = anchor_at",
    (
        "UPDATE schedule_revisions AS r SET at = j.anchor_at, snapshot = r.snapshot || "
        "jsonb_build_object('anchor_at', j.anchor_at) FROM scheduled_jobs AS j WHERE j.id = r.scheduled_job_id"
    ),
)
AGAIN = "UPDATE operations SET starts_at = NULL"


@pytest.fixture
def runner(database: Database, redis: RedisPool) -> OperationRunner:
    """What a worker runs in a loop, step by step in the test's hands."""
    return OperationRunner(database, Ringer(Bell(redis)), DEFAULT_CAPS)


def last_hour(schedule: Json) -> Json:
    """The hour before a schedule was created: at 300 s, 12 slots."""
    end = moment(schedule["created_at"])
    return {"from": rfc3339(end - timedelta(hours=1)), "to": rfc3339(end)}


async def backfill(carillon: Carillon, schedule: Json, body: Json, expected: int = 202) -> Json:
    """Start a backfill, or try it out."""
    answer: Json = await carillon.call("POST", f"/schedules/{schedule['id']}/backfill/", expected, json=body)
    return answer


async def step(runner: OperationRunner, database: Database) -> None:
    """Do the next step of a backfill at once."""
    async with database.transaction() as connection:
        await fetch(connection, AGAIN)
    assert await runner.run_batch(100)


async def pending(database: Database) -> list[tuple[UUID, int]]:
    """Return the runs that wait to start."""
    async with database.transaction() as connection:
        rows = await fetch(connection, "SELECT id, token FROM active_executions WHERE status = 'pending' ORDER BY id")
    return [(row["id"], row["token"]) for row in rows]


async def test_slots_before_the_creation_run_and_the_schedule_stays_as_it_was(
    carillon: Carillon, settings: Settings
) -> None:
    """Each once, with its trigger and its place in the ledger; a second backfill finds nothing to do."""
    schedule = await carillon.schedule()
    span = last_hour(schedule)
    tried = await backfill(carillon, schedule, {**span, "dry_run": True}, 200)
    assert (12, 12, {"not_expected"}) == (
        *(tried["count"], len(tried["slots"])),
        {slot["outcome"] for slot in tried["slots"]},
    )
    assert tried["estimate_seconds"] > 0
    started = await backfill(carillon, schedule, {**span, "max_concurrent": 5, "note": "why"})
    assert ("backfill", "running", 12) == (started["action"], started["status"], started["total"])
    async with working(settings):

        async def ended() -> Json | None:
            shown: Json = await carillon.call("GET", f"/operations/{started['id']}/")
            return shown if shown["status"] != "running" else None

        done = await until(ended)
    assert ("done", 12, 0, False) == (done["status"], done["done"], done["failed"], done["undoable"])
    runs = await carillon.runs(schedule)
    slots = [slot["slot"] for slot in tried["slots"]]
    assert ([*slots], {"backfill"}) == (sorted(run["scheduled_for"] for run in runs), {run["trigger"] for run in runs})
    items = await carillon.ledger(schedule)
    assert [("fired", "not_expected")] * 12 == [(item["outcome"], item["former_outcome"]) for item in items]
    shown = await carillon.call("GET", f"/schedules/{schedule['id']}/slots/", params={"ahead": 0})
    assert [("fired", "backfill", "success")] * 12 == [
        (item["outcome"], item["trigger"], item["status"]) for item in shown["items"]
    ]
    after = await carillon.get(schedule)
    names = ("run_count", "current_repeat", "next_slot", "last_run_at", "last_outcome", "status")
    assert [schedule[name] for name in names] == [after[name] for name in names]
    assert 0 == (await backfill(carillon, schedule, {**span, "dry_run": True}, 200))["count"]
    assert 12 == (await backfill(carillon, schedule, {**span, "only": "all", "dry_run": True}, 200))["count"]


async def test_a_missed_slot_keeps_its_former_outcome(
    carillon: Carillon, settings: Settings, database: Database, runner: OperationRunner
) -> None:
    """The dry run says why it did not run; afterwards the ledger and the explanation say both."""
    schedule = await carillon.schedule(misfire_grace_seconds=0)
    due = await make_due(database, schedule, 200)
    async with database.transaction() as connection:
        for statement in AGED:
            await fetch(connection, statement)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
        (missed,) = await carillon.ledger(schedule)
        span = {"from": missed["slot"], "to": rfc3339(clock.now())}
        tried = await backfill(carillon, schedule, {**span, "dry_run": True}, 200)
        assert [(missed["slot"], "missed")] == [(slot["slot"], slot["outcome"]) for slot in tried["slots"]]
        started = await backfill(carillon, schedule, span)
        await step(runner, database)
        ((run_id, token),) = await pending(database)
        await engine.run_execution(run_id, token)
    await step(runner, database)
    done = await carillon.call("GET", f"/operations/{started['id']}/")
    assert ("done", 1) == (done["status"], done["done"])
    (item,) = await carillon.ledger(schedule)
    assert ("fired", "missed", str(run_id)) == (item["outcome"], item["former_outcome"], item["execution_id"])
    explained = await carillon.explain(schedule, missed["slot"])
    assert "fired" == explained["outcome"]
    assert "did not fire (missed)" in explained["sentence"]
    assert f"A backfill ran it at {(await carillon.runs(schedule))[0]['started_at']}" in explained["sentence"]


async def test_a_run_whose_worker_died_is_started_again_and_cancelling_ends_the_rest(
    carillon: Carillon, database: Database, runner: OperationRunner
) -> None:
    """For the same slot, in its place. What has not begun is called off, and can be backfilled again."""
    schedule = await carillon.schedule()
    started = await backfill(carillon, schedule, {**last_hour(schedule), "max_concurrent": 2, "order": "newest"})
    await step(runner, database)
    await step(runner, database)
    first, second = await pending(database)
    async with database.transaction() as connection:
        lose = (
            "UPDATE workflow_executions SET status = 'lost', started_at = clock_timestamp(), "
            "finished_at = clock_timestamp() WHERE id = $1 RETURNING scheduled_for"
        )
        (row,) = await fetch(connection, lose, first[0])
    await step(runner, database)
    waiting = await pending(database)
    assert (2, True, False) == (len(waiting), second in waiting, first in waiting)
    again = next(run_id for run_id, _ in waiting if run_id != second[0])
    shown = await carillon.call("GET", f"/executions/{again}/")
    assert (row["scheduled_for"], 1) == (moment(shown["scheduled_for"]), shown["retry_attempt"])
    assert "cancelled" == (await carillon.call("POST", f"/operations/{started['id']}/cancel/"))["status"]
    assert [] == await pending(database)
    tried = await backfill(carillon, schedule, {**last_hour(schedule), "dry_run": True}, 200)
    assert 12 == tried["count"]


async def test_spans_that_cannot_be_backfilled_are_refused(standing: Carillon) -> None:
    """Without an end, turned round, in the future, or with too many slots."""
    schedule = await standing.schedule(interval_seconds=1)
    day = "2026-01-02T00:00:00Z"
    wrong: list[tuple[str, Json]] = [
        ("to", {"from": day}),
        ("to", {"from": day, "to": "2026-01-01T00:00:00Z"}),
        ("from", {"from": "2090-01-01T00:00:00Z", "to": "2090-01-02T00:00:00Z"}),
        ("to", {"from": "2025-12-30T00:00:00Z", "to": day}),
        ("rate", {"from": day, "to": day, "rate": "fast"}),
        ("max_concurrent", {"from": day, "to": day, "max_concurrent": 0}),
    ]
    for field, body in wrong:
        refused = await backfill(standing, schedule, body, 422)
        assert [field] == [error["field"] for error in refused["errors"]], body


async def test_runs_of_a_backfill_count_against_the_lease(
    carillon: Carillon, database: Database, runner: OperationRunner
) -> None:
    """It is refused if there are too few; each run is charged when it starts, and without any left it fails."""
    lease, agent = await lease_of(carillon, max_runs=20)
    schedule = await agent.schedule(await carillon.workflow(), total_repeats=5)
    path = f"/leases/{lease['id']}/"
    await carillon.call("PATCH", path, json={"max_runs": 16})
    for dry_run in (True, False):
        refused = await backfill(carillon, schedule, {**last_hour(schedule), "dry_run": dry_run}, 409)
        assert ("lease_exhausted", 11) == (refused["code"], refused["left"]["runs"])
    await carillon.call("PATCH", path, json={"max_runs": 20})
    operation = await backfill(carillon, schedule, {**last_hour(schedule), "max_concurrent": 5})
    await step(runner, database)
    assert (5, 10) == (len(await pending(database)), (await carillon.call("GET", path))["left"]["runs"])
    await carillon.call("PATCH", path, json={"max_runs": 11})
    for left in (1, 0):
        for run_id, _ in await pending(database):
            await carillon.call("POST", f"/executions/{run_id}/cancel/")
        await step(runner, database)
        assert (left, 0) == (len(await pending(database)), (await carillon.call("GET", path))["left"]["runs"])
    ended = await carillon.call("GET", f"/operations/{operation['id']}/")
    assert ("failed", 6, True) == (ended["status"], ended["failed"], "has no runs left" in ended["error"])


async def test_a_backfill_that_needs_no_more_runs_does_not_miss_them(
    carillon: Carillon, settings: Settings, database: Database, runner: OperationRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last run of the lease was its last, and slots behind it have run already."""
    monkeypatch.setattr(backfills, "SLOTS_PER_STEP", 4)
    lease, agent = await lease_of(carillon, max_runs=17)
    schedule = await agent.schedule(await carillon.workflow(), total_repeats=5)
    whole = last_hour(schedule)
    middle = rfc3339(moment(whole["from"]) + timedelta(minutes=29))

    async def carry_out(body: Json) -> Json:
        shown = await backfill(carillon, schedule, {**body, "max_concurrent": 12})
        while shown["status"] == "running":
            await step(runner, database)
            async with engine_of(settings) as engine:
                for run_id, token in await pending(database):
                    await engine.run_execution(run_id, token)
            shown = await carillon.call("GET", f"/operations/{shown['id']}/")
        return shown

    assert "done" == (await carry_out({**whole, "from": middle}))["status"]
    done = await carry_out(whole)
    assert ("done", "", 0) == (
        *(done["status"], done["error"]),
        (await carillon.call("GET", f"/leases/{lease['id']}/"))["left"]["runs"],
    )
