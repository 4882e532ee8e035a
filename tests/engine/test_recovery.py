"""What goes astray is set going again, by workers in this process on real servers.

Covers app.engine.leases, app.engine.worker_runtime, app.persistence.leases, app.persistence.recovery.
"""

import asyncio
import signal
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from aiohttp import web
from msgspec.structs import replace
from sqlalchemy import text

from app.config import Settings
from app.domain.ticks import Tick
from app.embedded import EmbeddedValkey
from app.persistence.claim import claim
from app.persistence.database import Database
from app.queue.bell import RedisPool
from app.queue.message_format import QUEUE
from app.wiring import wire_worker
from tests.support.api_server import serving
from tests.support.carillon import Carillon, Json, engine_of, first_slot, http_node, last_slot, make_due, until, working
from tests.support.http_sink import Sink

NOWHERE = "unix:///nowhere/valkey.sock"


async def fired_after(carillon: Carillon, schedule: Json, moment: datetime) -> list[Json] | None:
    """Its runs for slots after a moment."""
    runs = await carillon.runs(schedule)
    return [run for run in runs if datetime.fromisoformat(run["scheduled_for"]) > moment] or None


async def latest_slot(carillon: Carillon, schedule: Json) -> datetime:
    """The slot of its latest run."""
    return datetime.fromisoformat((await carillon.runs(schedule))[-1]["scheduled_for"])


def no_slot_twice(ledger: list[Json], interval: int) -> None:
    """Every slot from the first to the last is accounted for exactly once."""
    slots: list[datetime] = []
    for item in ledger:
        last = last_slot(item)
        count = item.get("count", 1)
        slots += [last - timedelta(seconds=interval) * k for k in range(count)]
    slots.sort()
    assert [slots[0] + timedelta(seconds=interval) * k for k in range(len(slots))] == slots


async def test_schedules_fire_on_their_cadence(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """Anchored at creation, each slot exactly one interval after the other."""
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url)), interval_seconds=1)
    async with working(settings):
        await sink.wait_for_calls(3)
    first = datetime.fromisoformat(schedule["created_at"]) + timedelta(seconds=1)
    ledger = await carillon.ledger(schedule)
    assert first == first_slot(ledger[0])
    no_slot_twice(ledger, 1)


async def test_a_run_longer_than_the_interval_skips_the_slots_in_between(
    carillon: Carillon, settings: Settings
) -> None:
    """They are skipped_overlap and name the run; the chain goes on and the counters know only of the runs."""
    delay = {"id": "work", "type": "core.delay", "config": {"seconds": 2.5}}
    schedule = await carillon.schedule(await carillon.workflow(delay), interval_seconds=1)
    async with working(settings):

        async def two_runs() -> bool:
            return bool((await carillon.get(schedule))["run_count"] >= 2)

        await until(two_runs)
        await carillon.call("POST", f"/schedules/{schedule['id']}/pause/")
    ledger = await carillon.ledger(schedule)
    runs = {run["id"] for run in await carillon.runs(schedule)}
    skipped = [item for item in ledger if item["outcome"] == "skipped_overlap"]
    assert len(skipped) >= 2
    assert {item["execution_id"] for item in skipped} <= runs
    no_slot_twice(ledger, 1)
    assert 0 == (await carillon.get(schedule))["error_count"]


async def test_pause_and_resume_fires_once_one_interval_from_then(
    carillon: Carillon, settings: Settings, sink: Sink
) -> None:
    """Not at the old time."""
    workflow = await carillon.workflow(http_node(sink.url))
    schedule = await carillon.schedule(workflow, interval_seconds=2, total_repeats=1)
    path = f"/schedules/{schedule['id']}"
    async with working(settings):
        await carillon.call("POST", f"{path}/pause/")
        resumed = await carillon.call("POST", f"{path}/resume/")

        await carillon.until_status(schedule, "done")
    (run,) = await carillon.runs(schedule)
    assert resumed["next_run_at"] == run["scheduled_for"]
    assert 1 == len(sink.calls)


async def test_recovery_counts_what_was_missed(carillon: Carillon, settings: Settings, database: Database) -> None:
    """Active schedules whose time has passed, and no others."""
    overdue = [await carillon.schedule() for _ in range(2)]
    await carillon.schedule()
    for schedule in overdue:
        await make_due(database, schedule)
    async with wire_worker(settings) as parts:
        assert 2 == await parts.reconciler.recover_scheduled_jobs()


async def test_after_a_flush_everything_is_rung_again(carillon: Carillon, settings: Settings, redis: RedisPool) -> None:
    """Under the same ids, and then the epoch begins."""
    made = [await carillon.schedule() for _ in range(3)]
    names = set(await redis.zrange(QUEUE, 0, -1))
    assert 3 == len(names)
    await redis.flushall()
    async with wire_worker(settings) as parts:
        assert 3 == (await parts.reconciler.run_once()).rung
        assert names == set(await redis.zrange(QUEUE, 0, -1))
        assert 0 == (await parts.reconciler.run_once()).rung
    assert {one["id"] for one in made} == {name.decode()[6:42] for name in names}


