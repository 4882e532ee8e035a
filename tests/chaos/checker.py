"""Compares what a chaos run left behind with what its requests let one expect, and says what does not fit.

Nothing here knows the scheduler: the oracle says which slots and values there must or may be, the evidence says which
there are.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import msgspec

from tests.chaos.evidence import Ack, Arrival, Evidence, ExecutionRow, Fault, LedgerRow, Request, ScheduleRow, Verb
from tests.chaos.oracle import POISONED, Expectation, ManualRun, expect, last_effect

KINDS = ("lost", "duplicate", "early", "phantom", "overlap", "counters", "writes", "mislabelled", "unsettled")
SHOWN_PER_KIND = 20

OPEN = frozenset({"pending", "running"})
FAILURES = frozenset({"failed", "timed_out", "lost"})
REPEATS = frozenset({"success", "skipped", "blocked"})
MANUAL = "manual"

# How much later than the end of the run the tables may have been read.
READING_SECONDS = 2.0
# How far an arrival may lie outside the time in which its execution says that it ran.
TOLERANCE_SECONDS = 0.5
# A call that was on its way when a fault began is late because of it.
ON_ITS_WAY_SECONDS = 1.0
ON_TIME_SECONDS = 1.0


class Lateness(msgspec.Struct, frozen=True):
    """How late first attempts arrived, in seconds after their slots."""

    count: int
    p50: float
    p99: float
    maximum: float


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How much there was to look at."""

    schedules: int
    executions: int
    arrivals: int
    required: int
    fired: int
    # Slots by the outcome that was entered for them.
    unfired: dict[str, int]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What does not fit, by kind, and what was measured."""

    lost: list[str] = []
    duplicate: list[str] = []
    early: list[str] = []
    phantom: list[str] = []
    overlap: list[str] = []
    counters: list[str] = []
    writes: list[str] = []
    mislabelled: list[str] = []
    unsettled: list[str] = []
    # Schedules that paused by themselves. Worth a look, but no broken promise.
    poisoned: list[str] = []
    counts: Counts
    # First attempts whose slot lies in a fault or shortly after it, and all others; None if there are none.
    lateness_inside: Lateness | None
    lateness_outside: Lateness | None
    # Seconds from the calm to the first call on time, for each schedule that is active at the end; None if none came.
    recovery: dict[UUID, float | None]

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return not any(getattr(self, kind) for kind in KINDS)

    @property
    def slowest_recovery(self) -> float | None:
        """Seconds until every schedule that recovered had done so; None if none did."""
        return max((seconds for seconds in self.recovery.values() if seconds is not None), default=None)

    @property
    def unrecovered(self) -> list[UUID]:
        """The schedules that have not made a call on time since the calm."""
        return [schedule_id for schedule_id, seconds in self.recovery.items() if seconds is None]

    def lines(self) -> list[str]:
        """A readable account, with the first findings of each kind."""
        findings = [line for kind in (*KINDS, "poisoned") for line in _section(kind, getattr(self, kind))]
        return [f"promises kept: {'yes' if self.ok else 'no'}", *self._counted(), *self._measured(), *findings]

    def _counted(self) -> Iterator[str]:
        counts = self.counts
        yield f"{counts.schedules} schedules, {counts.executions} executions, {counts.arrivals} arrivals"
        unfired = "".join(f", {number} {outcome}" for outcome, number in sorted(counts.unfired.items()))
        yield f"slots: {counts.required} required, {counts.fired} fired{unfired}"

    def _measured(self) -> Iterator[str]:
        for where, late in (("inside", self.lateness_inside), ("outside", self.lateness_outside)):
            if late is not None:
                yield (
                    f"lateness {where} of faults: p50 {late.p50:.3f} s, p99 {late.p99:.3f} s,"
                    f" max {late.maximum:.3f} s ({late.count} calls)"
                )
        if self.slowest_recovery is not None:
            yield f"recovery: {self.slowest_recovery:.3f} s at most ({len(self.recovery)} active schedules)"
        if self.unrecovered:
            shown = ", ".join(str(schedule_id) for schedule_id in self.unrecovered[:SHOWN_PER_KIND])
            yield f"not on time since the calm: {len(self.unrecovered)} ({shown})"


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one schedule."""

    id: UUID
    row: ScheduleRow | None
    requests: list[Request]
    expectation: Expectation
    # All of its executions, and those of the cadence.
    executions: list[ExecutionRow]
    scheduled: list[ExecutionRow]
    ledger: list[LedgerRow]
    # What carries its id.
    arrivals: list[Arrival]
    # After the settling nothing is excused any more.
    settled: datetime
    settle: timedelta
    ended: datetime
    faults: list[Fault]
    possible: frozenset[datetime]

    def allows(self, slot: datetime) -> bool:
        """Whether a slot may be accounted for."""
        return slot in self.possible or any(span.holds(slot) for span in self.expectation.unknown)

    def allows_manual(self, execution_id: UUID, slot: datetime) -> bool:
        """Whether somebody asked, or may have asked, for a run."""
        return self.manual_run(execution_id, slot) is not None

    def manual_run(self, execution_id: UUID, slot: datetime) -> ManualRun | None:
        """The request that explains a manual run."""
        for run in self.expectation.manual_runs:
            if run.execution_id == execution_id or (run.execution_id is None and run.when.holds(slot)):
                return run
        return None

    def says(self, sentence: str) -> str:
        """A finding about this schedule."""
        name = "" if self.row is None else f" ({self.row.name})"
        return f"schedule {self.id}{name}: {sentence}"


