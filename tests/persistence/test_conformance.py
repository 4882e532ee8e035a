"""The fast path and the locked path are one: the same rows go through both, and whole rows are compared.

Covers app.persistence.claim, app.persistence.fast_path, app.persistence.fast_path_sql, app.persistence.settle.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from sqlalchemy import text

from app.config import Settings
from app.domain.executions import Execution, ExecutionStatus, NodeResult, Outcome
from app.domain.schedules import ScheduledJob
from app.domain.ticks import FROM_PING, FROM_WORKER, Fire, Tick, TickSource
from app.persistence import fast_path_sql, schedules
from app.persistence.claim import claim_locked
from app.persistence.database import Database, database_now
from app.persistence.execution_rows import (
    Claimed,
    ClaimResult,
    Completed,
    RunAhead,
    RunResult,
    Settled,
    SettleResult,
    first_run,
)
from app.persistence.fast_path import claim_fast, settle_fast
from app.persistence.row_cache import RowVersions, ScheduleCache
from app.persistence.settle import settle_locked
from app.persistence.sql_batches import fetch
from app.persistence.tables import Base
from tests.support.carillon import Carillon, Json, engine_of, make_due

Rows = dict[str, list[Json]]
TABLES = {
    "scheduled_jobs": "id",
    "due_ticks": "id",
    "workflow_executions": "id",
    "ledger_entries": "scheduled_job_id, first_slot",
    "schedule_revisions": "id",
    "deliveries": "id",
}
# The clock when a row was written, which no decision depends on.
WRITTEN_AT = {("scheduled_jobs", "updated_at"), ("ledger_entries", "created_at")}

# However long a stalled machine takes from the slot to the claim, it counts as late and not as missed.
GRACE = {"misfire_grace_seconds": 86_400}
HOURLY: Json = {"interval_seconds": 3600, **GRACE}
CRON: Json = {"cron": "0 * * * *", **GRACE}
# The fields of a schedule, and how many seconds ago its tick was due.
CASES: dict[str, tuple[Json, float]] = {
    "on time": (HOURLY, 0),
    "allow": ({**HOURLY, "if_running": "allow"}, 0),
    "cancel": ({**HOURLY, "if_running": "cancel"}, 0),
    "queue": ({**HOURLY, "if_running": "queue", "max_queued": 3}, 0),
    "payload and timeout": ({**HOURLY, "trigger_payload": {"a": [1, None]}, "timeout_seconds": 7}, 0),
    "jitter": ({**HOURLY, "jitter_seconds": 600}, 0),
    "limited repeats": ({**HOURLY, "total_repeats": 5}, 0),
    "window": ({**HOURLY, "only_between": "00:00-23:59", "timezone": "Europe/Berlin"}, 0),
    "end in view": ({**HOURLY, "end_at": "2199-12-31T00:00:00Z"}, 0),
    "one slot missed": (HOURLY, 3700),
    "three slots missed": (HOURLY, 11_000),
    "missed by cron": (CRON, 11_000),
}


# Slots of cron expressions are full hours.
_CRON_DUE = text(
    "UPDATE scheduled_jobs SET next_slot = date_trunc('hour', next_slot), next_run_at = date_trunc('hour', next_slot), "
    "cadence_slot = date_trunc('hour', next_slot) WHERE cron IS NOT NULL"
)


class World:
    """Schedules that are due, which can be brought back to the state before anything was claimed."""

    def __init__(self, database: Database, worker_id: UUID, ticks: Sequence[Tick]) -> None:
        self.database = database
        self.worker_id = worker_id
        self.ticks = ticks
        self._before: list[Json] = []

    async def remember(self) -> None:
        """Take the rows of the schedules as the state to begin from."""
        self._before = (await self.rows())["scheduled_jobs"]
        assert len(self.ticks) == len(self._before)

    async def begin_again(self) -> None:
        """Restore the schedules, and delete what came of them."""
        columns = ", ".join(f'"{name}"' for name in self._before[0])
        restore = text(
            f"UPDATE scheduled_jobs AS j SET ({columns}) = (SELECT {columns} FROM "
            "jsonb_populate_record(NULL::scheduled_jobs, CAST(:row AS jsonb))) WHERE j.id = CAST(:id AS uuid)"
        )
        async with self.database.transaction() as connection:
            for table in ("workflow_executions", "ledger_entries", "deliveries"):
                await connection.execute(text(f"DELETE FROM {table}"))
            for row in self._before:
                await connection.execute(restore, {"row": msgspec.json.encode(row).decode(), "id": row["id"]})

    async def rows(self) -> Rows:
        """All rows, as JSON."""
        async with self.database.transaction() as connection:
            return {
                table: [
                    row.body
                    for row in await connection.execute(
                        text(f"SELECT to_jsonb(t) AS body FROM {table} AS t ORDER BY {order}")
                    )
                ]
                for table, order in TABLES.items()
            }


@asynccontextmanager
async def world_of(carillon: Carillon, settings: Settings, database: Database, *cases: tuple[Json, float]) -> Any:
    """A world of one schedule for each case, with a worker whose lease holds."""
    ticks = []
    workflow = await carillon.workflow()
    for fields, seconds_ago in cases:
        made = await carillon.schedule(workflow, **fields)
        due = await make_due(database, made, seconds_ago)
        ticks.append(Tick(UUID(made["id"]), due["generation"]))
    async with database.transaction() as connection:
        # A success resets it; as if an earlier retry had succeeded in a release that forgot to.
        await connection.execute(text("UPDATE scheduled_jobs SET current_retry = 1"))
        await connection.execute(_CRON_DUE)
    async with engine_of(settings) as engine:
        world = World(database, engine._lease.worker_id, ticks)
        await world.remember()
        yield world


async def by_fast_path(world: World, source: TickSource) -> tuple[Rows, Rows]:
    """The rows after the claim, and after all runs have succeeded."""
    cache = ScheduleCache()

    async def claim() -> Sequence[ClaimResult | None]:
        return await claim_fast(world.database, world.ticks, world.worker_id, source, cache)

    async def settle(results: Sequence[RunResult]) -> Sequence[SettleResult]:
        return list((await settle_fast(world.database, results, cache)).values())

    return await claimed_and_settled(world, claim, settle)


async def by_locked_path(world: World, source: TickSource) -> tuple[Rows, Rows]:
    """The same, by the other path."""

    async def claim() -> Sequence[ClaimResult | None]:
        return await claim_locked(world.database, world.ticks, world.worker_id, source)

    async def settle(results: Sequence[RunResult]) -> Sequence[SettleResult]:
        async with world.database.transaction() as connection:
            return await settle_locked(connection, [result.outcome for result in results])

    return await claimed_and_settled(world, claim, settle)


async def at_once(world: World, source: TickSource, *, is_cached: bool = False) -> Rows:
    """The rows after claims that were written with the ends of their runs, which had run before."""
    await world.begin_again()
    cache = ScheduleCache()
    async with world.database.reading() as connection:
        for version, job in await schedules.many(connection, [tick.job_id for tick in world.ticks]):
            if is_cached:
                cache.keep(job, version)
        ((flow, user),) = await fetch(
            connection, "SELECT w.xmin, u.xmin FROM workflows AS w JOIN user_profiles AS u ON u.id = w.user_profile_id"
        )
        cache.hear(await database_now(connection), reports_missed=False)

    def run_ahead(job: ScheduledJob, fire: Fire, now: datetime) -> RunAhead:
        run = first_run(job, fire, now)
        return RunAhead(run, success_of(run), RowVersions(flow, user))

    results = await claim_fast(world.database, world.ticks, world.worker_id, source, cache, run_ahead)
    assert [Completed] * len(world.ticks) == [type(result) for result in results], "not all runs were ended"
    return normal(await world.rows())


async def claimed_and_settled(
    world: World,
    claim: Callable[[], Awaitable[Sequence[ClaimResult | None]]],
    settle: Callable[[Sequence[RunResult]], Awaitable[Sequence[SettleResult]]],
) -> tuple[Rows, Rows]:
    """Claim all ticks and let all runs succeed, from the beginning."""
    await world.begin_again()
    claimed = [result for result in await claim() if isinstance(result, Claimed)]
    assert len(world.ticks) == len(claimed), "not all ticks were claimed"
    after_claim = normal(await world.rows())
    settled = await settle([succeeded(result) for result in claimed])
    assert [Settled] * len(world.ticks) == [type(result) for result in settled], "not all runs were settled"
    return after_claim, normal(await world.rows())


def succeeded(claimed: Claimed) -> RunResult:
    """A success with the result of one node."""
    run = claimed.execution
    assert run is not None
    return RunResult(success_of(run), run, claimed.version)


def success_of(run: Execution) -> Outcome:
    """The outcome of a run that has succeeded."""
    node = NodeResult(
        node_id="work",
        type="core.noop",
        status=ExecutionStatus.SUCCESS,
        output={"answer": 42},
        error="",
        started_at=run.scheduled_for,
        finished_at=run.scheduled_for,
    )
    return Outcome(
        execution_id=run.id,
        scheduled_job_id=run.scheduled_job_id,
        token=run.token,
        status=ExecutionStatus.SUCCESS,
        node_results=(node,),
    )


def normal(rows: Rows) -> Rows:
    """Rows with names in the place of the moments of claim and end, which differ between two runs of a test."""
    moments: dict[str, str] = {}
    for run in rows["workflow_executions"]:
        moments[run["created_at"]] = "<claim>"
        if run["finished_at"]:
            moments[run["finished_at"]] = "<end>"

    def named(table: str, column: str, value: Any) -> Any:
        if (table, column) in WRITTEN_AT:
            return "<written>"
        return moments.get(value, value) if isinstance(value, str) else value

    return {
        table: [{column: named(table, column, value) for column, value in row.items()} for row in listed]
        for table, listed in rows.items()
    }


@pytest.mark.parametrize("source", [FROM_WORKER, FROM_PING], ids=["worker", "ping"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_both_paths_write_the_same_rows(
    carillon: Carillon, settings: Settings, database: Database, case: tuple[Json, float], source: TickSource
) -> None:
    """After the claim and after the settle, column by column."""
    async with world_of(carillon, settings, database, case) as world:
        assert await by_locked_path(world, source) == await by_fast_path(world, source)


@pytest.mark.parametrize(
    "names", [[*CASES, *CASES], ["missed by cron"] * 2, ["payload and timeout"] * 3], ids=["all", "missed", "equal"]
)
async def test_both_paths_write_the_same_rows_for_a_batch(
    carillon: Carillon, settings: Settings, database: Database, names: list[str]
) -> None:
    """A value that is equal in all rows of a batch is written for each of them."""
    async with world_of(carillon, settings, database, *(CASES[name] for name in names)) as world:
        assert await by_locked_path(world, FROM_WORKER) == await by_fast_path(world, FROM_WORKER)


@pytest.mark.parametrize("source", [FROM_WORKER, FROM_PING], ids=["worker", "ping"])
@pytest.mark.parametrize("names", [*([name] for name in CASES), list(CASES)], ids=[*CASES, "all"])
async def test_a_claim_with_its_end_writes_the_same_rows(
    carillon: Carillon, settings: Settings, database: Database, names: list[str], source: TickSource
) -> None:
    """As a claim and then a settle."""
    async with world_of(carillon, settings, database, *(CASES[name] for name in names)) as world:
        _, settled = await by_locked_path(world, source)
        assert settled == await at_once(world, source)


async def test_a_claim_of_cached_schedules_with_its_end_writes_the_same_rows(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """Nothing is read before the statement, also where slots were missed and nobody is notified of that."""
    async with world_of(carillon, settings, database, *CASES.values()) as world:
        _, settled = await by_locked_path(world, FROM_WORKER)
        assert settled == await at_once(world, FROM_WORKER, is_cached=True)


async def test_a_wrong_column_in_the_statement_of_claim_and_end_is_found(
    carillon: Carillon, settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each column that it writes is spoilt once, and the comparison says so."""
    not_found = []
    async with world_of(carillon, settings, database, CASES["jitter"], CASES["three slots missed"]) as world:
        _, expected = await by_locked_path(world, FROM_WORKER)
        for name, column, spoilt in spoilt_statements("CLAIM_ENDED"):
            monkeypatch.setattr(fast_path_sql, name, spoilt)
            try:
                same = expected == await at_once(world, FROM_WORKER)
            except AssertionError:
                same = False
            monkeypatch.undo()
            if same:
                not_found.append(column)
    assert [] == not_found


