"""Slots that came due and did not fire: whoever moves a schedule on past them accounts for them."""

from datetime import datetime

from app.domain.ledger import LedgerEntry, LedgerOutcome
from app.domain.schedules import ScheduledJob


def passed_over(job: ScheduledJob, now: datetime) -> tuple[LedgerEntry, ...]:
    """The slots of the cadence that have come due and have no outcome yet, as one range."""
    first, last = job.cadence_slot, job.cadence.latest_at(now)
    if first is None or last is None or first > last:
        return ()
    if job.next_attempt:
        return (entry(job, first, last, LedgerOutcome.SKIPPED_RETRY, "a retry held the schedule"),)
    return (entry(job, first, last, LedgerOutcome.MISSED, "the schedule was changed or ended before it fired"),)


def dropped(before: ScheduledJob, after: ScheduledJob, now: datetime) -> tuple[LedgerEntry, ...]:
    """What a change that is not a tick passes over: a pause, an edit, a death. None if the cadence waits as it was."""
    return () if after.cadence_slot == before.cadence_slot else passed_over(before, now)


def entry(job: ScheduledJob, first: datetime, last: datetime, outcome: LedgerOutcome, reason: str) -> LedgerEntry:
    """An entry for the slots from ``first`` to ``last``."""
    count = job.cadence.count(first, last)
    return LedgerEntry(first_slot=first, last_slot=last, slot_count=count, outcome=outcome, reason=reason)
