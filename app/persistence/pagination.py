"""Rows as structs: one, all, or a page of a long list.

A page begins at an offset or after a cursor. A cursor costs the same at every position of the list.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec
from sqlalchemy import BigInteger, DateTime, Executable, Row, Select, String, column, func, select, tuple_
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cache import ExpiringCache
from app.domain.errors import FieldError, InvalidError
from app.persistence.sql_batches import fetch

# A page ends before it is larger than this, but has one item at least.
PAGE_BYTES = 1024 * 1024
# An offset makes Postgres read and drop everything before it; a cursor does not.
MOST_OFFSET = 10_000


# Longer lists are not counted: the planner's estimate is shown instead, and marked as one.
COUNTED = 10_000
# For how long an estimate is used, and how many are cached.
FRESH_SECONDS = 30.0
MOST_KNOWN = 1000

# A cursor that names a moment outside these years was not made here, and the driver could not send it.
FIRST_YEAR, LAST_YEAR = 1900, 9900
_INT4, _INT8 = 2**31, 2**63
_FIRST_ID, _LAST_ID = UUID(int=0), UUID(int=2**128 - 1)

_DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped

S = TypeVar("S")
T = TypeVar("T", bound=msgspec.Struct)


class Part(msgspec.Struct, frozen=True):
    """The part of a list that a client asks for: its length, where it begins, and whether the whole list is counted."""

    limit: int
    offset: int = 0
    cursor: str | None = None
    counts: bool = True


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A part of a list, how long the whole is, and where the next part begins."""

    items: Sequence[T]
    total: int
    total_is_estimate: bool = False
    next_cursor: str | None = None
    # The fields of the items that the list is ordered by.
    keys: tuple[str, ...] = ()

    def cursor_at(self, index: int) -> str:
        """Return the cursor that continues after one of the items."""
        return cursor_of([getattr(self.items[index], key) for key in self.keys])


def to_struct(row: Row[Any], kind: type[T]) -> T:
    """Return the columns of a row that are fields of a struct."""
    return msgspec.convert(row._mapping, kind)  # noqa: SLF001 - SQLAlchemy's public way to a row's names


async def read_one(connection: AsyncConnection, query: Executable, kind: type[T]) -> T | None:
    """Return the only row of a query, or None if there is none."""
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else to_struct(row, kind)


async def read_written(connection: AsyncConnection, statement: Executable, kind: type[T]) -> T:
    """Return the row that a statement has written and returns."""
    return to_struct((await connection.execute(statement)).one(), kind)


async def read_all(connection: AsyncConnection, query: Executable, kind: type[T]) -> list[T]:
    """Return all rows of a query."""
    return [to_struct(row, kind) for row in await connection.execute(query)]


async def read_page(
    connection: AsyncConnection,
    query: Select[Any],
    kind: type[T],
    keys: Sequence[Any],
    part: Part,
    *,
    ascending: bool = False,
) -> Page[T]:
    """Return a page of a query in the order of its keys, which together are unique; descending by default."""
    remaining = query
    if part.cursor is not None:
        place, here = tuple_(*keys), tuple_(*position_of(keys, part.cursor))
        remaining = query.where(place > here if ascending else place < here)
    order = (key.asc() if ascending else key.desc() for key in keys)
    return await _read(connection, query, remaining.order_by(*order), kind, keys, part)


async def _read(
    connection: AsyncConnection,
    query: Select[Any],
    ordered: Select[Any],
    kind: type[T],
    keys: Sequence[Any],
    part: Part,
) -> Page[T]:
    """Return a part of an ordered query, and the number of all rows."""
    # One row more than is asked for tells whether there is a next part.
    ordered = ordered.limit(part.limit + 1).offset(part.offset)
    names = tuple(key.name for key in keys)
    if not part.counts:
        items = await read_all(connection, ordered, kind)
        return _page(items, min(len(items), part.limit), part, names)
    counted = select(func.count()).select_from(query.with_only_columns(keys[-1]).limit(COUNTED + 1).subquery())
    # The count comes with the rows. If there are none, it takes a query of its own.
    rows = list(await connection.execute(ordered.add_columns(counted.scalar_subquery().label("counted"))))
    if not rows and not part.offset and part.cursor is None:
        return Page([], 0, keys=names)
    number = rows[0].counted if rows else (await connection.execute(counted)).scalar_one()
    total, is_estimate = await _total(connection, query.with_only_columns(keys[-1]), number)
    return _page([to_struct(row, kind) for row in rows], total, part, names, is_estimate=is_estimate)


