"""Workflows: written and read."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Row, Select, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor
from app.domain.declarations import same
from app.domain.revisions import Author, workflow_revision
from app.persistence import revisions
from app.persistence.pagination import Page, Part, read_page
from app.persistence.tables import WorkflowRow

_TABLE = WorkflowRow.__table__


async def add(connection: AsyncConnection, owner: Actor, values: dict[str, Any], author: Author) -> Row[Any]:
    """Create a workflow of somebody's, and write its history."""
    owned = {"user_profile_id": owner.user_id, "owner_kind": owner.kind, "owner_id": owner.owner_id}
    after = (await connection.execute(insert(WorkflowRow).values(values | owned).returning(*_TABLE.c))).one()
    await _remember(connection, None, after, author)
    return after


async def get(connection: AsyncConnection, workflow_id: int) -> Row[Any] | None:
    """One workflow."""
    return await _read(connection, _one(workflow_id))


async def lock_to_change(connection: AsyncConnection, workflow_id: int) -> Row[Any] | None:
    """One workflow, locked against other changes; schedules may still be made for it."""
    return await _read(connection, _one(workflow_id).with_for_update(key_share=True))


async def lock_to_delete(connection: AsyncConnection, workflow_id: int) -> Row[Any] | None:
    """One workflow, locked against everything: whoever wants to use it waits here, before any schedule is locked."""
    return await _read(connection, _one(workflow_id).with_for_update())


async def rows(connection: AsyncConnection, ids: Iterable[int]) -> dict[int, Row[Any]]:
    """Those of these workflows that there are."""
    found = await connection.execute(select(_TABLE).where(_TABLE.c.id.in_(sorted(ids))))
    return {row.id: row for row in found}


async def all_of(connection: AsyncConnection, user_profile_id: int) -> dict[int, Row[Any]]:
    """Every workflow of one owner, by id."""
    rows = await connection.execute(select(_TABLE).where(_TABLE.c.user_profile_id == user_profile_id))
    return {row.id: row for row in rows}


async def ids_of_name(connection: AsyncConnection, name: str) -> list[int]:
    """The workflows of a name; several may share one."""
    return list((await connection.execute(select(_TABLE.c.id).where(_TABLE.c.name == name))).scalars())


async def owners(connection: AsyncConnection, ids: set[int]) -> dict[int, int]:
    """Who owns these workflows; those that do not exist are missing. They stay until the transaction ends."""
    query = select(_TABLE.c.id, _TABLE.c.user_profile_id).where(_TABLE.c.id.in_(sorted(ids)))
    locked = query.order_by(_TABLE.c.id).with_for_update(read=True, key_share=True)
    return {row.id: row.user_profile_id for row in await connection.execute(locked)}


async def save(connection: AsyncConnection, before: Row[Any], values: dict[str, Any], author: Author) -> Row[Any]:
    """Change a workflow that this transaction has locked, and write its history. Equal values change nothing."""
    if all(same(getattr(before, name), value) for name, value in values.items()):
        return before
    changed = {**values, "updated_at": func.clock_timestamp()}
    statement = update(WorkflowRow).where(_TABLE.c.id == before.id).values(changed)
    after = (await connection.execute(statement.returning(*_TABLE.c))).one()
    await _remember(connection, before, after, author)
    return after


async def remove(connection: AsyncConnection, workflow_id: int) -> None:
    """Delete a workflow, and with it its schedules and their history."""
    await connection.execute(delete(WorkflowRow).where(_TABLE.c.id == workflow_id))


async def _remember(connection: AsyncConnection, before: Row[Any] | None, after: Row[Any], author: Author) -> None:
    revision = workflow_revision(None if before is None else before._asdict(), after._asdict(), author)
    if revision is not None:
        await revisions.add_workflow_revisions(connection, revision)


async def _read(connection: AsyncConnection, query: Select[Any]) -> Row[Any] | None:
    row: Row[Any] | None = (await connection.execute(query)).one_or_none()
    return row


def _one(workflow_id: int) -> Select[Any]:
    return select(_TABLE).where(_TABLE.c.id == workflow_id)


async def page(connection: AsyncConnection, actor: Actor, part: Part) -> Page:
    """The workflows that the actor may see, newest first."""
    query = select(_TABLE)
    if actor.owner_filter is not None:
        query = query.where(_TABLE.c.user_profile_id == actor.owner_filter)
    return await read_page(connection, query, (_TABLE.c.id,), part)
