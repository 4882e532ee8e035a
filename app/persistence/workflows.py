"""Workflows in the database: read, locked and written, each change with a revision."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Select, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Owner, Reach
from app.domain.audit import ObjectType, Subject
from app.domain.declarations import same
from app.domain.errors import KeyTakenError
from app.domain.revisions import Author, workflow_revision
from app.domain.workflows import target_hosts
from app.persistence import revisions
from app.persistence.pagination import Page, Part, read_all, read_of_owners, read_one, read_page, read_written
from app.persistence.restrictions import workflows_within
from app.persistence.sql_batches import fetch
from app.persistence.tables import WorkflowRow

_TABLE = WorkflowRow.__table__


class StoredWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """A stored workflow: nodes and edges are JSON values."""

    id: int
    user_profile_id: int
    owner_kind: str
    owner_id: str
    name: str
    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]]
    active: bool
    max_concurrent_runs: int | None
    breaker_threshold: int | None
    breaker_reset_seconds: int | None
    created_at: datetime
    updated_at: datetime
    team_id: int | None = None
    key: str | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    limit: str | None = None


@contextmanager
def _unique_keys() -> Iterator[None]:
    """Report an owner's second workflow of the same key as a conflict."""
    try:
        yield
    except IntegrityError as error:
        if "uq_workflows_key" in str(error.orig):
            raise KeyTakenError from None
        raise


async def add(connection: AsyncConnection, owner: Owner, values: dict[str, Any], author: Author) -> StoredWorkflow:
    """Create a workflow and its first revision."""
    stored = {**values, **msgspec.structs.asdict(owner), "target_hosts": target_hosts(values["nodes"])}
    with _unique_keys():
        statement = insert(WorkflowRow).values(stored).returning(*_TABLE.c)
        after = await read_written(connection, statement, StoredWorkflow)
    await _add_revision(connection, None, after, author)
    return after


async def get(connection: AsyncConnection, workflow_id: int) -> StoredWorkflow | None:
    """Return a workflow, or None."""
    return await read_one(connection, _one(workflow_id), StoredWorkflow)


async def lock_to_change(connection: AsyncConnection, workflow_id: int) -> StoredWorkflow | None:
    """Lock a workflow against other changes and return it, or None. Schedules may still be created for it."""
    return await read_one(connection, _one(workflow_id).with_for_update(key_share=True), StoredWorkflow)


async def lock_to_delete(connection: AsyncConnection, workflow_id: int) -> StoredWorkflow | None:
    """Lock a workflow against every use and return it, or None.

    Other transactions that want to use it wait here, before they have locked any schedule.
    """
    return await read_one(connection, _one(workflow_id).with_for_update(), StoredWorkflow)


async def rows(connection: AsyncConnection, ids: Iterable[int]) -> dict[int, StoredWorkflow]:
    """Return these workflows by id; unknown ids are left out."""
    query = select(_TABLE).where(_TABLE.c.id.in_(sorted(ids)))
    return {workflow.id: workflow for workflow in await read_all(connection, query, StoredWorkflow)}


async def all_of(connection: AsyncConnection, user_profile_id: int) -> dict[int, StoredWorkflow]:
    """Return every workflow of an owner by id."""
    query = select(_TABLE).where(_TABLE.c.user_profile_id == user_profile_id)
    return {workflow.id: workflow for workflow in await read_all(connection, query, StoredWorkflow)}


async def ids_of_name(connection: AsyncConnection, name: str) -> list[int]:
    """Return the ids of the workflows of a name; several workflows may share one."""
    return list((await connection.execute(select(_TABLE.c.id).where(_TABLE.c.name == name))).scalars())


async def names(connection: AsyncConnection, ids: set[int]) -> dict[int, tuple[str, str]]:
    """Return the names and the target hosts of those of these workflows that exist."""
    query = select(_TABLE.c.id, _TABLE.c.name, _TABLE.c.target_hosts).where(_TABLE.c.id.in_(sorted(ids)))
    return {row.id: (row.name, row.target_hosts) for row in await connection.execute(query)}


_OWNERS = "SELECT id, user_profile_id FROM workflows WHERE id = ANY($1::int[]) ORDER BY id FOR KEY SHARE"


async def owners(connection: AsyncConnection, ids: set[int]) -> dict[int, int]:
    """Return the owners of these workflows by id, without those that do not exist.

    The workflows are locked: they cannot be deleted before the transaction ends.
    """
    return {row["id"]: row["user_profile_id"] for row in await fetch(connection, _OWNERS, sorted(ids))}


async def save(
    connection: AsyncConnection, before: StoredWorkflow, values: dict[str, Any], author: Author, note: str = ""
) -> StoredWorkflow:
    """Change a workflow that this transaction has locked, and add a revision. Equal values change nothing."""
    if all(same(getattr(before, name), value) for name, value in values.items()):
        return before
    changed = {**values, "updated_at": func.clock_timestamp()}
    if "nodes" in values:
        changed["target_hosts"] = target_hosts(values["nodes"])
    statement = update(WorkflowRow).where(_TABLE.c.id == before.id).values(changed)
    with _unique_keys():
        after = await read_written(connection, statement.returning(*_TABLE.c), StoredWorkflow)
    await _add_revision(connection, before, after, author, note)
    return after


async def remove(connection: AsyncConnection, workflow_id: int) -> None:
    """Delete a workflow, and with it its schedules and their history."""
    await connection.execute(delete(WorkflowRow).where(_TABLE.c.id == workflow_id))


async def _add_revision(
    connection: AsyncConnection, before: StoredWorkflow | None, after: StoredWorkflow, author: Author, note: str = ""
) -> None:
    values_before = None if before is None else msgspec.structs.asdict(before)
    revision = workflow_revision(values_before, msgspec.structs.asdict(after), author, note)
    if revision is not None:
        await revisions.add_workflow_revision(connection, revision, subject_of(after), author)


def subject_of(workflow: StoredWorkflow) -> Subject:
    """Return a workflow as what an event of the audit log is about."""
    return Subject(ObjectType.WORKFLOW, str(workflow.id), workflow.name, workflow.user_profile_id)


def _one(workflow_id: int) -> Select[Any]:
    return select(_TABLE).where(_TABLE.c.id == workflow_id)


async def page(connection: AsyncConnection, reach: Reach, part: Part) -> Page[StoredWorkflow]:
    """Return a page of the workflows within reach, newest first."""

    async def read(owner: int | None, part: Part) -> Page[StoredWorkflow]:
        query: Select[Any] = select(_TABLE)
        if owner is not None:
            query = query.where(_TABLE.c.user_profile_id == owner)
        query = query.where(workflows_within(reach))
        return await read_page(connection, query, StoredWorkflow, (_TABLE.c.id,), part)

    return await read_of_owners(reach.owners, part, read)