Check = Callable[[Story], Iterable[str]]


def check(evidence: Evidence, *, settle_seconds: float) -> Report:
    """Say what does not fit. Slots of the last ``settle_seconds`` need not be accounted for yet."""
    settle = timedelta(seconds=settle_seconds)
    stories = _stories(evidence, settle)
    findings = {
        kind: [story.says(found) for story in stories.values() for part in parts for found in part(story)]
        for kind, parts in CHECKS.items()
    }
    findings["phantom"] = [*_strangers(evidence, stories), *findings["phantom"]]
    findings["mislabelled"] = [*_misdirected(evidence, stories), *_confused_keys(evidence.arrivals)]
    first_calls = _first_calls(stories)
    inside, outside = _by_faults(first_calls, evidence.faults, settle)
    return Report(
        **findings,
        counts=_counts(evidence, stories),
        lateness_inside=_lateness(inside),
        lateness_outside=_lateness(outside),
        recovery=_recovery(first_calls, evidence, stories),
    )


# Putting together what belongs to one schedule.


def _stories(evidence: Evidence, settle: timedelta) -> dict[UUID, Story]:
    """The story of every schedule that somebody asked about."""
    requests = _by_schedule(_with_found_ids(evidence), lambda request: request.schedule_id)
    executions = _by_schedule(evidence.executions, lambda row: row.scheduled_job_id)
    ledger = _by_schedule(evidence.ledger, lambda row: row.scheduled_job_id)
    arrivals = _by_schedule(sorted(evidence.arrivals, key=_arrived), lambda arrival: arrival.schedule_id)
    rows = {row.id: row for row in evidence.schedules}
    return {
        schedule_id: _story(
            evidence,
            settle,
            rows.get(schedule_id),
            own,
            executions[schedule_id],
            ledger[schedule_id],
            arrivals[schedule_id],
        )
        for schedule_id, own in requests.items()
    }


def _story(
    evidence: Evidence,
    settle: timedelta,
    row: ScheduleRow | None,
    requests: list[Request],
    executions: list[ExecutionRow],
    ledger: list[LedgerRow],
    arrivals: list[Arrival],
) -> Story:
    """The story of one schedule. The table is one more answer: it shows the state at the end."""
    seen = requests if row is None else [*requests, _look(row, evidence.ended)]
    expectation = expect(
        seen,
        evidence.faults,
        required_until=evidence.ended - settle,
        possible_until=evidence.ended + timedelta(seconds=READING_SECONDS),
    )
    return Story(
        id=requests[0].schedule_id,
        row=row,
        requests=requests,
        expectation=expectation,
        executions=executions,
        scheduled=[execution for execution in executions if execution.trigger != MANUAL],
        ledger=ledger,
        arrivals=arrivals,
        settled=evidence.ended - settle,
        settle=settle,
        ended=evidence.ended,
        faults=evidence.faults,
        possible=frozenset(expectation.possible),
    )


