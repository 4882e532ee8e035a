"""Compares what a chaos run left behind with what its requests let one expect, and says what does not fit.

Nothing here knows the scheduler: the oracle says which slots and values there must or may be, the evidence says which
there are.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise

from tests.chaos.evidence import Evidence, ExecutionRow
from tests.chaos.matching import confused_keys, misdirected, strangers
from tests.chaos.measures import by_faults, counts, first_calls, lateness, recovery
from tests.chaos.oracle import POISONED
from tests.chaos.report import Report
from tests.chaos.stories import (
    BACKFILL,
    FAILURES,
    MANUAL,
    OPEN,
    REPEATS,
    Story,
    begun,
    called,
    death_of,
    hand_outs,
    intervened,
    labelled,
    ledger_slots,
    may_overlap,
    required,
    started,
    stories_of,
    was_handed_back,
)

Check = Callable[[Story], Iterable[str]]


def check(evidence: Evidence, *, settle_seconds: float) -> Report:
    """Say what does not fit. Slots of the last ``settle_seconds`` need not be accounted for yet."""
    settle = timedelta(seconds=settle_seconds)
    stories = stories_of(evidence, settle)
    findings = {
        kind: [story.says(found) for story in stories.values() for part in parts for found in part(story)]
        for kind, parts in CHECKS.items()
    }
    findings["phantom"] = [*strangers(evidence, stories), *findings["phantom"]]
    findings["mislabelled"] = [*misdirected(evidence, stories), *confused_keys(evidence.arrivals)]
    findings["overlap"] += [*_over_limits(evidence), *_crowded(evidence, settle)]
    calls = first_calls(stories)
    inside, outside = by_faults(calls, evidence.faults, settle)
    return Report(
        **findings,
        counts=counts(evidence, stories),
        lateness_inside=lateness(inside),
        lateness_outside=lateness(outside),
        recovery=recovery(calls, evidence, stories),
    )


# Putting together what belongs to one schedule.


def _lost_slots(story: Story) -> Iterator[str]:
    """Required slots without an outcome."""
    accounted = {row.scheduled_for for row in story.scheduled}
    accounted.update(slot for row in story.ledger for slot in ledger_slots(row))
    for slot in required(story):
        if slot not in accounted:
            yield f"slot {slot.isoformat()} has no outcome"


def _lost_attempts(story: Story) -> Iterator[str]:
    """Attempts that must have been before others."""
    attempts = defaultdict(set)
    for row in story.scheduled:
        attempts[row.scheduled_for].add(row.retry_attempt)
    for slot, found in sorted(attempts.items()):
        for missing in sorted(set(range(max(found))) - found):
            yield f"attempt {missing} of slot {slot.isoformat()} is missing, attempt {max(found)} is there"


def _lost_retries(story: Story) -> Iterator[str]:
    """Attempts that failed and were followed by something else than their retry, though nobody intervened."""
    if story.row is not None and story.row.if_running == "allow":
        # Retries do not hold the others up.
        return
    for row, following in pairwise(sorted(begun(story.scheduled), key=started)):
        retry = (row.scheduled_for, row.retry_attempt + 1)
        if row.status not in FAILURES or (following.scheduled_for, following.retry_attempt) == retry:
            continue
        if not story.expectation.surprises and not intervened(story, started(row), started(following)):
            yield f"{called(row)} ended as {row.status} and was never retried"


def _lost_calls(story: Story) -> Iterator[str]:
    """Runs that succeeded although their call never arrived."""
    arrived = {arrival.execution_id for arrival in story.arrivals}
    for row in story.executions:
        if row.status == "success" and row.id not in arrived:
            yield f"{called(row)} succeeded, but its call never arrived"


def _twice_accounted(story: Story) -> Iterator[str]:
    """Slots with two outcomes."""
    outcomes = Counter({row.scheduled_for for row in story.scheduled})
    outcomes.update(slot for row in story.ledger for slot in ledger_slots(row))
    for slot, number in sorted(outcomes.items()):
        if number > 1:
            yield f"slot {slot.isoformat()} has {number} outcomes"


def _twice_executed(story: Story) -> Iterator[str]:
    """Attempts with two executions, by the tables or by what arrived."""
    by_row = [(row.scheduled_for, row.retry_attempt + 1, row.id) for row in story.scheduled]
    by_label = [
        (call.slot, call.attempt, call.execution_id) for call in story.arrivals if not story.may_be_by_backfill(call)
    ]
    executions = defaultdict(list)
    for slot, attempt, execution_id in [*by_row, *sorted(set(by_label) - set(by_row))]:
        executions[slot, attempt].append(execution_id)
    for (slot, attempt), ids in sorted(executions.items()):
        if len(ids) > 1:
            named = ", ".join(str(execution_id) for execution_id in ids)
            yield f"attempt {attempt} of slot {slot.isoformat()} has {len(ids)} executions: {named}"


def _twice_called(story: Story) -> Iterator[str]:
    """Executions that arrived more often than they were handed out."""
    arrived = Counter(arrival.execution_id for arrival in story.arrivals)
    for row in story.executions:
        if arrived[row.id] > max(1, hand_outs(row)):
            yield f"{called(row)} arrived {arrived[row.id]} times, with token {row.token}"


def _early(story: Story) -> Iterator[str]:
    """Calls and runs before their slots."""
    for arrival in story.arrivals:
        if arrival.at < arrival.slot:
            yield f"the call of slot {arrival.slot.isoformat()} arrived at {arrival.at.isoformat()}"
    for row in story.executions:
        if row.started_at is not None and row.started_at < row.scheduled_for:
            yield f"{called(row)} started at {row.started_at.isoformat()}"


def _phantom_executions(story: Story) -> Iterator[str]:
    """Executions that nothing explains."""
    death = death_of(story)
    for row in story.executions:
        if story.row is None:
            yield f"{called(row)} is there, but its schedule is not"
        elif row.trigger == MANUAL:
            if not story.allows_manual(row.id, row.scheduled_for):
                yield f"nobody asked for the manual {called(row)}"
        elif row.trigger == BACKFILL:
            if not story.allows_backfill(row.scheduled_for):
                yield f"no backfill was asked for the {called(row)}"
        elif not story.allows(row.scheduled_for):
            yield f"{called(row)} is for no slot that may come due"
        elif death is not None and row.scheduled_for > death:
            yield f"{called(row)} is for a slot after the schedule's death at {death.isoformat()}"


def _skipped(story: Story) -> Iterator[str]:
    """Slots that fired although their skip was acknowledged."""
    skipped = frozenset(story.expectation.skipped)
    for row in story.scheduled:
        if row.scheduled_for in skipped:
            yield f"{called(row)} is for a slot that was to be skipped"


def _twice_backfilled(story: Story) -> Iterator[str]:
    """Slots that backfills have run more often than they were asked to."""
    runs = Counter((row.scheduled_for, row.retry_attempt) for row in story.executions if row.trigger == BACKFILL)
    for (slot, attempt), number in sorted(runs.items()):
        asked = sum(span.holds(slot) for span in story.expectation.backfills)
        if number > max(1, asked):
            yield f"attempt {attempt} of the backfilled slot {slot.isoformat()} has {number} executions"


def _over_limits(evidence: Evidence) -> Iterator[str]:
    """Times at which more runs were under way than a limit allows, by the tables."""
    limit_of = {row.id: row.limit for row in evidence.schedules}
    for name, bound in evidence.bounds.items():
        rows = [row for row in begun(evidence.executions) if limit_of.get(row.scheduled_job_id) == name]
        ends: list[datetime] = []
        for row in sorted(rows, key=started):
            ends = [end for end in ends if end > started(row)]
            ends.append(row.finished_at or evidence.ended)
            if len(ends) > bound:
                yield f"limit {name}: {len(ends)} runs at once at {started(row).isoformat()}, {bound} are allowed"


def _crowded(evidence: Evidence, settle: timedelta) -> Iterator[str]:
    """Times at which the target had more calls at once than a limit allows, though nothing was broken.

    A worker that was frozen or cut off may leave a call behind after its permit was given to another one.
    """
    for crowd in evidence.crowds:
        troubled = any(fault.began <= crowd.at <= fault.ended + settle for fault in evidence.faults)
        bound = evidence.bounds.get(crowd.folder)
        if bound is not None and crowd.calls > bound and not troubled:
            yield f"limit {crowd.folder}: {crowd.calls} calls at once at {crowd.at.isoformat()}, {bound} are allowed"


def _phantom_entries(story: Story) -> Iterator[str]:
    """Entries of the ledger that nothing explains."""
    death = death_of(story)
    for row in story.ledger:
        entry = f"{row.outcome} {row.first_slot.isoformat()} to {row.last_slot.isoformat()}, {row.slot_count} slots,"
        slots = ledger_slots(row)
        unknown = [slot for slot in slots if not story.allows(slot)]
        if story.row is None:
            yield f"{entry} is there, but its schedule is not"
        elif not slots:
            yield f"{entry} contradicts itself"
        elif unknown:
            yield f"{entry} is for {len(unknown)} slots that cannot come due, such as {unknown[0].isoformat()}"
        elif death is not None and slots[-1] > death + story.settle:
            yield f"{entry} is for slots after the schedule's death at {death.isoformat()}"


def _phantom_arrivals(story: Story) -> Iterator[str]:
    """Calls that nothing explains."""
    rows = {row.id: row for row in story.executions}
    for call in story.arrivals:
        row = rows.get(call.execution_id)
        # What arrived while the tables were read may be younger than they are.
        read_later = call.at <= story.ended
        if story.row is not None and row is None and read_later:
            yield f"{labelled(call)} belongs to no execution"
        elif row is not None and row.started_at is None and read_later and not was_handed_back(row):
            yield f"{labelled(call)} belongs to an execution that never began"
        explained = story.allows_manual(call.execution_id, call.slot) or story.may_be_by_backfill(call)
        if not story.allows(call.slot) and not explained:
            yield f"{labelled(call)} is for no slot that may come due"


def _overlaps(story: Story) -> Iterator[str]:
    """Executions that began before another one had ended, though that is to be skipped."""
    if story.row is not None and story.row.if_running != "skip":
        return
    running: ExecutionRow | None = None
    for row in sorted(begun(story.executions), key=started):
        if may_overlap(story, row) or row.trigger == BACKFILL:
            continue
        if running is not None and started(row) < (running.finished_at or story.ended):
            shared = min(row.finished_at or story.ended, running.finished_at or story.ended) - started(row)
            yield f"{called(row)} overlaps with {called(running)} for {shared.total_seconds():.6f} s"
        if running is None or (row.finished_at or story.ended) > (running.finished_at or story.ended):
            running = row


def _counters(story: Story) -> Iterator[str]:
    """Counters that differ from the history."""
    if story.row is None:
        return
    ended = Counter(row.status for row in story.scheduled)
    for counter, statuses in (("run_count", {"success"}), ("error_count", FAILURES), ("current_repeat", REPEATS)):
        shown, counted = getattr(story.row, counter), sum(ended[status] for status in statuses)
        if shown != counted:
            yield f"{counter} is {shown}, by the executions it is {counted}"


def _writes(story: Story) -> Iterator[str]:
    """Acknowledged writes that are not there."""
    yield from story.expectation.broken
    if story.row is None:
        if story.expectation.exists:
            yield "its creation was acknowledged and no deletion asked for, but it is not there"
        return
    there = {row.id for row in story.executions}
    for run in story.expectation.manual_runs:
        if run.execution_id is not None and run.execution_id not in there:
            yield f"the manual run {run.execution_id} was acknowledged, but is not there"


def _unsettled(story: Story) -> Iterator[str]:
    """What should have come to rest or gone on by the end."""
    for row in story.executions:
        # A run of a backfill waits while live slots are late.
        waits = row.trigger == BACKFILL and row.started_at is None
        if row.status in OPEN and not waits and (row.started_at or row.scheduled_for) < story.settled:
            yield f"{called(row)} is still {row.status}"
    if story.row is None or story.row.status != "active":
        return
    due = story.row.next_run_at
    if due is None and not any(row.status in OPEN for row in story.executions):
        yield "it is active, but neither runs nor plans to"
    if due is not None and due < story.settled:
        yield f"it is active, but overdue since {due.isoformat()}"


def _poisoned(story: Story) -> Iterator[str]:
    """Schedules that paused by themselves."""
    yield from story.expectation.surprises
    if story.row is not None and story.row.status_reason == POISONED:
        yield f"it is {story.row.status} as poisoned"


CHECKS: dict[str, tuple[Check, ...]] = {
    "lost": (_lost_slots, _lost_attempts, _lost_retries, _lost_calls),
    "duplicate": (_twice_accounted, _twice_executed, _twice_called, _twice_backfilled),
    "early": (_early,),
    "phantom": (_phantom_executions, _phantom_entries, _phantom_arrivals, _skipped),
    "overlap": (_overlaps,),
    "counters": (_counters,),
    "writes": (_writes,),
    "unsettled": (_unsettled,),
    "poisoned": (_poisoned,),
}
