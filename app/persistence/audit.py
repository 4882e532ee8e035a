"""The audit log: events are added in the transaction of the change, and read newest first."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec
import structlog
from sqlalchemy import Select, func, select, text
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from app import clock
from app.domain.access import Actor
from app.domain.audit import (
    ENGINE,
    AuditAction,
    AuditEvent,
    ObjectType,
    Origin,
    Subject,
    Via,
    audit_event,
)
from app.domain.audited_changes import authored_event
from app.domain.revisions import Author
from app.domain.run_ids import first_id_at, last_id_at
from app.persistence.database import after_commit
from app.persistence.pagination import Page, Part, cursor_of, read_newest, read_page
from app.persistence.sql_batches import fetch, insert_many, run_batch
from app.persistence.tables import AuditEventRow
from app.persistence.users import as_actor

_TABLE = AuditEventRow.__table__
_INSERT = insert_many(AuditEventRow, AuditEvent.__struct_fields__)
# Of the addresses that a token was used from, the newest are known.
MOST_ADDRESSES = 20

log = structlog.get_logger(__name__)

# Set where a request or a command begins; what has not begun there comes from the engine.
ORIGIN: ContextVar[Origin] = ContextVar("origin", default=ENGINE)


def current_origin() -> Origin:
    """Return where the current change comes from."""
    return ORIGIN.get()


async def record(  # noqa: PLR0913 - the parts of an event
    connection: AsyncConnection,
    actor: Actor,
    action: AuditAction,
    subject: Subject,
    *,
    changes: Mapping[str, Any] | None = None,
    details: Mapping[str, Any] | None = None,
    note: str = "",
) -> None:
    """Add an event to the transaction of the change that it is about; its origin is that of the request."""
    event = audit_event(
        actor,
        action,
        subject,
        current_origin(),
        clock.now(),
        uuid4().hex,
        changes=changes,
        details=details,
        note=note,
    )
    await add(connection, [event])


def new_ids(count: int) -> Iterator[str]:
    """Return ids of new events. Random bytes are read once for all, as that is a system call."""
    octets = os.urandom(16 * count)
    return (octets[start : start + 16].hex() for start in range(0, len(octets), 16))


async def record_by(  # noqa: PLR0913 - the parts of an event
    connection: AsyncConnection,
    author: Author,
    action: AuditAction,
    subjects: Sequence[Subject],
    *,
    changes: Mapping[str, Any] | None = None,
    details: Mapping[str, Any] | None = None,
    note: str = "",
) -> None:
    """Add an event for each of these objects to the transaction of the change that an author made."""
    now, ids = clock.now(), new_ids(len(subjects))
    events = [
        authored_event(author, action, subject, now, next(ids), changes=changes, details=details, note=note)
        for subject in subjects
    ]
    await add(connection, events)


async def add(connection: AsyncConnection, events: Sequence[AuditEvent]) -> None:
    """Add events to the transaction; each is logged once that is committed."""
    if events:
        await run_batch(connection, _INSERT, events)
        after_commit(connection, partial(_log, events))


def _log(events: Sequence[AuditEvent]) -> None:
    """Log events for collectors: who did what to which object. Values, names and notes stay in the database."""
    for event in events:
        log.info(
            "audit",
            id=str(event.id),
            action=event.action,
            object_type=event.object_type,
            object_id=event.object_id,
            actor=event.actor,
            via=event.via,
            address=event.address,
            request_id=event.request_id,
            fields=sorted(event.changes),
        )


async def add_counts(connection: AsyncConnection, events: Sequence[AuditEvent]) -> None:
    """Add events with a count; the count of one that is stored already grows."""
    # In one order everywhere, so that no two processes wait for each other.
    rows = [_values(event) for event in sorted(events, key=lambda event: event.id)]
    statement = upsert(AuditEventRow).values(rows)
    total = text("(audit_events.details->>'count')::bigint + (excluded.details->>'count')::bigint")
    details = func.jsonb_build_object("count", total)
    await connection.execute(
        statement.on_conflict_do_update(index_elements=["id"], set_={"details": _TABLE.c.details.op("||")(details)})
    )
    after_commit(connection, partial(_log, events))


def _values(event: AuditEvent) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What a list of events is filtered by; None does not filter."""

    actor: str | None = None
    via: Via | None = None
    object_type: ObjectType | None = None
    object_id: str | None = None
    action: AuditAction | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """Return the columns that must have a value, with these values."""
        names = ("object_type", "object_id", "actor", "action", "via")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