def _look(row: ScheduleRow, ended: datetime) -> Request:
    """A row of the table, as if somebody had changed nothing and been shown it."""
    answer = {field: getattr(row, field) for field in row.__struct_fields__}
    return Request(schedule_id=row.id, verb=Verb.PATCH, asked=ended, answered=ended, ack=Ack.YES, answer=answer)


def _with_found_ids(evidence: Evidence) -> list[Request]:
    """The requests, with the ids of schedules whose creation was not answered but which are found by their names."""
    known = {request.schedule_id for request in evidence.requests}
    found = {row.name: row.id for row in evidence.schedules if row.id not in known}
    return [
        msgspec.structs.replace(request, schedule_id=found[request.body["name"]])
        if request.verb is Verb.CREATE and request.ack is Ack.UNKNOWN and request.body.get("name") in found
        else request
        for request in evidence.requests
    ]


def _by_schedule(rows: Iterable[Any], schedule_of: Callable[[Any], UUID]) -> defaultdict[UUID, list[Any]]:
    grouped: defaultdict[UUID, list[Any]] = defaultdict(list)
    for row in rows:
        grouped[schedule_of(row)].append(row)
    return grouped


# Which slots must have an outcome.


def _required(story: Story) -> list[datetime]:
    """The slots that must have an outcome at the end: none of a deleted schedule, none after the end of its life."""
    if story.row is None:
        return []
    ends = [end for end in (_death(story), _last_repeat(story), _pending_retry(story)) if end is not None]
    return [slot for slot in story.expectation.required if all(slot <= end for end in ends)]


def _death(story: Story) -> datetime | None:
    """When the schedule died: at the end of the last attempt that failed."""
    if story.row is None or story.row.status != "dead":
        return None
    return max((row.finished_at for row in story.scheduled if row.status in FAILURES and row.finished_at), default=None)


def _last_repeat(story: Story) -> datetime | None:
    """The slot of the last repeat of a schedule that has used up its repeats, or has them under way."""
    row = story.row
    if row is None or not row.total_repeats:
        return None
    under_way = sum(execution.status in OPEN for execution in story.scheduled)
    if row.status == "active" and row.current_repeat + under_way < row.total_repeats:
        return None
    return max((execution.scheduled_for for execution in story.scheduled), default=None)


def _pending_retry(story: Story) -> datetime | None:
    """Since when a retry that is still to come holds the schedule: passing slots are entered when it starts."""
    row = story.row
    latest = max(_begun(story.scheduled), key=_started, default=None)
    if row is None or row.next_run_at is None or latest is None or latest.status not in FAILURES:
        return None
    return latest.started_at if row.next_run_at > story.settled else None


def _ledger_slots(row: LedgerRow) -> list[datetime]:
    """The slots of an entry, one by one; none if it contradicts itself."""
    if row.slot_count == 1:
        return [row.first_slot] if row.first_slot == row.last_slot else []
    if row.slot_count < 1 or row.last_slot <= row.first_slot:
        return []
    step = (row.last_slot - row.first_slot) / (row.slot_count - 1)
    slots = [row.first_slot + step * number for number in range(row.slot_count)]
    return slots if slots[-1] == row.last_slot else []


# The checks: each yields sentences about one schedule.


