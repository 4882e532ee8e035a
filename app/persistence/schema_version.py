"""The schema that this release needs, and whether a database has it. Alembic is not used: it takes long to load."""

from functools import cache
from pathlib import Path
from typing import Any

import asyncpg

import migrations
from app.domain.errors import MissingRightsError, NotMigratedError

_CURRENT = "SELECT version_num FROM alembic_version"


@cache
def known_revisions() -> tuple[str, ...]:
    """Return the revisions of this release in their order: a migration's file is named after its revision."""
    versions = Path(migrations.__file__).parent / "versions"
    return tuple(sorted(file.stem.partition("_")[0] for file in versions.glob("[0-9]*.py")))


def newest_revision() -> str:
    """Return the revision that this release's code is written for."""
    return known_revisions()[-1]


def is_later(revision: str | None) -> bool:
    """Return whether a later release made this revision: this release does not know it, and works on it unchanged."""
    return revision is not None and revision not in known_revisions()


def is_enough(revision: str | None) -> bool:
    """Return whether this release can work on this revision."""
    return revision == newest_revision() or is_later(revision)


async def require_schema(driver: Any) -> None:
    """Raise ``NotMigratedError`` unless the database behind a driver's connection has what this release needs.

    A role that may not read the tables raises ``MissingRightsError``.
    """
    try:
        revision: str | None = await driver.fetchval(_CURRENT)
    except asyncpg.UndefinedTableError:
        revision = None
    except asyncpg.InsufficientPrivilegeError as error:
        raise MissingRightsError from error
    if not is_enough(revision):
        raise NotMigratedError(revision or "none", newest_revision())
