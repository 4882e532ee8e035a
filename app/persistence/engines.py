"""SQLAlchemy engines for URLs in the format of libpq, with one host or several."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from app.database_url import DRIVER_SCHEME, parse

CONNECT_TIMEOUT_SECONDS = 5
APPLICATION_NAME = "carillon"

# Errors after which the next host is tried. A refused login is not one of them: the other hosts would refuse it too.
_NEXT_HOST = (OSError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched)
# The role may not connect to the database, or a setting in `options` is unknown or has a wrong value.
_SESSION_REFUSED = (asyncpg.SyntaxOrAccessError, asyncpg.DataError)


def create_engine(url: str, *, call_seconds: float | None = None, **options: Any) -> AsyncEngine:
    """Return an engine whose connections are opened by the driver itself, which understands libpq's parameters.

    A call that takes ``call_seconds`` is given up.
    """
    return create_async_engine(f"{DRIVER_SCHEME}://", async_creator=connector(url, call_seconds), **options)


def connector(url: str, call_seconds: float | None = None) -> Callable[[], Awaitable[Any]]:
    """Return a function that opens a connection to the first host that can be used.

    Each host has a timeout of its own: the driver would spend one timeout on a first host that has vanished. The host
    that was used last is tried first.
    """
    target = parse(url)
    order = list(target.host_urls)
    settings = {} if "application_name" in target.parameters else {"application_name": APPLICATION_NAME}
    timeout = target.connect_timeout_seconds or CONNECT_TIMEOUT_SECONDS

    async def connect() -> Any:
        *first, last = order
        for host_url in first:
            with suppress(*_NEXT_HOST):
                return await connect_to(host_url)
        return await connect_to(last)

    async def connect_to(host_url: str) -> Any:
        try:
            connection = await asyncpg.connect(
                host_url, timeout=timeout, command_timeout=call_seconds, server_settings=settings
            )
        except _SESSION_REFUSED as error:
            # Its own code would make it a defect of a statement, and the answer to a request a 500.
            raise asyncpg.ConnectionRejectionError(str(error)) from error
        order.sort(key=lambda other: other != host_url)
        return connection

    return connect
