"""Schedules, ticks and runs for tests of decisions; time starts at ``T0``."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from app.domain.breakers import Gate
from app.domain.executions import ActiveRun, ExecutionStatus, Trigger
from app.domain.schedule_lifecycle import created
from app.domain.schedules import CatchUp, IfRunning, ScheduledJob
from app.domain.settle import EndedRun
from app.domain.settle import after_run as settle_schedule
from app.domain.skips import Skip
from app.domain.specs import KINDS as SPEC_KINDS
from app.domain.specs import canonical
from app.domain.ticks import FROM_WORKER, Decided, Decision, Fire, Tick, TickSource, decide

T0 = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
KINDS = set(SPEC_KINDS)
OPEN = Gate()
JOB = UUID("11111111-2222-4333-8444-555555555555")
RUNNING = ActiveRun(UUID(int=1), Trigger.SCHEDULE)


def after(seconds: float) -> datetime:
    """Return the moment so many seconds after ``T0``."""
    return T0 + timedelta(seconds=seconds)


def schedule(**values: Any) -> ScheduledJob:
    """Return a schedule that was created at ``T0``."""
    fields: dict[str, Any] = {"interval_seconds": 300.0} if not KINDS & values.keys() else {}
    fields |= canonical(values)
    fields["if_running"] = IfRunning(fields.get("if_running", "skip"))
    fields["catch_up"] = CatchUp(fields.get("catch_up", "skip"))
    draft = ScheduledJob(
        id=JOB, user_profile_id=1, workflow_id=1, name="s", anchor_at=T0, created_at=T0, updated_at=T0, **fields
    )
    return created(draft, T0)


def tick(job: ScheduledJob) -> Tick:
    """Return the message for the pending tick."""
    return Tick(job.id, job.generation)


def decision(
    job: ScheduledJob,
    now: datetime,
    *active: Any,
    gate: Gate = OPEN,
    occasion: TickSource = FROM_WORKER,
    skips: tuple[Skip, ...] = (),
) -> Decision:
    """Return what the pending tick does at a time."""
    return decide(job, tick(job), active, gate, now, occasion, skips)


def fired(job: ScheduledJob, now: datetime) -> tuple[ScheduledJob, Fire]:
    """Return the schedule after its tick has fired, and what fired."""
    decided = decision(job, now)
    assert isinstance(decided, Decided)
    (fire,) = decided.fires
    return decided.job, fire


def ended(fire: Fire, status: ExecutionStatus, error: str = "") -> EndedRun:
    """Return a scheduled run that has ended."""
    return EndedRun(
        execution_id=fire.execution_id,
        trigger=Trigger.SCHEDULE,
        slot=fire.slot,
        attempt=fire.attempt,
        status=status,
        error=error,
    )


def settle(job: ScheduledJob, run: EndedRun, other_active: int, now: datetime) -> ScheduledJob:
    """Return the schedule after a run that no other run accompanies."""
    settlement = settle_schedule(job, run, other_active, now)
    assert settlement.retry_at is None
    return settlement.job


def live(
    job: ScheduledJob, until: datetime, most: int = 1000, skipped: Iterable[datetime] = ()
) -> list[tuple[datetime, datetime]]:
    """Return the due times and slots that fire before a moment if every tick is on time and every run succeeds."""
    return lived(job, until, most, skipped)[1]


def lived(
    job: ScheduledJob, until: datetime, most: int = 1000, skipped: Iterable[datetime] = ()
) -> tuple[ScheduledJob, list[tuple[datetime, datetime]]]:
    """Return a schedule as it is at a moment if all went well until then, with the due times and slots that fired.

    ``skipped`` are the slots that somebody asked to leave out.
    """
    fires: list[tuple[datetime, datetime]] = []
    skips = tuple(Skip(slot, "mia", T0) for slot in sorted(skipped))
    job = replace(job, has_skips=bool(skips))
    while job.next_run_at is not None and job.next_run_at < until and len(fires) < most:
        now = job.next_run_at
        decided = decision(job, now, skips=skips)
        assert isinstance(decided, Decided)
        job = decided.job
        for fire in decided.fires:
            fires.append((now, fire.slot))
            job = settle(job, ended(fire, ExecutionStatus.SUCCESS), 0, now)
    return job, fires
