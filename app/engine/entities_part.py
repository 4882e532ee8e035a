"""Entity schedulers: whoever has a table with times of its own says what is due; found by their entry points."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from importlib.metadata import EntryPoint
from inspect import iscoroutinefunction
from re import fullmatch
from typing import Any, Protocol, runtime_checkable

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from app.actions.entry_points import CORE, PluginProblem, in_group, origin, problem
from app.domain.entities import ScheduledJobConfig

GROUP = "carillon.entity_schedulers"


@runtime_checkable
class EntityScheduler(Protocol):
    """Knows a table of entities that have times of their own.

    Both methods work in the transaction in which the runs are written: what they change counts only if that does.
    """

    entity_type: str

    async def find_due_jobs(
        self, session: AsyncSession, now: datetime, until: datetime, limit: int, offset: int
    ) -> Sequence[ScheduledJobConfig]:
        """The active jobs whose next time is at or before ``until``, the earliest first."""

    async def update_execution_time(self, session: AsyncSession, jobs: Sequence[ScheduledJobConfig]) -> None:
        """Write down the last and the next time of these jobs, and what is wrong with those that have an error."""


class LoadedScheduler(msgspec.Struct, frozen=True):
    """A scheduler, and the plugin that brings it; and whether its jobs may be others' than the plugin's own."""

    scheduler: EntityScheduler
    plugin: str
    acts_for_users: bool = False


class LoadedSchedulers(msgspec.Struct, frozen=True):
    """What was found."""

    schedulers: tuple[LoadedScheduler, ...]
    problems: tuple[PluginProblem, ...]


def load_entity_schedulers(found: Iterable[EntryPoint] | None = None) -> LoadedSchedulers:
    """All entity schedulers of all plugins, our own first; each problem is said by the plugin's name."""
    taken: dict[str, str] = {}
    schedulers: list[LoadedScheduler] = []
    problems: list[PluginProblem] = []
    for point in in_group(GROUP, found):
        try:
            loaded = point.load()
            scheduler = loaded() if isinstance(loaded, type) else loaded
            reasons = [*scheduler_shortcomings(scheduler), *_taken(scheduler, taken)]
        except Exception as error:  # noqa: BLE001 - whatever a plugin does wrong is its own
            problems.append(problem(point, error))
            continue
        problems += [PluginProblem(point.name, reason) for reason in reasons]
        if not reasons:
            taken[scheduler.entity_type] = point.name
            schedulers.append(LoadedScheduler(scheduler, origin(point), acts_for_users=origin(point) == CORE))
    return LoadedSchedulers(tuple(schedulers), tuple(problems))


def scheduler_shortcomings(scheduler: Any) -> list[str]:
    """What is wrong with an entity scheduler; nothing, if it may be polled. For authors of plugins, too."""
    return list(_shortcomings(scheduler))


def _shortcomings(scheduler: Any) -> Iterator[str]:
    entity_type = getattr(scheduler, "entity_type", None)
    if not isinstance(entity_type, str) or not fullmatch(r"[a-z][a-z0-9_.-]{0,99}", entity_type):
        yield "its entity_type is no name: lower-case letters, digits, dots, dashes"
    for name in ("find_due_jobs", "update_execution_time"):
        if not iscoroutinefunction(getattr(scheduler, name, None)):
            yield f"it has no coroutine function {name}"


def _taken(scheduler: EntityScheduler, taken: dict[str, str]) -> list[str]:
    by = taken.get(getattr(scheduler, "entity_type", ""))
    return [] if by is None else [f"the entity type '{scheduler.entity_type}' is taken by '{by}'"]
