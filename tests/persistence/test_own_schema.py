"""Carillon in a schema of its own, in a database that another application uses too."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from app.config import Settings
from app.embedded import EmbeddedPostgres
from app.persistence import retention
from app.persistence.database import Database
from app.persistence.migrations import migrate, until_migrated
from tests.support.carillon import Carillon, fire_and_read
from tests.support.databases import fresh_database

ROLE = "carillon_in_a_schema"
# Tables of another application, with names that Carillon uses too.
OTHERS = """
CREATE TABLE public.workflows (title text);
CREATE TABLE public.workflow_executions (title text);
CREATE TABLE public.alembic_version (version_num text);
INSERT INTO public.alembic_version VALUES ('of another application');
"""


@pytest.fixture
async def database_url(postgres: EmbeddedPostgres) -> AsyncIterator[str]:
    """The URL of a role whose search_path is the schema ``scheduler``, which it owns, as docs/operating.md says."""
    async with fresh_database(postgres, template="template0") as url:
        database = url.partition("?")[0].rpartition("/")[2]
        connection = await asyncpg.connect(host=str(postgres.socket_folder), user="carillon", database=database)
        await connection.execute(f"{OTHERS} CREATE ROLE {ROLE} LOGIN; CREATE SCHEMA scheduler AUTHORIZATION {ROLE}")
        await connection.execute(f"ALTER ROLE {ROLE} IN DATABASE {database} SET search_path = scheduler")
        own_url = url.replace("carillon@", f"{ROLE}@")
        await migrate(own_url)
        yield own_url
        assert 3 == await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        assert "of another application" == await connection.fetchval("SELECT version_num FROM public.alembic_version")
        await connection.execute(f"DROP OWNED BY {ROLE} CASCADE; DROP ROLE {ROLE}")
        await connection.close()


async def test_a_schema_of_its_own_is_enough(carillon: Carillon, settings: Settings, database: Database) -> None:
    """Migrations, runs, lists and new partitions stay in the schema; tables of the same names are left alone."""
    await until_migrated(settings.database_url)
    schedule = await carillon.schedule()
    run = await fire_and_read(carillon, settings, database, schedule)
    assert "success" == run["status"]
    assert 1 == (await carillon.call("GET", "/executions/"))["total"]
    far = datetime.now(UTC) + timedelta(weeks=30)
    async with database.transaction() as connection:
        missing = await retention.missing_weeks(connection, far)
    for week in missing:
        await retention.make_week(database, week)
    async with database.transaction() as connection:
        assert missing != []
        assert [] == await retention.missing_weeks(connection, far)
