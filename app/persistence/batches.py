"""Many rows in one statement: each column travels as one array, and the driver prepares the statement once."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import asyncpg
import msgspec
from sqlalchemy import text
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.sql.elements import KeyedColumnElement

_DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped
_encode = msgspec.json.Encoder().encode


class Many(msgspec.Struct, frozen=True):
    """A statement for a list of rows: its text, the columns that it wants, and which of them are JSON."""

    sql: str
    columns: tuple[str, ...]
    json: frozenset[str]


def insert_many(table: type[DeclarativeBase], columns: Sequence[str], suffix: str = "") -> Many:
    """Insert rows with these columns; the others take their defaults."""
    listed = ", ".join(columns)
    return _many(table, columns, f"INSERT INTO {table.__tablename__} ({listed}) SELECT {listed} FROM", suffix)


def update_many(table: type[DeclarativeBase], columns: Sequence[str], extra: str = "", *, also: str = "") -> Many:
    """Set these columns of the rows with the given ids; ``also`` are columns that only ``extra`` uses."""
    assignments = ", ".join(f"{column} = r.{column}" for column in columns)
    before = f"UPDATE {table.__tablename__} AS t SET {assignments}{extra} FROM"  # noqa: S608 - our own names
    return _many(table, ("id", *columns, *filter(None, [also])), before, "WHERE t.id = r.id")


async def run_many(connection: AsyncConnection, many: Many, rows: Sequence[Any]) -> list[Any]:
    """Run a statement for all rows, in the transaction of the connection; none at all is no statement."""
    if not rows:
        return []
    read = _item if isinstance(rows[0], dict) else getattr
    arrays = [_array(name, rows, read, is_json=name in many.json) for name in many.columns]
    driver = await _driver(connection)
    try:
        found: list[Any] = await driver.fetch(many.sql, *arrays)
    except asyncpg.IntegrityConstraintViolationError as error:
        raise IntegrityError(many.sql, None, error) from error
    return found


async def fetch(connection: AsyncConnection, sql: str, *values: Any) -> list[Any]:
    """Ask by the driver itself, in the transaction of the connection: the statement is prepared once and kept."""
    found: list[Any] = await (await _driver(connection)).fetch(sql, *values)
    return found


def _many(table: type[DeclarativeBase], columns: Sequence[str], before: str, after: str) -> Many:
    described = {column.name: column for column in table.__table__.columns}
    arrays = ", ".join(f"${number}::{_type(described[name])}[]" for number, name in enumerate(columns, 1))
    unfolded = f"unnest({arrays}) AS r({', '.join(columns)})"
    json = frozenset(name for name in columns if isinstance(described[name].type, JSONB))
    return Many(f"{before} {unfolded} {after}", tuple(columns), json)


def _type(column: KeyedColumnElement[Any]) -> str:
    kind = column.type.compile(dialect=_DIALECT)
    return "text" if kind.startswith("VARCHAR") else kind


def _item(row: dict[str, Any], name: str, default: Any = None) -> Any:
    return row.get(name, default)


def _array(name: str, rows: Iterable[Any], read: Callable[..., Any], *, is_json: bool) -> list[Any]:
    values = [read(row, name, None) for row in rows]
    return [None if value is None else _encode(value).decode() for value in values] if is_json else values


async def _driver(connection: AsyncConnection) -> Any:
    """The driver's own connection, with the transaction begun: it is begun by the first statement otherwise."""
    driver: Any = (await connection.get_raw_connection()).driver_connection
    if not driver.is_in_transaction():
        await connection.execute(text("SELECT 1"))
    return driver
