"""``carillon apply`` and ``export`` on the database itself, as the built-in admin."""

import asyncio
from collections.abc import Sequence

from app.cli.apply import ReportPrinter, Wish
from app.cli.operators import OPERATOR, on_database
from app.embedded.data_folder import settings_with_database
from app.observability.logs import set_up_logging
from app.persistence.users import BUILT_IN_ADMIN
from app.services.declarations.applying import ApplyRequest, Report
from app.services.declarations.exporting import ExportService, Selection
from app.services.declarations.files import Source
from app.wiring import wire_declarations


def apply_sources(sources: Sequence[Source], wish: Wish, printer: ReportPrinter) -> None:
    """Apply files, and print the report of each as soon as it is there."""
    # Only errors: if Redis cannot be reached now, the workers find the changed schedules by themselves.
    set_up_logging("auto", "error")
    request = ApplyRequest(owner=wish.owner or BUILT_IN_ADMIN, prune=wish.prune, dry_run=wish.dry_run)

    def print_report(report: Report) -> None:
        printer.print_steps(report.file, report.steps)
        printer.print_problems([str(problem) for problem in report.problems])

    async def call() -> None:
        async with wire_declarations(settings_with_database()) as service:
            await service.apply(OPERATOR, list(sources), request, print_report)

    asyncio.run(call())


def exported(*, namespace: str | None, owner: str | None, for_namespace: str | None) -> str:
    """Return the YAML of workflows and schedules."""
    selection = Selection(namespace=namespace, owner=owner, for_namespace=for_namespace)
    return on_database(lambda database: ExportService(database).export(OPERATOR, selection))