async def read_of_owners(
    owners: Sequence[int] | None,
    part: Part,
    read: Callable[[int | None, Part], Awaitable[Page[T]]],
    *,
    ascending: bool = False,
) -> Page[T]:
    """Return a page of what several owners have, None standing for all owners, in the order of the page's keys."""
    return await read_merged((None,) if owners is None else owners, part, read, ascending=ascending)


async def read_merged(
    sources: Sequence[S],
    part: Part,
    read: Callable[[S, Part], Awaitable[Page[T]]],
    *,
    ascending: bool = False,
    position: Callable[[T], tuple[Any, ...]] | None = None,
) -> Page[T]:
    """Return a page of what comes from several sources, in the order of the page's keys or of ``position``.

    One page of each source is read from the same position, and they are merged: each comes from an index. A query for
    all of them together would sort everything that they have.
    """
    if len(sources) == 1:
        return await read(sources[0], part)
    first = msgspec.structs.replace(part, limit=part.offset + part.limit, offset=0)
    return merged([await read(source, first) for source in sources], part, ascending=ascending, position=position)


def merged(
    pages: Sequence[Page[T]],
    part: Part,
    *,
    ascending: bool = False,
    position: Callable[[T], tuple[Any, ...]] | None = None,
) -> Page[T]:
    """Return the part of a list whose beginnings, as far as the end of the part, are on these pages."""
    keys = next((page.keys for page in pages if page.keys), ())

    def by_keys(item: T) -> tuple[Any, ...]:
        return tuple(getattr(item, key) for key in keys)

    items_of_all = (item for page in pages for item in page.items)
    every = sorted(items_of_all, key=position or by_keys, reverse=not ascending)
    items = every[part.offset : part.offset + part.limit]
    total, is_estimate = sum(page.total for page in pages), any(page.total_is_estimate for page in pages)
    goes_on = len(every) > part.offset + part.limit or any(page.next_cursor for page in pages)
    return Page(items, total, is_estimate, _cursor_after(items, keys) if goes_on else None, keys)


_TEXT_KEY = column("key", String())


def page_of(values: Sequence[T], key: str, part: Part) -> Page[T]:
    """Return a page of values that are all at hand, sorted by a field with a text."""
    ordered = sorted(values, key=lambda value: str(getattr(value, key)))
    if part.cursor is not None:
        (last,) = position_of((_TEXT_KEY,), part.cursor)
        ordered = [value for value in ordered if str(getattr(value, key)) > last]
    more = len(ordered) > part.limit
    items = ordered[: part.limit]
    return Page(items, len(values), next_cursor=cursor_of([getattr(items[-1], key)]) if more else None, keys=(key,))


async def read_newest(
    connection: AsyncConnection,
    query: Select[Any],
    kind: type[T],
    within: Sequence[tuple[Any, Any]],
    key: Any,
    part: Part,
) -> Page[T]:
    """Return a page of the rows in which these columns have these values, in the descending order of a UUID.

    The values bound the columns and the key together, as one position. With equality alone Postgres may choose the
    key's own index, and read the rows of all other users before it finds that none matches.
    """
    columns, values = [column for column, _ in within], [value for _, value in within]
    place = tuple_(*columns, key)
    # With this condition Postgres may also use indexes that leave out rows without a value.
    query = query.where(*(column.is_not(None) for column in columns))
    everything = query.where(place >= tuple_(*values, _FIRST_ID), place <= tuple_(*values, _LAST_ID))
    remaining = everything
    if part.cursor is not None:
        remaining = everything.where(place < tuple_(*values, *position_of((key,), part.cursor)))
    ordered = remaining.order_by(*(column.desc() for column in (*columns, key)))
    return await _read(connection, everything, ordered, kind, (key,), part)


