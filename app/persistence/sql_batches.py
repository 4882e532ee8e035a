"""SQL batches: one statement for many rows. Each column is sent as one array, and the statement is prepared once.

A column that is the same in all rows is sent as an array of one.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import asyncpg
import msgspec
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.sql.elements import KeyedColumnElement

from app.persistence.connection_pool import driver_of

_DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped
_encode = msgspec.json.Encoder().encode

# A value of a row in the text of a statement.
_VALUES = re.compile(r"\br\.(\w+)")


class BatchStatement(msgspec.Struct, frozen=True):
    """A statement for a list of rows: its text around the rows, the columns that it takes, and which are JSON."""

    before: str
    after: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    json: frozenset[str]
    sql: str = ""

    def __post_init__(self) -> None:
        """Build the text of the statement once."""
        msgspec.structs.force_setattr(self, "sql", self.starting_at(1))

    def starting_at(self, first: int) -> str:
        """Return the statement with its parameters numbered from ``first`` on."""
        numbered = enumerate(self.types, first)
        arrays = dict(zip(self.columns, (f"${number}::{kind}[]" for number, kind in numbered), strict=True))

        def value(place: re.Match[str]) -> str:
            name, array = place[1], arrays[place[1]]
            if name == self.columns[0]:
                return place[0]
            return f"CASE WHEN cardinality({array}) = 1 THEN ({array})[1] ELSE {place[0]} END"

        source = f"unnest({', '.join(arrays.values())}) AS r({_quoted(arrays)})"
        return f"{_VALUES.sub(value, self.before)} {source} {_VALUES.sub(value, self.after)}"


class PairedStatement(msgspec.Struct, frozen=True):
    """Two statements that are sent as one. Neither sees what the other writes."""

    first: BatchStatement
    second: BatchStatement
    sql: str = ""

    def __post_init__(self) -> None:
        """Build the text of the statement once."""
        second = self.second.starting_at(len(self.first.columns) + 1)
        msgspec.structs.force_setattr(self, "sql", f"WITH first AS ({self.first.sql}) {second}")


def insert_many(table: type[DeclarativeBase], columns: Sequence[str], suffix: str = "") -> BatchStatement:
    """Return a statement that inserts rows with these columns; the others take their defaults."""
    listed, values = _quoted(columns), ", ".join(f"r.{column}" for column in columns)
    return _many(table, columns, f"INSERT INTO {table.__tablename__} ({listed}) SELECT {values} FROM", suffix)


def update_many(
    table: type[DeclarativeBase], columns: Sequence[str], extra: str = "", *, also: Sequence[str] = ()
) -> BatchStatement:
    """Return a statement that sets these columns of rows by id; ``also`` are columns that only ``extra`` uses."""
    assignments = ", ".join(f'"{column}" = r.{column}' for column in columns)
    before = f"UPDATE {table.__tablename__} AS t SET {assignments}{extra} FROM"  # noqa: S608 - made of constants
    return _many(table, ("id", *columns, *also), before, "WHERE t.id = r.id")


def _quoted(columns: Iterable[str]) -> str:
    """Return a list of columns. The names are quoted: one of them is a keyword."""
    return ", ".join(f'"{column}"' for column in columns)


async def run_batch(connection: AsyncConnection, many: BatchStatement, rows: Sequence[Any]) -> list[Any]:
    """Run a statement for all rows, in the transaction of the connection; nothing is sent if there are none."""
    return await _run(connection, many.sql, arrays_of(many, rows)) if rows else []


async def run_pair(
    connection: AsyncConnection, both: PairedStatement, first: Sequence[Any], second: Sequence[Any]
) -> None:
    """Run two statements for their rows at once."""
    if first or second:
        await _run(connection, both.sql, [*arrays_of(both.first, first), *arrays_of(both.second, second)])


async def fetch(connection: AsyncConnection, sql: str, *values: Any) -> list[Any]:
    """Run a query by the driver itself, in the transaction of the connection. It is prepared once and kept."""
    records: list[Any] = await driver_of(connection).fetch(sql, *values)
    return records


async def _run(connection: AsyncConnection, sql: str, arrays: Sequence[Any]) -> list[Any]:
    try:
        records: list[Any] = await driver_of(connection).fetch(sql, *arrays)
    except asyncpg.IntegrityConstraintViolationError as error:
        raise IntegrityError(sql, None, error) from error
    return records


def _many(table: type[DeclarativeBase], columns: Sequence[str], before: str, after: str) -> BatchStatement:
    described = {column.name: column for column in table.__table__.columns}
    types = tuple(type_of(described[name]) for name in columns)
    json = frozenset(name for name in columns if isinstance(described[name].type, JSONB))
    return BatchStatement(before, after, tuple(columns), types, json)


def type_of(column: KeyedColumnElement[Any]) -> str:
    """Return the type of a column in SQL."""
    kind = column.type.compile(dialect=_DIALECT)
    return "text" if kind.startswith("VARCHAR") else kind


def arrays_of(many: BatchStatement, rows: Sequence[Any]) -> list[list[Any]]:
    """Return one array for each column. A missing value is NULL; a value that is the same in all rows is sent once."""
    if rows and isinstance(rows[0], dict):
        arrays = [[row.get(name) for row in rows] for name in many.columns]
    else:
        arrays = [[getattr(row, name) for row in rows] for name in many.columns]
    for number, name in enumerate(many.columns):
        values = arrays[number]
        # The first column is always whole: it says how many rows there are.
        if number and values and values.count(values[0]) == len(values):
            arrays[number] = values = values[:1]
        if name in many.json:
            arrays[number] = [None if value is None else _encode(value).decode() for value in values]
    return arrays
