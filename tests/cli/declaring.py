"""Files applied to the test's database, and what is said of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from app.cli.diffs import diff_lines
from app.cli.operators import OPERATOR
from app.config import Settings
from app.services.declarations.applying import DeclarationService, Report, Wish
from app.services.declarations.files import Source
from app.wiring import wire_declarations

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
        await self._service.apply(OPERATOR, sources, Wish(**wish), reports.append)
        lines = [line.plain for report in reports for line in diff_lines(report.steps, verbose=verbose)]
        return Told(lines, [str(problem) for report in reports for problem in report.problems])


@asynccontextmanager
async def applying(settings: Settings) -> AsyncIterator[Applying]:
    """Apply on these stores."""
    async with wire_declarations(settings) as service:
        yield Applying(service)