# The estimated lengths of long lists by their filters, so that not every page asks the planner again.
KnownTotals = ExpiringCache[tuple[tuple[str, Any], ...], int]


def known_totals() -> KnownTotals:
    """Return an empty cache of estimates."""
    return ExpiringCache(MOST_KNOWN)


async def _total(connection: AsyncConnection, query: Select[Any], counted: int) -> tuple[int, bool]:
    if counted <= COUNTED:
        return counted, False
    compiled = query.compile(dialect=_DIALECT, compile_kwargs={"literal_binds": True})
    return max(counted, await estimated_rows(connection, str(compiled))), True


async def estimated_rows(connection: AsyncConnection, sql: str, values: Sequence[Any] = ()) -> int:
    """Return how many rows the planner expects of a query."""
    (row,) = await fetch(connection, f"EXPLAIN (FORMAT JSON) {sql}", *values)
    plan = msgspec.json.decode(row[0]) if isinstance(row[0], str) else row[0]
    return int(plan[0]["Plan"]["Plan Rows"])


def _page(rows: Sequence[T], total: int, part: Part, names: tuple[str, ...], *, is_estimate: bool = False) -> Page[T]:
    """Return a part of a list, of which one row more than its limit has been read if there is one."""
    items = rows[: part.limit]
    more = _cursor_after(items, names) if len(rows) > part.limit else None
    return Page(items, total, is_estimate, more, names)


def _cursor_after(items: Sequence[Any], names: Sequence[str]) -> str | None:
    """Return the cursor that continues after the last of some items, or None without items."""
    return cursor_of([getattr(items[-1], name) for name in names]) if items else None


def cursor_of(values: Sequence[Any]) -> str:
    """Return the cursor for the place in a list at which the keys have these values."""
    return urlsafe_b64encode(msgspec.json.encode(values)).decode().rstrip("=")


def position_of(keys: Sequence[Any], cursor: str) -> list[Any]:
    """Return the values of the keys in a cursor; ``InvalidError`` unless Postgres can compare by all of them."""
    with _own_cursors():
        return [_comparable(key.type, value) for key, value in zip(keys, _raw(cursor), strict=True)]


def place_of(cursor: str, kind: type[datetime | str]) -> tuple[Any, UUID]:
    """Return the value, None if there is none, and the id in a cursor of a list that is sorted by a value."""
    with _own_cursors():
        value, row_id = _raw(cursor)
        column_type = String() if kind is str else DateTime()
        return (None if value is None else _comparable(column_type, value)), msgspec.convert(row_id, UUID)


# What separates the position in a cursor from the mark of its list (``app.api.cursors``).
MARK = "."


def foreign_cursor() -> InvalidError:
    """Return the error for a cursor that this list has not given."""
    return InvalidError(FieldError("cursor", "`cursor` does not belong to this list. Start again without it."))


def _raw(cursor: str) -> Any:
    position = cursor.partition(MARK)[0]
    return msgspec.json.decode(urlsafe_b64decode(position + "=" * (-len(position) % 4)))


@contextmanager
def _own_cursors() -> Iterator[None]:
    """Refuse a cursor that no list has given out."""
    try:
        yield
    except (ValueError, TypeError, OverflowError, RecursionError, msgspec.DecodeError):
        raise foreign_cursor() from None


def _comparable(kind: Any, value: Any) -> Any:
    """Return a value of a cursor in the type of its column; ``ValueError`` if the column can never hold it."""
    converted = msgspec.convert(value, kind.python_type)
    if isinstance(converted, datetime):
        if converted.tzinfo is None or not FIRST_YEAR <= converted.year <= LAST_YEAR:
            raise ValueError("no row has this moment")
        return converted.astimezone(UTC)
    most = _INT8 if isinstance(kind, BigInteger) else _INT4
    if isinstance(converted, int) and not -most <= converted < most:
        raise ValueError("no row has this number")
    if isinstance(converted, str) and "\x00" in converted:
        raise ValueError("Postgres texts have no NUL characters")
    return converted