def _lost_slots(story: Story) -> Iterator[str]:
    """Required slots without an outcome."""
    accounted = {row.scheduled_for for row in story.scheduled}
    accounted.update(slot for row in story.ledger for slot in _ledger_slots(row))
    for slot in _required(story):
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
    for row, following in pairwise(sorted(_begun(story.scheduled), key=_started)):
        retry = (row.scheduled_for, row.retry_attempt + 1)
        if row.status not in FAILURES or (following.scheduled_for, following.retry_attempt) == retry:
            continue
        if not story.expectation.surprises and not _intervened(story, _started(row), _started(following)):
            yield f"{_called(row)} ended as {row.status} and was never retried"


def _lost_calls(story: Story) -> Iterator[str]:
    """Runs that succeeded although their call never arrived."""
    arrived = {arrival.execution_id for arrival in story.arrivals}
    for row in story.executions:
        if row.status == "success" and row.id not in arrived:
            yield f"{_called(row)} succeeded, but its call never arrived"


def _twice_accounted(story: Story) -> Iterator[str]:
    """Slots with two outcomes."""
    outcomes = Counter({row.scheduled_for for row in story.scheduled})
    outcomes.update(slot for row in story.ledger for slot in _ledger_slots(row))
    for slot, number in sorted(outcomes.items()):
        if number > 1:
            yield f"slot {slot.isoformat()} has {number} outcomes"


def _twice_executed(story: Story) -> Iterator[str]:
    """Attempts with two executions, by the tables or by what arrived."""
    by_row = [(row.scheduled_for, row.retry_attempt + 1, row.id) for row in story.scheduled]
    by_label = [(call.slot, call.attempt, call.execution_id) for call in story.arrivals]
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
        if arrived[row.id] > max(1, _hand_outs(row)):
            yield f"{_called(row)} arrived {arrived[row.id]} times, with token {row.token}"


def _early(story: Story) -> Iterator[str]:
    """Calls and runs before their slots."""
    for arrival in story.arrivals:
        if arrival.at < arrival.slot:
            yield f"the call of slot {arrival.slot.isoformat()} arrived at {arrival.at.isoformat()}"
    for row in story.executions:
        if row.started_at is not None and row.started_at < row.scheduled_for:
            yield f"{_called(row)} started at {row.started_at.isoformat()}"


def _phantom_executions(story: Story) -> Iterator[str]:
    """Executions that nothing explains."""
    death = _death(story)
    for row in story.executions:
        if story.row is None:
            yield f"{_called(row)} is there, but its schedule is not"
        elif row.trigger == MANUAL:
            if not story.allows_manual(row.id, row.scheduled_for):
                yield f"nobody asked for the manual {_called(row)}"
        elif not story.allows(row.scheduled_for):
            yield f"{_called(row)} is for no slot that may come due"
        elif death is not None and row.scheduled_for > death:
            yield f"{_called(row)} is for a slot after the schedule's death at {death.isoformat()}"


def _phantom_entries(story: Story) -> Iterator[str]:
    """Entries of the ledger that nothing explains."""
    death = _death(story)
    for row in story.ledger:
        entry = f"{row.outcome} {row.first_slot.isoformat()} to {row.last_slot.isoformat()}, {row.slot_count} slots,"
        slots = _ledger_slots(row)
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
        if story.row is not None and row is None and call.at <= story.ended:
            yield f"{_labelled(call)} belongs to no execution"
        elif row is not None and row.started_at is None and not _was_handed_back(row):
            yield f"{_labelled(call)} belongs to an execution that never began"
        if not story.allows(call.slot) and not story.allows_manual(call.execution_id, call.slot):
            yield f"{_labelled(call)} is for no slot that may come due"


def _overlaps(story: Story) -> Iterator[str]:
    """Executions that began before another one had ended, though that is to be skipped."""
    if story.row is not None and story.row.if_running != "skip":
        return
    running: ExecutionRow | None = None
    for row in sorted(_begun(story.executions), key=_started):
        if _may_overlap(story, row):
            continue
        if running is not None and _started(row) < (running.finished_at or story.ended):
            shared = min(row.finished_at or story.ended, running.finished_at or story.ended) - _started(row)
            yield f"{_called(row)} overlaps with {_called(running)} for {shared.total_seconds():.6f} s"
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
        if row.status in OPEN and (row.started_at or row.scheduled_for) < story.settled:
            yield f"{_called(row)} is still {row.status}"
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
    "duplicate": (_twice_accounted, _twice_executed, _twice_called),
    "early": (_early,),
    "phantom": (_phantom_executions, _phantom_entries, _phantom_arrivals),
    "overlap": (_overlaps,),
    "counters": (_counters,),
    "writes": (_writes,),
    "unsettled": (_unsettled,),
    "poisoned": (_poisoned,),
}


