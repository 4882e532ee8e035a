"""What an owner, a user or a team, has when the owner is disabled or deleted: listed, handed over, deleted."""

from uuid import UUID

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.audit import ObjectType, Subject
from app.domain.revisions import CARILLON
from app.persistence import calendars, entity_runs

_HAS_SCHEDULES = text("SELECT EXISTS (SELECT FROM scheduled_jobs WHERE user_profile_id = :user)")
_HAS_WEBHOOKS = text("SELECT EXISTS (SELECT FROM webhooks WHERE user_profile_id = :user)")
_FOREIGN_SCHEDULES = text(
    "SELECT count(*) FROM workflows AS w JOIN scheduled_jobs AS j ON j.workflow_id = w.id "
    "WHERE w.user_profile_id = :user AND j.user_profile_id <> :user"
)
_ACTIVE_SCHEDULES = text(
    "SELECT id FROM scheduled_jobs WHERE user_profile_id = :user AND status = 'active' ORDER BY id LIMIT :limit"
)
# In the order in which everything locks: workflows, schedules. The profile comes last, as the transactions that create
# something lock a workflow first and the profile of its owner with the new row.
_LOCK_OBJECTS = (
    text("SELECT FROM workflows WHERE user_profile_id = :user ORDER BY id FOR UPDATE"),
    text("SELECT FROM scheduled_jobs WHERE user_profile_id = :user ORDER BY id FOR UPDATE"),
)
_LOCK_PROFILE = text("SELECT id FROM user_profiles WHERE id = :user FOR UPDATE")
_KEEP_PROFILE = text("SELECT id FROM user_profiles WHERE id = :user FOR KEY SHARE")
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
# So is a limit: its users find that of the new owner.
_HAND_OVER_LIMITS = text(
    f"UPDATE limits AS l SET user_profile_id = :to, team_id = {_TEAM} WHERE l.user_profile_id = :user "  # noqa: S608
    "AND NOT EXISTS (SELECT FROM limits AS o WHERE o.user_profile_id = :to AND o.name = l.name)"
)
# The same for calendars; schedules that named one of these use the new owner's.
_HAND_OVER_CALENDARS = text(
    f"UPDATE calendars AS c SET user_profile_id = :to, team_id = {_TEAM} WHERE c.user_profile_id = :user "  # noqa: S608
    "AND NOT EXISTS (SELECT FROM calendars AS o WHERE o.user_profile_id = :to AND o.name = c.name)"
)
_CALENDARS = text("SELECT name FROM calendars WHERE user_profile_id = :user")
# Schedules of others that use a calendar of this owner.
_FOREIGN_USES = text(
    "SELECT count(DISTINCT j.id) FROM calendars AS c JOIN scheduled_jobs AS j ON j.calendar_versions <> '{}' "
    "AND j.calendar_versions ? c.name AND starts_with(j.calendar_versions ->> c.name, c.id || '.') "
    "AND j.user_profile_id <> c.user_profile_id WHERE c.user_profile_id = :user"
)
# What goes with an owner who is deleted: schedules of others that run a workflow of theirs, too.
_OWNED = text(
    "SELECT 'workflow' AS type, id::text AS id, name, user_profile_id FROM workflows WHERE user_profile_id = :user "
    "UNION ALL SELECT 'schedule', id::text, name, user_profile_id FROM scheduled_jobs WHERE user_profile_id = :user "
    "UNION ALL SELECT 'schedule', j.id::text, j.name, j.user_profile_id FROM workflows AS w "
    "JOIN scheduled_jobs AS j ON j.workflow_id = w.id WHERE w.user_profile_id = :user AND :with_others "
    "AND j.user_profile_id <> :user "
    "UNION ALL SELECT 'webhook', id::text, name, user_profile_id FROM webhooks WHERE user_profile_id = :user "
    "UNION ALL SELECT 'notification', id::text, '', user_profile_id FROM notifications WHERE user_profile_id = :user "
    "UNION ALL SELECT 'calendar', id::text, name, user_profile_id FROM calendars WHERE user_profile_id = :user"
)
_WEBHOOKS = text("SELECT id FROM webhooks WHERE user_profile_id = :user")
_ACTIVE_RUNS = text(
    "SELECT a.id FROM active_executions AS a JOIN workflow_executions AS e ON e.id = a.id "
    "WHERE e.user_profile_id = :user"
)
_DELETE = text("DELETE FROM user_profiles WHERE id = :user")


