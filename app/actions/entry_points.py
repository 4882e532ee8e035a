"""Finding what others bring: the entry points of installed distributions. A bad one stops nobody."""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

import msgspec

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
