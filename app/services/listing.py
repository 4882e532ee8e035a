"""Pages that end at a number of bytes: views are encoded one by one, and the first that does not fit begins the next.

Rows of lists whose items can be large (payloads, graphs) are read a few at a time, so that a page never costs more
memory than it may show.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from app.domain.parts import PAGE_BYTES, Part
from app.persistence.pagination import Page

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
