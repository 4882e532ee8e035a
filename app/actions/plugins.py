"""Loading of plugins and built-in actions from entry points. A plugin that fails to load does not affect the others."""

from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import msgspec

from app.actions.catalog import Action
from app.actions.context import PluginSchedulesPort
from app.actions.shortcomings import shortcomings

OURSELVES = "carillon"
CORE = "core"


class PluginProblem(msgspec.Struct, frozen=True):
    """Why a plugin, or one of its actions, could not be loaded."""

    plugin: str
    error: str


def in_group(group: str, points: Iterable[EntryPoint] | None = None) -> list[EntryPoint]:
    """Return the entry points of a group: Carillon's own first, then by name."""
    points = entry_points(group=group) if points is None else points
    return sorted(points, key=lambda point: (origin(point) != CORE, point.name))


def origin(point: EntryPoint) -> str:
    """Return the name of the distribution that an entry point belongs to, or ``core`` for Carillon itself."""
    name = point.dist.name if point.dist else point.name
    return CORE if name == OURSELVES else name


def problem(point: EntryPoint, error: Exception) -> PluginProblem:
    """Return the problem of an entry point that failed to load."""
    return PluginProblem(point.name, f"{type(error).__name__}: {error}")


GROUP = "carillon.actions"


class Capability(StrEnum):
    """What a plugin does beside providing actions; it must declare it."""

    SCHEDULE_JOBS = "schedule_jobs"
    # Its entities run on behalf of users that they name.
    ACT_FOR_USERS = "act_for_users"


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a distribution provides; its entry point names this object.

    ``start`` is called once in each process that starts, with access to the plugin's own schedules. Several processes
    start at once, so it should use ``ensure`` rather than ``create``.
    """

    actions: tuple[Action[Any], ...] = ()
    capabilities: frozenset[Capability] = frozenset()
    start: Callable[[PluginSchedulesPort], Awaitable[None]] | None = None


class LoadedPlugin(msgspec.Struct, frozen=True):
    """A plugin and the name of its distribution, which owns the plugin's schedules."""

    name: str
    plugin: Plugin


class LoadedActions(msgspec.Struct, frozen=True):
    """The actions and plugins of all entry points, and the problems with them."""

    actions: tuple[Action[Any], ...]
    plugins: tuple[LoadedPlugin, ...]
    problems: tuple[PluginProblem, ...]

    def declares(self, name: str, capability: Capability) -> bool:
        """Return whether a plugin declares a capability."""
        return any(capability in loaded.plugin.capabilities for loaded in self.plugins if loaded.name == name)


def load_actions(points: Iterable[EntryPoint] | None = None) -> LoadedActions:
    """Load the actions of all plugins, Carillon's own first; each problem names its plugin."""
    taken: dict[str, str] = {}
    actions: list[Action[Any]] = []
    plugins: list[LoadedPlugin] = []
    problems: list[PluginProblem] = []
    for point in in_group(GROUP, points):
        try:
            plugin = _plugin_of(point)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            problems.append(problem(point, error))
            continue
        plugins.append(LoadedPlugin(origin(point), plugin))
        for action in (msgspec.structs.replace(action, origin=origin(point)) for action in plugin.actions):
            reasons = [*shortcomings(action), *_taken_names(action, taken)]
            problems += [PluginProblem(point.name, f"{action.name}: {reason}") for reason in reasons]
            if not reasons:
                taken.update(dict.fromkeys((action.name, *action.aliases), point.name))
                actions.append(action)
    return LoadedActions(tuple(actions), tuple(plugins), tuple(problems))


def _plugin_of(point: EntryPoint) -> Plugin:
    """Load an entry point, which may name a plugin, an action, or several actions."""
    loaded = point.load()
    if isinstance(loaded, Plugin):
        return loaded
    actions = (loaded,) if isinstance(loaded, Action) else tuple(loaded)
    if not all(isinstance(action, Action) for action in actions):
        raise TypeError("an entry point must name a Plugin, an Action, or several Actions")
    return Plugin(actions=actions)


def _taken_names(action: Action[Any], taken: dict[str, str]) -> list[str]:
    names = [name for name in (action.name, *action.aliases) if name in taken]
    return [f"the name '{name}' is taken by '{taken[name]}'" for name in names]