# Filters that an index begins with, the most selective first.
_INDEXED = (("object_type", "object_id"), ("actor",), ("action",))


async def page(connection: AsyncConnection, viewer: Actor, wanted: EventFilter, part: Part) -> Page[AuditEvent]:
    """Return a page of the events that the viewer may see, newest first.

    Members see what they did and what concerns objects of theirs or of their teams. Each of these is a query of its own
    that an index answers; one query for all of them would read the events of everybody.
    """
    if viewer.sees_all:
        return await _page(connection, _query(wanted), wanted, part)
    acted = _query(wanted)
    concerned = acted.where(_TABLE.c.actor_id.is_distinct_from(viewer.user_id))
    owners = (viewer.user_id, *(team for team, _ in viewer.teams))
    read = partial(read_newest, connection, kind=AuditEvent, key=_TABLE.c.id, part=part)
    pages = [await read(query=acted, within=[(_TABLE.c.actor_id, viewer.user_id)])]
    pages += [await read(query=concerned, within=[(_TABLE.c.owner_id, owner)]) for owner in owners]
    return _merged(pages, part)


def _merged(pages: Sequence[Page[AuditEvent]], part: Part) -> Page[AuditEvent]:
    events = sorted((event for one in pages for event in one.items), key=lambda event: event.id, reverse=True)
    items = events[: part.limit]
    goes_on = len(events) > part.limit or any(one.next_cursor for one in pages)
    more = cursor_of([items[-1].id]) if goes_on else None
    return Page(items, len(items), next_cursor=more, keys=("id",))


async def _page(connection: AsyncConnection, query: Select[Any], wanted: EventFilter, part: Part) -> Page[AuditEvent]:
    values = wanted.columns
    leading = next((names for names in _INDEXED if all(name in values for name in names)), ())
    if not leading:
        return await read_page(connection, query, AuditEvent, (_TABLE.c.id,), part)
    within = [(_TABLE.c[name], values[name]) for name in leading]
    return await read_newest(connection, query, AuditEvent, within, _TABLE.c.id, part)


def _query(wanted: EventFilter) -> Select[Any]:
    query = select(_TABLE).where(*(_TABLE.c[name] == value for name, value in wanted.columns.items()))
    # The bounds of the id leave out the partitions of other weeks.
    if wanted.since is not None:
        query = query.where(_TABLE.c.id >= first_id_at(wanted.since), _TABLE.c.at >= wanted.since)
    if wanted.until is not None:
        query = query.where(_TABLE.c.id < last_id_at(wanted.until), _TABLE.c.at <= wanted.until)
    return query


# The addresses that tokens are used from, and users without a stored token.

