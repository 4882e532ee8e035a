"""Lists of views: encoded views, and pages of them.

A page ends before it is larger than ``PAGE_BYTES``.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec

from app.domain.access import Actor, Reach
from app.persistence import teams
from app.persistence.database import Connection
from app.persistence.pagination import PAGE_BYTES, Page, Part

# How many rows of a list with large items are read at first. The size of those decides how many are read next.
FIRST_ROWS = 25

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
