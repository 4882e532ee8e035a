"""Parts of long lists: by offset, or from a cursor on, which costs the same wherever it stands."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Row, Select, func, select, text, tuple_
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.errors import FieldError, InvalidError
from app.domain.parts import Part

# Beyond this nobody counts: the planner's guess is shown instead, and called that.
COUNTED = 10_000

_DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped


class Page(msgspec.Struct, frozen=True):
    """A part of a list, how long the whole is, and where the next part begins."""

    items: Sequence[Any]
    total: int
    total_is_estimate: bool = False
    next_cursor: str | None = None


async def read_page(connection: AsyncConnection, query: Select[Any], keys: Sequence[Any], part: Part) -> Page:
    """The rows of a query in the descending order of its keys, which together are unique."""
    total, is_estimate = await _total(connection, query.with_only_columns(keys[-1]))
    wanted = query if part.cursor is None else query.where(tuple_(*keys) < tuple_(*_position(keys, part.cursor)))
    ordered = wanted.order_by(*(key.desc() for key in keys)).limit(part.limit).offset(part.offset)
    rows = list(await connection.execute(ordered))
    more = _cursor(keys, rows[-1]) if len(rows) == part.limit else None
    return Page(rows, total, is_estimate, more)


async def _total(connection: AsyncConnection, query: Select[Any]) -> tuple[int, bool]:
    bounded = query.limit(COUNTED + 1).subquery()
    counted: int = (await connection.execute(select(func.count()).select_from(bounded))).scalar_one()
    if counted <= COUNTED:
        return counted, False
    compiled = query.compile(dialect=_DIALECT, compile_kwargs={"literal_binds": True})
    plan: Any = (
        await connection.execute(text("EXPLAIN (FORMAT JSON) " + str(compiled).replace(":", r"\:")))
    ).scalar_one()
    guess = (msgspec.json.decode(plan) if isinstance(plan, str) else plan)[0]["Plan"]["Plan Rows"]
    return max(counted, int(guess)), True


def _cursor(keys: Sequence[Any], row: Row[Any]) -> str:
    values = [getattr(row, key.name) for key in keys]
    return urlsafe_b64encode(msgspec.json.encode(values)).decode().rstrip("=")


def _position(keys: Sequence[Any], cursor: str) -> list[Any]:
    try:
        raw = msgspec.json.decode(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return [msgspec.convert(value, key.type.python_type) for key, value in zip(keys, raw, strict=True)]
    except (ValueError, TypeError, msgspec.DecodeError):
        raise InvalidError(FieldError("cursor", "This is no cursor of this list.")) from None
