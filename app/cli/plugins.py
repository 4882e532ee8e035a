"""``carillon plugins``."""

import sys
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from app.actions.entry_points import PluginProblem
from app.actions.plugins import load_actions
from app.engine.entities_part import load_entity_schedulers


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
