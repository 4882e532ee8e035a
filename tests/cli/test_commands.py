"""``carillon apply``, ``export``, ``token create`` and ``keys rotate`` as an operator types them.

Covers app.cli.operators.
"""

import asyncio
import io
import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from app.cli.apply import read_sources
from app.cli.main import app, exit_on_bad_input
from app.config import Settings
from app.domain.access import Scope
from app.domain.errors import UnavailableError
from app.domain.trigger_event import rfc3339
from app.persistence import oidc_keys, users
from app.persistence.database import Database, database_now
from app.persistence.pagination import Part
from app.services.declarations.files import Source
from tests.support.declarations import NIGHTLY

PROGRAM = Path(sys.executable).with_name("carillon")


async def command(settings: Settings, *words: str | Path) -> tuple[int, str, str]:
    """The exit code and what ``carillon`` says."""
    stores = {"CARILLON_DATABASE_URL": settings.database_url, "CARILLON_REDIS_URL": "redis://127.0.0.1:1"}
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        *words,
        env={**os.environ, **stores, "COLUMNS": "40"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate()
    return process.returncode or 0, out.decode(), error.decode()


async def test_a_folder_is_applied_and_exported(settings: Settings, tmp_path: Path) -> None:
    """With no Redis at all; other files and hidden ones are nobody's business."""
    folder = tmp_path / "declared"
    folder.mkdir()
    (folder / "a.yaml").write_text(NIGHTLY)
    (folder / "b.yml").write_text("namespace: shop\nschedules: [{name: s, workflow: nobody, every: 1m}]")
    (folder / "notes.txt").write_text("not: [yaml")
    (folder / ".hidden.yaml").write_text("not: [yaml")
    code, out, error = await command(settings, "apply", "-f", folder)
    lines = [f"{folder}/a.yaml:", "+ workflow report", "+ schedule nightly"]
    assert [*lines, "2 created, 0 changed, 0 unchanged, 0 deleted."] == out.splitlines()
    problem = f"{folder}/b.yml:2: schedule 's': workflow: The namespace has no workflow 'nobody'.\n"
    assert (2, problem) == (code, error)
    code, out, error = await command(settings, "export", "-o", tmp_path / "out.yaml")
    assert (0, "", "", True) == (code, out, error, "every: 1m" in (tmp_path / "out.yaml").read_text())


async def test_a_token_is_narrowed(settings: Settings, database: Database) -> None:
    """By a scope, and by an end that is a duration or a time; what is neither is refused."""
    await command(settings, "user", "create", "mia")
    code, out, _ = await command(settings, "token", "create", "mia", "--scope", "read", "--expires", "90d")
    assert (0, True) == (code, out.startswith("carillon_"))
    end = "2096-01-01T00:00:00Z"
    assert 0 == (await command(settings, "token", "create", "mia", "--expires", end))[0]
    code, _, error = await command(settings, "token", "create", "mia", "--expires", "soon")
    assert (1, True) == (code, "expires_at" in error)
    async with database.transaction() as connection:
        now = await database_now(connection)
        owner = await users.find_by_name(connection, "mia")
        assert owner is not None
        narrow, lasting = (await users.tokens_of(connection, owner.id, Part(10, counts=False))).items
    assert ([Scope.READ], None) == (narrow.scopes, lasting.scopes)
    assert narrow.expires_at is not None
    assert timedelta(days=89) < narrow.expires_at - now <= timedelta(days=90)
    assert (end,) == (rfc3339(lasting.expires_at) if lasting.expires_at else "",)


async def test_keys_are_rotated(settings: Settings, database: Database) -> None:
    """The new key signs a day later, or within seconds; its id is all that is printed of it."""
    code, out, error = await command(settings, "keys", "rotate")
    async with database.transaction() as connection:
        *_, newest = await oidc_keys.read(connection)
        now = await database_now(connection)
    told = f"Key {newest.kid} is published and signs from {rfc3339(newest.activates_at.replace(microsecond=0))}.\n"
    assert (0, told, "") == (code, out, error)
    assert timedelta(hours=23) < newest.activates_at - now <= timedelta(days=1)
    code, out, error = await command(settings, "keys", "rotate", "--now", "--json")
    shown = json.loads(out)
    async with database.transaction() as connection:
        keys = {key.kid: key for key in await oidc_keys.read(connection)}
        now = await database_now(connection)
    assert (0, "", {"key_id", "activates_at"}) == (code, error, set(shown))
    assert keys[shown["key_id"]].retires_at is None
    assert keys[shown["key_id"]].activates_at - now <= timedelta(seconds=15)


def test_a_database_that_is_away_is_no_bad_input() -> None:
    """It exits as every command does: trying again may help."""
    with pytest.raises(UnavailableError), exit_on_bad_input():
        raise UnavailableError


def test_standard_input_is_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hyphen is one, and no option without a name."""
    _, bound, _ = app.parse_args(["apply", "-f", "-", "--dry-run"])
    assert ([Path("-")], True) == (bound.arguments["file"], bound.arguments["dry_run"])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"namespace: x")))
    assert [Source("<stdin>", b"namespace: x")] == read_sources(bound.arguments["file"])


def test_what_is_refused_is_bad_input(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """2: trying again does not help."""
    for path, words in ((tmp_path / "nothing.yaml", "No such file or directory"), (tmp_path, "there is no .yaml or")):
        with pytest.raises(SystemExit) as caught, exit_on_bad_input():
            read_sources([path])
        assert (2, True) == (caught.value.code, f"carillon: {path}: {words}" in capsys.readouterr().err)


def test_a_file_that_is_given_twice_is_one(tmp_path: Path) -> None:
    """By itself, and by its folder."""
    paths = [tmp_path / "b.yaml", tmp_path / "a.yml"]
    for path in paths:
        path.write_text(path.name)
    assert [str(paths[0]), str(paths[1])] == [source.name for source in read_sources([paths[0], tmp_path])]
