"""Filters and orders of schedules find their rows by an index, however many other schedules there are.

Covers app.persistence.search, app.persistence.schedule_filters.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Reach
from app.domain.health import Health
from app.embedded import EmbeddedPostgres
from app.persistence import overview, schedule_lists, search, sql_batches
from app.persistence.database import Database
from app.persistence.pagination import Part, known_totals
from app.persistence.schedule_filters import Filters, Kind
from app.persistence.schedule_lists import Listing, Sort, page
from tests.bench.filling import fill_rows
from tests.support.carillon import Carillon
from tests.support.databases import fresh_database

MANY = text(
    "INSERT INTO scheduled_jobs SELECT (jsonb_populate_record(j, jsonb_build_object("
    "'id', gen_random_uuid(), 'created_at', j.created_at - n * interval '1 second'))).* "
    "FROM scheduled_jobs AS j CROSS JOIN generate_series(1, 2000) AS n"
)


async def fill(connection: AsyncConnection) -> None:
    """Add rows, however long the machine takes."""
    await connection.execute(text("SET LOCAL statement_timeout = 0"))
    await connection.execute(MANY)


async def plans(connection: AsyncConnection, listing: Listing, monkeypatch: pytest.MonkeyPatch) -> str:
    """List schedules, and return how Postgres finds them and counts them, without knowing the values."""
    asked: list[tuple[str, tuple[Any, ...]]] = []

    async def watched(connection: AsyncConnection, sql: str, *values: Any) -> list[Any]:
        asked.append((sql, values))
        return await sql_batches.fetch(connection, sql, *values)

    monkeypatch.setattr(schedule_lists, "fetch", watched)
    await page(connection, listing, known_totals())
    asked = [(sql, values) for sql, values in asked if "pg_class" not in sql]
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
        await fill(connection)
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
        await fill(connection)
    async with database.transaction() as connection:
        await connection.execute(text("ANALYZE scheduled_jobs"))
    owners = (schedule["user_profile_id"], *(team["id"] for team in teams))
    async with database.reading() as connection:
        plan = await plans(connection, Listing(Reach(owners), Filters(), Part(50)), monkeypatch)
    assert 3 <= plan.count("ix_scheduled_jobs_owner_"), plan
    assert "Sort" not in plan
    assert "Seq Scan on scheduled_jobs" not in plan


# Of so many schedules of 50 owners, of whom the second has a fifth.
SCHEDULES, LARGE_OWNER = 20_000, 2
MOST_ROWS = SCHEDULES // 2
LISTS = [
    *((Filters(), sort) for sort in Sort if sort.field != "last_attempt_at"),
    *((Filters(status=status), Sort.NEWEST) for status in ("active", "paused", "dead")),
    *((Filters(health=health), Sort.NEWEST) for health in Health),
    *((Filters(kind=kind), Sort.NEWEST) for kind in Kind),
    *((Filters(q=q), sort) for q in ("report", "-777", "nothing") for sort in (Sort.NEWEST, Sort.NEXT_RUN, Sort.NAME)),
    *((Filters(health=Health.FAILING), sort) for sort in (Sort.NAME, Sort.NEXT_RUN, Sort.LAST_ATTEMPT)),
    *((Filters(labels=(("app", "app-17"),)), sort) for sort in Sort),
    (Filters(labels=(("env", "prod"),)), Sort.NEXT_RUN),
    (Filters(namespace="namespace-7"), Sort.NAME),
    (Filters(q="report", status="paused"), Sort.NEWEST),
    *((Filters(status_reason="manual"), sort) for sort in (Sort.NEWEST, Sort.NEXT_RUN, Sort.NEXT_RUN_DESCENDING)),
    *((Filters(q="zz"), sort) for sort in (Sort.NEWEST, Sort.NAME)),
    *((Filters(q="zz", status=status), Sort.NEWEST) for status in ("active", "paused")),
    *((Filters(kind=Kind.MONTHLY), sort) for sort in (Sort.NAME, Sort.NAME_DESCENDING, Sort.NEXT_RUN)),
    *((Filters(q="report", kind=Kind.ONCE), sort) for sort in (Sort.NEWEST, Sort.NAME)),
    (Filters(q="sy", labels=(("app", "app-17"),)), Sort.NAME_DESCENDING),
    (Filters(owner_id="30"), Sort.NAME),
    (Filters(status="dead"), Sort.LAST_ATTEMPT),
]


# Names and keys in which short texts are rare, in upper case, not ASCII, or at the end of a key and of a name.
ODD_TEXTS = (("Fizz", "Zz"), ("\u00c4\u00d6 report", None), ("a%_b", "k/~"), ("line\nfeed zZ", "x.Q"), ("qz", None))
RENAME = (
    "UPDATE scheduled_jobs SET name = $2, key = $3 WHERE id = "
    "(SELECT id FROM scheduled_jobs WHERE user_profile_id = 2 ORDER BY created_at OFFSET 97 * $1::int LIMIT 1)"
)


@pytest.fixture(scope="module")
async def filled(postgres: EmbeddedPostgres) -> AsyncIterator[Database]:
    """A database with schedules of all kinds, states and outcomes."""
    async with fresh_database(postgres) as url:
        database = Database(url, pool_size=2)
        async with database.transaction() as connection:

            async def sql(statement: str, *values: Any) -> Any:
                return await sql_batches.fetch(connection, statement, *values)

            await fill_rows(sql, SCHEDULES, owners=50, workflows=100)
            for number, (name, key) in enumerate(ODD_TEXTS):
                await sql(RENAME, number, name, key)
        async with database.reading() as connection:
            await connection.execute(text("VACUUM ANALYZE"))
        yield database
        await database.close()


async def rows_read(
    connection: AsyncConnection, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Awaitable[Any]]
) -> dict[str, int]:
    """Return how many schedules and ticks each query has read, but for those that count up to a bound."""
    asked: list[tuple[str, tuple[Any, ...]]] = []

    async def watched(connection: AsyncConnection, sql: str, *values: Any) -> list[Any]:
        asked.append((sql, values))
        return await sql_batches.fetch(connection, sql, *values)

    for module in (schedule_lists, search, overview):
        monkeypatch.setattr(module, "fetch", watched)
    await ask()
    pages = [(sql, values) for sql, values in asked if "count(*)" not in sql or "clock_timestamp" in sql]
    return {sql: _rows_of(await carried_out(connection, sql, values)) for sql, values in pages}


async def carried_out(connection: AsyncConnection, sql: str, values: tuple[Any, ...]) -> dict[str, Any]:
    """Return how Postgres has carried out a statement with these values."""
    driver = (await connection.get_raw_connection()).driver_connection
    assert driver is not None
    await driver.execute(f"PREPARE listed AS {sql}")
    given = f"({', '.join(map(literal, values))})" if values else ""
    (plan,) = await driver.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE listed{given}")
    await driver.execute("DEALLOCATE listed")
    found: dict[str, Any] = plan[0][0]["Plan"]
    return found


def literal(value: Any) -> str:
    """Return a value as SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return f"'{{{','.join(map(str, value))}}}'"
    written = value.isoformat() if isinstance(value, datetime) else str(value)
    return written if isinstance(value, int) else f"'{written}'"


