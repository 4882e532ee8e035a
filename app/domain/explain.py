"""Explain why a schedule did or did not run at some time: the nearest slot, its checks in order, and one sentence."""

import itertools
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.domain.breakers import Gate
from app.domain.calendars import calendar_names
from app.domain.descriptions import describe
from app.domain.executions import ActiveRun
from app.domain.ledger import QUEUED, LedgerOutcome
from app.domain.overlap import Arrival, Refuse, overlap
from app.domain.permits import WAITING_FOR_LIMIT
from app.domain.planning import due_time
from app.domain.schedules import ScheduledJob, Status
from app.domain.skips import Skip
from app.domain.trigger_event import rfc3339


class Check(StrEnum):
    """The checks, in the order in which they are made."""

    SPEC = "spec"
    START_END = "start_end"
    WINDOW = "window"
    WEEKDAY = "weekday"
    CALENDAR = "calendar"
    ACTIVE = "active"
    SKIP = "skip"
    RETRY = "retry"
    MISSED = "missed"
    BREAKER = "breaker"
    GUARD = "guard"
    OVERLAP = "overlap"
    LIMIT = "limit"


# The outcome of slots that have fired, and those of slots without an execution or a ledger entry.
FIRED = "fired"
NOT_EXPECTED = "not_expected"
EXPECTED = "expected"
DUE = "due"
UNKNOWN = "unknown"


def failed_check(outcome: LedgerOutcome) -> Check:
    """Return the check at which a slot with this outcome did not pass."""
    match outcome:
        case LedgerOutcome.SKIPPED_REQUEST:
            return Check.SKIP
        case LedgerOutcome.SKIPPED_RETRY:
            return Check.RETRY
        case LedgerOutcome.MISSED | LedgerOutcome.COALESCED:
            return Check.MISSED
        case LedgerOutcome.SKIPPED_BREAKER:
            return Check.BREAKER
        case LedgerOutcome.SKIPPED_GUARD:
            return Check.GUARD
        case LedgerOutcome.SKIPPED_OVERLAP | LedgerOutcome.SKIPPED_QUEUE_FULL:
            return Check.OVERLAP
        case _:
            assert_never(outcome)


_LEDGER_OUTCOMES = frozenset(LedgerOutcome)
# The checks of an expected slot, with the text if it passes.
_PASSED = {
    Check.SKIP: "nobody asked to skip it",
    Check.RETRY: "no retry held the schedule",
    Check.MISSED: "it was handled in time, or caught up",
    Check.BREAKER: "no breaker was open",
    Check.GUARD: "the workflow had a place for it",
    Check.OVERLAP: "no other run stood in its way",
}


class Result(msgspec.Struct, frozen=True):
    """The result of one check."""

    check: Check
    passed: bool
    detail: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of one slot."""

    slot: datetime | None
    outcome: str
    sentence: str
    checks: tuple[Result, ...]
    execution_id: UUID | None = None


class LastChange(msgspec.Struct, frozen=True):
    """The change that brought a schedule into its state."""

    at: datetime
    author: str
    note: str = ""

    def __str__(self) -> str:
        """Return the author, the time and the note in one line."""
        return f"by {self.author} at {rfc3339(self.at)}" + (f" ({self.note})" if self.note else "")


class SlotRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a slot, from the ledger or from its execution."""

    outcome: str
    reason: str = ""
    # The limit that the execution waits for.
    limit: str | None = None
    execution_id: UUID | None = None
    # Of the execution; text, as a newer release may know more of them.
    status: str | None = None
    started_at: datetime | None = None
    # The number of the last retry, its execution and its status, if the slot was tried again.
    retry: tuple[int, UUID, str] | None = None