def _strangers(evidence: Evidence, stories: dict[UUID, Story]) -> Iterator[str]:
    """Whatever belongs to a schedule that nobody ever asked for."""
    found = [
        *((row.id, "a schedule") for row in evidence.schedules),
        *((row.scheduled_job_id, _called(row)) for row in evidence.executions),
        *((row.scheduled_job_id, f"{row.outcome} {row.first_slot.isoformat()}") for row in evidence.ledger),
        *((call.schedule_id, _labelled(call)) for call in evidence.arrivals),
    ]
    for schedule_id, what in found:
        if schedule_id not in stories:
            yield f"schedule {schedule_id}, which nobody asked for: {what}"


# Matching calls with executions a second time, by the address and the time alone.


class _Window(msgspec.Struct):
    """The time in which the calls of an execution may arrive, and how many of them."""

    row: ExecutionRow
    first: datetime
    last: datetime
    room: int


def _misdirected(evidence: Evidence, stories: dict[UUID, Story]) -> Iterator[str]:
    """Calls whose labels do not fit what was under way for the schedule of their address."""
    paths = defaultdict(list)
    for arrival in sorted(evidence.arrivals, key=_arrived):
        paths[arrival.path].append(arrival)
    names = _names(stories)
    for path, arrivals in sorted(paths.items()):
        owner = _owner(path, arrivals, names)
        story = stories.get(owner)
        yield from (
            f"{path}: {_labelled(call)} carries the schedule {call.schedule_id}, the address is that of {owner}"
            for call in arrivals
            if call.schedule_id != owner
        )
        if story is not None and story.row is not None:
            in_time = [call for call in arrivals if call.at <= evidence.ended]
            yield from (f"{path}: {found}" for found in _misfits(story, in_time))


def _names(stories: dict[UUID, Story]) -> dict[str, UUID]:
    """Which schedule a part of an address names: its id, or the name that it was created with and shares with none."""
    created = [
        (request.body.get("name", (request.answer or {}).get("name")), story.id)
        for story in stories.values()
        for request in story.requests
        if request.verb is Verb.CREATE
    ]
    shared = Counter(name for name, _ in created)
    names = {name: schedule_id for name, schedule_id in created if name is not None and shared[name] == 1}
    return names | {str(schedule_id): schedule_id for schedule_id in stories}


def _owner(path: str, arrivals: Sequence[Arrival], names: dict[str, UUID]) -> UUID:
    """The schedule of an address: the one that it names, else the one that most of its calls carry."""
    named = [names[part] for part in path.split("/") if part in names]
    return named[0] if named else Counter(call.schedule_id for call in arrivals).most_common(1)[0][0]


def _misfits(story: Story, arrivals: Sequence[Arrival]) -> Iterator[str]:
    """Calls to the address of a schedule whose slot, attempt or number does not fit its executions."""
    rows = {row.id: row for row in story.executions}
    windows = sorted(_windows(story), key=lambda window: window.first)
    by_label = _by_label(windows)
    unmatched = set(_unmatched(arrivals, windows))
    for call in arrivals:
        row = rows.get(call.execution_id)
        if row is not None and (call.slot, call.attempt) != (row.scheduled_for, row.retry_attempt + 1):
            yield f"{_labelled(call)} does not fit its {_called(row)}"
        elif not any(window.first <= call.at <= window.last for window in by_label[call.slot, call.attempt]):
            yield f"{_labelled(call)} does not fit any execution that was under way"
        elif call in unmatched:
            yield f"{_labelled(call)} is more than the executions that were under way can have sent"


