"""A database of its own for a test, on the Postgres that the whole run shares, and transactions that meet in it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg
from sqlalchemy import text

from app.embedded import EmbeddedPostgres
from app.persistence.database import Connection
from tests.support.carillon import until

_WAITING = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")


@asynccontextmanager
async def fresh_database(server: EmbeddedPostgres, template: str = "carillon") -> AsyncIterator[str]:
    """Copy the migrated database, or another one, yield the URL of the copy, and drop it afterwards."""
    name = f"test_{uuid4().hex}"
    connection = await asyncpg.connect(host=str(server.socket_folder), user="carillon", database="postgres")
    await connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY WAL_LOG")
    yield server.url.replace("/carillon?", f"/{name}?")
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.close()


async def until_waiting(holder: Connection) -> None:
    """Wait until another transaction waits for a lock, such as one that this transaction holds."""

    async def waits() -> bool:
        # Within a transaction, the first answer would be given again.
        await holder.execute(text("SELECT pg_stat_clear_snapshot()"))
        return bool((await holder.execute(_WAITING)).scalar())

    await until(waits, seconds=20)
