"""Entities are polled by one process at a time, written down before they are queued, and run once.

Covers app.engine.entity_schedulers, app.persistence.entity_runs.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from app.config import Settings
from app.domain.entity_jobs import ScheduledJobConfig
from app.domain.errors import UnavailableError
from app.engine.entity_polling import Poller
from app.engine.entity_schedulers import LoadedScheduler, load_entity_schedulers, scheduler_shortcomings
from app.engine.ringing import Ringer
from app.persistence.database import Database
from app.persistence.webhooks import WebhookScheduler
from app.queue.bell import Bell, RedisPool, open_pool
from tests.support.carillon import Carillon, until, working

NOW = timedelta(0)


class PeriodicFeeds:
    """A table of somebody's own, as a plugin would have it."""

    entity_type = "feed"
    _due = text("SELECT * FROM feeds WHERE next_at <= :until ORDER BY next_at, id LIMIT :limit OFFSET :offset")
    _written = text("UPDATE feeds SET next_at = :next, last_at = :last, error = :error WHERE id = :id")

    async def find_due_jobs(
        self, session: AsyncSession, now: datetime, until: datetime, limit: int, offset: int
    ) -> list[ScheduledJobConfig]:
        """What is due."""
        del now
        rows = await session.execute(self._due, {"until": until, "limit": limit, "offset": offset})
        return [
            ScheduledJobConfig(
                id=f"feed-{row.id}",
                entity_id=str(row.id),
                entity_type=self.entity_type,
                job_type="core.noop",
                next_execution_time=row.next_at,
                last_execution_time=row.last_at,
                cron_expression=row.cron,
                interval_minutes=row.minutes,
                user_profile_id=1,
            )
            for row in rows
        ]

    async def update_execution_time(self, session: AsyncSession, jobs: Sequence[ScheduledJobConfig]) -> None:
        """One after another."""
        for job in jobs:
            values = {"next": job.next_execution_time, "last": job.last_execution_time, "error": job.error}
            await session.execute(self._written, {**values, "id": int(job.entity_id)})


async def feeds(database: Database, *rows: dict[str, Any]) -> None:
    """A table with these feeds, due a second ago."""
    async with database.transaction() as connection:
        await connection.execute(
            text(
                "CREATE TABLE feeds (id int PRIMARY KEY, cron text, minutes int, next_at timestamptz, "
                "last_at timestamptz, error text DEFAULT '', CHECK (id <> 13 OR last_at IS NULL))"
            )
        )
        statement = text(
            "INSERT INTO feeds (id, cron, minutes, next_at) VALUES "
            "(:id, :cron, :minutes, clock_timestamp() - interval '1 second')"
        )
        await connection.execute(statement, [{"cron": None, "minutes": None, **row} for row in rows])


async def stored(database: Database, query: str) -> list[Any]:
    """What is in the tables."""
    async with database.transaction() as connection:
        return list(await connection.execute(text(query)))


def poller(database: Database, redis: RedisPool, *, batch: int = 100, scheduler: Any = None) -> Poller:
    """A process that polls, or would."""
    return Poller(
        database,
        Ringer(Bell(redis)),
        [LoadedScheduler(scheduler or PeriodicFeeds(), "core", acts_for_users=True)],
        poll_seconds=60,
        batch_size=batch,
        lease_seconds=2,
    )


async def test_what_is_due_is_written_down_with_its_next_time(database: Database, redis: RedisPool) -> None:
    """All of it, whatever the size of a batch; what is not due is left alone."""
    await feeds(database, *({"id": number, "minutes": 5} for number in range(1, 8)))
    assert (7, 0) == _counts(await poller(database, redis, batch=3).poll_now())
    assert (0, 0) == _counts(await poller(database, redis).poll_now())
    rows = await stored(
        database,
        "SELECT e.entity_id, e.scheduled_for = f.last_at AS same, e.status, f.next_at - f.last_at AS gap "
        "FROM workflow_executions AS e JOIN feeds AS f ON f.id = CAST(e.entity_id AS int) ORDER BY f.id",
    )
    assert [(str(n), True, "pending", timedelta(minutes=5)) for n in range(1, 8)] == [tuple(row) for row in rows]


