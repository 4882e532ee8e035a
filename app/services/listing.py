"""Lists of views: encoded views, pages of them, and a cache of those of schedules.

A page ends before it is larger than ``PAGE_BYTES``.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from uuid import UUID

import msgspec

from app.cache import RowCache
from app.domain.access import Actor, Reach
from app.domain.schedules import ScheduledJob
from app.persistence import schedules, teams
from app.persistence.database import Connection
from app.persistence.pagination import PAGE_BYTES, Page, Part

# How many rows of a list with large items are read at first. The size of those decides how many are read next.
FIRST_ROWS = 25

# Of each cache of views.
MOST_VIEWS = 5_000
MOST_VIEW_BYTES = 16 * 1024 * 1024

_encode = msgspec.json.Encoder().encode

R = TypeVar("R", bound=msgspec.Struct)
V = TypeVar("V")

if TYPE_CHECKING:

    class Encoded(Generic[V]):
        """The JSON text of a view: it goes into a response unchanged, and has none of the view's fields."""

        def __bytes__(self) -> bytes:
            """Return a copy of the text."""

        def __buffer__(self, flags: int, /) -> memoryview:
            """Return the text itself."""

else:

    class Encoded:
        """The JSON text of a view, a ``msgspec.Raw``.

        At run time ``Encoded[View]`` is ``View``, so that the OpenAPI document describes what the text holds.
        """

        def __class_getitem__(cls, view: Any) -> Any:
            """Return the view itself."""
            return view


class EncodedPage(msgspec.Struct, Generic[V], frozen=True):
    """Encoded views, how long the whole list is, and where the next page begins."""

    items: list[Encoded[V]]
    total: int
    total_is_estimate: bool
    next_cursor: str | None


def encode(view: V) -> Encoded[V]:
    """Return the JSON text of a view."""
    return cast("Encoded[V]", msgspec.Raw(_encode(view)))


def size_of(view: Encoded[V]) -> int:
    """Return the size of an encoded view in bytes."""
    return memoryview(view).nbytes


class _PageInProgress(Generic[V]):
    """The items of a page so far, and their size."""

    def __init__(self) -> None:
        self.items: list[Encoded[V]] = []
        self.used = 0

    def add(self, view: Encoded[V]) -> bool:
        """Add a view if it fits, or if it is the first one; return whether it was added."""
        size = size_of(view)
        if self.items and self.used + size > PAGE_BYTES:
            return False
        self.items.append(view)
        self.used += size
        return True

    def rows_that_fit(self) -> int:
        """Estimate how many more rows fit, from the average size of those that are there."""
        return (PAGE_BYTES - self.used) // (self.used // max(1, len(self.items)) + 1) + 1


async def visible(connection: Connection, actor: Actor, team_id: int | None) -> Reach:
    """Return the objects that a list has; if a team is named, those of the team alone."""
    if team_id is not None and not await teams.get(connection, team_id):
        return Reach(())
    return actor.reach(team_id)


async def read_views(
    read: Callable[[Part], Awaitable[Page[R]]], view_of: Callable[[R], V], part: Part
) -> EncodedPage[V]:
    """Read the rows of a list a few at a time, until the page is full or the list ends; return their views."""
    return await read_encoded(read, lambda row: encode(view_of(row)), part)


async def read_encoded(
    read: Callable[[Part], Awaitable[Page[R]]],
    encoded_view_of: Callable[[R], Encoded[V]],
    part: Part,
    first_rows: int = FIRST_ROWS,
) -> EncodedPage[V]:
    """Do the same for rows whose views are encoded already."""
    filling: _PageInProgress[V] = _PageInProgress()
    page = first = await read(msgspec.structs.replace(part, limit=min(part.limit, first_rows)))
    cursor = part.cursor
    while True:
        for index, row in enumerate(page.items):
            if not filling.add(encoded_view_of(row)):
                cursor = page.cursor_at(index - 1) if index else cursor
                return EncodedPage(filling.items, first.total, first.total_is_estimate, cursor)
        cursor, left = page.next_cursor, part.limit - len(filling.items)
        if cursor is None or not left:
            return EncodedPage(filling.items, first.total, first.total_is_estimate, cursor)
        page = await read(Part(min(left, filling.rows_that_fit()), 0, cursor, counts=False))


def encode_page(
    views: Sequence[V], cursor_of: Callable[[V], str], next_cursor: str | None
) -> tuple[list[Encoded[V]], str | None]:
    """Encode views until the page is full; return them and the cursor of the next page."""
    filling: _PageInProgress[V] = _PageInProgress()
    for index, view in enumerate(views):
        if not filling.add(encode(view)):
            return filling.items, cursor_of(views[index - 1])
    return filling.items, next_cursor


class ViewCache(Generic[V]):
    """The encoded views of schedules by the versions of their rows."""

    def __init__(self, view_of: Callable[[ScheduledJob], V], *, whole: bool) -> None:
        """Start empty; payloads are read only if the views shall be ``whole``."""
        self._view_of = view_of
        self._whole = whole
        self._views: RowCache[UUID, Encoded[V]] = RowCache(MOST_VIEWS, MOST_VIEW_BYTES)

    def clear(self) -> None:
        """Remove all entries: the server has changed, so versions stand for other contents."""
        self._views.clear()

    async def read(self, connection: Connection, versions: Sequence[tuple[UUID, int]]) -> dict[UUID, Encoded[V]]:
        """Return the views of these schedules in these versions, or newer; deleted ones are left out."""
        cached = {job_id: self._views.at_version(job_id, version) for job_id, version in versions}
        views = {job_id: view for job_id, view in cached.items() if view is not None}
        missing = [job_id for job_id, view in cached.items() if view is None]
        for version, job in await schedules.many(connection, missing, whole=self._whole) if missing else []:
            views[job.id] = encode(self._view_of(job))
            self._views.keep(job.id, version, views[job.id], size_of(views[job.id]))
        return views
