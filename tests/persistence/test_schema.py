"""The schema: what the migrations make is what the tables say, and the promises stand as constraints.

Covers app.persistence.migrations, app.persistence.schema_version, app.persistence.tables.accounts,
app.persistence.tables.base, app.persistence.tables.executions, app.persistence.tables.operations,
app.persistence.tables.schedules.
"""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from msgspec.structs import replace
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import create_async_engine
from structlog.testing import capture_logs

from app.domain.executions import ExecutionStatus, Trigger
from app.domain.ledger import LedgerEntry, LedgerOutcome
from app.domain.schedules import ScheduledJob, Status
from app.persistence import entity_runs, executions, ledger, schedules
from app.persistence.database import Database, database_now
from app.persistence.execution_rows import NewExecution
from app.persistence.migrations import alembic_config, migrate, run_alembic
from app.persistence.schema_version import is_enough, known_revisions, newest_revision
from app.persistence.tables import Base
from tests.support.carillon import Carillon, until


async def test_the_migrations_and_the_tables_agree(database_url: str) -> None:
    """`alembic check` finds nothing to do."""

    def check(connection: Connection) -> None:
        config = alembic_config()
        config.attributes["connection"] = connection
        command.check(config)

    await run_alembic(database_url, check)


DEFINITIONS = """
SELECT c.conrelid::regclass || ' ' || c.conname || ' ' || pg_get_constraintdef(c.oid) FROM pg_constraint AS c
JOIN pg_namespace AS n ON n.oid = c.connamespace JOIN pg_class AS t ON t.oid = c.conrelid
WHERE n.nspname = 'public' AND c.contype <> 'n' AND t.relname <> 'alembic_version' AND NOT t.relispartition
UNION ALL SELECT i.indexdef FROM pg_indexes AS i JOIN pg_class AS t ON t.oid = i.tablename::regclass
WHERE i.schemaname = 'public' AND i.tablename <> 'alembic_version' AND NOT t.relispartition
ORDER BY 1
"""


async def test_constraints_and_indexes_are_what_the_tables_say(database_url: str) -> None:
    """Alembic compares neither conditions nor constraints; the database itself does."""
    engine = create_async_engine(database_url)
    async with engine.begin() as connection:
        migrated = list((await connection.execute(text(DEFINITIONS))).scalars())
        await connection.run_sync(Base.metadata.drop_all)
        await connection.run_sync(Base.metadata.create_all)
        declared = list((await connection.execute(text(DEFINITIONS))).scalars())
    await engine.dispose()
    assert declared == migrated


async def test_migrating_twice_changes_nothing(database_url: str) -> None:
    """Nor does it fail."""
    await migrate(database_url)