async def test_a_flush_under_load_stops_nobody(carillon: Carillon, settings: Settings, redis: RedisPool) -> None:
    """Every schedule fires again, without a restart."""
    workflow = await carillon.workflow()
    made = [await carillon.schedule(workflow, interval_seconds=1) for _ in range(10)]
    async with working(settings):
        for schedule in made:
            await until(partial(carillon.runs, schedule))
        await redis.flushall()
        flushed = max([await latest_slot(carillon, schedule) for schedule in made])
        for schedule in made:
            await until(partial(fired_after, carillon, schedule, flushed))
    for schedule in made:
        no_slot_twice(await carillon.ledger(schedule), 1)


async def test_without_redis_schedules_fire_from_postgres(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """Manual runs too."""
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url)), interval_seconds=1)
    async with working(replace(settings, redis_url=NOWHERE)):
        await sink.wait_for_calls(2)
        other = await carillon.schedule(await carillon.workflow(http_node(f"{sink.url}/manual")))
        await carillon.call("POST", f"/schedules/{other['id']}/run/", 202)

        async def arrived() -> bool:
            return any(call.path == "/manual" for call in sink.calls)

        await until(arrived)
    no_slot_twice(await carillon.ledger(schedule), 1)


async def test_a_redis_that_stops_and_comes_back_loses_nothing(
    carillon: Carillon, settings: Settings, tmp_path: Path
) -> None:
    """The worker survives, goes on firing meanwhile, and returns to the bell."""
    valkey = EmbeddedValkey(tmp_path / "valkey")
    valkey.start()
    try:
        schedule = await carillon.schedule(interval_seconds=1)
        async with working(replace(settings, redis_url=valkey.url)):
            await until(lambda: carillon.runs(schedule))
            valkey.process.kill()
            valkey.process.wait()
            gone = await latest_slot(carillon, schedule)
            during = await until(lambda: fired_after(carillon, schedule, gone + timedelta(seconds=2)))
            made = await carillon.schedule(interval_seconds=1)
            valkey.start()
            back = datetime.fromisoformat(during[-1]["scheduled_for"])
            await until(lambda: fired_after(carillon, schedule, back + timedelta(seconds=2)))
            await until(lambda: carillon.runs(made))
        no_slot_twice(await carillon.ledger(schedule), 1)
    finally:
        valkey.stop()


@pytest.mark.corner("lost")
async def test_the_execution_of_a_dead_worker_is_lost_and_retried(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """Once its lease has run out; it counts as a failed attempt of its slot, and the retry succeeds.

    How soon it is found is checked by the simulation, whose clock does not depend on the machine.
    """
    schedule = await carillon.schedule(interval_seconds=1, backoff_base_seconds=1)
    due = await make_due(database, schedule)
    async with engine_of(settings, lease_seconds=0.5) as dead:
        # Claimed, and then never heard of again.
        await claim(database, [Tick(UUID(schedule["id"]), due["generation"])], dead._lease.worker_id)
    async with working(settings):

        async def retried() -> bool:
            return bool((await carillon.get(schedule))["run_count"] >= 1)

        await until(retried)
    lost, retry = (await carillon.runs(schedule))[:2]
    assert ("lost", 0) == (lost["status"], lost["retry_attempt"])
    assert "stopped renewing its lease" in lost["error"]
    assert ("success", 1, lost["scheduled_for"]) == (retry["status"], retry["retry_attempt"], retry["scheduled_for"])
    assert 1 == (await carillon.get(schedule))["error_count"]


async def test_an_execution_that_nobody_works_on_is_handed_back(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """A claim whose answer was lost: its own worker notices that it knows nothing of it."""
    schedule = await carillon.schedule()
    due = await make_due(database, schedule)
    async with wire_worker(replace(settings, lease_seconds=3)) as parts:
        await parts.runtime.begin()
        await claim(database, [Tick(UUID(schedule["id"]), due["generation"])], parts.runtime._lease.worker_id)

        async def pending() -> bool:
            return bool((await carillon.runs(schedule))[0]["status"] == "pending")

        await until(pending)
        await parts.runtime.end(0)


@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_a_run_that_is_called_off_is_really_dropped(
    carillon: Carillon, settings: Settings, sink: Sink, how: str
) -> None:
    """The HTTP call ends, whether its execution is cancelled or its schedule deleted."""
    dropped = asyncio.Event()

    async def hang(_request: web.Request) -> web.StreamResponse:
        try:
            await asyncio.Event().wait()
        finally:
            dropped.set()
        return web.Response()

    sink.answer = hang
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url)))
    execution = await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    async with working(settings):
        await sink.wait_for_calls(1)
        if how == "cancel":
            cancelled = await carillon.call("POST", f"/executions/{execution['id']}/cancel/")
            assert "cancelled" == cancelled["status"]
        else:
            await carillon.call("DELETE", f"/schedules/{schedule['id']}/", 204)
        await asyncio.wait_for(dropped.wait(), 60)
    if how == "cancel":
        assert "cancelled" == (await carillon.call("GET", f"/executions/{execution['id']}/"))["status"]


