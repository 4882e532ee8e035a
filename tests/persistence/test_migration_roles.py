"""Migrations by an owner, everything else by a role that owns nothing; and what a migration says while it waits."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import msgspec
import pytest
from litestar.testing import AsyncTestClient

from app.config import Settings
from app.embedded import EmbeddedPostgres
from app.persistence.database import Database
from app.wiring import wire_api
from tests.support.carillon import Carillon, until, working
from tests.support.tls_front import Authority, tls_front


class Roles(msgspec.Struct, frozen=True):
    """The URLs of an empty database, as its owner and as a role that owns nothing."""

    owner_url: str
    runtime_url: str
    runtime_role: str


@pytest.fixture
async def roles(postgres: EmbeddedPostgres) -> AsyncIterator[Roles]:
    """A database that a role without further rights owns, and another role."""
    name = f"roles_{uuid4().hex[:12]}"
    owner, runtime = f"{name}_owner", f"{name}_run"
    folder = str(postgres.socket_folder)
    admin = await asyncpg.connect(host=folder, user="carillon", database="postgres")
    await admin.execute(f"CREATE ROLE {owner} LOGIN")
    await admin.execute(f"CREATE ROLE {runtime} LOGIN")
    await admin.execute(f"CREATE DATABASE {name} OWNER {owner} TEMPLATE template0 STRATEGY WAL_LOG")
    yield Roles(
        f"postgresql+asyncpg://{owner}@/{name}?host={folder}",
        f"postgresql+asyncpg://{runtime}@/{name}?host={folder}",
        runtime,
    )
    await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await admin.execute(f"DROP ROLE {owner}")
    await admin.execute(f"DROP ROLE {runtime}")
    await admin.close()


async def carillon_command(environ: dict[str, str], *words: str) -> tuple[int | None, str]:
    """Run the command with JSON logs; its exit code and what it wrote."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app.cli", *words),
        # A resolver that does not answer fails within a second, before Carillon stops waiting for it.
        env={**os.environ, "CARILLON_LOG_FORMAT": "json", "RES_OPTIONS": "timeout:1 attempts:1", **environ},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode, said.decode()


async def test_a_role_that_owns_nothing_runs_what_the_owner_migrated(
    roles: Roles, settings: Settings, tmp_path: Path
) -> None:
    """API and worker create, fire and record with the granted rights alone, and cannot change the schema."""
    urls = {"CARILLON_DATABASE_URL": roles.runtime_url, "CARILLON_MIGRATION_DATABASE_URL": roles.owner_url}
    code, said = await carillon_command(urls, "migrate", "--grant-to", roles.runtime_role, "--drop-old")
    assert 0 == code, said
    as_runtime = msgspec.structs.replace(settings, database_url=roles.runtime_url, data_dir=str(tmp_path))
    async with AsyncTestClient(wire_api(as_runtime)) as client, working(as_runtime):
        carillon = Carillon(client, as_runtime)
        schedule = await carillon.schedule(interval_seconds=1)

        async def has_succeeded() -> bool:
            return any(run["status"] == "success" for run in await carillon.runs(schedule))

        await until(has_succeeded)
        await carillon.call("DELETE", f"/schedules/{schedule['id']}/", 204)
    database = Database(roles.runtime_url)
    async with database.reading() as connection:
        for statement in ("CREATE TABLE mine (id int)", "DROP TABLE scheduled_jobs", "DELETE FROM alembic_version"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.info["driver"].execute(statement)
    await database.close()


async def test_a_migration_waits_for_postgres(postgres: EmbeddedPostgres) -> None:
    """A database that is created while it waits is migrated; until then each line of the log names the problem."""
    name = f"late_{uuid4().hex[:12]}"
    folder = str(postgres.socket_folder)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app.cli", "migrate", "--wait-seconds", "120"),
        env={
            **os.environ,
            "CARILLON_LOG_FORMAT": "json",
            "CARILLON_DATABASE_URL": f"postgresql://carillon@/{name}?host={folder}",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    event = json.loads(await process.stdout.readline())
    assert ("database_awaited", "no_database") == (event["event"], event["problem"])
    admin = await asyncpg.connect(host=folder, user="carillon", database="postgres")
    await admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY WAL_LOG")
    said, _ = await process.communicate()
    await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await admin.close()
    assert 0 == process.returncode, said.decode()


@pytest.mark.parametrize(
    ("host", "query", "problem"),
    [
        ("nowhere.invalid", "", "dns"),
        ("127.0.0.1:1", "", "refused"),
        ("localhost:{port}", "sslmode=verify-full&sslrootcert={other}", "tls"),
        ("localhost:{port}", "sslmode=require&user=nobody_here", "login"),
    ],
)
async def test_a_migration_says_what_is_wrong(
    database_url: str, tmp_path: Path, host: str, query: str, problem: str
) -> None:
    """DNS, refusal, TLS or login: `problem` in the log names it."""
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    async with tls_front(database_url, authority.issue("localhost")) as port:
        filled = f"postgresql://{host}/carillon?{query}".format(port=port, other=other.certificate)
        code, said = await carillon_command({"CARILLON_DATABASE_URL": filled}, "migrate")
    event = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    assert 1 == code, said
    assert ("migration_failed", problem) == (event["event"], event["problem"])


@pytest.mark.parametrize(
    ("statement", "words", "problem"),
    [
        ("REVOKE CONNECT ON DATABASE {database} FROM PUBLIC", (), "session"),
        ("REVOKE CREATE ON SCHEMA public FROM PUBLIC", (), "rights"),
        ("GRANT ALL ON SCHEMA public TO PUBLIC", ("--grant-to", "nobody_here"), "no_role"),
        ("ALTER DATABASE {database} SET default_transaction_read_only = on", (), "read_only"),
    ],
)
async def test_a_migration_says_which_right_is_missing(
    roles: Roles, statement: str, words: tuple[str, ...], problem: str
) -> None:
    """To connect, to create tables, or to write at all; and rights for a role that does not exist."""
    owner = await asyncpg.connect(roles.owner_url.replace("+asyncpg", ""))
    await owner.execute(statement.format(database=await owner.fetchval("SELECT current_database()")))
    await owner.close()
    code, said = await carillon_command({"CARILLON_DATABASE_URL": roles.runtime_url}, "migrate", *words)
    event = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    assert 1 == code, said
    assert ("migration_failed", problem) == (event["event"], event["problem"])


async def test_a_role_without_rights_is_an_outage(roles: Roles, settings: Settings) -> None:
    """If `--grant-to` was forgotten the API answers 503 and says what to run."""
    code, said = await carillon_command({"CARILLON_DATABASE_URL": roles.owner_url}, "migrate")
    assert 0 == code, said
    as_runtime = msgspec.structs.replace(settings, database_url=roles.runtime_url)
    headers = {"Authorization": f"Bearer {settings.admin_token}"}
    async with AsyncTestClient(wire_api(as_runtime)) as client:
        answers = [await client.get("/health/ready"), await client.get("/api/v1/me/", headers=headers)]
    assert [(503, True)] * 2 == [(answer.status_code, "--grant-to" in answer.json()["detail"]) for answer in answers]


async def test_a_wrong_setting_is_not_tried_again() -> None:
    """Exit code 2 ends a Job at its first attempt."""
    code, said = await carillon_command({"CARILLON_DATABASE_URL": "postgresql://h/d?keepalives=1"}, "migrate")
    assert 2 == code
    assert "keepalives" in said
