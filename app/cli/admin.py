"""``carillon breaker``, ``plugins``, ``user``, ``token`` and ``keys``: commands for operators."""

import sys
from typing import Annotated

import msgspec
from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Column, Table

from app import clock
from app.actions.plugins import PluginProblem, load_actions
from app.cli.operators import OPERATOR, on_database
from app.domain.access import Role, Scope
from app.domain.errors import NotFoundError
from app.domain.specs import parse_duration
from app.domain.trigger_event import rfc3339
from app.engine.entity_schedulers import load_entity_schedulers
from app.persistence import workflows
from app.persistence.database import Database
from app.services.inputs import TokenInput, UserInput
from app.services.oidc_keys import OidcKeyService
from app.services.users import UserService
from app.services.validation import checked
from app.services.views import BreakerDetail
from app.services.workflows import BreakerService

AsJson = Annotated[bool, Parameter(negative="", help="Print JSON on standard output.")]
Limit = Annotated[int, Parameter(help="The number of transitions to show.")]

breaker = App(name="breaker", help="Show or reset the circuit breaker of a workflow.")


@breaker.default
def show(workflow: str, *, json: AsJson = False, limit: Limit = 20) -> None:
    """Show the circuit breaker of a workflow with its latest transitions.

    Parameters
    ----------
    workflow
        The id of the workflow, or its name if only one workflow has it.
    """

    async def read(database: Database) -> BreakerDetail:
        return await BreakerService(database).get(OPERATOR, await _workflow_id(database, workflow), limit)

    _print_breaker(on_database(read), as_json=json)


@breaker.command
def reset(workflow: str, *, json: AsJson = False, limit: Limit = 20) -> None:
    """Close the circuit breaker of a workflow.

    Parameters
    ----------
    workflow
        The id of the workflow, or its name if only one workflow has it.
    """

    async def close(database: Database) -> BreakerDetail:
        return await BreakerService(database).reset(OPERATOR, await _workflow_id(database, workflow), limit)

    _print_breaker(on_database(close), as_json=json)


async def _workflow_id(database: Database, workflow: str) -> int:
    """Return the id of a workflow that is given by its id or by its name."""
    if workflow.isdecimal() and workflow.isascii():
        return int(workflow)
    async with database.transaction() as connection:
        ids = await workflows.ids_of_name(connection, workflow)
    if not ids:
        raise NotFoundError(f"There is no workflow with the name '{workflow}'.")
    if len(ids) > 1:
        raise NotFoundError(f"{len(ids)} workflows have the name '{workflow}'. Give the id instead.")
    return ids[0]


def _print_breaker(detail: BreakerDetail, *, as_json: bool) -> None:
    if as_json:
        _print_json(detail)
        return
    console = Console()
    console.print(_breaker_summary(detail), markup=False, soft_wrap=True)
    if detail.transitions:
        table = Table(Column("at", no_wrap=True), "from", "to", "reason")
        for transition in detail.transitions:
            table.add_row(
                rfc3339(transition.at.replace(microsecond=0)),
                transition.from_state,
                transition.to_state,
                transition.reason,
            )
        console.print(table)


def _breaker_summary(detail: BreakerDetail) -> str:
    state = f"Workflow {detail.workflow_id} ({detail.workflow_name}): breaker {detail.state}"
    if detail.breaker_threshold is None:
        return f"{state}; it has no breaker_threshold, so it never opens."
    failures = f"{detail.failure_count} of {detail.breaker_threshold} consecutive failures"
    until = f", half-open from {rfc3339(detail.half_opens_at)}" if detail.half_opens_at else ""
    return f"{state}, {failures}{until}."