# Tables of which the rows are counted that a plan reads.
LARGE = frozenset({"scheduled_jobs", "due_ticks"})


def _rows_of(plan: dict[str, Any], tables: frozenset[str] = LARGE) -> int:
    """Return how many rows a plan has read from some tables, by default from schedules and their ticks."""
    removed = sum(value for name, value in plan.items() if name.startswith("Rows Removed"))
    is_read = plan.get("Relation Name") in tables
    own = int((plan["Actual Rows"] + removed) * plan["Actual Loops"]) if is_read else 0
    return own + sum(_rows_of(one, tables) for one in plan.get("Plans", ()))


@pytest.mark.parametrize("reach", [Reach(None), Reach((LARGE_OWNER,)), Reach((30,))], ids=["all", "large", "small"])
async def test_no_list_search_or_overview_reads_the_table(
    filled: Database, monkeypatch: pytest.MonkeyPatch, reach: Reach
) -> None:
    """Whatever the filter, the order and the owner: a page, a search and a pulse read a part of the schedules."""
    read: dict[str, int] = {}
    totals = known_totals()
    for filters, sort in LISTS:
        async with filled.transaction() as connection:
            listing = Listing(reach, filters, Part(20), sort)
            found = await rows_read(connection, monkeypatch, lambda: page(connection, listing, totals))  # noqa: B023
            read |= {f"{filters} {sort} {sql}": number for sql, number in found.items()}
    async with filled.transaction() as connection:
        for wanted in ("report", "host-39", "nothing", str(UUID(int=7))):
            read |= await rows_read(connection, monkeypatch, lambda: search.search(connection, reach, wanted, 20))  # noqa: B023
        read |= await rows_read(connection, monkeypatch, lambda: overview.read_moment(connection, reach))
    assert len(read) > len(LISTS) / 3
    assert {} == {name: number for name, number in read.items() if number > MOST_ROWS}