async def test_what_comes_due_before_the_next_poll_is_queued_for_its_time(
    carillon: Carillon, database: Database, redis: RedisPool, settings: Settings
) -> None:
    """It starts then and not before."""
    await feeds(database, {"id": 1, "minutes": 5})
    await stored(database, "UPDATE feeds SET next_at = clock_timestamp() + interval '2 seconds' RETURNING 1")
    one = poller(database, redis)
    assert await one._take()
    assert (1, 0) == _counts(await one.poll(timedelta(seconds=60)))
    async with working(settings):

        async def ended() -> Any:
            (run,) = (await carillon.call("GET", "/executions/", params={"entity_type": "feed"}))["items"]
            return run if run["finished_at"] else None

        run = await until(ended)
    assert ("success", "entity", "1", None, None) == tuple(
        run[name] for name in ("status", "trigger", "entity_id", "scheduled_job_id", "workflow_id")
    )
    assert run["started_at"] >= run["scheduled_for"]


async def test_a_bad_cron_is_an_error_on_that_entity(
    database: Database, redis: RedisPool, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not run, has no next time and says why; the others go on."""
    await feeds(database, {"id": 1, "cron": "every now and then"}, {"id": 2, "minutes": 5})
    assert (1, 1) == _counts(await poller(database, redis).poll_now())
    bad, good = await stored(database, "SELECT id, next_at, last_at, error FROM feeds ORDER BY id")
    assert (None, None) == (bad.next_at, bad.last_at)
    assert "Expected five fields" in bad.error
    assert (True, "") == (good.next_at is not None, good.error)
    assert ["2"] == [row.entity_id for row in await stored(database, "SELECT entity_id FROM workflow_executions")]
    assert "entity_job_failed" in caplog.text


async def test_a_job_that_cannot_be_written_is_not_queued_and_blocks_nobody(
    database: Database, redis: RedisPool
) -> None:
    """Its time stays as it was; those around it, in batches before and after, are queued."""
    await feeds(database, *({"id": number, "minutes": 5} for number in range(10, 20)))
    assert (9, 1) == _counts(await poller(database, redis, batch=2).poll_now())
    (left,) = await stored(database, "SELECT id FROM feeds WHERE last_at IS NULL")
    assert 13 == left.id
    rows = await stored(database, "SELECT entity_id FROM workflow_executions ORDER BY entity_id")
    assert [str(number) for number in range(10, 20) if number != 13] == [row.entity_id for row in rows]


class Careless(PeriodicFeeds):
    """A scheduler that returns whatever its nullable and mistyped columns hold."""

    def __init__(self, **values: Any) -> None:
        self._values = values

    async def find_due_jobs(
        self, session: AsyncSession, now: datetime, until: datetime, limit: int, offset: int
    ) -> list[Any]:
        """The first feed has these values, or is something else; the others are as they should be."""
        jobs: list[Any] = list(await super().find_due_jobs(session, now, until, limit, offset))
        changed = [replace(job, **self._values) if job.entity_id == "1" else job for job in jobs]
        return [*changed, None] if self._values.get("name") == "not a job" and jobs else changed


@pytest.mark.parametrize("values", [{"timezone": None}, {"active": None}])
async def test_nullable_columns_stop_nothing(database: Database, redis: RedisPool, values: dict[str, Any]) -> None:
    """No timezone is UTC, and no switch is on."""
    await feeds(database, {"id": 1, "cron": "* * * * *"}, {"id": 2, "minutes": 5})
    assert (2, 0) == _counts(await poller(database, redis, scheduler=Careless(**values)).poll_now())


@pytest.mark.parametrize(
    "values",
    [
        {"next_execution_time": "noon"},
        {"next_execution_time": datetime(2026, 1, 1)},  # noqa: DTZ001 - as a column without a timezone would have it
        {"interval_minutes": "5"},
        {"timezone": 5},
        {"active": "yes"},
        {"id": ["unhashable"], "max_retries": -1},
        {"entity_type": "other"},
    ],
)
async def test_wrong_values_are_an_error_on_that_entity(
    database: Database, redis: RedisPool, values: dict[str, Any]
) -> None:
    """The others on the page go on."""
    await feeds(database, {"id": 1, "minutes": 5}, {"id": 2, "minutes": 5}, {"id": 3, "minutes": 5})
    assert (2, 1) == _counts(await poller(database, redis, scheduler=Careless(**values)).poll_now())
    wrong, *others = await stored(database, "SELECT next_at, error FROM feeds ORDER BY id")
    assert (None, True) == (wrong.next_at, wrong.error != "")
    assert ["", ""] == [other.error for other in others]


async def test_what_is_not_a_job_is_counted_and_skipped(database: Database, redis: RedisPool) -> None:
    """It has no entity that could store the error."""
    await feeds(database, {"id": 1, "minutes": 5})
    assert (1, 1) == _counts(await poller(database, redis, scheduler=Careless(name="not a job")).poll_now())


async def test_a_one_off_runs_once(database: Database, redis: RedisPool) -> None:
    """With neither a cron expression nor an interval; both are a mistake."""
    await feeds(database, {"id": 1}, {"id": 2, "cron": "* * * * *", "minutes": 5})
    one = poller(database, redis)
    assert [(1, 1), (0, 0)] == [_counts(await one.poll_now()), _counts(await one.poll_now())]
    once, both = await stored(database, "SELECT next_at, last_at, error FROM feeds ORDER BY id")
    assert (None, True, "") == (once.next_at, once.last_at is not None, once.error)
    assert (None, None, True) == (both.next_at, both.last_at, "At most one" in both.error)
    assert ["1"] == [row.entity_id for row in await stored(database, "SELECT entity_id FROM workflow_executions")]


class Deaf(PeriodicFeeds):
    """A scheduler that does not write down what it is told."""

    async def update_execution_time(self, session: AsyncSession, jobs: Sequence[ScheduledJobConfig]) -> None:
        """Nothing."""


async def test_the_same_time_of_an_entity_runs_once_whatever_its_scheduler_forgets(
    database: Database, redis: RedisPool
) -> None:
    """A crash between the two, or a careless plugin, cannot double a run."""
    await feeds(database, {"id": 1, "minutes": 5}, {"id": 2, "minutes": 5})
    one = poller(database, redis, scheduler=Deaf(), batch=1)
    assert [(2, 0), (0, 0)] == [_counts(await one.poll_now()), _counts(await one.poll_now())]
    assert 2 == len(await stored(database, "SELECT 1 FROM workflow_executions"))


class Broken(PeriodicFeeds):
    """A scheduler that fails."""

    entity_type = "broken"

    async def find_due_jobs(self, *_: Any) -> list[ScheduledJobConfig]:
        """Raise."""
        raise RuntimeError("no such table")


async def test_a_scheduler_that_fails_stops_no_other(database: Database, redis: RedisPool) -> None:
    """It is named, and the next one is asked."""
    await feeds(database, {"id": 1, "minutes": 5})
    both = poller(database, redis)
    both._schedulers = [LoadedScheduler(Broken(), "core"), *both._schedulers]
    assert (1, 1) == _counts(await both.poll_now())


async def test_one_polls_at_a_time_and_another_takes_over(database: Database, redis: RedisPool) -> None:
    """As soon as the lease of one that died has run out; what was due meanwhile runs once."""
    await feeds(database, {"id": 1, "minutes": 5})
    first, second = poller(database, redis), poller(database, redis)
    await first.step()
    assert 10 == await second.step()
    await stored(database, "UPDATE feeds SET next_at = clock_timestamp() RETURNING 1")

    async def taken_over() -> bool:
        return await second.step() < 10

    await until(taken_over)
    # Whoever was thought dead notices when it writes.
    first._next_poll = 0
    assert (0, 0) == _counts(await first.poll(NOW))
    assert 10 == await first.step()
    assert 2 == len(await stored(database, "SELECT 1 FROM workflow_executions"))
    await second.release()
    assert await first.step() < 10


class Diary(PeriodicFeeds):
    """Feeds that write down who asked, and every time that was planned."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def find_due_jobs(
        self, session: AsyncSession, now: datetime, until: datetime, limit: int, offset: int
    ) -> list[ScheduledJobConfig]:
        """Note who asks, and who holds the lock in that moment."""
        await session.execute(
            text("INSERT INTO asked SELECT :name, (SELECT CAST(owner AS text) FROM locks)"), {"name": self._name}
        )
        return await super().find_due_jobs(session, now, until, limit, offset)

    async def update_execution_time(self, session: AsyncSession, jobs: Sequence[ScheduledJobConfig]) -> None:
        """Note every time that shall have run."""
        await super().update_execution_time(session, jobs)
        for job in jobs:
            values = {"id": int(job.entity_id), "at": job.last_execution_time}
            await session.execute(text("INSERT INTO diary VALUES (:id, :at)"), values)


