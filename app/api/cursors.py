"""Cursors in requests and responses: each belongs to one list in one order, and no other list takes it.

What a cursor says is the position of a row, such as an id. To a list with ids of the same kind a cursor of another one
would be as good as its own, and the client would silently miss rows.
"""

from contextvars import ContextVar
from hashlib import blake2b
from typing import Any

import msgspec
from litestar import Response
from litestar.connection import ASGIConnection

from app.api.handlers import once_for_each_handler
from app.persistence.pagination import MARK, foreign_cursor

# The list that the current request asks for; None if it asks for no list.
_LIST: ContextVar[str | None] = ContextVar("list", default=None)


def note_list(connection: ASGIConnection[Any, Any, Any, Any]) -> None:
    """Note which list a request asks for; refuse a cursor that another list has given.

    A cursor without a mark comes from an earlier release, or from a tool of agents.
    """
    if not _has_cursor(connection.route_handler):
        _LIST.set(None)
        return
    order = connection.query_params.get("sort") or _usual_order(connection.route_handler)
    asked = f"{connection.scope['path']} {order}"
    _LIST.set(asked)
    _, marked, mark = connection.query_params.get("cursor", "").partition(MARK)
    if marked and mark != _mark_of(asked):
        raise foreign_cursor()


def mark_cursor(response: Response[Any]) -> None:
    """Mark the cursor in a page of a list, so that only this list takes it."""
    asked, cursor = _LIST.get(), getattr(response.content, "next_cursor", None)
    if asked is not None and cursor:
        response.content = msgspec.structs.replace(response.content, next_cursor=f"{cursor}{MARK}{_mark_of(asked)}")


def _mark_of(asked: str) -> str:
    return blake2b(asked.encode(), digest_size=4).hexdigest()


@once_for_each_handler
def _has_cursor(handler: Any) -> bool:
    return "cursor" in handler.parsed_fn_signature.parameters


@once_for_each_handler
def _usual_order(handler: Any) -> str:
    """Return the order of a list without ``sort``; empty if it has only one."""
    field = handler.parsed_fn_signature.parameters.get("sort")
    return "" if field is None else str(field.default)
