"""The decision about a due tick: fire, or do not fire and say why. The functions stand in the order of the checks."""

from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.domain.breakers import Gate
from app.domain.executions import ActiveRun, ExecutionStatus, Trigger, count_repeats
from app.domain.ledger import (
    QUEUED,
    LedgerEntry,
    LedgerOutcome,
    accounted,
    ledger_entry,
    missed_by_invalid_spec,
    unaccounted_slots,
)
from app.domain.limits import NO_QUOTAS, OwnerQuotas, Quota
from app.domain.overlap import Arrival, Queue, Refuse, must_wait, overlap, runs_alone
from app.domain.planning import (
    CatchUpPlan,
    DueSlots,
    catch_up_plan,
    due_slots,
    newest_run,
    past_end,
    paused_as_invalid,
    planned,
    stopped,
    with_retry,
)
from app.domain.run_ids import execution_id
from app.domain.schedules import Reason, ScheduledJob, Status
from app.domain.skips import Skip, is_slot, still_ahead, with_skipped

# How long a retry is put off while a manual run is active.
MANUAL_RUN_WAIT = timedelta(seconds=5)
# How long a due one-shot is put off while schedules are switched off, before it is checked again.
SWITCHED_OFF_PAUSE = timedelta(seconds=5)


class Tick(msgspec.Struct, frozen=True, gc=False):
    """A wake-up for a schedule, as a message carries it."""

    job_id: UUID
    generation: int


