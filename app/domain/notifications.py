"""Events of schedules, workflows and entities that notifications report, and when each one occurs."""

from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from app.domain.agent_leases import Lease
from app.domain.breakers import Breaker, BreakerState
from app.domain.executions import FAILURES, Entity, ExecutionStatus, Trigger
from app.domain.ledger import LedgerEntry, LedgerOutcome
from app.domain.schedules import ScheduledJob, Status
from app.domain.settle import EndedRun
from app.domain.trigger_event import rfc3339


class NoticeEvent(StrEnum):
    """The kinds of events."""

    RUN_FAILED = "run.failed"
    # The last attempt of an entity's run failed. For schedules this is the event ``schedule.dead``.
    RUN_GIVEN_UP = "run.given_up"
    SCHEDULE_DEAD = "schedule.dead"
    SCHEDULE_RECOVERED = "schedule.recovered"
    SLOTS_MISSED = "slots.missed"
    BREAKER_OPENED = "breaker.opened"
    LEASE_EXPIRED = "lease.expired"
    LEASE_EXHAUSTED = "lease.exhausted"


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One event, with the schedule and the workflow that it concerns, or the user on whose behalf an entity runs."""

    event: NoticeEvent
    workflow_id: int | None = None
    scheduled_job_id: UUID | None = None
    user_profile_id: int | None = None
    data: dict[str, Any]


def run_notices(before: ScheduledJob, after: ScheduledJob, run: EndedRun) -> list[Notice]:
    """Return the events of a run that has ended: it failed, its schedule died, or its schedule recovered."""
    if run.status is ExecutionStatus.SUCCESS and not before.last_error:
        return []
    notices = []
    about = _about_run(run)
    if run.status in FAILURES:
        failed = {**about, "status": run.status, "error": run.error}
        notices.append(_notice(NoticeEvent.RUN_FAILED, after, failed))
    if after.status is Status.DEAD and before.status is not Status.DEAD:
        notices.append(_notice(NoticeEvent.SCHEDULE_DEAD, after, {**about, "error": run.error}))
    # A manual run does not clear the schedule's error, so its success is not a recovery.
    was_failing = run.trigger is not Trigger.MANUAL and before.last_error
    if run.status is ExecutionStatus.SUCCESS and was_failing:
        notices.append(_notice(NoticeEvent.SCHEDULE_RECOVERED, after, about))
    return notices


def entity_run_notices(entity: Entity, user_profile_id: int, run: EndedRun, *, is_retried: bool) -> list[Notice]:
    """Return the events of an entity's run that has ended: it failed, and, unless it is retried, it was given up."""
    if run.status not in FAILURES:
        return []
    about = {"entity_type": entity.type, "entity_id": entity.id, "entity_name": entity.work.name}
    data = {**about, **_about_run(run), "status": run.status, "error": run.error}
    events = [NoticeEvent.RUN_FAILED] if is_retried else [NoticeEvent.RUN_FAILED, NoticeEvent.RUN_GIVEN_UP]
    return [Notice(event=event, user_profile_id=user_profile_id, data=data) for event in events]


def _about_run(run: EndedRun) -> dict[str, Any]:
    return {"execution_id": str(run.execution_id), "slot": rfc3339(run.slot), "attempt": run.attempt + 1}


def missed_notices(job: ScheduledJob, entries: tuple[LedgerEntry, ...]) -> list[Notice]:
    """Return an event for each range of missed slots among these entries."""
    return [
        _notice(
            NoticeEvent.SLOTS_MISSED,
            job,
            {
                "from": rfc3339(entry.first_slot),
                "to": rfc3339(entry.last_slot),
                "count": entry.slot_count,
                "reason": entry.reason,
            },
        )
        for entry in entries
        if entry.outcome is LedgerOutcome.MISSED
    ]


def breaker_notices(breaker: Breaker) -> list[Notice]:
    """Return an event for each time that the breaker has opened."""
    return [
        Notice(event=NoticeEvent.BREAKER_OPENED, workflow_id=breaker.workflow_id, data={"reason": change.reason})
        for change in breaker.transitions
        if change.to_state is BreakerState.OPEN
    ]


def lease_notice(lease: Lease, refusal: str = "") -> Notice:
    """Return the event that a lease has expired, or that it is used up and something was refused therefore."""
    about = {"lease_id": lease.id, "agent": lease.agent, "purpose": lease.purpose}
    event, data = NoticeEvent.LEASE_EXPIRED, {"expires_at": rfc3339(lease.expires_at), "at_end": lease.at_end.value}
    if refusal:
        event, data = NoticeEvent.LEASE_EXHAUSTED, {"reason": refusal}
    return Notice(event=event, user_profile_id=lease.user_profile_id, data={**about, **data})


def _notice(event: NoticeEvent, job: ScheduledJob, data: dict[str, Any]) -> Notice:
    about = {"schedule_id": str(job.id), "schedule_name": job.name, **data}
    return Notice(event=event, workflow_id=job.workflow_id, scheduled_job_id=job.id, data=about)