async def test_a_wrong_column_in_the_statements_is_found(
    carillon: Carillon, settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each column that the statements write is spoilt once, and the comparison says so."""
    cases = (CASES["jitter"], CASES["three slots missed"])
    not_found = []
    async with world_of(carillon, settings, database, *cases) as world:
        expected = await by_locked_path(world, FROM_WORKER)
        for name, column, spoilt in [*spoilt_statements("CLAIM"), *spoilt_statements("SETTLE")]:
            monkeypatch.setattr(fast_path_sql, name, spoilt)
            try:
                same = expected == await by_fast_path(world, FROM_WORKER)
            except AssertionError:
                same = False
            monkeypatch.undo()
            if same:
                not_found.append(column)
    assert [] == not_found


def spoilt_statements(name: str) -> Iterator[tuple[str, str, str]]:
    """A statement once for each column that it writes, with a wrong value there."""
    sql = getattr(fast_path_sql, name)
    written = list(_assignments(sql)) + list(_inserted(sql))
    assert len(written) > 10
    for table, column, start, value in written:
        if (table, column) not in WRITTEN_AT:
            wrong = _wrong(table, column, value)
            yield name, f"{table}.{column}", sql[:start] + wrong + sql[start + len(value) :]


def _assignments(sql: str) -> Iterator[tuple[str, str, int, str]]:
    for update in re.finditer(r"UPDATE (\w+) AS t\s+SET (.*?)\n\s*FROM", sql, re.DOTALL):
        for start, part in _parts(sql, update.start(2), update.end(2)):
            column, _, value = part.partition(" = ")
            yield update[1], column.strip(), start + part.index(value), value


def _inserted(sql: str) -> Iterator[tuple[str, str, int, str]]:
    for insert in re.finditer(r"INSERT INTO (\w+) \((.*?)\)\s+SELECT (.*?)\n\s*FROM", sql, re.DOTALL):
        columns = [column.strip() for column in insert[2].split(",")]
        values = list(_parts(sql, insert.start(3), insert.end(3)))
        assert len(columns) == len(values)
        for column, (start, part) in zip(columns, values, strict=True):
            value = part.strip()
            yield insert[1], column, start + part.index(value), value


def _parts(sql: str, start: int, end: int) -> Iterator[tuple[int, str]]:
    """What stands between the commas that are not within brackets."""
    depth, begin = 0, start
    for position in range(start, end + 1):
        letter = sql[position] if position < end else ","
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            yield begin, sql[begin:position]
            begin = position + 1


def _wrong(table: str, column: str, value: str) -> str:
    kind = Base.metadata.tables[table].c[column].type.python_type
    wrong = {
        bool: f"NOT ({value})",
        int: f"({value}) + 1",
        datetime: f"({value}) + interval '1 second'",
        str: f"({value}) || 'x'",
        UUID: "gen_random_uuid()",
    }
    return wrong.get(kind, """'{"wrong": true}'::jsonb""")
