"""Filters of schedules find their rows by an index, however many other schedules there are."""

from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Reach
from app.persistence import schedule_lists, sql_batches
from app.persistence.database import Database
from app.persistence.pagination import Part, known_totals
from app.persistence.schedule_lists import Filters, Listing, page
from tests.support.carillon import Carillon

MANY = text(
    "INSERT INTO scheduled_jobs SELECT (jsonb_populate_record(j, jsonb_build_object("
    "'id', gen_random_uuid(), 'created_at', j.created_at - n * interval '1 second'))).* "
    "FROM scheduled_jobs AS j CROSS JOIN generate_series(1, 5000) AS n"
)


async def plans(connection: AsyncConnection, listing: Listing, monkeypatch: pytest.MonkeyPatch) -> str:
    """List schedules, and return how Postgres finds them and counts them, without knowing the values."""
    asked: list[tuple[str, tuple[Any, ...]]] = []

    async def watched(connection: AsyncConnection, sql: str, *values: Any) -> list[Any]:
        asked.append((sql, values))
        return await sql_batches.fetch(connection, sql, *values)

    monkeypatch.setattr(schedule_lists, "fetch", watched)
    await page(connection, listing, known_totals())
    # Of each source the rows and their number.
    assert len(asked) == 2 * len(listing.reach.sources)
    return "\n".join([await explained(connection, *one) for one in asked])


async def explained(connection: AsyncConnection, sql: str, values: tuple[Any, ...]) -> str:
    """Return how Postgres carries out a statement, without knowing the values."""
    driver = (await connection.get_raw_connection()).driver_connection
    assert driver is not None
    await driver.execute(f"PREPARE listed AS {sql}")
    given = ", ".join(str(value) if isinstance(value, int) else f"'{value}'" for value in values)
    rows = await driver.fetch(f"EXPLAIN EXECUTE listed({given})" if values else "EXPLAIN EXECUTE listed")
    await driver.execute("DEALLOCATE listed")
    return "\n".join(row[0] for row in rows)


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        (Filters(status_reason="invalid_spec"), "ix_scheduled_jobs_reason"),
        (Filters(status="dead"), "ix_scheduled_jobs_resting"),
        (Filters(owner_kind="plugin"), "ix_scheduled_jobs_of_plugins"),
        (Filters(owner_id="nobody"), "ix_scheduled_jobs_owner_id"),
        (Filters(owner_kind="user", owner_id="nobody"), "ix_scheduled_jobs_owner_id"),
        (Filters(status="active", owner_id="nobody"), "ix_scheduled_jobs_owner_id"),
    ],
)
async def test_a_filter_uses_its_index(
    carillon: Carillon, database: Database, monkeypatch: pytest.MonkeyPatch, filters: Filters, index: str
) -> None:
    """For the page and for the total alike."""
    await carillon.schedule()
    async with database.transaction() as connection:
        await connection.execute(MANY)
    async with database.transaction() as connection:
        await connection.execute(text("ANALYZE scheduled_jobs"))
    async with database.reading() as connection:
        plan = await plans(connection, Listing(Reach(None), filters, Part(50)), monkeypatch)
    assert 2 == plan.count(index), plan
    assert "Seq Scan" not in plan


async def test_what_several_owners_have_is_read_by_the_index_of_owners(
    carillon: Carillon, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of each, which no sort stands behind, however many schedules they have."""
    schedule = await carillon.schedule()
    teams = [await carillon.call("POST", "/teams/", 201, json={"name": name}) for name in ("ops", "dev")]
    for team in teams:
        await carillon.schedule(await carillon.workflow(team_id=team["id"]), team_id=team["id"])
    async with database.transaction() as connection:
        await connection.execute(MANY)
    async with database.transaction() as connection:
        await connection.execute(text("ANALYZE scheduled_jobs"))
    owners = (schedule["user_profile_id"], *(team["id"] for team in teams))
    async with database.reading() as connection:
        plan = await plans(connection, Listing(Reach(owners), Filters(), Part(50)), monkeypatch)
    assert 3 <= plan.count("ix_scheduled_jobs_owner_newest"), plan
    assert "Sort" not in plan