class TickSource(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The source of a tick: a worker, or a cron ping, which fires the latest slot however late it is."""

    trigger: Trigger = Trigger.SCHEDULE
    however_late: bool = False
    # All schedules are switched off by a setting.
    switched_off: bool = False
    quotas: OwnerQuotas = NO_QUOTAS


FROM_WORKER = TickSource()
FROM_PING = TickSource(trigger=Trigger.CRON, however_late=True)


class Stale(msgspec.Struct, frozen=True, gc=False):
    """The message does not match the row (paused, changed, or already handled). Nothing happens."""

    # Whether the message is about a later generation than the row has. Messages are sent after the commit, so the
    # database has lost commits.
    is_ahead: bool = False


class LeftToNewer(msgspec.Struct, frozen=True, gc=False):
    """The row has a value that this release does not know, as ``field=value``; a newer worker handles it."""

    value: str


class NotDue(msgspec.Struct, frozen=True, gc=False):
    """The message came before the due time; it has to come again after ``wait``."""

    wait: timedelta


class Start(StrEnum):
    """The time at which a new execution starts."""

    NOW = "now"
    # As soon as a worker has a place for it; it is not run by the worker that handles the tick.
    SOON = "soon"
    # When the runs of its schedule that are ahead of it have ended.
    QUEUED = "queued"
    # When it has the permits of the limits that its schedule and workflow name.
    PERMITTED = "permitted"


class Fire(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An execution that is to be created."""

    execution_id: UUID
    slot: datetime
    attempt: int
    repeat_number: int
    trigger: Trigger = Trigger.SCHEDULE
    start: Start = Start.NOW


class Decided(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The schedule to write, the executions to create and to cancel, and the entries of slots that do not fire."""

    job: ScheduledJob
    fires: tuple[Fire, ...] = ()
    cancels: tuple[UUID, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()


Decision = Stale | LeftToNewer | NotDue | Decided


class _Refusal(msgspec.Struct, frozen=True):
    """The reason why the breaker or the guard lets no run start, and the outcome of the slot."""

    outcome: LedgerOutcome
    reason: str


def decide(  # noqa: PLR0913 - all that is known
    job: ScheduledJob,
    tick: Tick,
    active: tuple[ActiveRun, ...],
    gate: Gate,
    now: datetime,
    source: TickSource = FROM_WORKER,
    skips: tuple[Skip, ...] = (),
) -> Decision:
    """Decide what a tick does, given the active runs of the schedule, the gate of its workflow, and the time.

    ``skips`` are the slots that people asked to leave out, earliest first.
    """
    if job.generation != tick.generation or job.next_run_at is None:
        return Stale(is_ahead=tick.generation > job.generation)
    if job.unknown_value:
        return LeftToNewer(job.unknown_value)
    if job.status is not Status.ACTIVE:
        return Stale()
    if now < job.next_run_at:
        return NotDue(wait=job.next_run_at - now)
    decision = _decide_due(job, active, gate, now, source, skips)
    return _with_skips(job, decision, skips, now) if job.has_skips and isinstance(decision, Decided) else decision


def _decide_due(
    job: ScheduledJob,
    active: tuple[ActiveRun, ...],
    gate: Gate,
    now: datetime,
    source: TickSource,
    skips: tuple[Skip, ...],
) -> Decision:
    if job.lease_ends_at is not None and now >= job.lease_ends_at:
        return _lease_has_ended(job, now)
    if job.spec_problem:
        return _spec_became_invalid(job, now)
    if source.switched_off:
        return _switched_off(job, active, now)
    if job.next_attempt:
        return _with_limits(job, gate, source, _decide_retry(job, active, gate, now))
    decided = _with_limits(job, gate, source, _decide_slots(job, active, gate, now, source, skips))
    return _with_trigger(decided, source.trigger)


def _with_limits(job: ScheduledJob, gate: Gate, source: TickSource, decided: Decided) -> Decided:
    """Return the decision with runs that wait for permits, if a limit is named or the owner has a quota of runs."""
    is_limited = (
        job.limit is not None
        or gate.limit is not None
        or source.quotas.limit_of(Quota.RUNS_AT_ONCE, job.user_profile_id)
    )
    if not is_limited or not decided.fires:
        return decided
    fires = tuple(
        fire if fire.start is Start.QUEUED else replace(fire, start=Start.PERMITTED) for fire in decided.fires
    )
    is_running = decided.job.last_outcome == ExecutionStatus.RUNNING and decided.job.last_slot == fires[-1].slot
    after = replace(
        decided.job,
        # The start of the run writes these.
        last_run_at=job.last_run_at,
        last_execution_id=job.last_execution_id,
        last_outcome=QUEUED if is_running else decided.job.last_outcome,
    )
    return replace(decided, job=after, fires=fires)


def _with_skips(job: ScheduledJob, decided: Decided, skips: tuple[Skip, ...], now: datetime) -> Decided:
    """Give the slots that were to be skipped, and that this tick accounts for, their outcome."""
    ahead = still_ahead(decided.job, skips, now)
    after = replace(decided.job, has_skips=bool(ahead))
    first = job.cadence_slot
    is_valid = first is not None and not job.spec_problem
    passed = [skip for skip in skips if skip not in ahead] if is_valid else []
    due = [skip for skip in passed if first is not None and skip.slot >= first and is_slot(job, skip.slot)]
    if not due:
        return replace(decided, job=after)
    after, ledger = with_skipped(job, after, decided.ledger, due, now)
    return replace(decided, job=after, ledger=ledger)


def _with_trigger(decided: Decided, trigger: Trigger) -> Decided:
    """Return the decision with the source's trigger on all runs but those that catch up."""
    if trigger is Trigger.SCHEDULE:
        return decided
    fires = tuple(
        replace(fire, trigger=trigger) if fire.trigger is Trigger.SCHEDULE else fire for fire in decided.fires
    )
    return replace(decided, fires=fires)


def _spec_became_invalid(job: ScheduledJob, now: datetime) -> Decided:
    """Pause the schedule; its pending slot is missed. A one-shot is never missed: it fires once the spec is valid."""
    expected = job.cadence_slot is not None and job.cadence_slot <= now and not job.is_one_shot
    ledger = (missed_by_invalid_spec(job),) if expected else ()
    return Decided(job=accounted(paused_as_invalid(job, now), ledger, now), ledger=ledger)


def _lease_has_ended(job: ScheduledJob, now: datetime) -> Decided:
    """Pause the schedule; its due slots are missed, a one-shot too: nothing fires after the end of a lease."""
    ledger = unaccounted_slots(job, now)
    return Decided(job=accounted(stopped(job, Status.PAUSED, Reason.LEASE_EXPIRED), ledger, now), ledger=ledger)


def _switched_off(job: ScheduledJob, active: tuple[ActiveRun, ...], now: datetime) -> Decision:
    """Account for all due slots as missed, without catching up, and give up a retry. One-shots wait instead."""
    if job.is_one_shot:
        return NotDue(wait=SWITCHED_OFF_PAUSE)
    continued = planned(job, job.cadence.first_after(now), count_repeats(active))
    first, last = job.cadence_slot, job.cadence.latest_at(now)
    if first is None or last is None or first > last:
        return Decided(job=continued)
    ledger = (ledger_entry(job, first, last, LedgerOutcome.MISSED, "disabled"),)
    return Decided(job=accounted(continued, ledger, now), ledger=ledger)


def _decide_slots(
    job: ScheduledJob,
    active: tuple[ActiveRun, ...],
    gate: Gate,
    now: datetime,
    source: TickSource,
    skips: tuple[Skip, ...],
) -> Decided:
    """Decide about the due slots: the latest is late, the earlier ones are missed. Skipped ones do not run.

    Breaker and guard are asked before the overlap: they concern the workflow, whatever the schedule would do.
    """
    due = due_slots(job, _pending_slot(job), now, however_late=source.however_late)
    if due.late is not None and due.missed is None and not active and not skips and _refusal(gate, now) is None:
        # The usual tick: one slot, and nothing beside it that could have a say.
        return _fired(job, due.following, (_first_attempt(job, due.late, 0),), active, (), now)
    skipped = frozenset(skip.slot for skip in skips)
    if due.late in skipped:
        due = replace(due, late=None)
    room = _room(job, active)
    plan = catch_up_plan(job, due, None if room is None else room - (due.late is not None), now, skipped)
    refusal = _refusal(gate, now)
    if refusal is not None:
        refused = _refused(job, (*plan.slots, *_late(due)), refusal)
        return _nothing_fires(job, due, active, (*plan.ledger, *refused), now)
    if plan.slots:
        return _fire_in_turn(job, due, plan, active, now)
    if due.late is None:
        return _nothing_fires(job, due, active, plan.ledger, now)
    return _fire_late(job, due.late, due, plan, active, now)


def _fire_late(
    job: ScheduledJob,
    slot: datetime,
    due: DueSlots,
    plan: CatchUpPlan,
    active: tuple[ActiveRun, ...],
    now: datetime,
) -> Decided:
    """Fire the late slot if ``if_running`` allows it."""
    decision = overlap(job.if_running, Arrival.SLOT, active, job.max_queued)
    if isinstance(decision, Refuse):
        skipped = ledger_entry(job, slot, slot, decision.outcome, decision.reason, decision.execution_id)
        return _nothing_fires(job, due, active, (*plan.ledger, skipped), now)
    remaining = _without(active, decision.cancels)
    start = Start.QUEUED if isinstance(decision, Queue) else Start.NOW
    fire = _first_attempt(job, slot, count_repeats(remaining), start)
    return _cancelling(decision.cancels, _fired(job, due.following, (fire,), remaining, plan.ledger, now))


def _fire_in_turn(
    job: ScheduledJob, due: DueSlots, plan: CatchUpPlan, active: tuple[ActiveRun, ...], now: datetime
) -> Decided:
    """Run the missed slots one after another, then the late one. ``if_running`` does not apply to caught-up slots."""
    before = count_repeats(active)
    fires = [
        replace(_first_attempt(job, slot, before + k), trigger=Trigger.CATCH_UP, start=Start.QUEUED)
        for k, slot in enumerate(plan.slots)
    ]
    alone = runs_alone(job.if_running)
    if not must_wait(active, alone=alone):
        fires[0] = replace(fires[0], start=Start.NOW)
    for slot in _late(due):
        start = Start.QUEUED if alone else Start.SOON
        fires.append(replace(_first_attempt(job, slot, before + len(fires)), start=start))
    return _fired(job, due.following, tuple(fires), active, plan.ledger, now)


def _decide_retry(job: ScheduledJob, active: tuple[ActiveRun, ...], gate: Gate, now: datetime) -> Decided:
    """Decide about a retry: it fires its slot again, or is put off, or is given up.

    Slots that came due while the retry held the cadence are skipped. Queued runs wait for the retry.
    """
    opening = job.spec.opening(now)
    if opening is None or (job.end_at is not None and opening > job.end_at):
        skipped_slots = unaccounted_slots(job, now)
        return Decided(job=accounted(past_end(job), skipped_slots, now), ledger=skipped_slots)
    if opening > now:
        return Decided(job=with_retry(job, _pending_slot(job), job.next_attempt, opening))
    decision = overlap(job.if_running, Arrival.RETRY, active, job.max_queued)
    if isinstance(decision, Refuse) and decision.only_manual:
        return Decided(job=with_retry(job, _pending_slot(job), job.next_attempt, now + MANUAL_RUN_WAIT))
    if isinstance(decision, Refuse) or _refusal(gate, now) is not None:
        return _give_up_retry(job, active, now)
    fire = Fire(
        execution_id=execution_id(job.id, _pending_slot(job), job.next_attempt),
        slot=_pending_slot(job),
        attempt=job.next_attempt,
        repeat_number=job.current_repeat,
    )
    remaining = _without(active, decision.cancels)
    fired = _fired(job, _after_retry(job, now), (fire,), remaining, unaccounted_slots(job, now), now)
    return _cancelling(decision.cancels, fired)


def _give_up_retry(job: ScheduledJob, active: tuple[ActiveRun, ...], now: datetime) -> Decided:
    """Give up a retry and return to the cadence. Its slot gets no second outcome: the first attempt is recorded."""
    following = _after_retry(job, now) or job.cadence.first_after(now)
    skipped_slots = unaccounted_slots(job, now)
    return Decided(
        job=accounted(planned(job, following, count_repeats(active)), skipped_slots, now), ledger=skipped_slots
    )


def _after_retry(job: ScheduledJob, now: datetime) -> datetime | None:
    """Return the slot at which the cadence goes on after a retry: the waiting one, unless it is due already."""
    waiting = job.cadence_slot
    return job.cadence.first_after(now) if waiting is not None and waiting <= now else waiting


def _fired(
    job: ScheduledJob,
    following: datetime | None,
    fires: tuple[Fire, ...],
    active: tuple[ActiveRun, ...],
    ledger: tuple[LedgerEntry, ...],
    now: datetime,
) -> Decided:
    """Return the decision to start these runs, with ``following`` as the next slot."""
    if job.lease_id is not None:
        job = replace(job, lease_runs=job.lease_runs + sum(not fire.attempt for fire in fires))
    slot = fires[-1].slot
    last_slot = slot if job.last_slot is None else max(slot, job.last_slot)
    if ledger:
        last_slot = max(last_slot, *(entry.last_slot for entry in ledger))
    after = replace(
        planned(job, following, count_repeats(active) + len(fires)),
        last_fired_at=now,
        last_run_at=now if any(fire.start is not Start.QUEUED for fire in fires) else job.last_run_at,
        last_slot=last_slot,
        last_outcome=_outcome_of(last_slot, fires, ledger) or job.last_outcome,
        last_attempt_at=now,
        last_execution_id=_last_started(job, fires),
    )
    return Decided(job=after, fires=fires, ledger=ledger)


def _outcome_of(slot: datetime, fires: tuple[Fire, ...], ledger: tuple[LedgerEntry, ...]) -> str | None:
    """Return the outcome of a slot among these fires and entries; None if it is of neither."""
    if fires[-1].slot == slot:
        return ExecutionStatus.RUNNING.value if fires[-1].start is Start.NOW else QUEUED
    return ledger[-1].outcome.value if ledger and ledger[-1].last_slot == slot else None


def _last_started(job: ScheduledJob, fires: tuple[Fire, ...]) -> UUID | None:
    """Return the last run of the newest slot that fired. Of these fires at most the first starts now."""
    return newest_run(job, fires[0].execution_id) if fires[0].start is Start.NOW else job.last_execution_id


def _cancelling(cancels: tuple[UUID, ...], fired: Decided) -> Decided:
    return replace(fired, cancels=cancels) if cancels else fired


def _nothing_fires(
    job: ScheduledJob,
    due: DueSlots,
    active: tuple[ActiveRun, ...],
    ledger: tuple[LedgerEntry, ...],
    now: datetime,
) -> Decided:
    after = planned(job, due.following, count_repeats(active))
    return Decided(job=accounted(after, ledger, now), ledger=ledger)


def _first_attempt(job: ScheduledJob, slot: datetime, active_runs: int, start: Start = Start.NOW) -> Fire:
    return Fire(
        execution_id=execution_id(job.id, slot, 0),
        slot=slot,
        attempt=0,
        repeat_number=job.current_repeat + active_runs,
        start=start,
    )


def _without(active: tuple[ActiveRun, ...], cancels: tuple[UUID, ...]) -> tuple[ActiveRun, ...]:
    return tuple(run for run in active if run.execution_id not in cancels) if cancels else active


def _pending_slot(job: ScheduledJob) -> datetime:
    if job.next_slot is None:
        raise AssertionError(f"schedule {job.id} has a due time and no slot")
    return job.next_slot


def _room(job: ScheduledJob, active: tuple[ActiveRun, ...]) -> int | None:
    """Return how many more runs ``total_repeats`` allows, or None if it sets no limit."""
    if not job.is_limited:
        return None
    room = job.total_repeats - job.current_repeat - count_repeats(active)
    return max(0, room if job.lease_id is None else min(room, job.total_repeats - job.lease_runs))


def _late(due: DueSlots) -> tuple[datetime, ...]:
    return () if due.late is None else (due.late,)


def _refusal(gate: Gate, now: datetime) -> _Refusal | None:
    """Return why no run of the workflow may start, or None. The breaker is asked before the guard."""
    open_breaker = gate.breaker.refusal(now) if gate.breaker else ""
    if open_breaker:
        return _Refusal(LedgerOutcome.SKIPPED_BREAKER, open_breaker)
    return _Refusal(LedgerOutcome.SKIPPED_GUARD, gate.guard_refusal) if gate.guard_refusal else None


def _refused(job: ScheduledJob, slots: tuple[datetime, ...], refusal: _Refusal) -> tuple[LedgerEntry, ...]:
    return (ledger_entry(job, slots[0], slots[-1], refusal.outcome, refusal.reason),) if slots else ()
