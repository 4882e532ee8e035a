"""The overview, figures over time and the list of workers, each only of what the actor sees."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from app import clock
from app.cache import ExpiringCache
from app.domain.access import Actor, Reach, require_admin
from app.domain.attention import Attention, AttentionKind, ranked
from app.domain.errors import FieldError, InvalidError, RestrictedError
from app.domain.figures import MINUTE, minute_of, percentile_ms
from app.persistence import outcome_minutes, overview
from app.persistence.database import Connection, Database
from app.persistence.outcome_minutes import Figures
from app.persistence.overview import Moment, StoredWorker
from app.persistence.pagination import COUNTED, Page, Part
from app.services.listing import read_views
from app.services.views.figures import (
    AttentionView,
    CountsView,
    LatenessFigures,
    LatenessStep,
    OutcomeFigures,
    OutcomeStep,
    OverviewView,
    PulseView,
    WorkerList,
    WorkerView,
)

Mode = Literal["bell", "sweep"]
# Raises an error if the queue cannot be reached.
Ping = Callable[[], Awaitable[None]]

MOST_ATTENTION = 50
MOST_STEPS = 1500
DEFAULT_SPAN = timedelta(hours=1)
# A queue that does not answer in this time counts as unreachable.
PING_SECONDS = 1.0
# With more schedules than this, counting takes long: an overview is kept for some seconds. Of as many reaches at most.
COUNTED_EACH_TIME = COUNTED
KEPT_SECONDS = 5.0
MOST_KEPT = 100


class FigureRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which figures are wanted: of which time, in which steps, and of which workflow; None for all."""

    since: datetime | None
    until: datetime | None
    step_seconds: int
    workflow_id: int | None


class OverviewService:
    """Use cases about the state of the whole, as far as an actor sees it."""

    def __init__(self, database: Database, ping: Ping, *, enabled_by_environment: bool) -> None:
        """Read this database; ``ping`` tells whether Redis wakes the workers."""
        self._database = database
        self._ping = ping
        self._enabled_by_environment = enabled_by_environment
        self._kept: ExpiringCache[Reach, OverviewView] = ExpiringCache(MOST_KEPT)

    async def overview(self, actor: Actor) -> OverviewView:
        """Return the counts of schedules, what is due and running, and what needs attention.

        If there are very many schedules, it is up to five seconds old.
        """
        reach = actor.reach()
        kept = self._kept.fresh(reach, clock.monotonic())
        if kept is not None:
            return kept
        view = await self._overview(reach)
        if sum(view.counts.status.values()) > COUNTED_EACH_TIME:
            self._kept.keep(reach, view, clock.monotonic() + KEPT_SECONDS)
        return view

    async def _overview(self, reach: Reach) -> OverviewView:
        mode = await self.mode()
        async with self._database.reading() as connection:
            moment = await overview.read_moment(connection, reach)
            counts = await overview.read_counts(connection, reach, moment.now)
        enabled = self.is_enabled(moment)
        items = ranked([*counts.attention, *_of_all(moment, mode, is_enabled=enabled)], MOST_ATTENTION)
        return OverviewView(
            counts=CountsView(status=counts.status, health=counts.health),
            due=moment.due,
            oldest_overdue_seconds=moment.oldest_overdue_seconds,
            running=moment.running,
            workers=moment.workers,
            mode=mode,
            schedules_enabled=enabled,
            attention=[_attention_view(item) for item in items],
        )

    async def pulse(self, reach: Reach, mode: Mode) -> PulseView:
        """Return what changes from second to second, of what is within reach."""
        async with self._database.reading() as connection:
            moment = await overview.read_moment(connection, reach)
            last = minute_of(moment.now) - MINUTE
            span = (last, last + MINUTE, 60)
            # Figures are counted for owners and workflows: those of some schedules of a workflow are not known.
            is_counted = not reach.is_of_some_schedules
            outcomes = await outcome_minutes.outcomes(connection, reach, *span) if is_counted else []
            late = await outcome_minutes.lateness(connection, reach, *span) if is_counted else []
        buckets = _buckets(late[0]) if late else {}
        return PulseView(
            at=moment.now,
            due=moment.due,
            oldest_overdue_seconds=moment.oldest_overdue_seconds,
            running=moment.running,
            workers=moment.workers,
            mode=mode,
            schedules_enabled=self.is_enabled(moment),
            open_breakers=moment.open_breakers,
            outcomes=outcomes[0].counts if outcomes else {},
            p50_ms=percentile_ms(buckets, 0.5),
            p99_ms=percentile_ms(buckets, 0.99),
            version=None if moment.last_change is None else str(moment.last_change),
        )

    def is_enabled(self, moment: Moment) -> bool:
        """Return whether schedules fire: neither the switch nor the environment has turned them off."""
        return moment.schedules_enabled and self._enabled_by_environment

    async def mode(self) -> Mode:
        """Return ``bell`` if Redis wakes the workers, ``sweep`` if they poll Postgres."""
        try:
            async with asyncio.timeout(PING_SECONDS):
                await self._ping()
        except Exception:  # noqa: BLE001 - whatever is wrong with the queue, workers poll
            return "sweep"
        return "bell"

    async def outcomes(self, actor: Actor, request: FigureRequest) -> OutcomeFigures:
        """Return what became of slots, by steps of time."""
        figures = await self._figures(actor, request, outcome_minutes.outcomes)
        items = [OutcomeStep(at=one.at, outcomes=one.counts) for one in figures]
        return OutcomeFigures(request.step_seconds, items)

    async def lateness(self, actor: Actor, request: FigureRequest) -> LatenessFigures:
        """Return how late runs started, by steps of time."""
        figures = await self._figures(actor, request, outcome_minutes.lateness)
        return LatenessFigures(request.step_seconds, [_lateness_step(one) for one in figures])

    async def _figures(self, actor: Actor, request: FigureRequest, read: "ReadFigures") -> list[Figures]:
        until = request.until or clock.now()
        since = request.since or until - DEFAULT_SPAN
        _require_few_steps(since, until, request.step_seconds)
        reach = actor.reach().of_workflow(request.workflow_id)
        if reach.is_of_some_schedules:
            raise RestrictedError(
                "Figures are counted for each workflow and each owner, not for labels or namespaces, to which this "
                "token is restricted. Use a token that is restricted by `workflow_ids`, or not at all."
            )
        async with self._database.reading() as connection:
            return await read(connection, reach, minute_of(since), until, request.step_seconds)

    async def workers(self, actor: Actor, part: Part) -> WorkerList:
        """Return a page of the workers."""
        require_admin(actor)
        async with self._database.reading() as connection:

            async def read(part: Part) -> Page[StoredWorker]:
                return await overview.workers(connection, part)

            page = await read_views(read, _worker_view, part)
        return WorkerList(page.items, page.next_cursor)


