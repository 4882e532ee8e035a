"""Which schema this release needs, and whether a database has it. Alembic is not asked: it takes long to load."""

from functools import cache
from pathlib import Path
from typing import Any

import asyncpg

import migrations
from app.domain.errors import NotMigratedError

_FOUND = "SELECT version_num FROM alembic_version"


@cache
def known_revisions() -> tuple[str, ...]:
    """Those of this release in their order: a migration's file is named after its revision."""
    versions = Path(migrations.__file__).parent / "versions"
    return tuple(sorted(file.stem.partition("_")[0] for file in versions.glob("[0-9]*.py")))


def newest_revision() -> str:
    """The one that this release's code is written for."""
    return known_revisions()[-1]


def is_later(found: str | None) -> bool:
    """Whether a later release made it: this one does not know it, and runs on it as it is."""
    return found is not None and found not in known_revisions()


def is_enough(found: str | None) -> bool:
    """Whether this release can work on it."""
    return found == newest_revision() or is_later(found)


async def require_schema(driver: Any) -> None:
    """Raise ``NotMigratedError`` unless the database behind a driver's connection has what this release needs."""
    try:
        found: str | None = await driver.fetchval(_FOUND)
    except asyncpg.UndefinedTableError:
        found = None
    if not is_enough(found):
        raise NotMigratedError(found or "none", newest_revision())
