"""What a slot does while others run, by three workers on real servers, with runs longer than the interval."""

import asyncio
from datetime import datetime, timedelta
from itertools import pairwise
from uuid import UUID

import pytest
from aiohttp import web
from msgspec.structs import replace

from app.config import Settings
from app.persistence.database import Database
from tests.support.carillon import (
    FAIL,
    Carillon,
    Json,
    engine_of,
    first_slot,
    http_node,
    make_due,
    moment,
    three_workers,
    until,
    working,
)
from tests.support.http_sink import Sink

SECOND = timedelta(seconds=1)


def delay(seconds: float) -> Json:
    """A node that takes so long."""
    return {"id": "work", "type": "core.delay", "config": {"seconds": seconds}}


async def paused(carillon: Carillon, schedule: Json) -> None:
    """Plan nothing more."""
    await carillon.call("POST", f"/schedules/{schedule['id']}/pause/")


async def ended_runs(carillon: Carillon, schedule: Json, count: int, status: str = "success") -> list[Json]:
    """Wait until so many runs have ended like this; they, oldest slot first."""

    async def enough() -> list[Json] | None:
        runs = [run for run in await carillon.runs(schedule) if run["status"] == status]
        return runs if len(runs) >= count else None

    return await until(enough)


def stretches(runs: list[Json]) -> list[tuple[datetime, datetime]]:
    """When each run began and ended, in the order of their beginnings."""
    return sorted((moment(run["started_at"]), moment(run["finished_at"])) for run in runs if run["finished_at"])


def accounted(ledger: list[Json]) -> int:
    """How many slots the ledger accounts for."""
    return sum(item.get("count", 1) for item in ledger)


def expected_slots(ledger: list[Json]) -> int:
    """How many slots of one second lie from the first to the last of the account, counted by hand."""
    first = first_slot(ledger[0])
    last = moment(ledger[-1]["slot"])
    return (last - first) // SECOND + 1


async def test_under_skip_runs_never_overlap(carillon: Carillon, settings: Settings) -> None:
    """Slots that meet a run are skipped, and every slot has one outcome."""
    schedule = await carillon.schedule(await carillon.workflow(delay(1.5)), interval_seconds=1)
    async with three_workers(settings):
        await ended_runs(carillon, schedule, 3)
        await paused(carillon, schedule)
    assert all(end <= start for (_, end), (start, _) in pairwise(stretches(await carillon.runs(schedule))))
    ledger = await carillon.ledger(schedule)
    assert {"fired", "skipped_overlap"} <= {item["outcome"] for item in ledger}
    assert expected_slots(ledger) == accounted(ledger)


async def test_under_queue_runs_follow_each_other_in_the_order_of_their_slots(
    carillon: Carillon, settings: Settings
) -> None:
    """Never two at once; what does not fit into the queue is skipped_queue_full."""
    workflow = await carillon.workflow(delay(1.5))
    schedule = await carillon.schedule(workflow, interval_seconds=1, if_running="queue", max_queued=2)

    async def full() -> bool:
        return any(item["outcome"] == "skipped_queue_full" for item in await carillon.ledger(schedule))

    async with three_workers(settings):
        await until(full)
        await ended_runs(carillon, schedule, 4)
        await paused(carillon, schedule)
    runs = [run for run in await carillon.runs(schedule) if run["started_at"]]
    assert sorted(run["started_at"] for run in runs) == [run["started_at"] for run in runs]
    assert all(end <= start for (_, end), (start, _) in pairwise(stretches(runs)))
    ledger = await carillon.ledger(schedule)
    assert expected_slots(ledger) == accounted(ledger)


