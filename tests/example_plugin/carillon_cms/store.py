"""The system's own tables. Actions know no database of Carillon's; this one is theirs."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

TABLES = """
CREATE TABLE IF NOT EXISTS cms_content (
    id int PRIMARY KEY, title text NOT NULL, body text NOT NULL DEFAULT '', published_at timestamptz
);
CREATE TABLE IF NOT EXISTS cms_media (
    id int PRIMARY KEY, site_id int NOT NULL, used boolean NOT NULL, uploaded_at timestamptz NOT NULL
);
CREATE TABLE IF NOT EXISTS cms_series (
    id int PRIMARY KEY, content_id int NOT NULL, cron text, minutes int, timezone text NOT NULL DEFAULT 'UTC',
    active boolean NOT NULL DEFAULT true, last_at timestamptz, next_at timestamptz, error text NOT NULL DEFAULT ''
);
"""


@asynccontextmanager
async def opened() -> AsyncIterator[asyncpg.Connection]:
    """A connection to the system's database."""
    connection = await asyncpg.connect(os.environ["CMS_DATABASE_URL"])
    try:
        yield connection
    finally:
        await connection.close()
