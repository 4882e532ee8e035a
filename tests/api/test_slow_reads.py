"""Reads that take long: they are given up, and those of one user leave connections for others."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from app import wiring
from app.config import Settings
from app.persistence import connection_pool
from app.persistence.database import Database
from app.services import schedule_queries
from tests.support.api_server import serving
from tests.support.carillon import Carillon, until

SLOW = "/executions/"


@asynccontextmanager
async def nobody_reads_executions(database: Database) -> AsyncIterator[None]:
    """Whoever asks for executions waits as long as this lasts."""
    async with database.transaction() as connection:
        await connection.execute(text("LOCK TABLE workflow_executions IN ACCESS EXCLUSIVE MODE"))
        yield


async def waiting(database: Database, number: int) -> bool:
    """Whether so many questions wait for the executions."""
    async with database.reading() as connection:
        query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'workflow_executions'::regclass"
        return bool((await connection.execute(text(query))).scalar_one() >= number)


async def test_a_read_that_takes_too_long_is_given_up(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a problem that says what to do, and when to come back."""
    monkeypatch.setattr(wiring, "API_READING_SECONDS", 0.2)
    async with serving(settings) as carillon, nobody_reads_executions(database):
        response = await carillon.request("GET", SLOW)
        assert (503, "query_timeout") == (response.status_code, response.json()["code"])
        assert response.headers["retry-after"]


async def test_a_write_has_the_time_that_it_needs(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The short limit is for reads alone."""
    monkeypatch.setattr(wiring, "API_READING_SECONDS", 0.2)
    async with serving(settings) as carillon:
        schedule = await carillon.schedule()
        async with nobody_reads_executions(database):
            running = asyncio.create_task(carillon.request("POST", f"/schedules/{schedule['id']}/run/"))
            await until(partial(waiting, database, 1))
            done, _ = await asyncio.wait({running}, timeout=0.6)
        assert not done
        assert 202 == (await running).status_code


async def test_slow_reads_of_one_leave_connections_for_others(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of them at most are one user's; what is over that waits for a while, and is told to come again."""
    monkeypatch.setattr(connection_pool, "SHARE_WAIT_SECONDS", 0.3)
    async with serving(replace(settings, database_pool_size=2)) as carillon:
        mia, bob = await carillon.member("mia"), await carillon.member("bob")
        async with nobody_reads_executions(database):
            asked = [asyncio.create_task(mia.request("GET", SLOW)) for _ in range(8)]
            await until(partial(waiting, database, 2))
            for _ in range(3):
                await bob.call("GET", "/workflows/")
                await bob.schedule()
            refused = [task for task in asked if task in (await asyncio.wait(asked, timeout=1))[0]]
        answers = await asyncio.gather(*asked)
        assert 6 == [answer.status_code for answer in answers].count(429)
        assert 6 == len(refused)
        assert {("too_many_at_once", "2")} == {
            (answer.json()["code"], answer.headers["retry-after"]) for answer in answers if answer.status_code == 429
        }
        assert 200 == (await mia.request("GET", SLOW)).status_code


async def test_who_waits_for_the_own_share_gets_it(settings: Settings, database: Database) -> None:
    """In the order in which they came, and a place is never lost."""
    kept = connection_pool.PoolShares(1)
    order: list[int] = []

    async def work(number: int) -> None:
        await kept.take("mia")
        order.append(number)
        await asyncio.sleep(0)
        kept.give_back("mia")

    tasks = [asyncio.create_task(work(number)) for number in range(5)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [0, 1, 3, 4] == order
    assert ({}, {}) == (kept._held, kept._waiting)


async def test_a_search_for_slots_does_not_hold_up_the_loop(
    carillon: Carillon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Previews and explanations search in a thread of their own."""
    threads: list[threading.Thread] = []
    for name in ("spec_warnings", "next_runs", "nearest_slot", "explain"):
        real = getattr(schedule_queries, name)

        def watched(*values: Any, real: Any = real, **named: Any) -> Any:
            threads.append(threading.current_thread())
            return real(*values, **named)

        monkeypatch.setattr(schedule_queries, name, watched)
    await carillon.call("POST", "/schedules/preview/", json={"cron": "0 12 29 2 *"})
    await carillon.explain(await carillon.schedule())
    assert 4 == len(threads)
    assert threading.main_thread() not in threads


async def test_a_preview_that_was_cut_says_so(standing: Carillon) -> None:
    """Among its warnings."""
    rare = {"cron": "0 12 29 2 *", "not_on": ["mon", "tue", "wed", "thu", "fri", "sat"], "count": 500}
    found = await standing.call("POST", "/schedules/preview/", json=rare)
    assert found["warnings"][-1].startswith(f"Only the first {len(found['next_runs'])} runs are shown")
    whole = await standing.call("POST", "/schedules/preview/", json={"interval_seconds": 60, "count": 500})
    assert (500, []) == (len(whole["next_runs"]), [one for one in whole["warnings"] if "Only" in one])
