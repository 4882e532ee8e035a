"""Alembic's environment: uses the connection of ``carillon migrate``, or CARILLON_DATABASE_URL on the command line."""

import asyncio

from alembic import context
from alembic.runtime.migration import MigrationInfo
from sqlalchemy import Connection

from app.config import load_settings
from app.persistence.migrations import run_alembic
from app.persistence.tables import Base

# Prefixes of the weekly partitions, which workers create as time passes; Alembic must ignore them.
PARTITIONS = ("workflow_executions_", "ledger_entries_", "audit_events_")


def is_ours(name: str | None, kind: str, _parents: object) -> bool:
    """Whether the tables of the code say anything about this."""
    return kind != "table" or name is None or not name.startswith(PARTITIONS)


# Indexes with a collation, which Alembic does not see when it reads the schema. A test compares their definitions.
COLLATED = (
    *("ix_scheduled_jobs_name", "ix_scheduled_jobs_owner_name", "ix_scheduled_jobs_whole_name"),
    "ix_workflows_name",
)


def is_comparable(_thing: object, name: str | None, kind: str, _reflected: object, _compared_to: object) -> bool:
    """Whether Alembic can tell if a thing of the schema is as the code says."""
    return kind != "index" or name not in COLLATED


def report_step(*, step: MigrationInfo, **_: object) -> None:
    """Tell `carillon migrate` which revision was applied."""
    report = context.config.attributes.get("report")
    if report is not None:
        report(f"applied revision {step.up_revision_id}")


def run(connection: Connection) -> None:
    """Apply the migrations in the connection's own transaction."""
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        compare_server_default=True,
        include_name=is_ours,
        include_object=is_comparable,
        on_version_apply=report_step,
    )
    with context.begin_transaction():
        context.run_migrations()


handed_over = context.config.attributes.get("connection")
if handed_over is not None:
    run(handed_over)
else:
    asyncio.run(run_alembic(load_settings().database_url, run))