class Holdings(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the way of deleting an owner without a word."""

    schedules: bool
    webhooks: bool
    # How many schedules of others use the owner's workflows, and how many the owner's calendars.
    foreign_schedules: int
    foreign_calendar_uses: int


async def holdings(connection: AsyncConnection, user_id: int) -> Holdings:
    """Return what an owner has that somebody would miss."""
    values = {"user": user_id}
    return Holdings(
        schedules=(await connection.execute(_HAS_SCHEDULES, values)).scalar_one(),
        webhooks=(await connection.execute(_HAS_WEBHOOKS, values)).scalar_one(),
        foreign_schedules=(await connection.execute(_FOREIGN_SCHEDULES, values)).scalar_one(),
        foreign_calendar_uses=(await connection.execute(_FOREIGN_USES, values)).scalar_one(),
    )


async def lock(connection: AsyncConnection, user_id: int) -> bool:
    """Lock an owner with all workflows and schedules: nothing new can be created for it. False if there is none."""
    values = {"user": user_id}
    for statement in _LOCK_OBJECTS:
        await connection.execute(statement, values)
    exists = (await connection.execute(_LOCK_PROFILE, values)).first() is not None
    # What was created before the profile was locked is locked too.
    for statement in _LOCK_OBJECTS:
        await connection.execute(statement, values)
    return exists


async def keep(connection: AsyncConnection, user_id: int) -> bool:
    """Keep others from deleting an owner until the transaction ends; return False if there is none."""
    return (await connection.execute(_KEEP_PROFILE, {"user": user_id})).first() is not None


async def active_schedules(connection: AsyncConnection, user_id: int, limit: int) -> list[UUID]:
    """Return some active schedules of a user."""
    return list((await connection.execute(_ACTIVE_SCHEDULES, {"user": user_id, "limit": limit})).scalars())


async def owned(connection: AsyncConnection, user_id: int, *, with_others: bool) -> list[Subject]:
    """Return what a user has as what events are about, with schedules of others on their workflows if told to."""
    rows = await connection.execute(_OWNED, {"user": user_id, "with_others": with_others})
    return [Subject(ObjectType(row.type), row.id, row.name, row.user_profile_id) for row in rows]


async def hand_over(connection: AsyncConnection, user_id: int, to: int) -> None:
    """Give everything that an owner has, who is locked, to another owner."""
    values = {"user": user_id, "to": to, "owner_id": str(to)}
    named = list((await connection.execute(_CALENDARS, {"user": user_id})).scalars())
    for statement in (
        *_DROP_KEYS,
        *_HAND_OVER,
        _HAND_OVER_ACTIVE,
        _HAND_OVER_SECRETS,
        _HAND_OVER_LIMITS,
        _HAND_OVER_CALENDARS,
    ):
        await connection.execute(statement, {name: values[name] for name in statement.compile().params})
    await calendars.request_replan(connection, named, None, CARILLON.name)


async def delete_user(connection: AsyncConnection, user_id: int) -> list[UUID]:
    """Delete an owner, who is locked, with everything that is left. Return the executions to be called off."""
    values = {"user": user_id}
    running = list((await connection.execute(_ACTIVE_RUNS, values)).scalars())
    for webhook in (await connection.execute(_WEBHOOKS, values)).scalars().all():
        running += await entity_runs.remove(connection, "webhook", str(webhook))
    await connection.execute(_DELETE, values)
    return running
