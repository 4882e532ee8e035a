"""Files applied to the test's database, and what is said of them."""

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
    """All that there is of workflows, schedules, their history and their names; what is being deleted is not."""
    tables = ("workflows", "scheduled_jobs", "schedule_revisions", "managed_workflows", "managed_schedules")
    async with database.transaction() as connection:
        found = {table: await connection.execute(text(f"SELECT * FROM {table} ORDER BY 1, 2")) for table in tables}
        deleted = set((await connection.execute(text("SELECT scheduled_job_id FROM deleted_histories"))).scalars())
    seen = {table: [dict(row._mapping) for row in rows] for table, rows in found.items()}
    seen["schedule_revisions"] = [one for one in seen["schedule_revisions"] if one["scheduled_job_id"] not in deleted]
    return seen


async def names(database: Database, table: str = "scheduled_jobs") -> list[str]:
    """What there is, by name."""
    return sorted(row["name"] for row in (await state(database))[table])


class Told(msgspec.Struct):
    """What an operator reads."""

    lines: list[str]
    problems: list[str]


class Applying:
    """``carillon apply``, but for its process."""

    def __init__(self, service: DeclarationService) -> None:
        self._service = service

    async def __call__(self, *texts: str, verbose: bool = False, **wish: Any) -> Told:
        """Apply these files, called a.yaml, b.yaml and so on."""
        sources = [Source(f"{letter}.yaml", text.encode()) for letter, text in zip("abc", texts, strict=False)]
        reports: list[Report] = []
        await self._service.apply(OPERATOR, sources, ApplyRequest(**wish), reports.append)
        lines = [line.plain for report in reports for line in diff_lines(report.steps, verbose=verbose)]
        return Told(lines, [str(problem) for report in reports for problem in report.problems])


@asynccontextmanager
async def applying(settings: Settings) -> AsyncIterator[Applying]:
    """Apply on these stores."""
    async with wire_declarations(settings) as service:
        yield Applying(service)