class BackfillRun(msgspec.Struct, frozen=True):
    """The run by which a backfill made up for a slot."""

    execution_id: UUID
    status: str
    started_at: datetime


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts for an explanation. ``then`` is the schedule at the time of the slot, ``job`` the schedule now."""

    job: ScheduledJob
    then: ScheduledJob
    since: LastChange | None
    recorded: SlotRecord | None
    # Since when the schedule is paused because of its spec, if it is and the history says so.
    invalid_since: datetime | None = None
    active: tuple[ActiveRun, ...]
    gate: Gate
    # The request to skip the slot, if it is still to come.
    skip: Skip | None = None
    backfill: BackfillRun | None = None
    now: datetime


def _began(job: ScheduledJob) -> datetime:
    """Return since when a schedule has slots that it is expected to fire."""
    return job.created_at if job.anchor_at == job.start_at else min(job.created_at, job.anchor_at)


def nearest_slot(job: ScheduledJob, moment: datetime) -> datetime | None:
    """Return the slot that is nearest to a moment, without regard to window, weekdays, calendars and end.

    Before its creation a schedule has the slots that a backfill would run.
    """
    if job.spec.problem:
        return None
    # Slots before start_at are slots that were not expected. Between creation and anchor there are no slots.
    try:
        slots = job.spec.unrestricted_slots_from(job.anchor_at, job.start_at)
        first = job.created_at if job.anchor_at == job.start_at else job.first_moment
        neighbours = (slots.previous(moment + timedelta.resolution), slots.next(moment))
    except OverflowError:
        # The anchor lies at the end of the calendar.
        return None
    began = _began(job)
    candidates = [
        slot for slot in neighbours if slot is not None and (slot >= first or (moment < began and slot < began))
    ]
    return min(candidates, key=lambda slot: abs(slot - moment), default=None)


def next_unrestricted_slot(job: ScheduledJob, now: datetime) -> datetime | None:
    """Return the first slot after now that the spec names, also if the schedule is not active; None if none comes."""
    if job.spec.problem:
        return None
    try:
        return job.spec.unrestricted_slots_from(job.anchor_at, job.start_at).next(max(now, job.first_moment))
    except OverflowError:
        return None


def explain(facts: Facts, slot: datetime | None) -> Explanation:
    """Explain why a slot fired or not; for one in the future, what would happen as far as is known now.

    Of a slot that a backfill has run, the checks say why it had not fired before.
    """
    explanation = _explain(facts, slot)
    run = facts.backfill
    if run is None:
        return explanation
    sentence = f"A backfill ran it at {rfc3339(run.started_at)} as execution {run.execution_id} ({run.status})."
    return replace(
        explanation,
        outcome=FIRED,
        sentence=f"{explanation.sentence} {sentence}",
        execution_id=run.execution_id,
    )


def _explain(facts: Facts, slot: datetime | None) -> Explanation:
    if slot is not None and facts.recorded is not None:
        return _explain_record(facts, slot, facts.recorded)
    problem = _problem(facts)
    if slot is None or problem:
        sentence = f"The schedule has no slots: {problem}." if problem else "The spec names no slot near that time."
        failed_spec = Result(Check.SPEC, passed=False, detail=sentence)
        return Explanation(slot=slot, outcome=NOT_EXPECTED, sentence=sentence, checks=(failed_spec,))
    checks = (*_spec_checks(facts.then, slot), _active_check(facts, slot))
    failed = next((result for result in checks if not result.passed), None)
    if failed is not None:
        reached = checks[: checks.index(failed) + 1]
        sentence = f"The slot {rfc3339(slot)} {_tense(facts, slot)} not expected: {failed.detail}."
        return Explanation(slot=slot, outcome=NOT_EXPECTED, sentence=sentence, checks=reached)
    return _explain_past(facts, slot, checks) if slot <= facts.now else _explain_future(facts, slot, checks)


def _problem(facts: Facts) -> str:
    """Return what is invalid about the spec, now or at the time of the slot, and since when; or an empty string."""
    problem = facts.job.spec.problem or facts.then.spec.problem
    if not problem:
        return ""
    found = f" (found at {rfc3339(facts.invalid_since)})" if facts.invalid_since else ""
    return f"its spec is not valid{found}: {problem.rstrip('.')}"


def _spec_checks(job: ScheduledJob, slot: datetime) -> tuple[Result, ...]:
    allowed, place = job.spec.hours, job.timezone
    wall = allowed.zone.local(slot)
    shown = f"{wall:%A %H:%M} {place}"
    too_early = job.start_at is not None and slot < job.start_at
    too_late = job.end_at is not None and slot > job.end_at
    where = "before start_at" if too_early else "after end_at" if too_late else "between start and end"
    bounds = f"{rfc3339(slot)} lies {where}"
    return (
        Result(Check.SPEC, passed=True, detail=f"{describe(job.spec)} names {rfc3339(slot)}"),
        Result(Check.START_END, passed=not too_early and not too_late, detail=bounds),
        Result(Check.WINDOW, allowed.in_window(slot), _window_detail(job, slot, shown)),
        Result(Check.WEEKDAY, allowed.on_weekday(slot), _weekday_detail(job, slot, shown)),
        _calendar_check(job, slot),
    )


def _window_detail(job: ScheduledJob, slot: datetime, shown: str) -> str:
    if job.only_between is None:
        return "there is no window"
    where = "inside" if job.spec.hours.in_window(slot) else "outside"
    return f"{shown} is {where} only_between {job.only_between}"


def _weekday_detail(job: ScheduledJob, slot: datetime, shown: str) -> str:
    if not job.not_on:
        return "no weekday is excluded"
    verdict = "allows" if job.spec.hours.on_weekday(slot) else "excludes"
    return f"not_on ({', '.join(job.not_on)}) {verdict} {shown}"


def _calendar_check(job: ScheduledJob, slot: datetime) -> Result:
    if not job.calendars:
        return Result(Check.CALENDAR, passed=True, detail="no calendar is named")
    exclusion = job.calendars.exclusion(slot)
    names = calendar_names(calendar.name for calendar in (*job.calendars.excluded, *job.calendars.only))
    return Result(Check.CALENDAR, passed=exclusion is None, detail=str(exclusion or f"{names}: it is not left out"))


def _active_check(facts: Facts, slot: datetime) -> Result:
    then, verb = facts.then, _tense(facts, slot)
    # A one-shot may lie shortly before its creation: it fires all the same.
    if slot < min(_began(facts.job), _began(then)) and not then.is_one_shot:
        detail = f"the schedule did not exist yet, it was created at {rfc3339(facts.job.created_at)}"
        return Result(Check.ACTIVE, passed=False, detail=detail)
    if then.status is Status.ACTIVE:
        return Result(Check.ACTIVE, passed=True, detail=f"the schedule {verb} active")
    detail = f"the schedule {verb} {then.status}" + (f" ({then.status_reason})" if then.status_reason else "")
    if then.paused_until is not None:
        detail = f"{detail} until {rfc3339(then.paused_until)}"
    return Result(Check.ACTIVE, passed=False, detail=f"{detail}, {facts.since}" if facts.since else detail)


def _explain_record(facts: Facts, slot: datetime, record: SlotRecord) -> Explanation:
    problem = _problem(facts)
    sentence = _recorded_sentence(slot, record)
    if problem:
        sentence = f"{sentence} The schedule has no slots after it: {problem}."
    return Explanation(
        slot=slot,
        outcome=record.outcome if record.limit is None else WAITING_FOR_LIMIT,
        sentence=sentence,
        checks=_record_checks(facts, slot, record),
        execution_id=record.retry[1] if record.retry else record.execution_id,
    )


def _record_checks(facts: Facts, slot: datetime, record: SlotRecord) -> tuple[Result, ...]:
    """Return the checks that a recorded slot went through, as far as they can be repeated."""
    if not facts.then.spec.problem:
        active = Result(Check.ACTIVE, passed=True, detail="the schedule was active")
        return (*_spec_checks(facts.then, slot), active, *_outcome_checks(record))
    has_fired = record.outcome in {FIRED, QUEUED}
    when = "it was valid then, and is not any more" if has_fired else "it was not valid any more"
    spec = Result(Check.SPEC, passed=has_fired, detail=f"{when}: {facts.then.spec.problem}")
    return (spec, *_outcome_checks(record))


def _outcome_checks(record: SlotRecord) -> tuple[Result, ...]:
    """Return the checks that the outcome shows, up to the one that did not pass."""
    if record.outcome in {FIRED, QUEUED}:
        all_passed = tuple(Result(check, passed=True, detail=detail) for check, detail in _PASSED.items())
        waits = Result(Check.LIMIT, passed=False, detail=f"it waits for a permit of the limit '{record.limit}'")
        return all_passed if record.limit is None else (*all_passed, waits)
    if record.outcome not in _LEDGER_OUTCOMES:
        # Written by a newer release: which check it belongs to is not known here.
        return ()
    failed = failed_check(LedgerOutcome(record.outcome))
    passed = itertools.takewhile(lambda check: check is not failed, _PASSED)
    results = [Result(check, passed=True, detail=_PASSED[check]) for check in passed]
    return (*results, Result(failed, passed=False, detail=_with_execution(record)))


def _recorded_sentence(slot: datetime, record: SlotRecord) -> str:
    return _fired_sentence(slot, record) if record.outcome in {FIRED, QUEUED} else _not_fired_sentence(slot, record)


def _fired_sentence(slot: datetime, record: SlotRecord) -> str:
    run = f"execution {record.execution_id}"
    if record.limit is not None:
        return f"The slot {rfc3339(slot)} is {run}, which waits for the limit '{record.limit}' (waiting_for_limit)."
    if record.started_at is None:
        return f"The slot {rfc3339(slot)} was queued as {run} and waits for its turn."
    fired_at = rfc3339(record.started_at)
    sentence = f"The slot {rfc3339(slot)} fired at {fired_at} as {run}, which has the status {record.status}."
    if record.retry is None:
        return sentence
    number, execution_id, status = record.retry
    return f"{sentence} Its retry {number}, execution {execution_id}, has the status {status}."


def _not_fired_sentence(slot: datetime, record: SlotRecord) -> str:
    return f"The slot {rfc3339(slot)} did not fire ({record.outcome}): {_with_execution(record)}."


def _with_execution(record: SlotRecord) -> str:
    return record.reason + (f" (execution {record.execution_id})" if record.execution_id else "")


def _explain_past(facts: Facts, slot: datetime, checks: tuple[Result, ...]) -> Explanation:
    """Explain a past slot that has no record."""
    job = facts.job
    waiting = job.status is Status.ACTIVE and job.cadence_slot is not None and job.cadence_slot <= slot
    if waiting and job.next_attempt and job.next_slot is not None:
        detail = f"a retry of the slot {rfc3339(job.next_slot)} holds the schedule"
        held = Result(Check.RETRY, passed=False, detail=detail)
        sentence = f"The slot {rfc3339(slot)} does not fire (skipped_retry): {detail}."
        return Explanation(slot=slot, outcome="skipped_retry", sentence=sentence, checks=(*checks, held))
    if waiting and due_time(job, slot) > facts.now:
        # The slot has passed, its jitter has not.
        return _explain_future(facts, slot, checks)
    if waiting:
        sentence = f"The slot {rfc3339(slot)} is due at {rfc3339(due_time(job, slot))}; no worker has taken it up yet."
        return Explanation(slot=slot, outcome=DUE, sentence=sentence, checks=checks)
    sentence = f"Nothing is known of the slot {rfc3339(slot)}: it was not expected any more, or its record is gone."
    return Explanation(slot=slot, outcome=UNKNOWN, sentence=sentence, checks=checks)


def _explain_future(facts: Facts, slot: datetime, checks: tuple[Result, ...]) -> Explanation:
    """Explain what would happen to a slot in the future, as far as is known now."""
    job = facts.job
    if not job.expects_more(0) or (job.next_run_at is None and not facts.active):
        sentence = f"The slot {rfc3339(slot)} will not come: nothing is planned any more."
        return Explanation(slot=slot, outcome=NOT_EXPECTED, sentence=sentence, checks=checks)
    if facts.skip is not None:
        skipped = Result(Check.SKIP, passed=False, detail=facts.skip.reason)
        sentence = f"The slot {rfc3339(slot)} will not fire (skipped_request): {facts.skip.reason}."
        outcome = LedgerOutcome.SKIPPED_REQUEST.value
        return Explanation(slot=slot, outcome=outcome, sentence=sentence, checks=(*checks, skipped))
    due = due_time(job, slot)
    known = (_future_breaker(facts, due), _future_guard(facts), _future_overlap(facts))
    failed = next((result for result in known if not result.passed), None)
    sentence = f"The slot {rfc3339(slot)} is expected to fire at {rfc3339(due)}"
    doubt = f"; it will not fire if this is still so then: {failed.detail}" if failed else ""
    return Explanation(slot=slot, outcome=EXPECTED, sentence=f"{sentence}{doubt}.", checks=(*checks, *known))


def _future_breaker(facts: Facts, due: datetime) -> Result:
    refusal = facts.gate.breaker.refusal(due) if facts.gate.breaker else ""
    return Result(Check.BREAKER, passed=not refusal, detail=refusal or "the breaker lets it through")


def _future_guard(facts: Facts) -> Result:
    refusal = facts.gate.guard_refusal
    return Result(Check.GUARD, passed=not refusal, detail=refusal or "the guard has a place")


def _future_overlap(facts: Facts) -> Result:
    if not facts.active:
        return Result(Check.OVERLAP, passed=True, detail="nothing is running now")
    detail = f"execution {facts.active[0].execution_id} is under way, and if_running is '{facts.job.if_running}'"
    if facts.job.unknown_value:
        return Result(Check.OVERLAP, passed=True, detail=f"{detail}, which this release does not know")
    decision = overlap(facts.job.if_running, Arrival.SLOT, facts.active, facts.job.max_queued)
    return Result(Check.OVERLAP, passed=not isinstance(decision, Refuse), detail=detail)


def _tense(facts: Facts, slot: datetime) -> str:
    return "was" if slot <= facts.now else "is"