async def silence(life: asyncio.Task[None]) -> None:
    """End a life wherever it is; a single cancellation can get lost inside a driver."""
    while not life.done():
        life.cancel()
        await asyncio.wait({life}, timeout=0.5)


async def test_ten_instances_run_every_entity_once_though_the_holder_is_killed(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """The short form of two minutes with ten: the holder of the lock falls silent twice, in the middle of a batch."""
    await feeds(database, *({"id": number, "minutes": 60} for number in range(100, 130)))
    async with database.transaction() as connection:
        await connection.execute(text("CREATE TABLE asked (name text, holder text)"))
        await connection.execute(text("CREATE TABLE diary (id int, at timestamptz)"))
    pools = [Database(settings.database_url, pool_size=1) for _ in range(10)]
    redis = open_pool(settings.redis_url)
    pollers = [
        Poller(
            pool,
            Ringer(Bell(redis)),
            [LoadedScheduler(Diary(str(number)), "core", acts_for_users=True)],
            poll_seconds=0.2,
            batch_size=4,
            lease_seconds=1.5,
        )
        for number, pool in enumerate(pools)
    ]
    owners = {str(number): str(one._owner) for number, one in enumerate(pollers)}

    async def live(one: Poller) -> None:
        while True:
            with suppress(UnavailableError):
                await one.step()
            await asyncio.sleep(0.1)

    lives = {str(one._owner): asyncio.create_task(live(one)) for one in pollers}
    try:
        for _ in range(2):

            async def holder() -> Any:
                for task in lives.values():
                    assert not task.done(), task.exception()
                rows = await stored(database, "SELECT owner FROM locks WHERE expires_at > clock_timestamp()")
                return next((str(row.owner) for row in rows if str(row.owner) in lives), None)

            await silence(lives.pop(await until(holder)))
            await stored(database, "UPDATE feeds SET next_at = clock_timestamp() RETURNING 1")

            async def all_moved_on() -> Any:
                return not await stored(database, "SELECT 1 FROM feeds WHERE next_at <= clock_timestamp()")

            await until(all_moved_on)
        async with working(settings):

            async def all_ran() -> Any:
                return not await stored(database, "SELECT 1 FROM workflow_executions WHERE finished_at IS NULL")

            await until(all_ran)
    finally:
        for task in lives.values():
            task.cancel()
        await asyncio.wait(lives.values())
        for pool in pools:
            await pool.close()
        await redis.aclose()
    planned = await stored(database, "SELECT id, at FROM diary ORDER BY id, at")
    ran = await stored(
        database,
        "SELECT CAST(entity_id AS int) AS id, scheduled_for AS at FROM workflow_executions ORDER BY 1, 2",
    )
    assert [tuple(row) for row in planned] == [tuple(row) for row in ran]
    assert set(range(100, 130)) == {row.id for row in ran}
    asked = await stored(database, "SELECT DISTINCT name, holder FROM asked")
    assert [] == [row for row in asked if owners[row.name] != row.holder]


class Impostor(PeriodicFeeds):
    """A plugin's scheduler that names a user."""


async def test_a_plugin_acts_for_users_only_if_it_says_so(database: Database, redis: RedisPool) -> None:
    """Else its jobs are refused, one by one."""
    await feeds(database, {"id": 1, "minutes": 5})
    one = poller(database, redis)
    one._schedulers = [LoadedScheduler(Impostor(), "carillon-evil")]
    assert (0, 1) == _counts(await one.poll_now())
    one._schedulers = [LoadedScheduler(Impostor(), "carillon-good", acts_for_users=True)]
    assert (1, 0) == _counts(await one.poll_now())


class Sluggish(PeriodicFeeds):
    """A scheduler that takes its time."""

    def __init__(self, asked: asyncio.Event, go: asyncio.Event) -> None:
        self._asked = asked
        self._go = go

    async def find_due_jobs(self, *_: Any) -> list[ScheduledJobConfig]:
        """Nothing is due, after a while."""
        self._asked.set()
        await self._go.wait()
        return []


async def test_nobody_waits_for_one_that_is_polling(database: Database, redis: RedisPool) -> None:
    """Not for the length of a batch either."""
    asked, go = asyncio.Event(), asyncio.Event()
    slow = asyncio.create_task(poller(database, redis, scheduler=Sluggish(asked, go)).poll_now())
    await asked.wait()
    assert (0, 0) == _counts(await poller(database, redis).poll_now())
    assert not slow.done()
    go.set()
    await slow


async def test_a_failed_poll_is_tried_again_soon(database: Database, redis: RedisPool) -> None:
    """Not only after a whole period."""
    one = poller(database, redis, scheduler=Broken())
    assert await one.step() <= 5


def test_schedulers_are_found_by_their_entry_points() -> None:
    """Our own as everybody's; what does not conform is told."""
    loaded = load_entity_schedulers()
    assert (["webhook"], ()) == ([one.scheduler.entity_type for one in loaded.schedulers], loaded.problems)
    assert [] == scheduler_shortcomings(WebhookScheduler())
    assert 3 == len(scheduler_shortcomings(object()))
    half = type("Half", (PeriodicFeeds,), {"find_stopped_jobs": lambda *_: []})()
    assert ["its find_stopped_jobs is not a coroutine function"] == scheduler_shortcomings(half)


def _counts(polled: Any) -> tuple[int, int]:
    return polled.queued, polled.errors
