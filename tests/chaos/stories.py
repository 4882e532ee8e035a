"""All that is known of each schedule, put together from what was asked and what is left."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from tests.chaos.evidence import Ack, Arrival, Evidence, ExecutionRow, Fault, LedgerRow, Request, ScheduleRow, Verb
from tests.chaos.oracle import Expectation, ManualRun, expect, last_effect

OPEN = frozenset({"pending", "running"})
FAILURES = frozenset({"failed", "timed_out", "lost"})
REPEATS = frozenset({"success", "skipped", "blocked"})
MANUAL = "manual"
BACKFILL = "backfill"
BESIDE_CADENCE = frozenset({MANUAL, BACKFILL})

# How much later than the end of the run the tables may have been read.
READING_SECONDS = 2.0


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one schedule."""

    id: UUID
    row: ScheduleRow | None
    requests: list[Request]
    expectation: Expectation
    # All of its executions, and those of the cadence.
    executions: list[ExecutionRow]
    scheduled: list[ExecutionRow]
    by_backfill: frozenset[UUID]
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

    def allows_backfill(self, slot: datetime) -> bool:
        """Whether somebody asked, or may have asked, for a slot to be run after all."""
        return any(span.holds(slot) for span in self.expectation.backfills)

    def may_be_by_backfill(self, call: Arrival) -> bool:
        """Whether a call is that of a backfill, or may be: of a deleted schedule only the calls are left."""
        return call.execution_id in self.by_backfill or (self.row is None and self.allows_backfill(call.slot))

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


def stories_of(evidence: Evidence, settle: timedelta) -> dict[UUID, Story]:
    """The story of every schedule that somebody asked about."""
    requests = _by_schedule(_with_found_ids(evidence), lambda request: request.schedule_id)
    executions = _by_schedule(evidence.executions, lambda row: row.scheduled_job_id)
    ledger = _by_schedule(evidence.ledger, lambda row: row.scheduled_job_id)
    arrivals = _by_schedule(sorted(evidence.arrivals, key=arrived), lambda arrival: arrival.schedule_id)
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
        scheduled=[execution for execution in executions if execution.trigger not in BESIDE_CADENCE],
        by_backfill=frozenset(execution.id for execution in executions if execution.trigger == BACKFILL),
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


def required(story: Story) -> list[datetime]:
    """The slots that must have an outcome at the end: none of a deleted schedule, none after the end of its life."""
    if story.row is None:
        return []
    ends = [end for end in (death_of(story), _last_repeat(story), _pending_retry(story)) if end is not None]
    return [slot for slot in story.expectation.required if all(slot <= end for end in ends)]


def death_of(story: Story) -> datetime | None:
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
    latest = max(begun(story.scheduled), key=started, default=None)
    if row is None or row.next_run_at is None or latest is None or latest.status not in FAILURES:
        return None
    return latest.started_at if row.next_run_at > story.settled else None


def ledger_slots(row: LedgerRow) -> list[datetime]:
    """The slots of an entry, one by one; none if it contradicts itself."""
    if row.slot_count == 1:
        return [row.first_slot] if row.first_slot == row.last_slot else []
    if row.slot_count < 1 or row.last_slot <= row.first_slot:
        return []
    step = (row.last_slot - row.first_slot) / (row.slot_count - 1)
    slots = [row.first_slot + step * number for number in range(row.slot_count)]
    return slots if slots[-1] == row.last_slot else []


# The checks: each yields sentences about one schedule.


def begun(rows: Iterable[ExecutionRow]) -> list[ExecutionRow]:
    """Those that have begun."""
    return [row for row in rows if row.started_at is not None]


def started(row: ExecutionRow) -> datetime:
    """When an execution that began did so."""
    return row.started_at or row.scheduled_for


def arrived(call: Arrival) -> datetime:
    """When it arrived."""
    return call.at


def late(call: Arrival) -> float:
    """How long after its slot, in seconds."""
    return (call.at - call.slot).total_seconds()


def hand_outs(row: ExecutionRow) -> int:
    """How often an execution was given to a worker: its end counts as a change of hands, too."""
    return row.token if row.status in OPEN else row.token - 1


def was_handed_back(row: ExecutionRow) -> bool:
    """Whether others have had it too."""
    return hand_outs(row) > 1


def intervened(story: Story, first: datetime, last: datetime) -> bool:
    """Whether somebody may have changed, paused or resumed a schedule between two moments."""
    return any(
        request.asked <= last and last_effect(request, story.faults) >= first
        for request in story.requests
        if request.ack is not Ack.NO and request.verb in {Verb.PATCH, Verb.PAUSE, Verb.RESUME}
    )


def may_overlap(story: Story, row: ExecutionRow) -> bool:
    """Whether a manual run was asked for whatever else is under way."""
    run = story.manual_run(row.id, row.scheduled_for) if row.trigger == MANUAL else None
    return run is not None and run.overrides


def called(row: ExecutionRow) -> str:
    """How it is called in findings."""
    return f"execution {row.id} (slot {row.scheduled_for.isoformat()}, retry {row.retry_attempt})"


def labelled(call: Arrival) -> str:
    """What a call says of itself."""
    return (
        f"the call of execution {call.execution_id} (slot {call.slot.isoformat()}, attempt {call.attempt})"
        f" at {call.at.isoformat()}"
    )
