"""Notifications: the subscriptions, the outbox of deliveries, which of them are due, and how they went."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Row, Select, delete, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor, OwnerKind, Role
from app.domain.backoff import Backoff
from app.domain.notifications import Notice
from app.persistence.pagination import Page, Part, read_of_owners, read_one, read_page, read_written
from app.persistence.tables import DeliveryRow, NotificationRow

# If more notices of one notification wait than this, they are sent as one delivery, a digest.
DIGEST_OVER = 20
DIGEST_MOST = 1000
# A digest holds this many notices; the others are only counted.
DIGEST_SHOWN = 100

_TABLE = NotificationRow.__table__
_DELIVERIES = DeliveryRow.__table__


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription: which events of what are delivered to a URL."""

    id: int
    user_profile_id: int
    url: str
    events: list[str]
    scheduled_job_id: UUID | None
    workflow_id: int | None
    active: bool
    created_at: datetime
    team_id: int | None = None


async def add(connection: AsyncConnection, values: dict[str, Any]) -> Notification:
    """Create a notification."""
    return await read_written(connection, insert(NotificationRow).values(values).returning(*_TABLE.c), Notification)


async def get(connection: AsyncConnection, notification_id: int) -> Notification | None:
    """Return a notification, or None."""
    return await read_one(connection, select(_TABLE).where(_TABLE.c.id == notification_id), Notification)


async def save(connection: AsyncConnection, notification_id: int, values: dict[str, Any]) -> Notification:
    """Change a notification."""
    statement = update(NotificationRow).where(_TABLE.c.id == notification_id).values(values)
    return await read_written(connection, statement.returning(*_TABLE.c), Notification)


async def remove(connection: AsyncConnection, notification_id: int) -> None:
    """Delete a notification and the log of its deliveries."""
    await connection.execute(delete(NotificationRow).where(_TABLE.c.id == notification_id))


async def page(connection: AsyncConnection, owners: Sequence[int] | None, part: Part) -> Page[Notification]:
    """Return a page of the notifications of these owners, newest first."""

    async def read(owner: int | None, part: Part) -> Page[Notification]:
        query: Select[Any] = select(_TABLE)
        if owner is not None:
            query = query.where(_TABLE.c.user_profile_id == owner)
        return await read_page(connection, query, Notification, (_TABLE.c.id,), part)

    return await read_of_owners(owners, part, read)


# The notifications of admins match, and those of the workflow's owner or of the user on whose behalf an entity runs.
# One that is limited to a schedule or a workflow matches nothing of entities.
_POST = text(
    "INSERT INTO deliveries (notification_id, event, data) "
    "SELECT n.id, p.event, p.data FROM jsonb_to_recordset(CAST(:rows AS jsonb)) "
    "AS p(event text, workflow_id integer, scheduled_job_id uuid, user_profile_id integer, data jsonb) "
    "LEFT JOIN workflows AS w ON w.id = p.workflow_id JOIN notifications AS n ON n.active AND n.events ? p.event "
    "AND (n.workflow_id IS NULL OR n.workflow_id = p.workflow_id) "
    "AND (n.scheduled_job_id IS NULL OR n.scheduled_job_id = p.scheduled_job_id) "
    "JOIN user_profiles AS u ON u.id = n.user_profile_id AND (u.role = 'admin' "
    "OR u.id = coalesce(p.user_profile_id, w.user_profile_id)) "
    "WHERE p.user_profile_id IS NOT NULL OR w.id IS NOT NULL"
)


async def enqueue(connection: AsyncConnection, notices: Sequence[Notice]) -> None:
    """Write a delivery for each notification that matches, in the transaction in which the events happened."""
    if notices:
        await connection.execute(_POST, {"rows": msgspec.json.encode(notices).decode()})