@pytest.mark.corner("drain")
async def test_a_drained_worker_hands_its_work_back(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """The same execution goes on elsewhere, the attempt unchanged, no retry spent."""
    release = asyncio.Event()

    async def first_hangs(_request: web.Request) -> web.StreamResponse:
        if len(sink.calls) == 1:
            with suppress(asyncio.CancelledError):
                await release.wait()
        return web.Response()

    sink.answer = first_hangs
    schedule = await carillon.schedule(
        await carillon.workflow(http_node(sink.url)), interval_seconds=1, total_repeats=1
    )
    async with working(replace(settings, drain_seconds=0.1)):
        await sink.wait_for_calls(1)
    (run,) = await carillon.runs(schedule)
    assert ("pending", 0) == (run["status"], run["retry_attempt"])
    release.set()
    async with working(settings):
        await carillon.until_status(schedule, "done")
    (run,) = await carillon.runs(schedule)
    assert ("success", 0) == (run["status"], run["retry_attempt"])
    assert 0 == (await carillon.get(schedule))["error_count"]
    assert 1 == len({call.headers["idempotency-key"] for call in sink.calls})


async def test_three_workers_share_the_work_and_double_nothing(
    carillon: Carillon, settings: Settings, sink: Sink
) -> None:
    """Each slot arrives once, whoever handles it."""
    workflow = await carillon.workflow(http_node(sink.url))
    made = [await carillon.schedule(workflow, interval_seconds=1) for _ in range(10)]
    async with working(settings), working(settings), working(settings):
        await sink.wait_for_calls(40)
        for schedule in made:
            await carillon.call("POST", f"/schedules/{schedule['id']}/pause/")
    fires = [(call.headers["x-carillon-schedule"], call.headers["x-carillon-slot"]) for call in sink.calls]
    assert len(fires) == len(set(fires))
    for schedule in made:
        no_slot_twice(await carillon.ledger(schedule), 1)
        after = await carillon.get(schedule)
        runs = await carillon.runs(schedule)
        assert len([run for run in runs if run["status"] == "success"]) == after["run_count"]


async def test_an_edited_interval_moves_the_tick_that_is_queued(
    carillon: Carillon, settings: Settings, sink: Sink
) -> None:
    """From far away to soon."""
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url)), interval_seconds=3600)
    async with working(settings):
        await carillon.call("PATCH", f"/schedules/{schedule['id']}/", json={"interval_seconds": 1})
        await sink.wait_for_calls(1)


async def test_a_redis_that_hangs_stops_neither_the_api_nor_the_firing(
    carillon: Carillon, settings: Settings, tmp_path: Path
) -> None:
    """A stopped process answers nothing and refuses nothing; after a moment it counts as away."""
    valkey = EmbeddedValkey(tmp_path / "valkey")
    valkey.start()
    hung = replace(settings, redis_url=valkey.url, rate_limit_per_minute=10_000)
    try:
        async with serving(hung) as client, working(hung):
            schedule = await client.schedule(interval_seconds=1)
            await until(lambda: client.runs(schedule))
            valkey.process.send_signal(signal.SIGSTOP)
            gone = await latest_slot(carillon, schedule)
            await until(lambda: fired_after(carillon, schedule, gone + timedelta(seconds=3)))
            assert "active" == (await client.schedule(interval_seconds=1))["status"]
            valkey.process.send_signal(signal.SIGCONT)
        no_slot_twice(await carillon.ledger(schedule), 1)
    finally:
        valkey.process.send_signal(signal.SIGCONT)
        valkey.stop()


async def test_a_full_worker_drains_too(carillon: Carillon, settings: Settings, sink: Sink) -> None:
    """With no room for another message it still hears that it shall end, and hands its work back."""

    async def hang(_request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    sink.answer = hang
    schedule = await carillon.schedule(await carillon.workflow(http_node(sink.url)))
    await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    async with working(replace(settings, worker_concurrency=1, drain_seconds=0.1)):
        await sink.wait_for_calls(1)
    assert ["pending"] == [run["status"] for run in await carillon.runs(schedule)]


async def test_recovery_finds_more_than_a_page(carillon: Carillon, settings: Settings, database: Database) -> None:
    """However many there are."""
    draft = {"name": "s", "workflow_id": (await carillon.workflow())["id"], "interval_seconds": 300}
    await carillon.call("POST", "/schedules/batch/", 201, json={"schedules": [draft] * 700})
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE scheduled_jobs SET next_run_at = now(), next_slot = now()"))
    async with wire_worker(settings) as parts:
        assert 700 == await parts.reconciler.recover_scheduled_jobs()
