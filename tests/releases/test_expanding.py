"""Migrations after the last release expand only: what its code reads and writes is there, and nothing more is asked."""

import re
import runpy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from app.config import load_settings
from app.embedded import EmbeddedPostgres
from tests.releases.release import PREVIOUS, ROOT, Release
from tests.support.databases import fresh_database

# By table and column: its type, whether it must be given, and whether it is given by itself.
COLUMNS = """
SELECT c.relname || '.' || a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS required,
  a.atthasdef OR a.attidentity <> '' AS given
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
"""
# What refuses rows: checks, references, uniqueness; each with the columns that it looks at.
RULES = """
SELECT c.relname || ': ' || pg_get_constraintdef(k.oid) AS name, k.contype IN ('p', 'u') AS is_key,
  ARRAY(SELECT c.relname || '.' || a.attname FROM pg_attribute AS a
    WHERE a.attrelid = c.oid AND a.attnum = ANY(k.conkey)) AS columns
FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid
WHERE c.relnamespace = 'public'::regnamespace AND NOT c.relispartition AND k.contype IN ('c', 'f', 'p', 'u', 'x')
UNION ALL SELECT c.relname || ': ' || regexp_replace(pg_get_indexdef(i.indexrelid), '^.* USING ', 'unique '), true,
  ARRAY(SELECT c.relname || '.' || a.attname FROM pg_attribute AS a
    WHERE a.attrelid = c.oid AND a.attnum = ANY(i.indkey::int2[]))
FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indrelid
WHERE c.relnamespace = 'public'::regnamespace AND NOT c.relispartition AND i.indisunique
"""

Schema = tuple[dict[str, Any], dict[str, Any]]


async def schema(connection: AsyncConnection) -> Schema:
    """What there is, by name."""
    columns, rules = [await connection.execute(text(query)) for query in (COLUMNS, RULES)]
    return {row.name: row for row in columns}, {row.name: row for row in rules}


def contractions(before: Schema, after: Schema) -> set[str]:
    """What the code of the release before would trip over."""
    (old, old_rules), (new, new_rules) = before, after
    tables = {name.partition(".")[0] for name in old}
    return {
        *(f"{name} is gone" for name in old.keys() - new.keys()),
        *(f"{name} is now {new[name].type}" for name in old.keys() & new.keys() if old[name].type != new[name].type),
        *(f"{name} must be given" for name in new if name.partition(".")[0] in tables and _asks_more(name, old, new)),
        # Upserts name them.
        *(f"{name} is gone" for name in old_rules.keys() - new_rules.keys() if old_rules[name].is_key),
        *(
            f"{name} is new"
            for name in new_rules.keys() - old_rules.keys()
            if _may_refuse(new_rules[name], old, new) and not any(_allows_more(name, one) for one in old_rules)
        ),
    }


def _allows_more(name: str, old_name: str) -> bool:
    """Whether a check lists all values that an old one of the same column lists."""
    (begin, _, values), (old_begin, _, old_values) = name.partition("ARRAY["), old_name.partition("ARRAY[")
    named, old_named = ({*re.findall(r"'(\w+)'", one)} for one in (values, old_values))
    return begin == old_begin and bool(old_named) and old_named <= named


def _may_refuse(rule: Any, old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether a rule looks at what the old code writes; it leaves a new column null, and no null equals another."""
    is_null = any(name not in old and not new[name].required and not new[name].given for name in rule.columns)
    return bool(set(rule.columns) & set(old)) and not (rule.is_key and is_null)


def _asks_more(name: str, old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether a value must be given that need not be given before."""
    must = new[name].required and not new[name].given
    return must and not (name in old and old[name].required and not old[name].given)


def allowed(migrations: list[Path], release: str) -> set[str]:
    """What migrations say that the last release does without: ``CONTRACTS = {finding: the version since which}``."""
    said = [runpy.run_path(str(path)).get("CONTRACTS", {}) for path in migrations]
    return {finding for one in said for finding, since in one.items() if _number(since) <= _number(release)}


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


@pytest.fixture
async def blank(postgres: EmbeddedPostgres) -> AsyncIterator[dict[str, str]]:
    """What a process is told of a database without a table."""
    async with fresh_database(postgres, "template1") as url:
        yield {"CARILLON_DATABASE_URL": url}


async def test_nothing_that_the_last_release_needs_is_taken_away(
    previous: Release, following: Release, blank: dict[str, str]
) -> None:
    """By what the two make of a database, not by what migrations look like."""
    engine = create_async_engine(load_settings(blank).database_url)
    found = []
    for release in (previous, following):
        code, said = await release.run("migrate", settings=blank)
        assert 0 == code, said
        async with engine.begin() as connection:
            found.append(await schema(connection))
    await engine.dispose()
    known = {path.name for path in previous.migrations()}
    later = [path for path in sorted((ROOT / "migrations" / "versions").glob("*.py")) if path.name not in known]
    version, _ = PREVIOUS.read_text().split()
    assert set() == contractions(*found) - allowed(later, version)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("ALTER TABLE workflows ADD COLUMN new text", set()),
        ("ALTER TABLE workflows ADD COLUMN new text CHECK (length(new) < 9)", set()),
        ("ALTER TABLE workflows ADD COLUMN new int NOT NULL DEFAULT 1", set()),
        ("ALTER TABLE workflows ADD COLUMN new int GENERATED ALWAYS AS IDENTITY", set()),
        ("CREATE TABLE new (id int NOT NULL PRIMARY KEY REFERENCES workflows)", set()),
        ("CREATE INDEX ON workflows (name)", set()),
        ("ALTER TABLE scheduled_jobs DROP CONSTRAINT ck_scheduled_jobs_interval_positive", set()),
        ("ALTER TABLE workflows ALTER COLUMN name DROP NOT NULL", set()),
        ("ALTER TABLE workflows ADD COLUMN new text NOT NULL", {"workflows.new must be given"}),
        ("ALTER TABLE scheduled_jobs ALTER COLUMN next_slot SET NOT NULL", {"scheduled_jobs.next_slot must be given"}),
        ("ALTER TABLE workers DROP COLUMN name", {"workers.name is gone"}),
        ("ALTER TABLE workers RENAME COLUMN name TO called", {"workers.name is gone", "workers.called must be given"}),
        ("ALTER TABLE workers ALTER COLUMN name TYPE varchar(9)", {"workers.name is now character varying(9)"}),
        ("ALTER TABLE workers ADD CHECK (name <> '')", {"workers: CHECK ((name <> ''::text)) is new"}),
        ("CREATE UNIQUE INDEX ON workers (name)", {"workers: unique btree (name) is new"}),
        ("ALTER TABLE workers ADD COLUMN k text, ADD UNIQUE (name, k)", set()),
    ],
)
async def test_a_contraction_is_told_from_an_expansion(database_url: str, change: str, expected: set[str]) -> None:
    """Whatever way it is written."""
    engine = create_async_engine(database_url)
    async with engine.begin() as connection:
        before = await schema(connection)
        await connection.execute(text(change))
        assert expected == contractions(before, await schema(connection))
    await engine.dispose()


def test_a_contraction_is_allowed_once_a_release_does_without(tmp_path: Path) -> None:
    """The last release, or one before it; not the one that is being worked on."""
    migration = tmp_path / "0042_without_names.py"
    migration.write_text('CONTRACTS = {"workers.name is gone": "0.2.0"}')
    assert [set(), {"workers.name is gone"}, {"workers.name is gone"}] == [
        allowed([migration], release) for release in ("0.1.9", "0.2.0", "0.10.0")
    ]