ReadFigures = Callable[[Connection, Reach, datetime, datetime, int], Awaitable[list[Figures]]]


def _require_few_steps(since: datetime, until: datetime, step_seconds: int) -> None:
    if step_seconds % 60:
        raise InvalidError(FieldError("step", "Steps are whole minutes. Use a multiple of 60."))
    if (until - since).total_seconds() > MOST_STEPS * step_seconds:
        message = f"At most {MOST_STEPS} steps are returned. Use a longer step, or a shorter span."
        raise InvalidError(FieldError("step", message))


def _of_all(moment: Moment, mode: Mode, *, is_enabled: bool) -> list[Attention]:
    """Return what is wrong with the deployment as a whole."""
    found = {
        AttentionKind.SCHEDULES_DISABLED: not is_enabled,
        AttentionKind.NO_WORKERS: not moment.workers,
        AttentionKind.QUEUE_UNREACHABLE: mode == "sweep",
    }
    return [Attention(kind=kind, object_type="settings") for kind, is_so in found.items() if is_so]


def _attention_view(item: Attention) -> AttentionView:
    return AttentionView(**msgspec.structs.asdict(item), sentence=item.sentence)


def _buckets(figures: Figures) -> dict[int, int]:
    return {int(bucket): number for bucket, number in figures.counts.items()}


def _lateness_step(figures: Figures) -> LatenessStep:
    buckets = _buckets(figures)
    return LatenessStep(
        at=figures.at,
        count=sum(buckets.values()),
        p50_ms=percentile_ms(buckets, 0.5),
        p99_ms=percentile_ms(buckets, 0.99),
    )


def _worker_view(worker: StoredWorker) -> WorkerView:
    return WorkerView(**msgspec.structs.asdict(worker))
