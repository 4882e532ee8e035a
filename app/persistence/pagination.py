"""Pages of long lists: by offset, or from a cursor, which costs the same at every position."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import BigInteger, FromClause, Row, Select, func, select, text, tuple_
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from app import clock
from app.domain.errors import FieldError, InvalidError
from app.persistence.sql_batches import fetch

# A page ends before it is larger than this, but has one item at least.
PAGE_BYTES = 1024 * 1024
# An offset makes Postgres read and drop everything before it; a cursor does not.
MOST_OFFSET = 10_000


class Part(msgspec.Struct, frozen=True):
    """So many, from an offset or from a cursor on; and whether the length of the whole list is wanted."""

    limit: int
    offset: int = 0
    cursor: str | None = None
    counts: bool = True


# Beyond this nobody counts: the planner's guess is shown instead, and called that.
COUNTED = 10_000
# For how long such a guess is good enough, and how many are kept.
FRESH_SECONDS = 30.0
MOST_KNOWN = 1000

# A cursor that names a moment outside these years was not made here, and the driver could not send it.
FIRST_YEAR, LAST_YEAR = 1900, 9900
_INT4, _INT8 = 2**31, 2**63
_FIRST_ID, _LAST_ID = UUID(int=0), UUID(int=2**128 - 1)

_DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped


class Page(msgspec.Struct, frozen=True):
    """A part of a list, how long the whole is, and where the next part begins."""

    items: Sequence[Any]
    total: int
    total_is_estimate: bool = False
    next_cursor: str | None = None
    # The names of the columns that the list is ordered by.
    keys: tuple[str, ...] = ()

    def cursor_at(self, index: int) -> str:
        """The cursor that goes on after one of the items."""
        return cursor_of(_key_values(self.items[index], self.keys))


async def read_page(
    connection: AsyncConnection, query: Select[Any], keys: Sequence[Any], part: Part, *, ascending: bool = False
) -> Page:
    """The rows of a query in the order of its keys, which together are unique; descending, unless said otherwise."""
    wanted = query
    if part.cursor is not None:
        place, here = tuple_(*keys), tuple_(*position_of(keys, part.cursor))
        wanted = query.where(place > here if ascending else place < here)
    order = (key.asc() if ascending else key.desc() for key in keys)
    return await _read(connection, query, wanted.order_by(*order), keys, part)


async def _read(
    connection: AsyncConnection, query: Select[Any], ordered: Select[Any], keys: Sequence[Any], part: Part
) -> Page:
    """A part of what is in order, and the number of all."""
    ordered = ordered.limit(part.limit).offset(part.offset)
    names = tuple(key.name for key in keys)
    if not part.counts:
        rows = list(await connection.execute(ordered))
        return Page(rows, len(rows), next_cursor=_more(rows, names, part), keys=names)
    counted = select(func.count()).select_from(query.with_only_columns(keys[-1]).limit(COUNTED + 1).subquery())
    # The number comes with the rows; only where there are none has it to be asked for by itself.
    rows = list(await connection.execute(ordered.add_columns(counted.scalar_subquery().label("counted"))))
    if not rows and not part.offset and part.cursor is None:
        return Page(rows, 0, keys=names)
    number = rows[0].counted if rows else (await connection.execute(counted)).scalar_one()
    total, is_estimate = await _total(connection, query.with_only_columns(keys[-1]), number)
    return Page(rows, total, is_estimate, _more(rows, names, part), names)


async def read_newest(
    connection: AsyncConnection, query: Select[Any], within: Sequence[tuple[Any, Any]], key: Any, part: Part
) -> Page:
    """The rows in which these columns have these values, in the descending order of a UUID.

    The values bound the columns and the key together, as one place. By equality alone Postgres may think that the key's
    own index is as good, and go through the rows of everybody else to find that none is wanted.
    """
    columns, values = [column for column, _ in within], [value for _, value in within]
    place = tuple_(*columns, key)
    # Indexes without the rows that have no value are as good.
    query = query.where(*(column.is_not(None) for column in columns))
    everything = query.where(place >= tuple_(*values, _FIRST_ID), place <= tuple_(*values, _LAST_ID))
    wanted = everything
    if part.cursor is not None:
        wanted = everything.where(place < tuple_(*values, *position_of((key,), part.cursor)))
    return await _read(connection, everything, wanted.order_by(*(one.desc() for one in (*columns, key))), (key,), part)


class KnownTotals:
    """How long the lists are that nobody counts to the end, for a while: the guess is not made anew for every part."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._known: dict[Any, tuple[float, int]] = {}

    def recall(self, question: Any) -> int | None:
        """The guess, while it is fresh."""
        at, total = self._known.get(question, (0.0, 0))
        return total if total and clock.monotonic() - at < FRESH_SECONDS else None

    def keep(self, question: Any, total: int) -> None:
        """Remember a guess."""
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[question] = (clock.monotonic(), total)

    def clear(self) -> None:
        """Forget all guesses."""
        self._known.clear()


