"""Deliveries of notices: which ones are due, and how they went. All times are those of the database's clock."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

import msgspec
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import OwnerKind, Role

# Where more notices of one notification wait than this, they are one delivery, a digest.
DIGEST_OVER = 20
DIGEST_MOST = 1000
# So many notices stand in a digest; the others are only counted.
DIGEST_SHOWN = 100

# The host of a URL as far as it is needed to count calls by host.
_HOST = r"lower(COALESCE(substring(n.url FROM '^https?://(?:[^/?#@]*@)?(\[[^]]*\]|[^/?#:]+)'), ''))"
_IS_DUE = "d.status = 'pending' AND d.next_attempt_at <= statement_timestamp()"
# The steps: which notifications have something waiting (one look into the index for each, however long its pile is);
# which of these want a digest; what could be delivered; the turns by owner, then by host; and what is taken.
# It is taken for a while only: what is taken by a worker that dies is due again.
TAKE = text(
    rf"""
    WITH RECURSIVE waiting (notification_id) AS (
        (SELECT d.notification_id FROM deliveries AS d WHERE d.status = 'pending' ORDER BY d.notification_id LIMIT 1)
        UNION ALL
        SELECT (SELECT d.notification_id FROM deliveries AS d
                WHERE d.status = 'pending' AND d.notification_id > w.notification_id
                ORDER BY d.notification_id LIMIT 1)
        FROM waiting AS w WHERE w.notification_id IS NOT NULL
    ), wanting AS (
        SELECT n.id, n.user_profile_id AS owner, {_HOST} AS host, {DIGEST_OVER} < (
            SELECT count(*) FROM (SELECT FROM deliveries AS d WHERE d.notification_id = n.id AND {_IS_DUE}
                                  LIMIT {DIGEST_OVER} + 1) AS due) AS is_digest
        FROM waiting AS w JOIN notifications AS n ON n.id = w.notification_id
    ), units AS (
        SELECT x.owner, x.host, u.ids, u.due_at FROM wanting AS x CROSS JOIN LATERAL (
            SELECT array_agg(p.id ORDER BY p.next_attempt_at, p.id) AS ids, min(p.next_attempt_at) AS due_at FROM (
                SELECT d.id, d.next_attempt_at FROM deliveries AS d WHERE d.notification_id = x.id AND {_IS_DUE}
                ORDER BY d.next_attempt_at, d.id
                LIMIT CASE WHEN x.is_digest THEN {DIGEST_MOST} ELSE CAST(:per_owner AS integer) END) AS p
            GROUP BY CASE WHEN x.is_digest THEN 0 ELSE p.id END) AS u
    ), by_owner AS (
        SELECT *, COALESCE(CAST(CAST(:owners AS jsonb) ->> CAST(owner AS text) AS integer), 0)
            + row_number() OVER (PARTITION BY owner ORDER BY due_at, ids) AS owner_turn FROM units
    ), by_host AS (
        SELECT *, COALESCE(CAST(CAST(:hosts AS jsonb) ->> host AS integer), 0)
            + row_number() OVER (PARTITION BY host ORDER BY owner_turn, due_at) AS host_turn
        FROM by_owner WHERE owner_turn <= CAST(:per_owner AS integer)
    ), chosen AS (
        SELECT owner, host, ids FROM by_host WHERE host_turn <= :per_host ORDER BY owner_turn, due_at LIMIT :room
    ), locked AS (
        SELECT d.id, c.ids[1] AS unit, c.owner, c.host, wanted.place
        FROM chosen AS c CROSS JOIN unnest(c.ids) WITH ORDINALITY AS wanted (id, place)
        JOIN deliveries AS d ON d.id = wanted.id WHERE {_IS_DUE} FOR UPDATE OF d SKIP LOCKED
    )
    UPDATE deliveries AS d
    SET attempts = d.attempts + 1, next_attempt_at = clock_timestamp() + make_interval(secs => :lease)
    FROM locked AS l, notifications AS n, user_profiles AS u
    WHERE d.id = l.id AND n.id = d.notification_id AND u.id = n.user_profile_id
    RETURNING d.id, l.unit, l.place, d.event, CASE WHEN l.place <= {DIGEST_SHOWN} THEN d.data END AS data, d.attempts,
        d.created_at, n.url, l.owner, l.host, u.role, u.kind
    """  # noqa: S608 - made of constants
)
_DELIVERED = text(
    "UPDATE deliveries SET status = 'delivered', last_status = :status, last_error = '', "
    "delivered_at = clock_timestamp() WHERE id = ANY(CAST(:ids AS bigint[])) AND status = 'pending'"
)
_NOT_DELIVERED = text(
    "UPDATE deliveries SET last_error = :error, "
    "status = CASE WHEN attempts >= :most_attempts THEN 'failed' ELSE 'pending' END, "
    "next_attempt_at = clock_timestamp() "
    "+ make_interval(secs => LEAST(:first_pause * power(2, attempts - 1), :longest_pause)) "
    "WHERE id = ANY(CAST(:ids AS bigint[])) AND status = 'pending' RETURNING status"
)


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How many deliveries may be under way: in all, for one owner, to one host."""

    in_all: int
    per_owner: int
    per_host: int


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """How often a delivery is tried, and the pauses between: doubled each time, up to the longest."""

    most_attempts: int
    first_pause_seconds: float
    longest_pause_seconds: float


class Told(msgspec.Struct, frozen=True):
    """One notice in a delivery."""

    event: str
    created_at: datetime
    data: dict[str, Any]


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A notice that is to be delivered now; or a digest of many."""

    # Of all its notices, of which some are shown.
    ids: tuple[int, ...]
    notices: tuple[Told, ...]
    # Of the first notice, this one included.
    attempts: int
    # Of the last notice.
    created_at: datetime
    url: str
    host: str
    owner_id: int
    # The notification belongs to an admin or to a plugin.
    is_operators: bool


async def take_due(
    connection: AsyncConnection, bounds: Bounds, under_way: Iterable[Delivery], lease_seconds: float
) -> list[Delivery]:
    """Take what is due and has a place beside what is under way here, by turns of the owners."""
    rows = sorted(
        await connection.execute(TAKE, values_for(bounds, under_way, lease_seconds)),
        key=lambda row: (row.unit, row.place),
    )
    return [_delivery(list(unit)) for _, unit in groupby(rows, key=lambda row: row.unit)]


def values_for(bounds: Bounds, under_way: Iterable[Delivery], lease_seconds: float) -> dict[str, Any]:
    """The parameters of ``TAKE``."""
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
    """Write down that it has arrived."""
    await connection.execute(_DELIVERED, {"ids": list(delivery.ids), "status": status})


async def not_delivered(connection: AsyncConnection, delivery: Delivery, error: str, backoff: Backoff) -> bool:
    """Write down that it has not arrived, and when it is tried again; whether some notice of it is given up."""
    values = {
        "ids": list(delivery.ids),
        "error": error,
        "most_attempts": backoff.most_attempts,
        "first_pause": backoff.first_pause_seconds,
        "longest_pause": backoff.longest_pause_seconds,
    }
    return "failed" in (await connection.execute(_NOT_DELIVERED, values)).scalars().all()


def _delivery(rows: Sequence[Row[Any]]) -> Delivery:
    first = rows[0]
    return Delivery(
        ids=tuple(row.id for row in rows),
        notices=tuple(Told(row.event, row.created_at, row.data) for row in rows if row.data is not None),
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