def _print_json(value: msgspec.Struct) -> None:
    """Print JSON alone on stdout, without rich's wrapping and colours, so that a script can read it."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


class InstalledPlugin(msgspec.Struct):
    """A distribution that contains a plugin, and what the plugin offers."""

    plugin: str
    capabilities: list[str] = []
    actions: list[str] = []
    entity_types: list[str] = []


class Installed(msgspec.Struct):
    """The plugins that are installed, and the errors of those that cannot be loaded."""

    plugins: list[InstalledPlugin]
    problems: list[PluginProblem]


def plugins(*, json: AsJson = False) -> None:
    """List the installed plugins and their errors. The exit code is 1 if there are errors."""
    installed = _installed()
    if json:
        _print_json(installed)
    else:
        _print_plugins(installed)
    if installed.problems:
        sys.exit(1)


def _installed() -> Installed:
    loaded, entities = load_actions(), load_entity_schedulers()
    names = {plugin.name for plugin in loaded.plugins} | {scheduler.plugin for scheduler in entities.schedulers}
    by_name = {name: InstalledPlugin(name) for name in sorted(names)}
    for plugin in loaded.plugins:
        by_name[plugin.name].capabilities += sorted(plugin.plugin.capabilities)
    for action in loaded.actions:
        by_name[action.origin].actions.append(action.name)
    for scheduler in entities.schedulers:
        by_name[scheduler.plugin].entity_types.append(scheduler.scheduler.entity_type)
    return Installed(list(by_name.values()), [*loaded.problems, *entities.problems])


def _print_plugins(installed: Installed) -> None:
    console = Console()
    table = Table("plugin", "actions", "entities", "capabilities")
    for plugin in installed.plugins:
        offers = (plugin.actions, plugin.entity_types, plugin.capabilities)
        table.add_row(plugin.plugin, *("\n".join(names) for names in offers))
    console.print(table)
    for problem in installed.problems:
        console.print(f"{problem.plugin}: {problem.error}", style="red", markup=False)


def create_user(name: str, *, admin: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Create a user.

    Parameters
    ----------
    name
        The name of the user.
    admin
        Give the user the role admin instead of member.
    """
    request = checked({"username": name, "role": Role.ADMIN if admin else Role.MEMBER}, UserInput)
    created = on_database(lambda database: _users(database).create(OPERATOR, request))
    Console().print(f"Created user {created.username} (id {created.id}, {created.role}).", markup=False)


def create_token(
    user: str,
    *,
    name: str = "cli",
    scope: Annotated[Scope | None, Parameter()] = None,
    expires: str | None = None,
) -> None:
    """Create an API token for a user. It is shown only once.

    Parameters
    ----------
    user
        The name of the user.
    name
        A name for the token, to recognise it in lists.
    scope
        What the token may be used for; each scope includes those before it. By default, all that the role allows.
    expires
        When it ends: a duration such as 90d, or a time such as 2036-01-01T00:00:00Z. By default it has no end.
    """
    scopes = None if scope is None else [scope]
    request = checked({"name": name, "scopes": scopes, "expires_at": _end(expires)}, TokenInput)
    created = on_database(lambda database: _users(database).create_token_for(OPERATOR, user, request))
    Console(stderr=True).print(f"Token {created.id} ({created.name}) of {user}; it is shown only once:", markup=False)
    # Alone on stdout, so that a script can read it.
    sys.stdout.write(f"{created.token}\n")


def _end(expires: str | None) -> str | None:
    """Return when a token ends as the API takes it; what is not a duration is checked there."""
    if expires is None:
        return None
    try:
        return rfc3339(clock.now() + parse_duration(expires))
    except ValueError:
        return expires


def _users(database: Database) -> UserService:
    return UserService(database)


def rotate_keys(*, now: Annotated[bool, Parameter(negative="")] = False, json: AsJson = False) -> None:
    """Publish a new key, which signs a day later.

    Parameters
    ----------
    now
        Sign with the new key after 15 seconds. Verifiers that do not look for unknown keys refuse its tokens until they
        read the list of keys again.
    """
    key = on_database(lambda database: OidcKeyService(database).rotate(OPERATOR, soon=now))
    if json:
        _print_json(key)
    else:
        activates_at = rfc3339(key.activates_at.replace(microsecond=0))
        Console().print(f"Key {key.key_id} is published and signs from {activates_at}.", markup=False, soft_wrap=True)