# ``xmax`` is 0 in a row that was inserted, not updated. The last query sees the table as it was before the insertion.
_NOTE_ADDRESSES = """
WITH used AS (
    SELECT t.id, u.address, u.at FROM unnest($1::int[], $2::text[], $3::timestamptz[]) AS u(id, address, at)
    JOIN api_tokens AS t ON t.id = u.id ORDER BY t.id, u.address FOR KEY SHARE OF t
), noted AS (
    INSERT INTO token_addresses AS a (token_id, address, seen_at) SELECT id, address, at FROM used
    ON CONFLICT (token_id, address) DO UPDATE SET seen_at = greatest(a.seen_at, excluded.seen_at)
    RETURNING token_id, address, seen_at, xmax = 0 AS is_new
)
SELECT n.token_id, n.address, n.seen_at, t.name, u.id AS user_id, u.username, u.role, u.kind,
    NOT EXISTS (SELECT FROM token_addresses AS a WHERE a.token_id = n.token_id) AS is_first
FROM noted AS n JOIN api_tokens AS t ON t.id = n.token_id JOIN user_profiles AS u ON u.id = t.user_profile_id
WHERE n.is_new ORDER BY n.token_id, n.address
"""
_NOTE_USER_ADDRESSES = """
WITH used AS (
    SELECT p.id, u.address, u.at FROM unnest($1::int[], $2::text[], $3::timestamptz[]) AS u(id, address, at)
    JOIN user_profiles AS p ON p.id = u.id ORDER BY p.id, u.address FOR KEY SHARE OF p
), noted AS (
    INSERT INTO user_addresses AS a (user_profile_id, address, seen_at) SELECT id, address, at FROM used
    ON CONFLICT (user_profile_id, address) DO UPDATE SET seen_at = greatest(a.seen_at, excluded.seen_at)
    RETURNING user_profile_id, address, seen_at, xmax = 0 AS is_new
)
SELECT n.address, n.seen_at, u.id AS user_id, u.username, u.role, u.kind,
    NOT EXISTS (SELECT FROM user_addresses AS a WHERE a.user_profile_id = n.user_profile_id) AS is_first
FROM noted AS n JOIN user_profiles AS u ON u.id = n.user_profile_id
WHERE n.is_new ORDER BY u.id, n.address
"""
_FORGET = """
DELETE FROM {table} AS a USING (
    SELECT {key}, address, row_number() OVER (PARTITION BY {key} ORDER BY seen_at DESC, address) AS place
    FROM {table} WHERE {key} = ANY($1)
) AS o WHERE a.{key} = o.{key} AND a.address = o.address AND o.place > $2
"""
_FORGET_ADDRESSES = _FORGET.format(table="token_addresses", key="token_id")
_FORGET_USER_ADDRESSES = _FORGET.format(table="user_addresses", key="user_profile_id")


async def note_addresses(connection: AsyncConnection, used: Mapping[tuple[int, str], datetime]) -> None:
    """Store from which addresses tokens were used, by the token's id and the address; an event tells of new ones."""
    if not used:
        return
    ids, addresses = [token_id for token_id, _ in used], [address for _, address in used]
    rows = await fetch(connection, _NOTE_ADDRESSES, ids, addresses, list(used.values()))
    if rows:
        await fetch(connection, _FORGET_ADDRESSES, sorted({row["token_id"] for row in rows}), MOST_ADDRESSES)
        await add(connection, [_new_address(row) for row in rows])


async def note_user_addresses(connection: AsyncConnection, used: Mapping[tuple[int, str], datetime]) -> None:
    """Store where users without a stored token were seen, by the user's id and the address.

    An event tells of a new address. The first address of a user is none: every user has one.
    """
    if not used:
        return
    ids, addresses = [user_id for user_id, _ in used], [address for _, address in used]
    rows = await fetch(connection, _NOTE_USER_ADDRESSES, ids, addresses, list(used.values()))
    if rows:
        await fetch(connection, _FORGET_USER_ADDRESSES, sorted({row["user_id"] for row in rows}), MOST_ADDRESSES)
    await add(connection, [_new_user_address(row) for row in rows if not row["is_first"]])


def _new_user_address(row: Any) -> AuditEvent:
    user = as_actor(row["user_id"], row["username"], row["role"], row["kind"])
    subject = Subject(ObjectType.USER, str(user.user_id), user.username, user.user_id)
    origin = Origin(Via.API, row["address"])
    return audit_event(user, AuditAction.USER_SEEN_AT_NEW_ADDRESS, subject, origin, row["seen_at"], uuid4().hex)


def _new_address(row: Any) -> AuditEvent:
    owner = as_actor(row["user_id"], row["username"], row["role"], row["kind"])
    return audit_event(
        owner,
        AuditAction.TOKEN_USED_FROM_NEW_ADDRESS,
        Subject(ObjectType.TOKEN, str(row["token_id"]), row["name"], owner.user_id),
        Origin(Via.API, row["address"]),
        row["seen_at"],
        uuid4().hex,
        details={"is_first": row["is_first"]},
    )
