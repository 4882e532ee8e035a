"""Plugins: found by their entry points, as the built-in actions are. A plugin that cannot be loaded stops no other."""

from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import msgspec

from app.actions.catalog import Action, shortcomings
from app.actions.context import PluginSchedulesPort

OURSELVES = "carillon"
CORE = "core"


class PluginProblem(msgspec.Struct, frozen=True):
    """A plugin that could not be used, or not whole, and why."""

    plugin: str
    error: str


def in_group(group: str, found: Iterable[EntryPoint] | None = None) -> list[EntryPoint]:
    """The entry points of a group, our own first, then by name."""
    points = entry_points(group=group) if found is None else found
    return sorted(points, key=lambda one: (origin(one) != CORE, one.name))


def origin(point: EntryPoint) -> str:
    """Who brings it: ourselves, or the distribution that the plugin came in."""
    name = point.dist.name if point.dist else point.name
    return CORE if name == OURSELVES else name


def problem(point: EntryPoint, error: Exception) -> PluginProblem:
    """What went wrong, by the name of the entry point."""
    return PluginProblem(point.name, f"{type(error).__name__}: {error}")


GROUP = "carillon.actions"


class Capability(StrEnum):
    """What a plugin may do beside being called; it has to say so."""

    SCHEDULE_JOBS = "schedule_jobs"
    # Its entities run on behalf of users whom they name.
    ACT_FOR_USERS = "act_for_users"


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """All that a distribution brings, for its entry point to name.

    ``start`` is called once in each process that comes up, with the schedules that are the plugin's own. Several
    processes come up at once, so it shall say what it wants to be there, not add to what is.
    """

    actions: tuple[Action[Any], ...] = ()
    capabilities: frozenset[Capability] = frozenset()
    start: Callable[[PluginSchedulesPort], Awaitable[None]] | None = None


class LoadedPlugin(msgspec.Struct, frozen=True):
    """A plugin, by the name of the distribution that it came in: what it owns is owned by that name."""

    name: str
    plugin: Plugin


class LoadedActions(msgspec.Struct, frozen=True):
    """What was found."""

    actions: tuple[Action[Any], ...]
    plugins: tuple[LoadedPlugin, ...]
    problems: tuple[PluginProblem, ...]

    def declares(self, name: str, capability: Capability) -> bool:
        """Whether a plugin has said that it does this."""
        return any(capability in one.plugin.capabilities for one in self.plugins if one.name == name)


def load_actions(found: Iterable[EntryPoint] | None = None) -> LoadedActions:
    """All actions of all plugins, our own first; each problem is said by the plugin's name."""
    taken: dict[str, str] = {}
    actions: list[Action[Any]] = []
    plugins: list[LoadedPlugin] = []
    problems: list[PluginProblem] = []
    for point in in_group(GROUP, found):
        try:
            plugin = _plugin_of(point)
        except Exception as error:  # noqa: BLE001 - whatever a plugin does wrong is its own
            problems.append(problem(point, error))
            continue
        plugins.append(LoadedPlugin(origin(point), plugin))
        for action in (msgspec.structs.replace(one, origin=origin(point)) for one in plugin.actions):
            reasons = [*shortcomings(action), *_taken_names(action, taken)]
            problems += [PluginProblem(point.name, f"{action.name}: {reason}") for reason in reasons]
            if not reasons:
                taken.update(dict.fromkeys((action.name, *action.aliases), point.name))
                actions.append(action)
    return LoadedActions(tuple(actions), tuple(plugins), tuple(problems))


def _plugin_of(point: EntryPoint) -> Plugin:
    """An entry point may name a plugin, an action, or several actions."""
    loaded = point.load()
    if isinstance(loaded, Plugin):
        return loaded
    actions = (loaded,) if isinstance(loaded, Action) else tuple(loaded)
    if not all(isinstance(one, Action) for one in actions):
        raise TypeError("an entry point must name a Plugin, an Action, or several")
    return Plugin(actions=actions)


def _taken_names(action: Action[Any], taken: dict[str, str]) -> list[str]:
    names = [name for name in (action.name, *action.aliases) if name in taken]
    return [f"the name '{name}' is taken by '{taken[name]}'" for name in names]
