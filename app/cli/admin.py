"""``carillon breaker``."""

from typing import Annotated

import msgspec
from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from app.cli.operators import OPERATOR, on_database
from app.domain.errors import NotFoundError
from app.domain.trigger_event import rfc3339
from app.persistence import workflows
from app.persistence.database import Database
from app.services.breakers import BreakerService
from app.services.views import BreakerDetail

Limit = Annotated[int, Parameter(help="How many transitions to show.")]


breaker = App(name="breaker", help="The circuit breaker of a workflow.")


@breaker.default
def show(workflow: str, *, json: Annotated[bool, Parameter(negative="")] = False, limit: Limit = 20) -> None:
    """Show the circuit breaker of a workflow, given by its id or its name, with its latest transitions."""

    async def read(database: Database) -> BreakerDetail:
        return await BreakerService(database).get(OPERATOR, await _found(database, workflow), limit)

    _say(on_database(read), as_json=json)


@breaker.command
def reset(workflow: str, *, json: Annotated[bool, Parameter(negative="")] = False, limit: Limit = 20) -> None:
    """Close the circuit breaker of a workflow by hand."""

    async def close(database: Database) -> BreakerDetail:
        return await BreakerService(database).reset(OPERATOR, await _found(database, workflow), limit)

    _say(on_database(close), as_json=json)


async def _found(database: Database, workflow: str) -> int:
    """The id of a workflow that is named by its id, or by a name that only one has."""
    if workflow.isdecimal() and workflow.isascii():
        return int(workflow)
    async with database.transaction() as connection:
        ids = await workflows.ids_of_name(connection, workflow)
    if len(ids) != 1:
        many = f"{len(ids)} workflows are called '{workflow}'; give the id" if ids else f"no workflow is '{workflow}'"
        raise NotFoundError(many)
    return ids[0]


def _say(found: BreakerDetail, *, as_json: bool) -> None:
    if as_json:
        # Alone on stdout, so that a script can take it.
        print(msgspec.json.encode(found).decode())  # noqa: T201
        return
    console = Console()
    console.print(_summary(found), markup=False, soft_wrap=True)
    if found.transitions:
        table = Table("at", "from", "to", "reason")
        for change in found.transitions:
            table.add_row(rfc3339(change.at), change.from_state, change.to_state, change.reason)
        console.print(table)


def _summary(found: BreakerDetail) -> str:
    words = f"Workflow {found.workflow_id} ({found.workflow_name}): breaker {found.state}"
    if found.breaker_threshold is None:
        return f"{words}; it has no breaker_threshold, so it never opens."
    failures = f"{found.failure_count} of {found.breaker_threshold} consecutive failures"
    until = f", half-open from {rfc3339(found.half_opens_at)}" if found.half_opens_at else ""
    return f"{words}, {failures}{until}."