async def read_keys(
    connection: AsyncConnection,
    table: FromClause,
    wanted: Mapping[str, Any],
    keys: Sequence[Any],
    part: Part,
    totals: KnownTotals,
) -> Page:
    """The same by the driver, for the rows of a table with the wanted values: of each its keys and its version."""
    guess = totals.recall(tuple(wanted.items()))
    rows = await _rows(connection, table, wanted, keys, part, counts=guess is None)
    names = tuple(key.name for key in keys)
    more = _more(rows, names, part)
    if guess is not None:
        return Page(rows, guess, total_is_estimate=True, next_cursor=more, keys=names)
    every = select(keys[-1]).where(*(table.c[name] == value for name, value in wanted.items()))
    total, is_estimate = await _total(connection, every, await _number(connection, every, rows))
    if is_estimate:
        totals.keep(tuple(wanted.items()), total)
    return Page(rows, total, is_estimate, more, names)


async def _rows(
    connection: AsyncConnection,
    table: FromClause,
    wanted: Mapping[str, Any],
    keys: Sequence[Any],
    part: Part,
    *,
    counts: bool,
) -> list[Any]:
    filters, values = _conditions(wanted)
    names = [key.name for key in keys]
    place = "TRUE"
    if part.cursor is not None:
        values += position_of(keys, part.cursor)
        numbers = range(len(values) - len(keys) + 1, len(values) + 1)
        place = f"({', '.join(names)}) < ({', '.join(f'${number}' for number in numbers)})"
    counted = f"(SELECT count(*) FROM (SELECT FROM {table} WHERE {filters} LIMIT {COUNTED + 1}) AS few)"  # noqa: S608
    return await fetch(
        connection,
        f"SELECT {', '.join(names)}, xmin, {counted if counts else 'NULL'} AS counted "  # noqa: S608
        f"FROM {table} WHERE {filters} AND {place} "
        f"ORDER BY {', '.join(f'{name} DESC' for name in names)} LIMIT {part.limit:d} OFFSET {part.offset:d}",
        *values,
    )


async def _number(connection: AsyncConnection, query: Select[Any], rows: Sequence[Any]) -> int:
    if rows:
        number: int = rows[0]["counted"]
        return number
    counted = select(func.count()).select_from(query.limit(COUNTED + 1).subquery())
    return int((await connection.execute(counted)).scalar_one())


def _conditions(wanted: Mapping[str, Any]) -> tuple[str, list[Any]]:
    conditions = [f"{name} = ${number}" for number, name in enumerate(wanted, 1)]
    return " AND ".join(conditions) or "TRUE", list(wanted.values())


async def _total(connection: AsyncConnection, query: Select[Any], counted: int) -> tuple[int, bool]:
    if counted <= COUNTED:
        return counted, False
    compiled = query.compile(dialect=_DIALECT, compile_kwargs={"literal_binds": True})
    plan: Any = (
        await connection.execute(text("EXPLAIN (FORMAT JSON) " + str(compiled).replace(":", r"\:")))
    ).scalar_one()
    guess = (msgspec.json.decode(plan) if isinstance(plan, str) else plan)[0]["Plan"]["Plan Rows"]
    return max(counted, int(guess)), True


def _more(rows: Sequence[Any], names: Sequence[str], part: Part) -> str | None:
    """The cursor of the next part; None if this part is not full, so that nothing follows."""
    return cursor_of(_key_values(rows[-1], names)) if len(rows) == part.limit else None


def _key_values(row: Any, names: Sequence[str]) -> list[Any]:
    values = row._mapping if isinstance(row, Row) else row  # noqa: SLF001 - SQLAlchemy's public way to a row's names
    return [values[name] for name in names]


def cursor_of(values: Sequence[Any]) -> str:
    """The place in a list where the keys have these values, as clients hand it back."""
    return urlsafe_b64encode(msgspec.json.encode(values)).decode().rstrip("=")


def position_of(keys: Sequence[Any], cursor: str) -> list[Any]:
    """The values of the keys that a cursor names; ``InvalidError`` unless Postgres can compare by all of them."""
    try:
        raw = msgspec.json.decode(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return [_comparable(key.type, value) for key, value in zip(keys, raw, strict=True)]
    except (ValueError, TypeError, OverflowError, RecursionError, msgspec.DecodeError):
        message = "`cursor` does not belong to this list. Start again without it."
        raise InvalidError(FieldError("cursor", message)) from None


def _comparable(kind: Any, value: Any) -> Any:
    """A value of a cursor in the type of its column; ``ValueError`` if the column could never hold it."""
    found = msgspec.convert(value, kind.python_type)
    if isinstance(found, datetime):
        if found.tzinfo is None or not FIRST_YEAR <= found.year <= LAST_YEAR:
            raise ValueError("not a moment of any row")
        return found.astimezone(UTC)
    most = _INT8 if isinstance(kind, BigInteger) else _INT4
    if isinstance(found, int) and not -most <= found < most:
        raise ValueError("not a number of any row")
    if isinstance(found, str) and "\x00" in found:
        raise ValueError("Postgres has no such text")
    return found
