"""Entity schedulers: what plugins with tables of their own have to offer, and how they are found by entry points."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from importlib.metadata import EntryPoint
from inspect import iscoroutinefunction
from re import fullmatch
from typing import Any, Protocol, runtime_checkable

import msgspec

from app.actions.plugins import CORE, PluginProblem, in_group, origin, problem
from app.domain.entity_jobs import ScheduledJobConfig
from app.persistence.database import Session

GROUP = "carillon.entity_schedulers"


@runtime_checkable
class EntityScheduler(Protocol):
    """A plugin's table of entities that have times of their own.

    Both methods work in the transaction in which the runs are written: either all of it is committed, or nothing.
    Carillon computes the next times; a scheduler only stores them. ``StoppedJobs`` is an optional third method. A
    scheduler may have a ``description``, a sentence that the API shows; else the first line of its docstring is shown.
    """

    entity_type: str

    async def find_due_jobs(
        self, session: Session, now: datetime, until: datetime, limit: int, offset: int
    ) -> Sequence[ScheduledJobConfig]:
        """Return the active jobs whose next time is at or before ``until``, the earliest first."""

    async def update_execution_time(self, session: Session, jobs: Sequence[ScheduledJobConfig]) -> None:
        """Store the last and the next time of these jobs, and the error of those that have one.

        ``last_execution_time`` is the last time that was queued, not the last run: polls look ahead, so it may lie in
        the future. It advances while schedules are switched off as well, when the queued runs end without being run.
        A job without a ``next_execution_time`` has no further run: it was a one-off, or ``error`` says why.
        """


@runtime_checkable
class StoppedJobs(Protocol):
    """An entity scheduler whose jobs go on by themselves once what stopped them is corrected."""

    async def find_stopped_jobs(self, session: Session, limit: int, offset: int) -> Sequence[ScheduledJobConfig]:
        """Return active jobs that have an error and no next time, in a fixed order.

        Those that can be planned again are passed to ``update_execution_time``.
        """


class LoadedScheduler(msgspec.Struct, frozen=True):
    """A scheduler, the plugin that it comes from, and whether its jobs may belong to other users than the plugin's."""

    scheduler: EntityScheduler
    plugin: str
    acts_for_users: bool = False

    @property
    def description(self) -> str:
        """Return a sentence about the entities, or an empty text."""
        docstring = (type(self.scheduler).__doc__ or "").strip()
        return str(getattr(self.scheduler, "description", "") or docstring.partition("\n")[0])


class LoadedSchedulers(msgspec.Struct, frozen=True):
    """The schedulers that can be used, and what is wrong with the others."""

    schedulers: tuple[LoadedScheduler, ...]
    problems: tuple[PluginProblem, ...]


def load_entity_schedulers(
    entry_points: Iterable[EntryPoint] | None = None, own: Iterable[EntityScheduler] = ()
) -> LoadedSchedulers:
    """Load the entity schedulers of all plugins, Carillon's own first. A problem names its plugin.

    ``own`` are schedulers of Carillon that depend on its settings and have no entry point.
    """
    schedulers = [LoadedScheduler(scheduler, CORE, acts_for_users=True) for scheduler in own]
    taken = {loaded.scheduler.entity_type: CORE for loaded in schedulers}
    problems: list[PluginProblem] = []
    for point in in_group(GROUP, entry_points):
        try:
            loaded = point.load()
            scheduler = loaded() if isinstance(loaded, type) else loaded
            reasons = [*scheduler_shortcomings(scheduler), *_taken(scheduler, taken)]
        except Exception as error:  # noqa: BLE001 - a plugin that fails must not stop the others
            problems.append(problem(point, error))
            continue
        problems += [PluginProblem(point.name, reason) for reason in reasons]
        if not reasons:
            taken[scheduler.entity_type] = point.name
            schedulers.append(LoadedScheduler(scheduler, origin(point), acts_for_users=origin(point) == CORE))
    return LoadedSchedulers(tuple(schedulers), tuple(problems))


def scheduler_shortcomings(scheduler: Any) -> list[str]:
    """Return what is wrong with an entity scheduler; empty if it can be polled. Authors of plugins use this too."""
    return list(_shortcomings(scheduler))


def _shortcomings(scheduler: Any) -> Iterator[str]:
    entity_type = getattr(scheduler, "entity_type", None)
    if not isinstance(entity_type, str) or not fullmatch(r"[a-z][a-z0-9_.-]{0,99}", entity_type):
        yield "its entity_type must begin with a lower-case letter, followed by letters, digits, dots, dashes"
    for name in ("find_due_jobs", "update_execution_time"):
        if not iscoroutinefunction(getattr(scheduler, name, None)):
            yield f"it has no coroutine function {name}"
    optional = getattr(scheduler, "find_stopped_jobs", None)
    if optional is not None and not iscoroutinefunction(optional):
        yield "its find_stopped_jobs is not a coroutine function"


def _taken(scheduler: EntityScheduler, taken: dict[str, str]) -> list[str]:
    by = taken.get(getattr(scheduler, "entity_type", ""))
    return [] if by is None else [f"the entity type '{scheduler.entity_type}' is taken by '{by}'"]