async def test_pausing_cancels_what_is_queued(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """Nothing fires while paused; the run that is under way still counts."""
    answered = asyncio.Event()
    sink.hold_until(answered)
    workflow = await carillon.workflow(http_node(sink.url))
    schedule = await carillon.schedule(workflow, interval_seconds=1, if_running="queue", max_queued=2)

    async def both_queued() -> bool:
        return bool(sum(run["status"] == "pending" for run in await carillon.runs(schedule)) == 2)

    async with working(settings):
        await until(both_queued)
        await paused(carillon, schedule)
        answered.set()
        (done,) = await ended_runs(carillon, schedule, 1)
    runs = await carillon.runs(schedule)
    assert ["success", "cancelled", "cancelled"] == [run["status"] for run in runs]
    assert done["id"] == runs[0]["id"]
    assert [None, None] == [run["started_at"] for run in runs[1:]]
    assert 1 == (await carillon.get(schedule))["run_count"]
    missed = [item for item in await carillon.ledger(schedule) if item["outcome"] == "missed"]
    reasons = [item["reason"] for item in missed if item["execution_id"]]
    assert ["The schedule is paused: this run was still waiting."] * 2 == reasons


@pytest.mark.corner("cancel")
async def test_under_cancel_the_newest_wins_and_the_calls_of_the_others_are_dropped(
    carillon: Carillon, settings: Settings, sink: Sink
) -> None:
    """Whoever runs the old one lets go of its HTTP call; the execution says what cancelled it."""
    dropped: list[str] = []

    async def hold(request: web.Request) -> web.StreamResponse:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            dropped.append(request.headers["X-Carillon-Execution"])
            raise
        return web.Response()

    sink.answer = hold
    workflow = await carillon.workflow(http_node(sink.url))
    schedule = await carillon.schedule(workflow, interval_seconds=1, if_running="cancel")

    async def three_dropped() -> bool:
        return len(dropped) >= 3

    async with three_workers(settings):
        await sink.wait_for_calls(4)
        await until(three_dropped)
        await paused(carillon, schedule)
        *old, newest = [run for run in await carillon.runs(schedule) if run["status"] != "pending"]
        assert "running" == newest["status"]
        sink.answer = sink._ok
        await carillon.call("POST", f"/executions/{newest['id']}/cancel/")
    assert {"cancelled"} == {run["status"] for run in old}
    for run, successor in pairwise([*old, newest]):
        assert f"(execution {successor['id']})" in run["error"]
    assert {run["id"] for run in old} >= set(dropped[:3])
    assert (0, 0) == ((await carillon.get(schedule))["error_count"], (await carillon.get(schedule))["current_retry"])


@pytest.mark.corner("repeat_number")
async def test_under_allow_runs_lie_side_by_side(carillon: Carillon, settings: Settings) -> None:
    """The repeat number says how many came before."""
    workflow = await carillon.workflow(delay(2.5))
    schedule = await carillon.schedule(workflow, interval_seconds=1, if_running="allow", total_repeats=4)

    async with three_workers(settings):
        await carillon.until_status(schedule, "done")
    runs = await carillon.runs(schedule)
    assert ["success"] * 4 == [run["status"] for run in runs]
    assert [0, 1, 2, 3] == [run["repeat_number"] for run in runs]
    assert any(start < end for (_, end), (start, _) in pairwise(stretches(runs)))


@pytest.mark.corner("allow")
async def test_under_allow_a_retry_is_an_execution_of_its_own(
    carillon: Carillon, settings: Settings, sink: Sink
) -> None:
    """It does not hold the cadence: other slots fire while it waits."""
    failing: set[str] = set()

    async def fail_the_first(request: web.Request) -> web.StreamResponse:
        slot = request.headers["X-Carillon-Slot"]
        if not failing or (slot in failing and request.headers["X-Carillon-Attempt"] == "1"):
            failing.add(slot)
            return web.Response(status=500)
        return web.Response()

    sink.answer = fail_the_first
    workflow = await carillon.workflow(http_node(sink.url))
    schedule = await carillon.schedule(workflow, interval_seconds=1, if_running="allow", backoff_base_seconds=3)

    async def retried() -> bool:
        return any(run["retry_attempt"] and run["finished_at"] for run in await carillon.runs(schedule))

    async with three_workers(settings):
        await until(retried)
        await paused(carillon, schedule)
    runs = await carillon.runs(schedule)
    slot = next(run["scheduled_for"] for run in runs if run["retry_attempt"])
    first, second = [run for run in runs if run["scheduled_for"] == slot]
    assert ("failed", "success") == (first["status"], second["status"])
    between = [
        run for run in runs if run["started_at"] and first["finished_at"] < run["started_at"] < second["started_at"]
    ]
    assert between
    # A machine that stalls may miss a slot; none is given up for the retry.
    assert {"fired"} <= {item["outcome"] for item in await carillon.ledger(schedule)} <= {"fired", "missed"}


async def test_the_guard_bounds_the_runs_of_all_schedules(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """Never more than max_concurrent_runs at once; the others are skipped_guard."""
    going, most = 0, 0

    async def slow(_request: web.Request) -> web.StreamResponse:
        nonlocal going, most
        going += 1
        most = max(most, going)
        try:
            await asyncio.sleep(1.2)
        finally:
            # Also if the caller hangs up, as one does that hands its work back.
            going -= 1
        return web.Response()

    sink.answer = slow
    workflow = await carillon.workflow(http_node(sink.url), max_concurrent_runs=2)
    schedules = [await carillon.schedule(workflow, interval_seconds=1, if_running="allow") for _ in range(4)]
    async with three_workers(settings):
        await sink.wait_for_calls(6)
        for schedule in schedules:
            await paused(carillon, schedule)
    assert most <= 2
    ledgers = [await carillon.ledger(schedule) for schedule in schedules]
    skipped = [item for ledger in ledgers for item in ledger if item["outcome"] == "skipped_guard"]
    assert skipped
    assert {"2 of 2 concurrent runs of the workflow were under way"} == {item["reason"] for item in skipped}


async def test_the_breaker_opens_probes_once_and_closes(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """Two failures open it; slots are skipped without a retry spent; one probe runs, by three workers; it closes."""
    probing, answered = asyncio.Event(), asyncio.Event()

    async def fail(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=500)

    async def hold(_request: web.Request) -> web.StreamResponse:
        probing.set()
        await answered.wait()
        return web.Response()

    sink.answer = fail
    workflow = await carillon.workflow(http_node(sink.url), breaker_threshold=2, breaker_reset_seconds=2)
    schedules = [
        await carillon.schedule(workflow, interval_seconds=1, max_retries=10, backoff_base_seconds=1) for _ in range(3)
    ]

    async def is_open() -> bool:
        return bool((await carillon.breaker(workflow))["state"] == "open")

    async def refused_beside_the_probe() -> bool:
        ledgers = [await carillon.ledger(schedule) for schedule in schedules]
        return any("is its probe" in item["reason"] for ledger in ledgers for item in ledger)

    async def is_closed() -> bool:
        return bool((await carillon.breaker(workflow))["state"] == "closed")

    async with three_workers(settings):
        await until(is_open)
        sink.answer = hold
        calls = len(sink.calls)
        await asyncio.wait_for(probing.wait(), 60)
        await until(refused_beside_the_probe)
        half_open = await carillon.breaker(workflow)
        assert ("half_open", 1) == (half_open["state"], len(sink.calls) - calls)
        assert half_open["probe_execution_id"] == sink.calls[-1].headers["x-carillon-execution"]
        answered.set()
        await until(is_closed)
        for schedule in schedules:
            await paused(carillon, schedule)
    changes = (await carillon.breaker(workflow))["transitions"]
    states = [(change["from_state"], change["to_state"]) for change in reversed(changes)]
    assert [("closed", "open"), ("open", "half_open"), ("half_open", "closed")] == states
    closed, half, opened = changes
    assert opened["reason"].startswith("2 consecutive failures, the last: Node 'call'")
    assert "the probe succeeded" == closed["reason"]
    assert half["execution_id"] == half_open["probe_execution_id"] == closed["execution_id"]
    skipped = [item for schedule in schedules for item in await carillon.ledger(schedule)]
    assert "skipped_breaker" in {item["outcome"] for item in skipped}


@pytest.mark.corner("run_all")
async def test_run_all_runs_the_newest_hundred_in_order(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """1,000 minutes down at 5: exactly 100 run, one after another, and the other 100 are missed."""
    schedule = await carillon.schedule(catch_up="run_all")
    await make_due(database, schedule, 995 * 60 + 120)
    async with three_workers(settings):
        runs = await ended_runs(carillon, schedule, 100)
    assert 100 == len(runs) == len(await carillon.runs(schedule))
    assert {"catch_up"} == {run["trigger"] for run in runs}
    assert all(end <= start for (_, end), (start, _) in pairwise(stretches(runs)))
    assert sorted(run["started_at"] for run in runs) == [run["started_at"] for run in runs]
    missed, *fired = await carillon.ledger(schedule)
    assert ("missed", 100) == (missed["outcome"], missed["count"])
    assert ["fired"] * 100 == [item["outcome"] for item in fired]
    after = await carillon.get(schedule)
    assert (100, 100) == (after["run_count"], after["current_repeat"])


async def test_run_once_runs_the_latest_and_coalesces_the_others(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """20 minutes down at 5."""
    schedule = await carillon.schedule(catch_up="run_once")
    await make_due(database, schedule, 15 * 60 + 120)
    async with working(settings):
        (run,) = await ended_runs(carillon, schedule, 1)
    coalesced, fired = await carillon.ledger(schedule)
    assert [("coalesced", 3), ("fired", 1)] == [(item["outcome"], item.get("count", 1)) for item in (coalesced, fired)]
    assert (run["id"], "catch_up") == (fired["execution_id"], run["trigger"])
    assert moment(coalesced["to"]) + 300 * SECOND == moment(run["scheduled_for"])


@pytest.mark.corner("queue")
async def test_a_failing_chain_stops_when_the_schedule_dies(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """What is queued is cancelled."""
    workflow = await carillon.workflow(FAIL)
    schedule = await carillon.schedule(workflow, catch_up="run_all", max_retries=0)
    await make_due(database, schedule, 15 * 60 + 120)

    async with working(settings):
        await carillon.until_status(schedule, "dead")
    runs = await carillon.runs(schedule)
    assert ["failed", "cancelled", "cancelled", "cancelled"] == [run["status"] for run in runs]


async def test_a_run_that_an_open_breaker_stops_in_the_queue_is_cancelled(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """Catching up respects a breaker that opens on the way."""
    workflow = await carillon.workflow(FAIL, breaker_threshold=1, breaker_reset_seconds=3600)
    schedule = await carillon.schedule(workflow, catch_up="run_all", backoff_base_seconds=1)
    await make_due(database, schedule, 15 * 60 + 120)

    async def all_ended() -> bool:
        runs = await carillon.runs(schedule)
        return len(runs) == 4 and all(run["finished_at"] for run in runs)

    async with working(settings):
        await until(all_ended)
    runs = await carillon.runs(schedule)
    assert ["failed", "cancelled", "cancelled", "cancelled"] == [run["status"] for run in runs]
    assert runs[1]["error"].startswith("Cancelled before it ran: the breaker is open until ")
    after = await carillon.get(schedule)
    assert ("active", 1, 1) == (after["status"], after["error_count"], after["current_retry"])
    assert ["fired"] + ["skipped_breaker"] * 3 == [item["outcome"] for item in await carillon.ledger(schedule)]


@pytest.mark.corner("manual run")
async def test_a_manual_run_takes_its_turn(carillon: Carillon, settings: Settings) -> None:
    """Under queue it waits, and 409 when the queue is full; an override lets it run beside, or cancel."""
    workflow = await carillon.workflow(delay(600))
    schedule = await carillon.schedule(workflow, if_running="queue")
    path = f"/schedules/{schedule['id']}/run/"

    async def running() -> bool:
        return bool((await carillon.runs(schedule))[0]["status"] == "running")

    async with working(settings):
        first = await carillon.call("POST", path, 202)
        await until(running)
        second = await carillon.call("POST", path, 202)
        await carillon.call("POST", path, 409)
        assert "pending" == (await carillon.call("GET", f"/executions/{second['id']}/"))["status"]
        third = await carillon.call("POST", path, 202, json={"if_running": "cancel"})
        ended = {run["id"]: run for run in await carillon.runs(schedule) if run["finished_at"]}
        assert {first["id"], second["id"]} == ended.keys()
        assert "Cancelled by a manual run of admin." == ended[first["id"]]["error"]
        await carillon.call("POST", f"/executions/{third['id']}/cancel/")


@pytest.mark.corner("switched off globally")
async def test_where_schedules_are_not_enabled_slots_are_missed(carillon: Carillon, settings: Settings) -> None:
    """By CARILLON_SCHEDULES_ENABLED; a manual run is still one."""
    schedule = await carillon.schedule(interval_seconds=1, catch_up="run_all")

    async def missed() -> bool:
        return len(await carillon.ledger(schedule)) >= 2

    async with working(replace(settings, schedules_enabled=False)):
        await until(missed)
        await paused(carillon, schedule)
        await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)
        await ended_runs(carillon, schedule, 1)
    *others, newest = await carillon.ledger(schedule)
    assert {("missed", "disabled")} == {(one["outcome"], one["reason"]) for one in others}
    # The pause may have come while it was due.
    assert newest["reason"] in ("disabled", "the schedule was changed or ended before it fired")


@pytest.mark.corner("DELETE")
async def test_deleting_a_schedule_drops_what_it_runs(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """The call is let go of, and the late word of its end finds nothing."""
    dropped = asyncio.Event()

    async def hold(_request: web.Request) -> web.StreamResponse:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            dropped.set()
            raise
        return web.Response()

    sink.answer = hold
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url)), interval_seconds=1)
    async with working(settings):
        (call,) = (await sink.wait_for_calls(1))[:1]
        await carillon.call("DELETE", f"/schedules/{schedule['id']}/", 204)
        await asyncio.wait_for(dropped.wait(), 60)
    await carillon.call("GET", f"/executions/{call.headers['x-carillon-execution']}/", 404)
    await carillon.call("GET", f"/schedules/{schedule['id']}/", 404)


async def test_what_is_queued_keeps_its_turn_when_the_policy_changes(
    carillon: Carillon, settings: Settings, sink: Sink
) -> None:
    """Under allow, too, it does not begin beside what it was queued behind, and no slot fails for it."""
    answered = asyncio.Event()
    sink.hold_until(answered)
    workflow = await carillon.workflow(http_node(sink.url))
    schedule = await carillon.schedule(workflow, interval_seconds=1, if_running="queue")

    async def waits() -> bool:
        return any(run["status"] == "pending" for run in await carillon.runs(schedule))

    async with three_workers(settings):
        await sink.wait_for_calls(1)
        await until(waits)
        await carillon.call("PATCH", f"/schedules/{schedule['id']}/", json={"if_running": "allow"})
        await sink.wait_for_calls(3)
        runs = await carillon.runs(schedule)
        assert ["running", "pending", "running"] == [run["status"] for run in runs[:3]]
        await paused(carillon, schedule)
        answered.set()
        await ended_runs(carillon, schedule, 3)


async def test_a_manual_run_that_is_queued_under_allow_waits_for_all(
    carillon: Carillon, settings: Settings, sink: Sink
) -> None:
    """Slots go on side by side meanwhile."""
    answered = asyncio.Event()
    sink.hold_until(answered)
    workflow = await carillon.workflow(http_node(sink.url))
    schedule = await carillon.schedule(workflow, interval_seconds=1, if_running="allow")
    path = f"/schedules/{schedule['id']}/run/"
    async with working(settings):
        await carillon.call("POST", path, 202, json={"if_running": "queue"})
        await sink.wait_for_calls(1)
        second = await carillon.call("POST", path, 202, json={"if_running": "queue"})
        await sink.wait_for_calls(4)
        assert "pending" == (await carillon.call("GET", f"/executions/{second['id']}/"))["status"]
        await paused(carillon, schedule)
        answered.set()

        async def ran() -> bool:
            return bool((await carillon.call("GET", f"/executions/{second['id']}/"))["status"] == "success")

        await until(ran)
    assert {"fired"} == {item["outcome"] for item in await carillon.ledger(schedule)}


async def test_a_retry_beside_the_cadence_does_not_start_while_paused(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """Nor does anything else that has not begun: nothing fires while paused."""
    schedule = await carillon.schedule(await carillon.workflow(FAIL), if_running="allow", backoff_base_seconds=1)
    due = await make_due(database, schedule)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
        failed, retry = await carillon.runs(schedule)
        assert ("failed", "pending", 1) == (failed["status"], retry["status"], retry["retry_attempt"])
        await paused(carillon, schedule)
        await engine.run_execution(UUID(retry["id"]), 1)
    _, retry = await carillon.runs(schedule)
    assert ("cancelled", None) == (retry["status"], retry["started_at"])
