"""The weeks of executions and of the ledger.

Covers app.engine.housekeeping, app.persistence.retention.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from app.config import Settings
from app.engine.housekeeping import Housekeeper
from app.persistence import retention
from app.persistence.database import Database, database_now
from app.persistence.retention import Week
from tests.support.carillon import Carillon, engine_of, make_due, until

MONDAY = datetime(2026, 11, 16, tzinfo=UTC)
OLD = Week("workflow_executions", MONDAY - timedelta(weeks=30))


async def ask(database: Database, question: str) -> list[Any]:
    """A column of answers."""
    async with database.transaction() as connection:
        return list((await connection.execute(text(question))).scalars())


@pytest.mark.parametrize("day", range(7))
def test_a_week_begins_on_monday(day: int) -> None:
    """Whatever day it is; and the next ones follow without a gap."""
    found = [week for week in retention.weeks(MONDAY + timedelta(days=day, hours=23)) if week.table == OLD.table]
    assert "workflow_executions_2026w47" == found[0].name
    assert [week.bounds[1] for week in found[:-1]] == [week.bounds[0] for week in found[1:]]


async def test_the_weeks_are_there_after_a_migration(database: Database) -> None:
    """So that nothing goes to the rest."""
    async with database.transaction() as connection:
        assert [] == await retention.missing_weeks(connection, await database_now(connection))


async def test_what_fires_goes_to_its_week(carillon: Carillon, settings: Settings, database: Database) -> None:
    """And is found there by its id, its schedule and its owner."""
    schedule = await carillon.schedule()
    due = await make_due(database, schedule)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    assert [0] == await ask(database, "SELECT count(*) FROM workflow_executions_rest")
    assert ["success"] == [run["status"] for run in await carillon.runs(schedule)]
    assert [0] == await ask(database, "SELECT count(*) FROM active_executions")


async def test_the_end_of_a_run_stays_on_its_page(carillon: Carillon, settings: Settings, database: Database) -> None:
    """Of a hundred runs that begin before one ends, so that no index is written again."""
    workflow = await carillon.workflow()
    drafts = [{"name": "s", "workflow_id": workflow["id"], "interval_seconds": 60}] * 100
    made = (await carillon.call("POST", "/schedules/batch/", 201, json={"schedules": drafts}))["items"]
    due = [await make_due(database, schedule) for schedule in made]
    before, stayed_before = await updates(database), await updates(database, "n_tup_hot_upd")
    async with engine_of(settings) as engine:
        fires = [
            engine.execute_scheduled_job(UUID(schedule["id"]), tick["generation"])
            for schedule, tick in zip(made, due, strict=True)
        ]
        await asyncio.gather(*fires)

    async def counted() -> bool:
        return await updates(database) - before >= 100

    await until(counted)
    # Counts of an earlier test may arrive late: some rows of its own that moved.
    assert await updates(database, "n_tup_hot_upd") - stayed_before >= 90


async def updates(database: Database, kind: str = "n_tup_upd") -> int:
    """How many versions of executions were written; other tests may have used the same tables."""
    question = f"SELECT sum({kind})::int FROM pg_stat_user_tables WHERE relname LIKE 'workflow_executions_%'"
    (count,) = await ask(database, question)
    return int(count)


async def test_old_weeks_are_dropped_and_young_ones_kept(database: Database) -> None:
    """A week at a time; the weeks to come are made."""
    await retention.make_week(database, OLD)
    await Housekeeper(database, 100).step()
    names = await ask(database, "SELECT relname FROM pg_class WHERE relname LIKE 'workflow_executions_2%w%'")
    assert OLD.name not in names
    assert {week.name for week in retention.weeks(datetime.now(UTC)) if week.table == OLD.table} <= set(names)


async def test_for_ever_is_for_ever(database: Database) -> None:
    """Nothing is dropped unless somebody says when."""
    await retention.make_week(database, OLD)
    await Housekeeper(database, 0).step()
    assert [OLD.name] == await ask(database, f"SELECT relname FROM pg_class WHERE relname = '{OLD.name}'")


@pytest.mark.parametrize(("days", "said"), [(30, 30), (0, "for ever")])
async def test_how_long_history_is_kept_is_said_at_the_start(database: Database, days: int, said: object) -> None:
    """Once; it is 30 days unless somebody says otherwise."""
    keeper = Housekeeper(database, days)
    with capture_logs() as events:
        await keeper.step()
        await keeper.step()
    assert [said] == [event["days"] for event in events if event["event"] == "history_kept"]
    assert 30 == Settings().history_days


async def test_a_week_with_something_under_way_is_kept(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """However old it is."""
    schedule = await carillon.schedule()
    await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    this_week = retention.weeks(datetime.now(UTC))[0]
    assert not await retention.drop_week(database, this_week)
    assert ["pending"] == [run["status"] for run in await carillon.runs(schedule)]


async def test_two_at_once_make_one(database: Database) -> None:
    """Whoever comes second finds it there."""
    assert await retention.make_week(database, OLD)
    assert not await retention.make_week(database, OLD)


@pytest.mark.parametrize(("days", "left"), [(100, ["young"]), (0, ["old", "young"])])
async def test_old_transitions_of_breakers_are_deleted(
    carillon: Carillon, database: Database, days: int, left: list[str]
) -> None:
    """A breaker that opens and closes for years does not fill the disk."""
    workflow = await carillon.workflow(breaker_threshold=1, breaker_reset_seconds=1)
    async with database.transaction() as connection:
        await connection.execute(
            text(
                "INSERT INTO circuit_breaker_transitions (workflow_id, from_state, to_state, reason, at) VALUES "
                "(:id, 'closed', 'open', 'old', now() - interval '101 days'), "
                "(:id, 'open', 'closed', 'young', now() - interval '99 days')"
            ),
            {"id": workflow["id"]},
        )
    await Housekeeper(database, days).step()
    assert left == await ask(database, "SELECT reason FROM circuit_breaker_transitions ORDER BY id")