def _windows(story: Story) -> Iterator[_Window]:
    """When the calls of each execution that began may have arrived."""
    tolerance = timedelta(seconds=TOLERANCE_SECONDS)
    for row in _begun(story.executions):
        # A run that was handed back may have made a call before the start that the table shows.
        first = row.scheduled_for if _was_handed_back(row) else _started(row)
        last = _last_call(story, row)
        yield _Window(row, first - tolerance, last + tolerance, max(1, _hand_outs(row)))


def _last_call(story: Story, row: ExecutionRow) -> datetime:
    """When the last call of an execution may have arrived: one that was given up may have been held up on its way."""
    finished = row.finished_at or story.ended
    if row.status == "success" and not _was_handed_back(row):
        return finished
    faults = [fault.ended for fault in story.faults if fault.began <= finished and _started(row) <= fault.ended]
    return max([finished, *faults]) + story.settle


def _by_label(windows: Iterable[_Window]) -> defaultdict[tuple[datetime, int], list[_Window]]:
    """The executions by the slot and the attempt that their calls carry."""
    labelled = defaultdict(list)
    for window in windows:
        labelled[window.row.scheduled_for, window.row.retry_attempt + 1].append(window)
    return labelled


def _unmatched(arrivals: Sequence[Arrival], windows: Sequence[_Window]) -> list[Arrival]:
    """The calls that are left over if each goes to an execution under way, the one that ends first."""
    coming = list(reversed(windows))
    under_way: list[tuple[datetime, int, _Window]] = []
    left_over = []
    for call in arrivals:
        while coming and coming[-1].first <= call.at:
            window = coming.pop()
            heapq.heappush(under_way, (window.last, len(coming), window))
        while under_way and (under_way[0][0] < call.at or not under_way[0][2].room):
            heapq.heappop(under_way)
        if under_way:
            under_way[0][2].room -= 1
        else:
            left_over.append(call)
    return left_over


def _confused_keys(arrivals: Sequence[Arrival]) -> Iterator[str]:
    """Idempotency keys that two slots share, or that change within one."""
    slots_of, keys_of = defaultdict(set), defaultdict(set)
    for call in arrivals:
        slots_of[call.key].add((call.schedule_id, call.slot))
        keys_of[call.schedule_id, call.slot].add(call.key)
    for key, slots in slots_of.items():
        if len(slots) > 1:
            yield f"key {key} stands for {len(slots)} slots"
    for (schedule_id, slot), keys in keys_of.items():
        if len(keys) > 1:
            yield f"schedule {schedule_id}: slot {slot.isoformat()} has {len(keys)} keys: {', '.join(sorted(keys))}"


# Measures.


def _first_calls(stories: dict[UUID, Story]) -> list[Arrival]:
    """The first call of the first attempt of each slot."""
    calls: dict[tuple[UUID, datetime], Arrival] = {}
    for story in stories.values():
        for call in story.arrivals:
            if call.attempt == 1 and not story.allows_manual(call.execution_id, call.slot) and story.allows(call.slot):
                calls.setdefault((call.schedule_id, call.slot), call)
    return list(calls.values())


def _by_faults(
    calls: Iterable[Arrival], faults: Sequence[Fault], settle: timedelta
) -> tuple[list[Arrival], list[Arrival]]:
    """The calls whose slots lie in a fault or in the settling after it, and the others."""
    on_its_way = timedelta(seconds=ON_ITS_WAY_SECONDS)
    inside, outside = [], []
    for call in calls:
        troubled = any(fault.began - on_its_way <= call.slot <= fault.ended + settle for fault in faults)
        (inside if troubled else outside).append(call)
    return inside, outside


def _lateness(calls: Iterable[Arrival]) -> Lateness | None:
    seconds = sorted(_late(call) for call in calls)
    if not seconds:
        return None
    return Lateness(len(seconds), _percentile(seconds, 0.5), _percentile(seconds, 0.99), seconds[-1])


