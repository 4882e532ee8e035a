"""What a user has, for a user who is disabled or deleted: counted, listed, handed over, deleted."""

from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.audit import ObjectType, Subject
from app.persistence import entity_runs

_COUNT = text("SELECT count(*) FROM (SELECT FROM scheduled_jobs WHERE user_profile_id = :user LIMIT 1) AS few")
_ACTIVE_SCHEDULES = text(
    "SELECT id FROM scheduled_jobs WHERE user_profile_id = :user AND status = 'active' ORDER BY id LIMIT :limit"
)
# In the order in which everything locks: workflows, schedules, executions.
_LOCKS = (
    text("SELECT FROM workflows WHERE user_profile_id = :user ORDER BY id FOR UPDATE"),
    text("SELECT FROM scheduled_jobs WHERE user_profile_id = :user ORDER BY id FOR UPDATE"),
)
_TEAM = "(SELECT t.id FROM teams AS t WHERE t.id = :to)"
# A key that the new owner has already is dropped.
_DROP_KEYS = tuple(
    text(
        f"UPDATE {table} AS t SET key = NULL WHERE t.user_profile_id = :user AND t.key IS NOT NULL "  # noqa: S608
        f"AND EXISTS (SELECT FROM {table} AS o WHERE o.user_profile_id = :to AND o.key = t.key)"
    )
    for table in ("workflows", "scheduled_jobs")
)
_HAND_OVER = tuple(
    text(f"UPDATE {table} SET user_profile_id = :to, team_id = {_TEAM}{owner} WHERE user_profile_id = :user")  # noqa: S608
    for table, owner in (
        ("workflows", ", owner_id = :owner_id"),
        ("scheduled_jobs", ", owner_id = :owner_id"),
        ("webhooks", ""),
        ("notifications", ""),
    )
)
# Executions that have ended stay where they are: there may be millions. They are found by their schedule.
_HAND_OVER_ACTIVE = text(
    "UPDATE workflow_executions AS e SET user_profile_id = :to FROM active_executions AS a "
    "WHERE a.id = e.id AND e.user_profile_id = :user"
)
# A secret whose name the new owner has already is deleted with its user.
_HAND_OVER_SECRETS = text(
    f"UPDATE secrets AS s SET owner_id = :to, team_id = {_TEAM} WHERE s.owner_id = :user "  # noqa: S608
    "AND NOT EXISTS (SELECT FROM secrets AS o WHERE o.owner_id = :to AND o.name = s.name)"
)
# What goes with an owner who is deleted: schedules of others that run a workflow of theirs, too.
_OWNED = text(
    "SELECT 'workflow' AS type, id::text AS id, name, user_profile_id FROM workflows WHERE user_profile_id = :user "
    "UNION ALL SELECT 'schedule', id::text, name, user_profile_id FROM scheduled_jobs WHERE user_profile_id = :user "
    "UNION ALL SELECT 'schedule', j.id::text, j.name, j.user_profile_id FROM workflows AS w "
    "JOIN scheduled_jobs AS j ON j.workflow_id = w.id WHERE w.user_profile_id = :user AND :with_others "
    "AND j.user_profile_id <> :user "
    "UNION ALL SELECT 'webhook', id::text, name, user_profile_id FROM webhooks WHERE user_profile_id = :user "
    "UNION ALL SELECT 'notification', id::text, '', user_profile_id FROM notifications WHERE user_profile_id = :user"
)
_WEBHOOKS = text("SELECT id FROM webhooks WHERE user_profile_id = :user")
_ACTIVE_RUNS = text(
    "SELECT a.id FROM active_executions AS a JOIN workflow_executions AS e ON e.id = a.id "
    "WHERE e.user_profile_id = :user"
)
_DELETE = text("DELETE FROM user_profiles WHERE id = :user")


async def has_schedules(connection: AsyncConnection, user_id: int) -> bool:
    """Return whether a user has a schedule."""
    return bool((await connection.execute(_COUNT, {"user": user_id})).scalar_one())


async def active_schedules(connection: AsyncConnection, user_id: int, limit: int) -> list[UUID]:
    """Return some active schedules of a user."""
    return list((await connection.execute(_ACTIVE_SCHEDULES, {"user": user_id, "limit": limit})).scalars())


async def owned(connection: AsyncConnection, user_id: int, *, with_others: bool) -> list[Subject]:
    """Return what a user has as what events are about, with schedules of others on their workflows if told to."""
    rows = await connection.execute(_OWNED, {"user": user_id, "with_others": with_others})
    return [Subject(ObjectType(row.type), row.id, row.name, row.user_profile_id) for row in rows]


async def hand_over(connection: AsyncConnection, user_id: int, to: int) -> None:
    """Give everything that a user has to another user."""
    values = {"user": user_id, "to": to, "owner_id": str(to)}
    for statement in (*_LOCKS, *_DROP_KEYS, *_HAND_OVER, _HAND_OVER_ACTIVE, _HAND_OVER_SECRETS):
        await connection.execute(statement, {name: values[name] for name in statement.compile().params})


async def delete_user(connection: AsyncConnection, user_id: int) -> list[UUID]:
    """Delete a user with everything that is left of them. Return the executions that have to be called off."""
    values = {"user": user_id}
    for statement in _LOCKS:
        await connection.execute(statement, values)
    running = list((await connection.execute(_ACTIVE_RUNS, values)).scalars())
    for webhook in (await connection.execute(_WEBHOOKS, values)).scalars().all():
        running += await entity_runs.remove(connection, "webhook", str(webhook))
    await connection.execute(_DELETE, values)
    return running