async def test_a_later_schema_is_left_alone(database_url: str) -> None:
    """The code of the release before is installed again on it: there is nothing for it to do, and nothing wrong."""
    engine = create_async_engine(database_url)
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    await migrate(database_url)
    async with engine.begin() as connection:
        assert "9999" == (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar_one()
    await engine.dispose()


def _downgrade(revision: str, connection: Connection) -> None:
    config = alembic_config()
    config.attributes["connection"] = connection
    command.downgrade(config, revision)


async def test_a_migration_keeps_nobody_waiting(database: Database, database_url: str) -> None:
    """While a writer holds a table that it needs, others write to it too; it is done when the writer has gone."""
    # Two connections from before: a new one would wait for the migration.
    async with database.transaction(), database.transaction():
        await run_alembic(database_url, partial(_downgrade, "0007"))
    async with database.transaction() as writer:
        await writer.execute(text("LOCK TABLE workflows IN ROW EXCLUSIVE MODE"))
        with capture_logs() as events:
            migrating = asyncio.create_task(migrate(database_url))
            for times in (1, 2):
                await until(partial(_has_waited, events, times))
                async with database.transaction() as other:
                    await other.execute(text("LOCK TABLE workflows IN ROW EXCLUSIVE MODE"))
        assert not migrating.done()
    await asyncio.wait_for(migrating, 60)
    async with database.transaction() as connection:
        await connection.execute(text("SELECT * FROM managed_workflows"))


LOCKED = text(
    "SELECT count(*) FROM pg_class AS t WHERE t.relname = ANY(:names) AND pg_table_is_visible(t.oid) AND NOT EXISTS "
    "(SELECT FROM pg_locks AS l WHERE l.relation = t.oid AND l.pid = pg_backend_pid() AND l.granted "
    "AND l.mode = 'AccessExclusiveLock')"
)


async def test_a_migration_waits_for_all_tables_before_it_changes_one(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it waited between two changes, those who wait for the first table could be ended as part of a deadlock."""
    await run_alembic(database_url, partial(_downgrade, known_revisions()[-2]))
    not_locked: list[int] = []
    carried_out = command.upgrade

    def upgrade(config: Config, revision: str) -> None:
        connection = config.attributes["connection"]
        names = ["workflows", "scheduled_jobs", "user_profiles", "workflow_executions"]
        not_locked.append(connection.execute(LOCKED, {"names": names}).scalar_one())
        carried_out(config, revision)

    monkeypatch.setattr(command, "upgrade", upgrade)
    await migrate(database_url)
    assert [0] == not_locked


async def test_a_new_column_spoils_no_prepared_statement(database: Database) -> None:
    """A migration runs while workers do: what they have prepared names its columns."""
    for step in range(2):
        async with database.transaction() as connection:
            now = await database_now(connection)
            assert await executions.start(connection, uuid4(), 1, uuid4(), now) is None
            assert await entity_runs.start(connection, uuid4(), 1, uuid4()) is None
        async with database.transaction() as connection:
            await connection.execute(text(f"ALTER TABLE workflow_executions ADD COLUMN new{step} int DEFAULT 1"))


async def _has_waited(events: list[Any], times: int) -> bool:
    return [event["event"] for event in events].count("migration_postponed") >= times


LATE = "ix_scheduled_jobs_owner_id"
PARTITIONED = "ix_ledger_entries_slots"


async def test_indexes_of_large_tables_are_built_after_the_migration(database_url: str) -> None:
    """Missing ones, and those that an earlier attempt left unfinished; by several processes at once."""
    engine = create_async_engine(database_url)
    async with engine.begin() as connection:
        before = list((await connection.execute(text(DEFINITIONS))).scalars())
        await connection.execute(text(f"DROP INDEX {LATE}"))
        await connection.execute(text(f"DROP INDEX {PARTITIONED}"))
        # As the migration of a large table leaves it: in no partition.
        await connection.execute(
            text(f"CREATE INDEX {PARTITIONED} ON ONLY ledger_entries USING brin (first_slot) WITH (autosummarize = on)")
        )
        unfinished = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'ix_scheduled_jobs_reason'::regclass"
        await connection.execute(text(unfinished))
    with capture_logs() as events:
        await asyncio.gather(*(migrate(database_url) for _ in range(3)))
    assert [PARTITIONED, LATE, "ix_scheduled_jobs_reason"] == sorted(
        one["index"] for one in events if one["event"] == "index_building"
    )
    async with engine.begin() as connection:
        after = list((await connection.execute(text(DEFINITIONS))).scalars())
    await engine.dispose()
    assert before == after


async def test_a_large_table_is_not_blocked_by_a_new_index(carillon: Carillon, database_url: str) -> None:
    """The migration leaves it out, and builds it when the table is free for others."""
    await carillon.schedule()

    def again_with_many_rows(connection: Connection) -> None:
        config = alembic_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "0017")
        names = (column["name"] for column in inspect(connection).get_columns("scheduled_jobs"))
        copied = ", ".join(name for name in names if name != "id")
        connection.execute(
            text(
                f"INSERT INTO scheduled_jobs (id, {copied}) SELECT gen_random_uuid(), {copied} FROM scheduled_jobs, "
                "generate_series(1, 10000)"
            )
        )
        command.upgrade(config, "head")

    await run_alembic(database_url, again_with_many_rows)
    engine = create_async_engine(database_url)
    found = text("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)")
    async with engine.begin() as connection:
        assert [] == list((await connection.execute(found, {"name": LATE})).scalars())
    await migrate(database_url)
    async with engine.begin() as connection:
        assert [True] == list((await connection.execute(found, {"name": LATE})).scalars())
    await engine.dispose()


async def test_the_migrations_can_be_taken_back(database_url: str) -> None:
    """Down to nothing and up again."""

    def down_and_up(connection: Connection) -> None:
        config = alembic_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
        command.upgrade(config, "head")

    await run_alembic(database_url, down_and_up)


@pytest.fixture
async def job(carillon: Carillon, database: Database) -> ScheduledJob:
    """A schedule that exists."""
    made = await carillon.schedule()
    async with database.transaction() as connection:
        found = await schedules.get(connection, UUID(made["id"]))
    assert found is not None
    return found


async def execution(database: Database, job: ScheduledJob, **values: object) -> NewExecution:
    """A row for an execution that runs."""
    async with database.transaction() as connection:
        now = await database_now(connection)
    row = NewExecution(
        id=uuid4(),
        user_profile_id=job.user_profile_id,
        scheduled_job_id=job.id,
        workflow_id=job.workflow_id,
        trigger=Trigger.SCHEDULE,
        status=ExecutionStatus.PENDING,
        exclusive=True,
        repeat_number=0,
        retry_attempt=0,
        scheduled_for=now,
        payload={},
        timeout_seconds=5,
        created_at=now,
        due_at=now,
    )
    return replace(row, **values)


async def refused(database: Database, *rows: NewExecution) -> str:
    """The name of the constraint that refuses these executions."""
    with pytest.raises(IntegrityError) as caught:
        async with database.transaction() as connection:
            for row in rows:
                await executions.add(connection, [row])
    return str(caught.value.orig)


async def test_one_execution_for_each_schedule_slot_and_retry(database: Database, job: ScheduledJob) -> None:
    """A second one is refused by the database itself: the id is computed from these."""
    first = await execution(database, job, exclusive=False)
    assert "_pkey" in await refused(database, first, first)


async def test_under_skip_one_active_execution_for_each_schedule(database: Database, job: ScheduledJob) -> None:
    """Even for another slot."""
    first = await execution(database, job)
    other = replace(first, id=uuid4(), scheduled_for=first.scheduled_for - timedelta(seconds=1))
    assert "uq_active_executions_no_overlap" in await refused(database, first, other)


async def test_an_execution_never_starts_before_its_slot(database: Database, job: ScheduledJob) -> None:
    """Nothing fires early."""
    row = await execution(database, job)
    early = replace(
        row,
        status=ExecutionStatus.RUNNING,
        worker_id=uuid4(),
        started_at=row.scheduled_for - timedelta(milliseconds=1),
    )
    assert "never_early" in await refused(database, early)


@pytest.mark.parametrize(
    ("constraint", "change"),
    [
        ("only_active_is_planned", {"status": Status.PAUSED}),
        ("tick_whole", {"next_slot": None}),
        ("dead_since", {"status": Status.DEAD, "next_slot": None, "next_run_at": None}),
        ("done_at_the_limit", {"total_repeats": 1, "current_repeat": 1}),
        ("interval_positive", {"interval_seconds": 0}),
        ("counters_not_negative", {"run_count": -1}),
    ],
)
async def test_a_schedule_in_an_impossible_state_is_refused(
    database: Database, job: ScheduledJob, constraint: str, change: dict[str, object]
) -> None:
    """The same invariants that the code keeps."""
    with pytest.raises(IntegrityError, match=constraint):
        async with database.transaction() as connection:
            await schedules.save(connection, [replace(job, **change)])


async def test_a_slot_has_one_entry_in_the_ledger(database: Database, job: ScheduledJob) -> None:
    """A second one is refused."""
    slot = job.next_slot
    assert slot is not None
    entry = LedgerEntry(first_slot=slot, last_slot=slot, slot_count=1, outcome=LedgerOutcome.MISSED, reason="r")
    with pytest.raises(IntegrityError, match=r"ledger_entries_.*_pkey"):
        async with database.transaction() as connection:
            await ledger.add(connection, [(job.id, entry), (job.id, entry)])


async def test_finding_what_is_due_uses_its_index(database: Database, job: ScheduledJob) -> None:
    """Whatever the number of schedules that are not due."""
    async with database.transaction() as connection:
        await connection.execute(text("SET LOCAL enable_seqscan = off"))
        plan = await connection.execute(
            text("EXPLAIN SELECT * FROM due_ticks WHERE next_run_at <= now() ORDER BY next_run_at LIMIT 10")
        )
        assert "ix_due_ticks_next_run_at" in "\n".join(plan.scalars())


def test_the_names_of_the_migrations_tell_what_alembic_would() -> None:
    """Processes that only wait for the schema do not load Alembic."""
    script = ScriptDirectory.from_config(alembic_config())
    assert {one.revision for one in script.walk_revisions()} == set(known_revisions())
    assert script.get_current_head() == newest_revision()
    assert [True, False, False, True] == [is_enough(one) for one in (newest_revision(), "0001", None, "9999")]