async def statements(
    connection: AsyncConnection, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Awaitable[Any]]
) -> list[dict[str, Any]]:
    """Return how Postgres carries out every statement of a list or a search, those that count included."""
    asked: list[tuple[str, tuple[Any, ...]]] = []

    async def watched(connection: AsyncConnection, sql: str, *values: Any) -> list[Any]:
        asked.append((sql, values))
        return await sql_batches.fetch(connection, sql, *values)

    for module in (schedule_lists, search):
        monkeypatch.setattr(module, "fetch", watched)
    await ask()
    return [await carried_out(connection, sql, values) for sql, values in asked]


# What few schedules contain.
SHORT_TEXTS = ("zz", "~")


@pytest.mark.parametrize("filters", [Filters(q=q, status=status) for q in SHORT_TEXTS for status in (None, "active")])
async def test_a_rare_text_of_one_or_two_characters_is_found_by_an_index(
    filled: Database, monkeypatch: pytest.MonkeyPatch, filters: Filters
) -> None:
    """In lists, counts and searches, with or without another filter: neither the texts nor the schedules are read."""
    everything, q = LARGE | {"schedule_texts"}, str(filters.q)
    async with filled.transaction() as connection:
        listing = Listing(Reach(None), filters, Part(20))
        plans = await statements(connection, monkeypatch, lambda: page(connection, listing, known_totals()))
        plans += await statements(connection, monkeypatch, lambda: search.search(connection, Reach(None), q, 20))
    assert max(_rows_of(plan, everything) for plan in plans) < SCHEDULES / 100


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        (Filters(q="report", status="paused"), "ix_scheduled_jobs_resting_texts"),
        (Filters(q="re", status="paused"), "ix_scheduled_jobs_resting_texts"),
        (Filters(q="report", kind=Kind.ONCE), "ix_schedule_texts_kind"),
        (Filters(q="re", kind=Kind.ONCE), "ix_schedule_texts_kind"),
    ],
)
async def test_a_common_text_can_be_looked_for_in_the_index_of_the_other_filter(
    filled: Database, monkeypatch: pytest.MonkeyPatch, filters: Filters, index: str
) -> None:
    """Of what few schedules have. To find all that contain the text would take longer, and so would reading rows."""
    async with filled.rehearsal() as unit, unit() as connection:
        # Of so few schedules Postgres would read the rows.
        await connection.execute(text("SET LOCAL enable_bitmapscan = off"))
        await connection.execute(text("DROP INDEX ix_scheduled_jobs_resting, ix_scheduled_jobs_reason"))
        listing = Listing(Reach(None), filters, Part(20))
        plans = await statements(connection, monkeypatch, lambda: page(connection, listing, known_totals()))
    assert index in set().union(*map(read_alone, plans)), plans


def read_alone(plan: dict[str, Any]) -> set[str]:
    """Return the indexes that a plan reads without their tables."""
    own = {plan["Index Name"]} if plan["Node Type"] == "Index Only Scan" else set()
    return own.union(*map(read_alone, plan.get("Plans", ())))


MATCHED = [
    *(Filters(q=q) for q in ("zz", "Z", "qz", "re", "\u00c4\u00d6", "~", "%_", "z\nl", "\n", "\nf", "no such", "e-1")),
    *(Filters(q=q, status=status) for q in ("zz", "sy", "report", "e-1", "Q") for status in ("active", "paused")),
    *(Filters(q=q, kind=kind) for q in ("report", "zz", "sy", "-77") for kind in (Kind.ONCE, Kind.INTERVAL)),
    *(Filters(kind=kind) for kind in Kind),
    Filters(q="sy", kind=Kind.CRON, status="paused"),
]
HAS_KIND = {
    Kind.INTERVAL: "interval_seconds IS NOT NULL",
    Kind.CRON: "cron IS NOT NULL",
    Kind.ONCE: "coalesce(at::text, after) IS NOT NULL",
    Kind.MONTHLY: "every <> 'rrule'",
    Kind.RRULE: "every = 'rrule'",
}


@pytest.mark.parametrize("reach", [Reach(None), Reach((LARGE_OWNER,))], ids=["all", "large"])
@pytest.mark.parametrize("counted", [10_000, 100])
async def test_texts_kinds_and_states_are_listed_and_counted_as_rows_say(
    filled: Database, monkeypatch: pytest.MonkeyPatch, reach: Reach, counted: int
) -> None:
    """Whichever index finds them: the first pages, in every order, and a total that is exact or an estimate."""
    monkeypatch.setattr(schedule_lists, "COUNTED", counted)
    for filters in MATCHED:
        async with filled.transaction() as connection:
            for sort, order in ORDERS.items():
                expected = await matching_rows(connection, reach, filters, order)
                first = await page(connection, Listing(reach, filters, Part(30), sort), known_totals())
                part = Part(30, 0, first.next_cursor)
                second = await page(connection, Listing(reach, filters, part, sort), known_totals())
                listed = [*first.items, *(second.items if first.next_cursor else ())]
                assert expected[:60] == [row.id for row in listed], (filters, sort)
                assert first.total_is_estimate or len(expected) == first.total, (filters, sort)


