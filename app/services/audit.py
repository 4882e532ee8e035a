"""The audit log: what users see of it, and refusals, which are counted before they are stored.

A change is recorded by ``app.persistence.audit.record`` in its own transaction. Refusals change nothing, and whoever
has no token can cause as many as they like. So they are counted in memory, and stored with a delay: a row for each
address, or each token, and minute.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

import msgspec

from app import clock
from app.domain.access import Actor
from app.domain.audit import AuditAction, Refusals, identity_of, refusals_event
from app.domain.client_addresses import counted_as
from app.domain.errors import UnavailableError
from app.persistence import audit
from app.persistence.audit import EventFilter
from app.persistence.database import Database
from app.persistence.pagination import Part
from app.services.listing import read_views
from app.services.views import AuditList, audit_event_view

# How many addresses and tokens a process counts one by one in a minute; all others share a row.
MOST_COUNTED = 100
# How many rows wait in memory while the database is away.
MOST_WAITING = 1000
# How many events of an export are read at once.
EXPORTED_AT_ONCE = 500

_encode_lines = msgspec.json.Encoder().encode_lines


class RefusalCounter:
    """Counts refusals by minute and by address or token; the memory that it takes is bounded."""

    def __init__(self) -> None:
        """Begin with nothing counted."""
        self._waiting: dict[Refusals, int] = {}
        # Those of the current minute that are counted one by one, whether stored already or not.
        self._current: set[Refusals] = set()

    def count(self, refusals: Refusals) -> None:
        """Count a refusal, together with all others if too many are counted one by one."""
        key = refusals if self._is_counted(refusals) else Refusals(action=refusals.action, minute=refusals.minute)
        self._waiting[key] = self._waiting.get(key, 0) + 1

    def _is_counted(self, refusals: Refusals) -> bool:
        if refusals in self._current:
            return True
        self._current = {one for one in self._current if one.minute == refusals.minute}
        if len(self._current) >= MOST_COUNTED or len(self._waiting) >= MOST_WAITING:
            return False
        self._current.add(refusals)
        return True

    def take(self) -> dict[Refusals, int]:
        """Return what waits to be stored, and forget it."""
        taken, self._waiting = self._waiting, {}
        return taken

    def put_back(self, counts: Mapping[Refusals, int]) -> None:
        """Add what could not be stored."""
        for refusals, number in counts.items():
            self._waiting[refusals] = self._waiting.get(refusals, 0) + number


class AuditService:
    """Use cases about the audit log."""

    def __init__(self, database: Database) -> None:
        """Read and write this database."""
        self._database = database
        self._counter = RefusalCounter()

    async def list(self, actor: Actor, wanted: EventFilter, part: Part) -> AuditList:
        """Return a page of the events that the actor may see, newest first."""
        async with self._database.reading() as connection:
            page = await read_views(partial(audit.page, connection, actor, wanted), audit_event_view, part)
        return AuditList(page.items, page.next_cursor)

    async def export(self, actor: Actor, wanted: EventFilter) -> AsyncIterator[bytes]:
        """Yield the events of a span of time that the actor may see, newest first, as lines of JSON.

        Each page is read by itself: a slow client holds no connection of the database.
        """
        part = Part(EXPORTED_AT_ONCE, 0, None, counts=False)
        while True:
            async with self._database.reading() as connection:
                page = await audit.page(connection, actor, wanted, part)
            yield _encode_lines([audit_event_view(event) for event in page.items])
            if page.next_cursor is None:
                return
            part = msgspec.structs.replace(part, cursor=page.next_cursor)

    def count_refusal(self, address: str) -> None:
        """Count a refused authentication for a client's address."""
        self._count(AuditAction.AUTHENTICATION_REFUSED, address=counted_as(address))

    def count_denial(self, actor: Actor, scope: str) -> None:
        """Count a call that needs a scope which the actor's token or session does not have."""
        self._count(AuditAction.SCOPE_DENIED, actor=identity_of(actor), scope=scope)

    def count_refused_call(self, actor: Actor, code: str) -> None:
        """Count a call that the actor's role, or the kind or restriction of the token, does not allow."""
        self._count(AuditAction.ACCESS_DENIED, actor=identity_of(actor), code=code)

    def _count(self, action: AuditAction, **key: Any) -> None:
        minute = clock.now().replace(second=0, microsecond=0)
        self._counter.count(Refusals(action=action, minute=minute, **key))

    async def store_refusals(self) -> None:
        """Store the refusals that were counted. If that fails, it is tried again the next time."""
        counts = self._counter.take()
        if not counts:
            return
        try:
            async with self._database.transaction("store_refusals") as connection:
                await audit.add_counts(connection, [refusals_event(one, number) for one, number in counts.items()])
        except UnavailableError:
            self._counter.put_back(counts)
        except asyncio.CancelledError:
            self._counter.put_back(counts)
            raise