# The host of a URL, to count calls by host.
_HOST = r"lower(COALESCE(substring(n.url FROM '^https?://(?:[^/?#@]*@)?(\[[^]]*\]|[^/?#:]+)'), ''))"
_IS_DUE = "d.status = 'pending' AND d.next_attempt_at <= statement_timestamp()"
# The steps: ``waiting``, the first notice of each notification that has any (one index lookup for each, however many
# wait); ``candidates`` and ``wanting``, for each owner as many notifications as it has places, and which of them need a
# digest; ``units``, what could be delivered; ``by_owner`` and ``by_host``, the turns; ``taken``, what is delivered now.
# It is taken under a lease: if its worker dies it is due again. Rows are looked up by ``= ANY``, so that a plan that
# was made for a small table does not scan a large one.
TAKE = text(
    rf"""
    WITH RECURSIVE waiting AS (
        (SELECT d.notification_id, d.next_attempt_at FROM deliveries AS d WHERE d.status = 'pending'
         ORDER BY d.notification_id, d.next_attempt_at LIMIT 1)
        UNION ALL
        SELECT later.* FROM waiting AS w CROSS JOIN LATERAL (
            SELECT d.notification_id, d.next_attempt_at FROM deliveries AS d
            WHERE d.status = 'pending' AND d.notification_id > w.notification_id
            ORDER BY d.notification_id, d.next_attempt_at LIMIT 1) AS later
    ), candidates AS (
        SELECT n.id, n.url, n.user_profile_id AS owner,
            COALESCE(CAST(CAST(:owners AS jsonb) ->> CAST(n.user_profile_id AS text) AS integer), 0) AS busy,
            row_number() OVER (PARTITION BY n.user_profile_id ORDER BY w.next_attempt_at, n.id) AS turn
        FROM waiting AS w JOIN notifications AS n ON n.id = w.notification_id
        WHERE w.next_attempt_at <= statement_timestamp()
    ), wanting AS (
        SELECT n.id, n.url, n.owner, n.busy, {_HOST} AS host, {DIGEST_OVER} < (
            SELECT count(*) FROM (SELECT FROM deliveries AS d WHERE d.notification_id = n.id AND {_IS_DUE}
                                  LIMIT {DIGEST_OVER} + 1) AS due) AS is_digest
        FROM candidates AS n WHERE n.busy + n.turn <= CAST(:per_owner AS integer)
    ), units AS (
        SELECT x.owner, x.busy, x.host, u.ids, u.due_at FROM wanting AS x CROSS JOIN LATERAL (
            SELECT array_agg(p.id ORDER BY p.next_attempt_at, p.id) AS ids, min(p.next_attempt_at) AS due_at FROM (
                SELECT d.id, d.next_attempt_at FROM deliveries AS d WHERE d.notification_id = x.id AND {_IS_DUE}
                ORDER BY d.next_attempt_at, d.id
                LIMIT CASE WHEN x.is_digest THEN {DIGEST_MOST} ELSE CAST(:per_owner AS integer) END) AS p
            GROUP BY CASE WHEN x.is_digest THEN 0 ELSE p.id END) AS u
    ), by_owner AS (
        SELECT *, busy + row_number() OVER (PARTITION BY owner ORDER BY due_at, ids) AS owner_turn FROM units
    ), by_host AS (
        SELECT *, COALESCE(CAST(CAST(:hosts AS jsonb) ->> host AS integer), 0)
            + row_number() OVER (PARTITION BY host ORDER BY owner_turn, due_at) AS host_turn
        FROM by_owner WHERE owner_turn <= CAST(:per_owner AS integer)
    ), chosen AS (
        SELECT ids FROM by_host WHERE host_turn <= :per_host ORDER BY owner_turn, due_at LIMIT :room
    ), locked AS (
        SELECT d.id FROM deliveries AS d WHERE d.id = ANY(ARRAY(SELECT unnest(ids) FROM chosen)) AND {_IS_DUE}
        FOR UPDATE SKIP LOCKED
    ), taken AS (
        UPDATE deliveries AS d
        SET attempts = d.attempts + 1, next_attempt_at = clock_timestamp() + make_interval(secs => :lease)
        WHERE d.id = ANY(ARRAY(SELECT id FROM locked))
        RETURNING d.id, d.notification_id, d.event, d.data, d.attempts, d.created_at
    )
    SELECT t.id, t.notification_id, x.is_digest, t.event, t.attempts, t.created_at, x.url, x.owner, x.host,
        u.role, u.kind, CASE WHEN {DIGEST_SHOWN} >= row_number() OVER (PARTITION BY t.notification_id ORDER BY t.id)
            THEN t.data END AS data
    FROM taken AS t JOIN wanting AS x ON x.id = t.notification_id JOIN user_profiles AS u ON u.id = x.owner
    ORDER BY t.notification_id, t.id
    """  # noqa: S608 - made of constants
)
_DELIVERED = text(
    "UPDATE deliveries SET status = 'delivered', last_status = :status, last_error = '', "
    "delivered_at = clock_timestamp() WHERE id = ANY(CAST(:ids AS bigint[])) AND status = 'pending'"
)
_NOT_DELIVERED = text(
    "UPDATE deliveries SET last_error = :error, "
    "status = CASE WHEN attempts >= :most_attempts THEN 'failed' ELSE 'pending' END, "
    # The delay after each attempt; all later ones have the last.
    "next_attempt_at = clock_timestamp() + make_interval(secs => "
    "(CAST(:delays AS float[]))[LEAST(attempts, :most_attempts)]) "
    "WHERE id = ANY(CAST(:ids AS bigint[])) AND status = 'pending' RETURNING status"
)


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How many deliveries may be under way: in total, for one owner, and to one host."""

    in_all: int
    per_owner: int
    per_host: int


class SentNotice(msgspec.Struct, frozen=True):
    """A notice in a delivery."""

    event: str
    created_at: datetime
    data: dict[str, Any]


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A notice that is to be delivered now, or a digest of many."""

    # The ids of all its notices, of which ``notices`` may hold only some.
    ids: tuple[int, ...]
    notices: tuple[SentNotice, ...]
    # The attempts at the first notice, with this one.
    attempts: int
    # When the last notice was created.
    created_at: datetime
    url: str
    host: str
    owner_id: int
    # Whether the notification belongs to an admin or to a plugin.
    is_operators: bool


