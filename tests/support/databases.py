"""Databases of their own for tests, on the server of the run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg

from app.embedded import EmbeddedPostgres


@asynccontextmanager
async def fresh_database(server: EmbeddedPostgres, template: str = "carillon") -> AsyncIterator[str]:
    """The URL of a copy of the migrated database, or of another one; it is gone afterwards."""
    name = f"test_{uuid4().hex}"
    connection = await asyncpg.connect(host=str(server.socket_folder), user="carillon", database="postgres")
    await connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY WAL_LOG")
    yield server.url.replace("/carillon?", f"/{name}?")
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.close()
