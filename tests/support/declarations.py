"""``carillon apply`` on the test's database, without its process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from sqlalchemy import text

from app.actions.catalog import Catalog
from app.actions.plugins import load_actions
from app.cli.apply import diff_lines
from app.cli.operators import OPERATOR
from app.config import Settings
from app.persistence.database import Database
from app.services.declarations.applying import ApplyRequest, DeclarationService, Report
from app.services.declarations.files import Source
from app.wiring import wire_declarations
from tests.support.carillon import Json

CATALOG = Catalog(load_actions().actions)
NIGHTLY = """\
namespace: shop
workflows:
  - name: report
    nodes:
      - {id: start, type: trigger_schedule}
      - {id: work, type: core.noop}
    edges: [{from: start, to: work}]
schedules:
  - name: nightly
    workflow: report
    every: 1m
"""


async def state(database: Database) -> dict[str, list[Json]]:
    """Read all rows of workflows, schedules, their revisions and their declared names, but those being deleted."""
    tables = ("workflows", "scheduled_jobs", "schedule_revisions", "managed_workflows", "managed_schedules")
    async with database.transaction() as connection:
        results = {table: await connection.execute(text(f"SELECT * FROM {table} ORDER BY 1, 2")) for table in tables}
        deleted = set((await connection.execute(text("SELECT scheduled_job_id FROM deleted_histories"))).scalars())
    seen = {table: [dict(row._mapping) for row in rows] for table, rows in results.items()}
    seen["schedule_revisions"] = [row for row in seen["schedule_revisions"] if row["scheduled_job_id"] not in deleted]
    return seen


async def names(database: Database, table: str = "scheduled_jobs") -> list[str]:
    """Return the names of the rows of a table, sorted."""
    return sorted(row["name"] for row in (await state(database))[table])


class Told(msgspec.Struct):
    """What ``carillon apply`` prints: the changes, and the problems."""

    lines: list[str]
    problems: list[str]


class Applying:
    """``carillon apply`` as a function."""

    def __init__(self, service: DeclarationService) -> None:
        self._service = service

    async def __call__(self, *texts: str, verbose: bool = False, **wish: Any) -> Told:
        """Apply these files, called a.yaml, b.yaml and so on."""
        sources = [Source(f"{letter}.yaml", text.encode()) for letter, text in zip("abc", texts, strict=False)]
        reports: list[Report] = []
        await self._service.apply(OPERATOR, sources, ApplyRequest(**wish), reports.append)
        lines = [line.plain for report in reports for line in diff_lines(report.steps, {}, verbose=verbose)]
        return Told(lines, [str(problem) for report in reports for problem in report.problems])


@asynccontextmanager
async def applying(settings: Settings) -> AsyncIterator[Applying]:
    """Yield ``carillon apply`` on the stores of these settings."""
    async with wire_declarations(settings) as service:
        yield Applying(service)