async def take_due(
    connection: AsyncConnection, bounds: Bounds, under_way: Iterable[Delivery], lease_seconds: float
) -> list[Delivery]:
    """Take due deliveries by turns of the owners, as many as fit beside those that are under way in this process."""
    rows = await connection.execute(TAKE, values_for(bounds, under_way, lease_seconds))
    return [_delivery(list(unit)) for _, unit in groupby(rows, key=_unit)]


def values_for(bounds: Bounds, under_way: Iterable[Delivery], lease_seconds: float) -> dict[str, Any]:
    """Return the parameters of ``TAKE``."""
    owners: dict[str, int] = {}
    hosts: dict[str, int] = {}
    taken = 0
    for delivery in under_way:
        taken += 1
        _count(owners, str(delivery.owner_id))
        _count(hosts, delivery.host)
    return {
        "owners": _json(owners),
        "hosts": _json(hosts),
        "room": bounds.in_all - taken,
        "per_owner": bounds.per_owner,
        "per_host": bounds.per_host,
        "lease": lease_seconds,
    }


async def delivered(connection: AsyncConnection, delivery: Delivery, status: int) -> None:
    """Store that a delivery has arrived."""
    await connection.execute(_DELIVERED, {"ids": list(delivery.ids), "status": status})


async def not_delivered(
    connection: AsyncConnection, delivery: Delivery, error: str, backoff: Backoff, most_attempts: int
) -> bool:
    """Store that a delivery failed, and when it is tried again. Return whether some notice of it is given up."""
    values = {
        "ids": list(delivery.ids),
        "error": error,
        "most_attempts": most_attempts,
        "delays": [backoff.delay(attempt).total_seconds() for attempt in range(1, most_attempts + 1)],
    }
    return "failed" in (await connection.execute(_NOT_DELIVERED, values)).scalars().all()


def _unit(row: Row[Any]) -> tuple[int, int]:
    """Return the key of what is delivered together: all notices of a digest, else each notice alone."""
    return row.notification_id, 0 if row.is_digest else row.id


def _delivery(rows: Sequence[Row[Any]]) -> Delivery:
    first = rows[0]
    return Delivery(
        ids=tuple(row.id for row in rows),
        notices=tuple(SentNotice(row.event, row.created_at, row.data) for row in rows if row.data is not None),
        attempts=first.attempts,
        created_at=rows[-1].created_at,
        url=first.url,
        host=first.host,
        owner_id=first.owner,
        is_operators=first.role == Role.ADMIN or first.kind == OwnerKind.PLUGIN,
    )


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1


def _json(counts: Mapping[str, int]) -> str:
    return msgspec.json.encode(counts).decode()


_RETRY = text(
    "UPDATE deliveries SET status = 'pending', attempts = 0, next_attempt_at = clock_timestamp() WHERE id IN "
    "(SELECT d.id FROM deliveries AS d JOIN notifications AS n ON n.id = d.notification_id WHERE d.status = 'failed' "
    "AND (CAST(:owner AS integer) IS NULL OR n.user_profile_id = :owner) ORDER BY d.id LIMIT :limit)"
)
_PURGE = text(
    "DELETE FROM deliveries WHERE id IN "
    "(SELECT d.id FROM deliveries AS d JOIN notifications AS n ON n.id = d.notification_id "
    "WHERE d.status <> 'pending' AND d.created_at < :before "
    "AND (CAST(:owner AS integer) IS NULL OR n.user_profile_id = :owner) ORDER BY d.id LIMIT :limit)"
)


class LoggedDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """A notice, and the state of its delivery."""

    id: int
    event: str
    data: dict[str, Any]
    status: str
    attempts: int
    next_attempt_at: datetime
    last_status: int | None
    last_error: str
    created_at: datetime
    delivered_at: datetime | None


async def deliveries_of(connection: AsyncConnection, notification_id: int, part: Part) -> Page[LoggedDelivery]:
    """Return a page of a notification's deliveries, newest first."""
    query = select(_DELIVERIES).where(_DELIVERIES.c.notification_id == notification_id)
    return await read_page(connection, query, LoggedDelivery, (_DELIVERIES.c.id,), part)


async def retry(connection: AsyncConnection, actor: Actor, limit: int) -> int:
    """Make deliveries that were given up pending again. Return how many."""
    return (await connection.execute(_RETRY, {"owner": actor.owner_filter, "limit": limit})).rowcount


async def purge(connection: AsyncConnection, actor: Actor, before: datetime, limit: int) -> int:
    """Delete old deliveries that are not pending. Return how many."""
    values = {"owner": actor.owner_filter, "before": before, "limit": limit}
    return (await connection.execute(_PURGE, values)).rowcount
