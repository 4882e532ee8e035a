"""``carillon plugins`` and ``carillon keys``, and users and tokens on the database: commands for operators."""

import sys
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from app.actions.plugins import PluginProblem, load_actions
from app.cli.fields import moment_of
from app.cli.operators import OPERATOR, on_database
from app.domain.access import Role
from app.domain.trigger_event import rfc3339
from app.engine.entity_schedulers import load_entity_schedulers
from app.services.inputs import TokenInput, UserInput
from app.services.oidc_keys import OidcKeyService
from app.services.users import UserService
from app.services.validation import checked

AsJson = Annotated[bool, Parameter(negative="", help="Print JSON on standard output.")]


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


def store_user(name: str, *, admin: bool) -> Any:
    """Create a user on the database and return what the API would show."""
    request = checked({"username": name, "role": Role.ADMIN if admin else Role.MEMBER}, UserInput)
    return msgspec.to_builtins(on_database(lambda database: UserService(database).create(OPERATOR, request)))


def store_token(owner: str, *, name: str, scope: str | None, expires: str | None) -> Any:
    """Create a token on the database and return what the API would show, with its text."""
    fields = {
        "name": name,
        "scopes": None if scope is None else [scope],
        "expires_at": moment_of(expires) if expires else None,
    }
    request = checked(fields, TokenInput)
    made = on_database(lambda database: UserService(database).create_token_for(OPERATOR, owner, request))
    return msgspec.to_builtins(made)


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
