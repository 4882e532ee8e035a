"""Actions that others bring: found by their entry points, as the built-in ones are. A bad plugin stops nobody."""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import msgspec
import structlog

from app.actions.catalog import Action
from app.actions.conformance import shortcomings

GROUP = "carillon.actions"
OURSELVES = "carillon"
CORE = "core"

log = structlog.get_logger(__name__)


class PluginProblem(msgspec.Struct, frozen=True):
    """A plugin that could not be used, or not whole, and why."""

    plugin: str
    error: str


class LoadedActions(msgspec.Struct, frozen=True):
    """What was found."""

    actions: tuple[Action[Any], ...]
    problems: tuple[PluginProblem, ...]


def load_actions(found: Iterable[EntryPoint] | None = None) -> LoadedActions:
    """All actions of all plugins, our own first; each problem is said by the plugin's name."""
    points = entry_points(group=GROUP) if found is None else found
    taken: dict[str, str] = {}
    actions: list[Action[Any]] = []
    problems: list[PluginProblem] = []
    for point in sorted(points, key=lambda one: (_origin(one) != CORE, one.name)):
        try:
            brought = [msgspec.structs.replace(one, origin=_origin(point)) for one in _actions_of(point)]
        except Exception as error:  # noqa: BLE001 - whatever a plugin does wrong is its own
            problems.append(PluginProblem(point.name, f"{type(error).__name__}: {error}"))
            continue
        for action in brought:
            reasons = [*shortcomings(action), *_taken_names(action, taken)]
            problems += [PluginProblem(point.name, f"{action.name}: {reason}") for reason in reasons]
            if not reasons:
                taken.update(dict.fromkeys((action.name, *action.aliases), point.name))
                actions.append(action)
    for problem in problems:
        log.error("plugin_failed", plugin=problem.plugin, error=problem.error)
    return LoadedActions(tuple(actions), tuple(problems))


def _actions_of(point: EntryPoint) -> list[Action[Any]]:
    loaded = point.load()
    actions = [loaded] if isinstance(loaded, Action) else list(loaded)
    if not all(isinstance(one, Action) for one in actions):
        raise TypeError("an entry point must name an Action, or several")
    return actions


def _taken_names(action: Action[Any], taken: dict[str, str]) -> list[str]:
    names = [name for name in (action.name, *action.aliases) if name in taken]
    return [f"the name '{name}' is taken by '{taken[name]}'" for name in names]


def _origin(point: EntryPoint) -> str:
    """Who brings it: ourselves, or the distribution that the plugin came in."""
    name = point.dist.name if point.dist else point.name
    return CORE if name == OURSELVES else name
