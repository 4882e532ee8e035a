"""Many rows in one statement: a list of values travels as one JSON parameter and unfolds into the table's row type."""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import DeclarativeBase

_encode = msgspec.json.Encoder().encode


def insert_many(table: type[DeclarativeBase], columns: Sequence[str]) -> TextClause:
    """Insert rows with these columns; the others take their defaults."""
    listed = ", ".join(columns)
    return text(f"INSERT INTO {table.__tablename__} ({listed}) SELECT {listed} FROM {_unfolded(table)}")  # noqa: S608


def update_many(table: type[DeclarativeBase], columns: Sequence[str], extra: str = "") -> TextClause:
    """Set these columns of the rows with the given ids."""
    assignments = ", ".join(f"{column} = r.{column}" for column in columns)
    return text(
        f"UPDATE {table.__tablename__} AS t SET {assignments}{extra} FROM {_unfolded(table)} WHERE t.id = r.id"  # noqa: S608
    )


async def run_many(connection: AsyncConnection, statement: TextClause, rows: Sequence[Any]) -> None:
    """Run a batch statement for all rows; none at all is no statement."""
    if rows:
        await connection.execute(statement, {"rows": _encode(rows).decode()})


def _unfolded(table: type[DeclarativeBase]) -> str:
    return f"jsonb_populate_recordset(NULL::{table.__tablename__}, CAST(:rows AS jsonb)) AS r"