def _percentile(ordered: Sequence[float], part: float) -> float:
    """The smallest value that at least this part of all values does not exceed."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def _recovery(calls: Sequence[Arrival], evidence: Evidence, stories: dict[UUID, Story]) -> dict[UUID, float | None]:
    """For each schedule that is active at the end: when it was on time again, in seconds after the calm."""
    recovered: dict[UUID, float | None] = {
        story.id: None for story in stories.values() if story.row is not None and story.row.status == "active"
    }
    for call in sorted(calls, key=_arrived, reverse=True):
        if call.schedule_id in recovered and call.slot >= evidence.calm and _late(call) < ON_TIME_SECONDS:
            since = _active_since(stories[call.schedule_id], evidence.calm)
            recovered[call.schedule_id] = max(0.0, (call.at - since).total_seconds())
    return recovered


def _active_since(story: Story, calm: datetime) -> datetime:
    """The calm, or the moment at which the schedule was last created or resumed if that is later."""
    began = [
        request.asked
        for request in story.requests
        if request.ack is not Ack.NO and request.verb in {Verb.CREATE, Verb.RESUME}
    ]
    return max([calm, *began])


def _counts(evidence: Evidence, stories: dict[UUID, Story]) -> Counts:
    unfired: Counter[str] = Counter()
    for entry in evidence.ledger:
        unfired[entry.outcome] += entry.slot_count
    scheduled = [row for row in evidence.executions if row.trigger != MANUAL and row.retry_attempt == 0]
    unfired.update(row.unrun_outcome for row in scheduled if row.unrun_outcome is not None)
    return Counts(
        schedules=len(evidence.schedules),
        executions=len(evidence.executions),
        arrivals=len(evidence.arrivals),
        required=sum(len(_required(story)) for story in stories.values()),
        fired=sum(row.unrun_outcome is None for row in scheduled),
        unfired=dict(unfired),
    )


# Small questions about rows and calls.


def _begun(rows: Iterable[ExecutionRow]) -> list[ExecutionRow]:
    return [row for row in rows if row.started_at is not None]


def _started(row: ExecutionRow) -> datetime:
    """When an execution that began did so."""
    return row.started_at or row.scheduled_for


def _arrived(call: Arrival) -> datetime:
    return call.at


def _late(call: Arrival) -> float:
    return (call.at - call.slot).total_seconds()


def _hand_outs(row: ExecutionRow) -> int:
    """How often an execution was given to a worker: its end counts as a change of hands, too."""
    return row.token if row.status in OPEN else row.token - 1


def _was_handed_back(row: ExecutionRow) -> bool:
    return _hand_outs(row) > 1


def _intervened(story: Story, first: datetime, last: datetime) -> bool:
    """Whether somebody may have changed, paused or resumed a schedule between two moments."""
    return any(
        request.asked <= last and last_effect(request, story.faults) >= first
        for request in story.requests
        if request.ack is not Ack.NO and request.verb in {Verb.PATCH, Verb.PAUSE, Verb.RESUME}
    )


def _may_overlap(story: Story, row: ExecutionRow) -> bool:
    """Whether a manual run was asked for whatever else is under way."""
    run = story.manual_run(row.id, row.scheduled_for) if row.trigger == MANUAL else None
    return run is not None and run.overrides


def _called(row: ExecutionRow) -> str:
    return f"execution {row.id} (slot {row.scheduled_for.isoformat()}, retry {row.retry_attempt})"


def _labelled(call: Arrival) -> str:
    return (
        f"the call of execution {call.execution_id} (slot {call.slot.isoformat()}, attempt {call.attempt})"
        f" at {call.at.isoformat()}"
    )


def _section(kind: str, findings: Sequence[str]) -> list[str]:
    """The findings of one kind, not all of them if there are many."""
    shown = [f"  {finding}" for finding in findings[:SHOWN_PER_KIND]]
    more = len(findings) - len(shown)
    return [f"{kind}: {len(findings)}", *shown, *([f"  and {more} more"] if more else [])]
