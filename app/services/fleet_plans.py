"""Plans of changes that concern many schedules: what becomes of their coming fires, for a bounded number of them."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from app import clock
from app.domain.edit_plans import EditPlan, Horizon, plan_creation, plan_edit
from app.domain.errors import CarillonError
from app.domain.executions import count_repeats
from app.domain.schedules import ScheduledJob
from app.domain.upcoming import NO_SKIPS
from app.persistence import calendars, executions, schedules, skips
from app.persistence.database import Connection
from app.services.views import FleetPlanView, RowErrorView, SchedulePlanView, SlotCountsView, edit_plan_fields

# How far ahead fires are compared, unless a request says it.
DAYS = 7
# So many schedules are compared, each with so many fires at most. The plan says how many it was.
MOST_PLANNED = 100
MOST_FIRES_EACH = 50
# Of these the ones with the most changes are shown.
MOST_SHOWN = 20
# Schedules that are read to find some that the change concerns.
MOST_READ = 500
# Of the processor's time, for one plan.
SEARCH_SECONDS = 2.0

# One thread: each takes processor time from the event loop.
_SEARCHES = ThreadPoolExecutor(1, thread_name_prefix="fleet-plans")

Change = Callable[[ScheduledJob, int, datetime], ScheduledJob]


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that a change may concern: as it is, if it exists, and as the change finds it."""

    before: ScheduledJob | None
    # With the calendars that it has after the change.
    ready: ScheduledJob
    active_runs: int = 0
    skipped: frozenset[datetime] = NO_SKIPS


class FleetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plans of some schedules, and those that refuse the change."""

    until: datetime
    plans: Sequence[tuple[ScheduledJob, EditPlan]]
    refused: Sequence[tuple[UUID, str]]


async def read_candidates(
    connection: Connection, ids: Sequence[UUID], values: Mapping[str, Any] | None = None
) -> list[Candidate]:
    """Read schedules that get new values, with the calendars of after the change."""
    has_payload = values is not None and "trigger_payload" in values
    jobs = {job.id: job for _, job in await schedules.many(connection, ids, whole=has_payload)}
    ready = await calendars.prepared(connection, jobs, dict.fromkeys(jobs, values)) if values else jobs
    return await as_candidates(connection, [(job, ready[job_id]) for job_id, job in jobs.items()])


async def as_candidates(
    connection: Connection, pairs: Sequence[tuple[ScheduledJob | None, ScheduledJob]]
) -> list[Candidate]:
    """Return schedules before and after a change with their active runs and skips."""
    existing = [before for before, _ in pairs if before is not None]
    active = (await executions.active_and_now(connection, [job.id for job in existing]))[0] if existing else {}
    skipped = await skips.slots_of(connection, existing)
    return [
        Candidate(
            before=before,
            ready=ready,
            active_runs=count_repeats(active.get(ready.id, ())),
            skipped=skipped.get(ready.id, NO_SKIPS),
        )
        for before, ready in pairs
    ]


async def plan_many(
    candidates: Iterable[Candidate], now: datetime, *, change: Change | None = None, days: int = DAYS
) -> FleetPlan:
    """Return what a change does to schedules, without those that it leaves as they are; None: it is made already.

    The search is in a thread, as it may take long and must not block the event loop.
    """
    horizon = Horizon(now, now + timedelta(days=days), MOST_FIRES_EACH)
    search = partial(_planned, candidates, change or _made_already, horizon)
    return await asyncio.get_running_loop().run_in_executor(_SEARCHES, search)


def _made_already(job: ScheduledJob, _active_runs: int, _now: datetime) -> ScheduledJob:
    return job


def _planned(candidates: Iterable[Candidate], change: Change, horizon: Horizon) -> FleetPlan:
    end = clock.thread_seconds() + SEARCH_SECONDS
    plans: list[tuple[ScheduledJob, EditPlan]] = []
    refused: list[tuple[UUID, str]] = []
    for candidate in candidates:
        if len(plans) == MOST_PLANNED or clock.thread_seconds() > end:
            break
        try:
            after = change(candidate.ready, candidate.active_runs, horizon.now)
        except CarillonError as error:
            refused.append((candidate.ready.id, str(error)))
            continue
        plan = _plan(candidate, after, horizon)
        if not plan.changes_nothing:
            plans.append((after, plan))
    return FleetPlan(until=horizon.until, plans=plans, refused=refused)


def _plan(candidate: Candidate, after: ScheduledJob, horizon: Horizon) -> EditPlan:
    if candidate.before is None:
        return plan_creation(after, horizon)
    return plan_edit(candidate.before, after, candidate.active_runs, horizon, candidate.skipped)


def fleet_plan_fields(plan: FleetPlan, schedule_count: int) -> dict[str, Any]:
    """Return the fields of the view of a plan that concerns so many schedules."""
    plans = [one for _, one in plan.plans]
    shown = sorted(plan.plans, key=lambda pair: (-pair[1].fires.changed, pair[0].id))[:MOST_SHOWN]
    return {
        "until": plan.until,
        "schedules": schedule_count,
        "planned": len(plans),
        "fires_now": sum(one.fires_now for one in plans),
        "slots": SlotCountsView(
            kept=sum(one.fires.kept for one in plans),
            added=sum(len(one.fires.added) for one in plans),
            removed=sum(len(one.fires.removed) for one in plans),
            moved=sum(len(one.fires.moved) for one in plans),
        ),
        "items": [SchedulePlanView(id=job.id, name=job.name, **edit_plan_fields(one)) for job, one in shown],
        "refused": [RowErrorView(*error) for error in plan.refused[:MOST_SHOWN]],
    }


def fleet_plan_view(plan: FleetPlan, schedule_count: int) -> FleetPlanView:
    """Return the view of a plan that concerns so many schedules."""
    return FleetPlanView(**fleet_plan_fields(plan, schedule_count))
