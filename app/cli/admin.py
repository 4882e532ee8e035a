"""``carillon breaker``, ``plugins``, ``user`` and ``token``: commands for operators."""

import sys
from typing import Annotated

import msgspec
from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from app.actions.plugins import PluginProblem, load_actions
from app.cli.operators import OPERATOR, on_database
from app.domain.access import Role
from app.domain.errors import NotFoundError
from app.domain.trigger_event import rfc3339
from app.engine.entities import load_entity_schedulers
from app.persistence import workflows
from app.persistence.database import Database
from app.services.inputs import TokenInput, UserInput
from app.services.users import UserService
from app.services.validation import checked
from app.services.views import BreakerDetail
from app.services.workflows import BreakerService

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


class InstalledPlugin(msgspec.Struct):
    """What one distribution brings."""

    plugin: str
    capabilities: list[str] = []
    actions: list[str] = []
    entity_types: list[str] = []


class Installed(msgspec.Struct):
    """All that is installed, and what is wrong with it."""

    plugins: list[InstalledPlugin]
    problems: list[PluginProblem]


def plugins(*, json: Annotated[bool, Parameter(negative="")] = False) -> None:
    """List the plugins that are installed, and what is wrong with them; the exit code is 1 if anything is."""
    found = _installed()
    if json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    else:
        _show(found)
    if found.problems:
        sys.exit(1)


def _installed() -> Installed:
    loaded, entities = load_actions(), load_entity_schedulers()
    names = {one.name for one in loaded.plugins} | {one.plugin for one in entities.schedulers}
    by_name = {name: InstalledPlugin(name) for name in sorted(names)}
    for one in loaded.plugins:
        by_name[one.name].capabilities += sorted(one.plugin.capabilities)
    for action in loaded.actions:
        by_name[action.origin].actions.append(action.name)
    for scheduler in entities.schedulers:
        by_name[scheduler.plugin].entity_types.append(scheduler.scheduler.entity_type)
    return Installed(list(by_name.values()), [*loaded.problems, *entities.problems])


def _show(found: Installed) -> None:
    console = Console()
    table = Table("plugin", "actions", "entities", "capabilities")
    for one in found.plugins:
        table.add_row(one.plugin, "\n".join(one.actions), "\n".join(one.entity_types), "\n".join(one.capabilities))
    console.print(table)
    for problem in found.problems:
        console.print(f"{problem.plugin}: {problem.error}", style="red", markup=False)


def create_user(name: str, *, admin: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Create a user."""
    wanted = checked({"username": name, "role": Role.ADMIN if admin else Role.MEMBER}, UserInput)
    made = on_database(lambda database: _service(database).create(OPERATOR, wanted))
    Console().print(f"Created user {made.username} (id {made.id}, {made.role}).", markup=False)


def create_token(user: str, *, name: str = "cli") -> None:
    """Create a token for a user. It is shown this once."""
    wanted = checked({"name": name}, TokenInput)
    made = on_database(lambda database: _service(database).create_token_for(OPERATOR, user, wanted))
    Console(stderr=True).print(f"Token {made.id} ({made.name}) of {user}; it is not shown again:", markup=False)
    # Alone on stdout, so that a script can take it.
    print(made.token)  # noqa: T201


def _service(database: Database) -> UserService:
    return UserService(database, admin_token="")
