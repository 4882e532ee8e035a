"""Lists: pages that end at a number of bytes, selected fields, and results that several requests share."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec

from app import clock
from app.cache import BoundedCache
from app.domain.errors import FieldError, InvalidError
from app.persistence import schedules
from app.persistence.database import Connection
from app.persistence.pagination import PAGE_BYTES, Page, Part
from app.services.views import ScheduleView, listed_view, schedule_view

# How many rows of a list with large items are read at first; how many more follows from how large those were.
FIRST_ROWS = 25

_encode = msgspec.json.Encoder().encode

# Makes the view of a row.
Show = Callable[[Any], Any]


class ShownPage(msgspec.Struct, frozen=True):
    """Encoded views, how long the whole list is, and where the next page begins."""

    # They are typed as the views that they encode; the response is all that becomes of them.
    items: list[Any]
    total: int
    total_is_estimate: bool
    next_cursor: str | None


class _Filling:
    """A page that is being filled."""

    def __init__(self) -> None:
        self.items: list[msgspec.Raw] = []
        self.used = 0

    def takes(self, view: bytes) -> bool:
        """Add a view, unless there are others and it does not fit; whether it was added."""
        if self.items and self.used + len(view) > PAGE_BYTES:
            return False
        self.items.append(msgspec.Raw(view))
        self.used += len(view)
        return True

    def rows_that_fit(self) -> int:
        """How many more rows are likely to fit."""
        return (PAGE_BYTES - self.used) // (self.used // max(1, len(self.items)) + 1) + 1


async def read_shown(
    read: Callable[[Part], Awaitable[Page]], show: Show, part: Part, first_rows: int = FIRST_ROWS
) -> ShownPage:
    """Read the rows of a list a few at a time, and show them, until the page is full or the list ends."""
    filling = _Filling()
    page = first = await read(msgspec.structs.replace(part, limit=min(part.limit, first_rows)))
    cursor = part.cursor
    while True:
        for index, row in enumerate(page.items):
            if not filling.takes(_encode(show(row))):
                cursor = page.cursor_at(index - 1) if index else cursor
                return ShownPage(filling.items, first.total, first.total_is_estimate, cursor)
        cursor, left = page.next_cursor, part.limit - len(filling.items)
        if cursor is None or not left:
            return ShownPage(filling.items, first.total, first.total_is_estimate, cursor)
        page = await read(Part(min(left, filling.rows_that_fit()), 0, cursor, counts=False))


def show_all(items: Sequence[Any], cursor_of: Callable[[Any], str], more: str | None) -> tuple[list[Any], str | None]:
    """Views that were gathered from several places, cut where the page is full; and where the next one begins."""
    filling = _Filling()
    for index, item in enumerate(items):
        if not filling.takes(_encode(item)):
            return filling.items, cursor_of(items[index - 1])
    return filling.items, more


# It may be large: a list shows it only to those who name it.
PAYLOAD = "trigger_payload"
NAMES = ScheduleView.__struct_fields__

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def given_fields(text: str | None) -> frozenset[str] | None:
    """The fields that a list with commas names, and ``id``; None for all but the payload."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise InvalidError(FieldError("fields", f"A schedule has no field '{unknown[0][:100]}'. Remove it."))
    return frozenset(("id", *names))


def selected(view: msgspec.Raw, fields: frozenset[str] | None) -> msgspec.Raw:
    """An encoded schedule with these fields only."""
    if fields is None:
        return view
    return msgspec.Raw(_encode({name: value for name, value in _decode(view).items() if name in fields}))


T = TypeVar("T")


class SharedResult(Generic[T]):
    """The result of a look-up, kept for some seconds; callers at the same time wait for the same look-up."""

    def __init__(self, look: Callable[[], Awaitable[T]], fresh_seconds: float) -> None:
        """Call ``look`` when there is no fresh result."""
        self._look = look
        self._fresh_seconds = fresh_seconds
        self._found: tuple[float, T] | None = None
        self._looking: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """Return the fresh result, or that of the look-up under way. A caller that gives up stops nobody else's."""
        if self._found is not None and clock.monotonic() - self._found[0] < self._fresh_seconds:
            return self._found[1]
        if self._looking is None:
            self._looking = asyncio.create_task(self._run())
        return await asyncio.shield(self._looking)

    async def _run(self) -> T:
        try:
            found = await self._look()
        finally:
            self._looking = None
        self._found = (clock.monotonic(), found)
        return found


MOST_KEPT = 10_000
MOST_KEPT_BYTES = 32 * 1024 * 1024


class ShownSchedules:
    """The views of schedules by the versions of their rows, with and without their payloads."""

    def __init__(self) -> None:
        """Nothing has been shown yet."""
        self._kept: BoundedCache[tuple[UUID, bool], tuple[int, msgspec.Raw]] = BoundedCache(MOST_KEPT, MOST_KEPT_BYTES)

    def clear(self) -> None:
        """Forget everything: the versions of rows mean something else now."""
        self._kept.clear()

    async def of(
        self, connection: Connection, wanted: Sequence[tuple[UUID, int]], *, whole: bool
    ) -> dict[UUID, msgspec.Raw]:
        """The encoded views of these schedules in these versions, or newer; what is gone meanwhile is missing.

        Without their payloads, unless they are wanted ``whole``.
        """
        shown: dict[UUID, msgspec.Raw] = {}
        unknown: list[UUID] = []
        for job_id, version in wanted:
            kept = self._kept.get((job_id, whole))
            if kept is None or kept[0] != version:
                unknown.append(job_id)
            else:
                shown[job_id] = kept[1]
        for version, job in await schedules.many(connection, unknown, whole=whole) if unknown else []:
            view = _encode(schedule_view(job) if whole else listed_view(job))
            shown[job.id] = msgspec.Raw(view)
            self._kept.keep((job.id, whole), (version, shown[job.id]), len(view))
        return shown
