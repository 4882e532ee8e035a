"""A database of its own for a test, on the Postgres that the whole run shares."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg

from app.embedded import EmbeddedPostgres


@asynccontextmanager
async def fresh_database(server: EmbeddedPostgres, template: str = "carillon") -> AsyncIterator[str]:
    """Copy the migrated database, or another one, yield the URL of the copy, and drop it afterwards."""
    name = f"test_{uuid4().hex}"
    connection = await asyncpg.connect(host=str(server.socket_folder), user="carillon", database="postgres")
    await connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY WAL_LOG")
    yield server.url.replace("/carillon?", f"/{name}?")
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.close()
