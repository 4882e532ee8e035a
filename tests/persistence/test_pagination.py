"""Pages of several owners are merged into the page that one list of all their rows would have.

Covers app.persistence.pagination.
"""

from uuid import UUID

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from app.persistence.pagination import Page, Part, cursor_of, position_of, read_of_owners
from app.persistence.tables import ActiveExecutionRow

KEY = ActiveExecutionRow.__table__.c.id


class Row(msgspec.Struct, frozen=True):
    """A row of an owner."""

    id: UUID


def page_of(rows: list[Row], part: Part, *, ascending: bool) -> Page[Row]:
    """Return a page of rows that are all at hand, as a query returns it."""
    ordered = sorted(rows, key=lambda row: row.id, reverse=not ascending)
    if part.cursor is not None:
        (last,) = position_of((KEY,), part.cursor)
        ordered = [row for row in ordered if (row.id > last if ascending else row.id < last)]
    items = ordered[part.offset : part.offset + part.limit]
    more = cursor_of([items[-1].id]) if items and len(ordered) > part.offset + part.limit else None
    return Page(items, len(rows), next_cursor=more, keys=("id",))


@given(
    st.lists(st.tuples(st.integers(1, 4), st.uuids()), unique_by=lambda pair: pair[1], max_size=30),
    st.integers(1, 7),
    st.integers(0, 9),
    st.booleans(),
)
async def test_merged_pages_are_those_of_one_list(
    rows: list[tuple[int, UUID]], limit: int, offset: int, ascending: bool
) -> None:
    """From an offset, and then by the cursors to the end; totals add up."""

    async def read(owner: int | None, part: Part) -> Page[Row]:
        return page_of([Row(one) for whose, one in rows if whose == owner], part, ascending=ascending)

    everything = [Row(one) for _, one in rows]
    part = Part(limit, offset)
    while True:
        expected = page_of(everything, part, ascending=ascending)
        page = await read_of_owners((1, 2, 3, 4), part, read, ascending=ascending)
        assert (expected.items, expected.total, expected.next_cursor) == (page.items, page.total, page.next_cursor)
        if page.next_cursor is None:
            break
        part = Part(limit, 0, page.next_cursor)


async def test_nobody_has_nothing() -> None:
    """A list of no owners is empty, and reads nothing."""

    async def read(_owner: int | None, _part: Part) -> Page[Row]:
        raise AssertionError("nothing is to be read")

    assert ([], 0, None) == _told(await read_of_owners((), Part(5), read))


def _told(page: Page[Row]) -> tuple[object, int, str | None]:
    return page.items, page.total, page.next_cursor