async def matching_rows(connection: AsyncConnection, reach: Reach, filters: Filters, order: str) -> list[UUID]:
    """Return what matches, by reading all schedules."""
    kind = "TRUE" if filters.kind is None else HAS_KIND[filters.kind]
    rows = await sql_batches.fetch(
        connection,
        "SELECT id FROM scheduled_jobs WHERE ($1::int[] IS NULL OR user_profile_id = ANY($1)) "
        "AND ($2::text IS NULL OR strpos(lower(name), lower($2)) > 0 OR strpos(lower(key), lower($2)) > 0) "
        f"AND ($3::text IS NULL OR status = $3) AND {kind} ORDER BY {order}",
        None if reach.owners is None else list(reach.owners),
        filters.q,
        filters.status,
    )
    return [row["id"] for row in rows]


@pytest.mark.parametrize("wanted", ["zz", "Z", "~", "\u00c4\u00d6", "\n", "re"])
async def test_short_texts_are_searched_as_rows_say(filled: Database, wanted: str) -> None:
    """Rare ones all, of common ones the newest; each with the field that contains it."""
    async with filled.transaction() as connection:
        found = await search.search(connection, Reach((LARGE_OWNER,)), wanted, 20)
        rows = await sql_batches.fetch(
            connection,
            "SELECT id::text, CASE WHEN strpos(lower(name), lower($1)) > 0 THEN 'name' ELSE 'key' END AS match "
            "FROM scheduled_jobs WHERE user_profile_id = $2 "
            "AND (strpos(lower(name), lower($1)) > 0 OR strpos(lower(key), lower($1)) > 0) "
            "ORDER BY created_at DESC LIMIT 20",
            wanted,
            LARGE_OWNER,
        )
    schedules = {(one.id, one.match) for one in found if one.type == "schedule"}
    assert {(row["id"], row["match"]) for row in rows} == schedules


ORDERS = {
    Sort.NEWEST: "created_at DESC, id DESC",
    Sort.NAME: 'name COLLATE "C", id',
    Sort.NAME_DESCENDING: 'name COLLATE "C" DESC, id DESC',
    Sort.NEXT_RUN: "next_run_at NULLS LAST, id",
}


@pytest.mark.parametrize(("walked", "status"), [(10, None), (5_000, None), (100, "active")])
async def test_a_text_that_many_have_is_listed_in_every_order(
    filled: Database, monkeypatch: pytest.MonkeyPatch, walked: int, status: str | None
) -> None:
    """Page by page, with or without another filter, whether the texts are near the beginning of the order or far."""
    monkeypatch.setattr(schedule_lists, "MOST_WALKED", walked)
    # As if there were too many to count.
    monkeypatch.setattr(schedule_lists, "COUNTED", 100)
    filters = Filters(q="REPORT", status=status)
    for sort, order in ORDERS.items():
        async with filled.transaction() as connection:
            found: list[UUID] = []
            cursor: str | None = None
            for _ in range(3):
                part = Part(20, 0, cursor)
                listed = await page(connection, Listing(Reach((LARGE_OWNER,)), filters, part, sort), known_totals())
                found += [row.id for row in listed.items]
                cursor = listed.next_cursor
            expected = await sql_batches.fetch(
                connection,
                "SELECT id FROM scheduled_jobs WHERE user_profile_id = $1 AND name LIKE '%report%' "
                f"AND ($2::text IS NULL OR status = $2) ORDER BY {order} LIMIT 60",
                LARGE_OWNER,
                status,
            )
        assert [row["id"] for row in expected] == found, sort


async def test_a_list_that_is_surely_long_is_not_counted(filled: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planner's estimate is shown if the newest schedules agree with it; a short list has its exact total."""
    monkeypatch.setattr(schedule_lists, "COUNTED", 500)
    totals = {}
    async with filled.transaction() as connection:
        for q in ("report", "-777"):
            listed = await page(connection, Listing(Reach(None), Filters(q=q), Part(1)), known_totals())
            totals[q] = (listed.total, listed.total_is_estimate)
    assert (await count_with(filled, "-777"), False) == totals["-777"]
    long = await count_with(filled, "report")
    assert totals["report"][1]
    assert long / 2 < totals["report"][0] < long * 2


async def count_with(database: Database, part: str) -> int:
    """Return how many schedules contain a text."""
    async with database.transaction() as connection:
        names = "SELECT count(*) FROM scheduled_jobs WHERE name LIKE '%' || $1 || '%' OR key LIKE '%' || $1 || '%'"
        (row,) = await sql_batches.fetch(connection, names, part)
    return int(row[0])
