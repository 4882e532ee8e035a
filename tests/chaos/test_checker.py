"""The checker finds nothing in sound histories, and whatever is broken in broken ones."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache
from itertools import islice, pairwise
from typing import Any, TypeVar
from uuid import UUID

import pytest
from msgspec.structs import replace

from tests.chaos.checker import check
from tests.chaos.evidence import (
    Ack,
    Arrival,
    Crowd,
    Evidence,
    ExecutionRow,
    Fault,
    LedgerRow,
    Request,
    ScheduleRow,
    Verb,
)
from tests.chaos.made_up import BEGAN, CAST, ENDED, SETTLE_SECONDS, history
from tests.chaos.oracle import Expectation, Span, expect
from tests.chaos.report import KINDS, Report

SEEDS = range(20)
# In so many histories each thing is broken.
BROKEN_HISTORIES = 2

SECOND = timedelta(seconds=1)
SCHEDULE, OTHER = UUID(int=1), UUID(int=2)

T = TypeVar("T")
Mutation = Callable[[Evidence, random.Random], Evidence]


def known(moment: datetime | None) -> datetime:
    """Return a time that the evidence must have."""
    assert moment is not None
    return moment


def at(seconds: float) -> datetime:
    """A moment of the made-up time."""
    return BEGAN + timedelta(seconds=seconds)


# The oracle, by examples.


def request(verb: Verb, asked: float, answered: float, ack: Ack = Ack.YES, **answer: Any) -> Request:
    """A request with its times in seconds; ``anchor`` in the answer stands for the first slot after it."""
    anchor = answer.pop("anchor", None)
    if anchor is not None:
        answer["next_slot"] = at(anchor + answer["interval_seconds"]).isoformat()
    body = answer.pop("body", {})
    return Request(
        schedule_id=SCHEDULE,
        verb=verb,
        asked=at(asked),
        answered=at(answered),
        ack=ack,
        body=body,
        answer=answer or None,
    )


CREATED = request(Verb.CREATE, 0, 0.2, status="active", interval_seconds=2, anchor=0.1)
PAUSED = request(Verb.PAUSE, 5, 6.5, status="paused", interval_seconds=2)
RESUMED = request(Verb.RESUME, 10, 10.4, status="active", interval_seconds=2, anchor=10.2)
FASTER = request(Verb.PATCH, 5, 6.5, status="active", interval_seconds=3, anchor=5.3, body={"interval_seconds": 3})
RENAMED = request(Verb.PATCH, 3, 5, status="active", interval_seconds=2, anchor=4.1, name="b", body={"name": "b"})
MAYBE_PAUSED = request(Verb.PAUSE, 3, 3.5, Ack.UNKNOWN)
MAYBE_RESUMED = request(Verb.RESUME, 10, 10.4, Ack.UNKNOWN)
MAYBE_FASTER = request(Verb.PATCH, 3, 3.5, Ack.UNKNOWN, body={"interval_seconds": 1})
MAYBE_RENAMED = request(Verb.PATCH, 3, 3.5, Ack.UNKNOWN, body={"name": "c"})
MAYBE_DELETED = request(Verb.DELETE, 3, 3.5, Ack.UNKNOWN)
REFUSED = request(Verb.PAUSE, 3, 3.5, Ack.NO)
DELETED = request(Verb.DELETE, 5, 6.5)
SEEN_AS_BEFORE = request(Verb.PATCH, 9, 9.5, status="active", interval_seconds=2, anchor=8.1)
SEEN_TOO_SOON = request(Verb.PATCH, 8, 8.3, status="active", interval_seconds=2, anchor=6.1)
SEEN_OTHERWISE = request(Verb.PATCH, 17, 17.5, status="active", interval_seconds=2, anchor=16.7)
SEEN_RETRYING = request(Verb.PATCH, 9, 9.5, status="active", interval_seconds=2, anchor=0.1, current_retry=1)
SEEN_PAUSED = request(Verb.PATCH, 9, 9.5, status="paused", interval_seconds=2)
FOUND_LATER = request(
    Verb.CREATE, 0.1, 0.1, status="active", interval_seconds=2, anchor=6.1, created_at=at(0.1).isoformat()
)


@pytest.mark.parametrize(
    ("requests", "required", "only_possible", "unknown"),
    [
        pytest.param([CREATED], [2.1, 4.1, 6.1, 8.1, 10.1, 12.1], [14.1], [], id="created"),
        pytest.param([CREATED, REFUSED], [2.1, 4.1, 6.1, 8.1, 10.1, 12.1], [14.1], [], id="refused"),
        pytest.param([CREATED, PAUSED], [2.1, 4.1], [6.1], [], id="paused"),
        pytest.param([CREATED, PAUSED, RESUMED], [2.1, 4.1, 12.2], [6.1, 14.2], [], id="resumed"),
        pytest.param([CREATED, FASTER], [2.1, 4.1, 8.3, 11.3], [6.1, 14.3], [], id="another interval"),
        pytest.param([CREATED, RENAMED], [2.1, 4.1, 6.1, 8.1, 10.1, 12.1], [14.1], [], id="another name"),
        pytest.param([CREATED, DELETED], [2.1, 4.1], [6.1], [], id="deleted"),
        pytest.param([CREATED, MAYBE_PAUSED], [2.1], [4.1, 6.1, 8.1, 10.1, 12.1, 14.1], [], id="perhaps paused"),
        pytest.param([CREATED, MAYBE_DELETED], [2.1], [4.1, 6.1, 8.1, 10.1, 12.1, 14.1], [], id="perhaps deleted"),
        pytest.param([CREATED, MAYBE_RENAMED], [2.1, 4.1, 6.1, 8.1, 10.1, 12.1], [14.1], [], id="perhaps renamed"),
        pytest.param(
            [CREATED, MAYBE_PAUSED, SEEN_AS_BEFORE],
            [2.1, 4.1, 6.1, 8.1, 10.1, 12.1],
            [14.1],
            [],
            id="seen to have gone on",
        ),
        pytest.param(
            [CREATED, MAYBE_PAUSED, SEEN_TOO_SOON],
            [2.1],
            [4.1, 6.1, 8.1, 10.1, 12.1, 14.1],
            [],
            id="seen before a straggler is over",
        ),
        pytest.param(
            [CREATED, MAYBE_PAUSED, SEEN_RETRYING],
            [2.1],
            [4.1, 6.1, 8.1, 10.1, 12.1, 14.1],
            [(9, 15)],
            id="seen with a slot that may be a retry's",
        ),
        pytest.param([CREATED, MAYBE_PAUSED, SEEN_PAUSED], [2.1], [4.1, 6.1, 8.1], [], id="seen to be paused"),
        pytest.param(
            [CREATED, MAYBE_FASTER], [2.1], [4.1, 6.1, 8.1, 10.1, 12.1, 14.1], [(4, 15)], id="perhaps another interval"
        ),
        pytest.param([CREATED, PAUSED, MAYBE_RESUMED], [2.1, 4.1], [6.1], [(12, 15)], id="perhaps resumed"),
        pytest.param([FOUND_LATER], [2.1, 4.1, 6.1, 8.1, 10.1, 12.1], [14.1], [], id="found out later"),
    ],
)
def test_what_requests_let_one_expect(
    requests: Sequence[Request], required: list[float], only_possible: list[float], unknown: list[tuple[float, float]]
) -> None:
    """Slots are certain, possible or neither, to the microsecond."""
    expected = expectation(requests)

    assert [at(second) for second in required] == expected.required
    assert sorted(at(second) for second in [*required, *only_possible]) == expected.possible
    assert [Span(at(first), at(last)) for first, last in unknown] == expected.unknown
    assert ([], []) == (expected.broken, expected.surprises)


def test_a_cadence_of_unknown_beginning_is_certain_once_it_is_shown() -> None:
    """Until then anything is possible, from one interval after the question on."""
    requests = [CREATED, PAUSED, MAYBE_RESUMED, SEEN_OTHERWISE]
    expected = expect(requests, [], required_until=at(22), possible_until=at(22))

    assert [at(2.1), at(4.1), at(18.7), at(20.7)] == expected.required
    assert [Span(at(12), at(17.5))] == expected.unknown


def test_a_fault_lets_requests_straggle_until_after_its_end() -> None:
    """What was swallowed by it may come to light then."""
    fault = Fault("database away", at(2), at(5))
    requests = [CREATED, MAYBE_PAUSED, SEEN_AS_BEFORE]
    expected = expect(requests, [fault], required_until=at(13), possible_until=at(15))

    assert [at(2.1)] == expected.required


def test_a_schedule_that_paused_by_itself_is_a_surprise() -> None:
    """Nothing is certain since an answer showed it active for the last time."""
    expected = expectation([CREATED, SEEN_PAUSED])

    assert [] == expected.required
    assert [at(2.1), at(4.1), at(6.1), at(8.1)] == expected.possible
    assert 1 == len(expected.surprises)


def test_a_first_slot_must_be_one_interval_after_its_request() -> None:
    """An answer cannot choose a cadence as it likes."""
    expected = expectation([CREATED, replace(RESUMED, asked=at(10.4), answered=at(10.5))])

    assert 1 == len(expected.broken)


@pytest.mark.parametrize(
    ("requests", "name"),
    [
        pytest.param([RENAMED], ["b"], id="acknowledged"),
        pytest.param([RENAMED, replace(MAYBE_RENAMED, asked=at(6), answered=at(7))], ["b", "c"], id="perhaps changed"),
        pytest.param([MAYBE_RENAMED, replace(RENAMED, asked=at(4))], ["b", "c"], id="perhaps overtaken"),
        pytest.param([MAYBE_RENAMED, replace(RENAMED, asked=at(9))], ["b"], id="certainly later"),
    ],
)
def test_what_a_field_may_hold(requests: list[Request], name: list[str]) -> None:
    """The last acknowledged value, and whatever may have been written since."""
    assert name == expectation([CREATED, *requests]).values["name"]


@pytest.mark.parametrize(
    ("requests", "exists"),
    [
        pytest.param([CREATED], True, id="created"),
        pytest.param([CREATED, DELETED], False, id="deleted"),
        pytest.param([CREATED, MAYBE_DELETED], None, id="perhaps deleted"),
        pytest.param([CREATED, MAYBE_DELETED, SEEN_AS_BEFORE], True, id="seen later"),
        pytest.param([replace(CREATED, ack=Ack.UNKNOWN, answer=None)], None, id="perhaps created"),
    ],
)
def test_whether_a_schedule_must_be_there(requests: list[Request], exists: bool | None) -> None:
    """It must, it must not, or nobody can tell."""
    assert exists is expectation(requests).exists


def expectation(requests: Sequence[Request]) -> Expectation:
    """What is required in the first 13 s, and possible in the first 15."""
    return expect(requests, [], required_until=at(13), possible_until=at(15))


# Sound histories.


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_found_in_a_sound_history(seed: int) -> None:
    """No finding of any kind, and most slots were looked at."""
    report = checked(sound(seed))

    assert {} == found(report), "\n".join(report.lines())
    assert report.ok
    assert report.counts.required > 100


def test_sound_histories_contain_everything_that_may_happen() -> None:
    """Or else finding nothing in them would prove little."""
    histories = [sound(seed) for seed in SEEDS]
    executions = [row for evidence in histories for row in evidence.executions]
    ledger = [row for evidence in histories for row in evidence.ledger]
    asked = {(request.verb, request.ack) for evidence in histories for request in evidence.requests}

    assert {"active", "paused", "dead", "done"} == {row.status for made in histories for row in made.schedules}
    assert {"missed", "skipped_overlap", "skipped_retry"} == {row.outcome for row in ledger}
    assert {"missed", "skipped_retry"} == {row.outcome for row in ledger if row.slot_count > 1}
    assert {"success", "failed", "timed_out", "lost", "cancelled", "running"} == {row.status for row in executions}
    assert any(row.token == 3 for row in executions)
    assert any(row.retry_attempt > 1 for row in executions)
    assert {(verb, ack) for verb in {*Verb} - {Verb.SKIP, Verb.BACKFILL} for ack in (Ack.YES, Ack.UNKNOWN)} <= asked
    assert any(len(evidence.schedules) < len(CAST) for evidence in histories)


# Broken histories.


def drop_execution(evidence: Evidence, chance: random.Random) -> Evidence:
    """The only attempt of a slot is not in the tables."""
    row = pick(chance, firm_executions(evidence))
    return replace(evidence, executions=without(evidence.executions, row))


def drop_first_attempt(evidence: Evidence, chance: random.Random) -> Evidence:
    """A retry is there, what it retries is not."""
    row = pick(chance, retried(evidence))
    return replace(evidence, executions=without(evidence.executions, row))


def drop_retries(evidence: Evidence, chance: random.Random) -> Evidence:
    """A failure is not followed by a retry."""
    row = pick(chance, retried(evidence))
    label = (row.scheduled_job_id, row.scheduled_for)
    executions = [
        other for other in evidence.executions if other == row or (other.scheduled_job_id, other.scheduled_for) != label
    ]
    return replace(evidence, executions=executions)


def drop_call(evidence: Evidence, chance: random.Random) -> Evidence:
    """A run succeeded, and the target has not seen it."""
    call = call_of(evidence, pick(chance, firm_executions(evidence)))
    return replace(evidence, arrivals=without(evidence.arrivals, call))


def drop_entry(evidence: Evidence, chance: random.Random) -> Evidence:
    """A slot that did not fire is not in the ledger."""
    row = pick(chance, firm_entries(evidence))
    return replace(evidence, ledger=without(evidence.ledger, row))


def shorten_range(evidence: Evidence, chance: random.Random) -> Evidence:
    """A range ends one slot too soon."""
    row = pick(chance, firm_ranges(evidence))
    step = (row.last_slot - row.first_slot) / (row.slot_count - 1)
    shorter = replace(row, last_slot=row.last_slot - step, slot_count=row.slot_count - 1)
    return replace(evidence, ledger=exchanged(evidence.ledger, row, shorter))


def miscount_range(evidence: Evidence, chance: random.Random) -> Evidence:
    """A range has its ends, but not its number of slots."""
    row = pick(chance, firm_ranges(evidence))
    return replace(evidence, ledger=exchanged(evidence.ledger, row, replace(row, slot_count=row.slot_count + 1)))


def shift_range(evidence: Evidence, chance: random.Random) -> Evidence:
    """A range lies beside the cadence."""
    row = pick(chance, firm_ranges(evidence))
    beside = timedelta(milliseconds=1)
    shifted = replace(row, first_slot=row.first_slot + beside, last_slot=row.last_slot + beside)
    return replace(evidence, ledger=exchanged(evidence.ledger, row, shifted))


def repeat_execution(evidence: Evidence, chance: random.Random) -> Evidence:
    """An attempt was executed under a second id."""
    row = pick(chance, firm_executions(evidence))
    return replace(evidence, executions=[*evidence.executions, replace(row, id=some_id(chance))])


def enter_fired_slot(evidence: Evidence, chance: random.Random) -> Evidence:
    """A slot that fired is in the ledger, too."""
    row = pick(chance, firm_executions(evidence))
    slot = row.scheduled_for
    entry = LedgerRow(
        scheduled_job_id=row.scheduled_job_id, first_slot=slot, last_slot=slot, slot_count=1, outcome="missed"
    )
    return replace(evidence, ledger=[*evidence.ledger, entry])


def repeat_entry(evidence: Evidence, chance: random.Random) -> Evidence:
    """A slot is in the ledger twice, the second time within a range or by itself."""
    row = pick(chance, firm_entries(evidence))
    again = replace(row, last_slot=row.first_slot, slot_count=1)
    return replace(evidence, ledger=[*evidence.ledger, again])


def repeat_call(evidence: Evidence, chance: random.Random) -> Evidence:
    """A call arrived twice although its run was never handed back."""
    call = call_of(evidence, pick(chance, firm_executions(evidence)))
    again = replace(call, at=call.at + timedelta(milliseconds=1))
    return replace(evidence, arrivals=[*evidence.arrivals, again])


def call_once_too_often(evidence: Evidence, chance: random.Random) -> Evidence:
    """A run that was handed back once called three times."""
    row = pick(chance, [row for row in evidence.executions if row.token == 3 and row.status == "success"])
    call = call_of(evidence, row)
    again = replace(call, at=call.at + timedelta(milliseconds=1))
    return replace(evidence, arrivals=[*evidence.arrivals, again])


def call_under_another_id(evidence: Evidence, chance: random.Random) -> Evidence:
    """An attempt of a deleted schedule arrived under two ids."""
    call = pick(chance, [call for call in evidence.arrivals if call.schedule_id in deleted(evidence)])
    return replace(evidence, arrivals=[*evidence.arrivals, replace(call, execution_id=some_id(chance))])


def shift_execution(evidence: Evidence, chance: random.Random) -> Evidence:
    """An execution says that it is for a slot one second later."""
    row = pick(chance, firm_executions(evidence))
    shifted = replace(row, scheduled_for=row.scheduled_for + SECOND)
    return replace(evidence, executions=exchanged(evidence.executions, row, shifted))


def call_early(evidence: Evidence, chance: random.Random) -> Evidence:
    """A call arrived before its slot."""
    call = call_of(evidence, pick(chance, firm_executions(evidence)))
    early = replace(call, at=call.slot - timedelta(microseconds=1))
    return replace(evidence, arrivals=exchanged(evidence.arrivals, call, early))


def start_early(evidence: Evidence, chance: random.Random) -> Evidence:
    """A run started before its slot."""
    row = pick(chance, firm_executions(evidence))
    early = replace(row, started_at=row.scheduled_for - timedelta(microseconds=1))
    return replace(evidence, executions=exchanged(evidence.executions, row, early))


def relabel_slot(evidence: Evidence, chance: random.Random) -> Evidence:
    """A call carries the slot before its own."""
    call, earlier = firm_neighbours(evidence, chance)
    return replace(evidence, arrivals=exchanged(evidence.arrivals, call, replace(call, slot=earlier.slot)))


def relabel_schedule(evidence: Evidence, chance: random.Random) -> Evidence:
    """A call carries another schedule."""
    call = call_of(evidence, pick(chance, firm_executions(evidence)))
    other = pick(chance, sorted({row.id for row in evidence.schedules} - {call.schedule_id}))
    return replace(evidence, arrivals=exchanged(evidence.arrivals, call, replace(call, schedule_id=other)))


def relabel_attempt(evidence: Evidence, chance: random.Random) -> Evidence:
    """A call carries the number of the next attempt."""
    call = call_of(evidence, pick(chance, firm_executions(evidence)))
    return replace(evidence, arrivals=exchanged(evidence.arrivals, call, replace(call, attempt=call.attempt + 1)))


def swap_labels(evidence: Evidence, chance: random.Random) -> Evidence:
    """Two calls carry each other's labels, all of them."""
    call, other = firm_neighbours(evidence, chance)
    arrivals = exchanged(evidence.arrivals, call, replace(other, at=call.at))
    return replace(evidence, arrivals=exchanged(arrivals, other, replace(call, at=other.at)))


def confuse_keys(evidence: Evidence, chance: random.Random) -> Evidence:
    """A call carries the idempotency key of another slot."""
    call, other = firm_neighbours(evidence, chance)
    return replace(evidence, arrivals=exchanged(evidence.arrivals, call, replace(call, key=other.key)))


def overlap_executions(evidence: Evidence, chance: random.Random) -> Evidence:
    """A run ends only after the next one has begun."""
    call, earlier = firm_neighbours(evidence, chance)
    rows = {row.id: row for row in evidence.executions}
    row, following = rows[earlier.execution_id], rows[call.execution_id]
    longer = replace(row, finished_at=known(following.started_at) + timedelta(milliseconds=1))
    return replace(evidence, executions=exchanged(evidence.executions, row, longer))


def miscount(counter: str) -> Mutation:
    """A counter is one too high."""

    def mutate(evidence: Evidence, chance: random.Random) -> Evidence:
        row = pick(chance, firm_schedules(evidence))
        return change_schedule(evidence, row, **{counter: getattr(row, counter) + 1})

    mutate.__name__ = f"miscount_{counter}"
    return mutate


def forget(field: str, value: Any) -> Mutation:
    """An acknowledged value is not there any more."""

    def mutate(evidence: Evidence, chance: random.Random) -> Evidence:
        return change_schedule(evidence, pick(chance, firm_schedules(evidence)), **{field: value})

    mutate.__name__ = f"forget_{field}"
    return mutate


def forget_patch(evidence: Evidence, chance: random.Random) -> Evidence:
    """A field holds what it held before the last acknowledged change."""
    candidates = [
        (row, field, asked.body[field])
        for row in firm_schedules(evidence)
        for asked in evidence.requests
        for field in asked.body
        if asked.schedule_id == row.id and asked.body[field] != getattr(row, field, asked.body[field])
    ]
    row, field, before = pick(chance, candidates)
    return change_schedule(evidence, row, **{field: before})


def forget_pause(evidence: Evidence, chance: random.Random) -> Evidence:
    """A schedule is active although its pause was acknowledged."""
    paused = [row for row in evidence.schedules if row.status == "paused" and row.id not in unsure(evidence)]
    row = pick(chance, paused)
    return change_schedule(evidence, row, status="active", next_slot=ENDED + SECOND, next_run_at=ENDED + SECOND)


def forget_manual_run(evidence: Evidence, chance: random.Random) -> Evidence:
    """An acknowledged run is not there."""
    firm = {row.id for row in firm_schedules(evidence)}
    row = pick(chance, [row for row in evidence.executions if row.trigger == "manual" and row.scheduled_job_id in firm])
    return replace(evidence, executions=without(evidence.executions, row))


def resurrect(evidence: Evidence, chance: random.Random) -> Evidence:
    """A schedule is there although its deletion was acknowledged."""
    template = pick(chance, firm_schedules(evidence))
    risen = replace(template, id=pick(chance, deleted(evidence)), run_count=0, error_count=0, current_repeat=0)
    return replace(evidence, schedules=[*evidence.schedules, risen])


def remove(evidence: Evidence, chance: random.Random) -> Evidence:
    """A schedule is gone although nobody deleted it."""
    gone = pick(chance, firm_schedules(evidence)).id
    return replace(
        evidence,
        schedules=[row for row in evidence.schedules if row.id != gone],
        executions=[row for row in evidence.executions if row.scheduled_job_id != gone],
        ledger=[row for row in evidence.ledger if row.scheduled_job_id != gone],
    )


def call_in_a_pause(evidence: Evidence, chance: random.Random) -> Evidence:
    """A call arrived for a slot at which the schedule was certainly paused."""
    schedule_id, slot = pick(chance, slots_in_pauses(evidence))
    template = pick(chance, [call for call in evidence.arrivals if call.schedule_id == schedule_id])
    call = replace(template, slot=slot, at=slot + SECOND, execution_id=some_id(chance), key="k")
    return replace(evidence, arrivals=[*evidence.arrivals, call])


def execute_in_a_pause(evidence: Evidence, chance: random.Random) -> Evidence:
    """An execution is for a slot at which the schedule was certainly paused."""
    schedule_id, slot = pick(chance, slots_in_pauses(evidence))
    template = pick(chance, [row for row in evidence.executions if row.scheduled_job_id == schedule_id])
    row = replace(
        template,
        id=some_id(chance),
        trigger="schedule",
        scheduled_for=slot,
        started_at=slot,
        finished_at=slot,
        retry_attempt=0,
        status="cancelled",
    )
    return replace(evidence, executions=[*evidence.executions, row])


def call_after_deletion(evidence: Evidence, chance: random.Random) -> Evidence:
    """A call arrived for a slot after an acknowledged deletion."""
    gone = pick(chance, deleted(evidence))
    template = pick(chance, [call for call in evidence.arrivals if call.schedule_id == gone])
    slot = max(asked.answered for asked in evidence.requests if asked.schedule_id == gone and asked.ack is Ack.YES)
    interval = asked_interval(evidence, gone)
    slot = template.slot + interval * (1 + (slot - template.slot) // interval)
    call = replace(template, slot=slot, at=slot + SECOND, execution_id=some_id(chance), key="k")
    return replace(evidence, arrivals=[*evidence.arrivals, call])


def leave_orphans(evidence: Evidence, chance: random.Random) -> Evidence:
    """An execution is there, its schedule is deleted."""
    row = pick(chance, firm_executions(evidence))
    orphan = replace(row, id=some_id(chance), scheduled_job_id=pick(chance, deleted(evidence)))
    return replace(evidence, executions=[*evidence.executions, orphan])


def call_for_a_stranger(evidence: Evidence, chance: random.Random) -> Evidence:
    """A call carries a schedule that nobody created."""
    call = call_of(evidence, pick(chance, firm_executions(evidence)))
    return replace(evidence, arrivals=[*evidence.arrivals, replace(call, schedule_id=some_id(chance), path="/x")])


def run_by_nobody(evidence: Evidence, chance: random.Random) -> Evidence:
    """A manual run was never asked for."""
    row = pick(chance, firm_executions(evidence))
    return replace(evidence, executions=exchanged(evidence.executions, row, replace(row, trigger="manual")))


def fire_after_death(evidence: Evidence, chance: random.Random) -> Evidence:
    """A dead schedule fired once more."""
    row = pick(chance, [row for row in evidence.schedules if row.status == "dead" and row.id not in unsure(evidence)])
    own = [other for other in evidence.executions if other.scheduled_job_id == row.id and other.trigger == "schedule"]
    last = max(own, key=lambda other: (other.finished_at, other.scheduled_for))
    slot = last.scheduled_for
    while slot <= known(last.finished_at):
        slot += timedelta(seconds=row.interval_seconds)
    again = replace(
        last,
        id=some_id(chance),
        scheduled_for=slot,
        started_at=slot,
        finished_at=slot,
        retry_attempt=0,
        status="cancelled",
    )
    return replace(evidence, executions=[*evidence.executions, again])


def leave_running(evidence: Evidence, chance: random.Random) -> Evidence:
    """A run has begun long ago and not ended."""
    row = pick(chance, firm_executions(evidence))
    left = replace(row, status="running", finished_at=None, token=1)
    return replace(evidence, executions=exchanged(evidence.executions, row, left))


def leave_pending(evidence: Evidence, chance: random.Random) -> Evidence:
    """A run has never begun."""
    row = pick(chance, firm_executions(evidence))
    left = replace(row, status="pending", started_at=None, finished_at=None, token=1)
    return replace(evidence, executions=exchanged(evidence.executions, row, left))


def plan_nothing(evidence: Evidence, chance: random.Random) -> Evidence:
    """An active schedule has no next run, and none under way."""
    busy = {row.scheduled_job_id for row in evidence.executions if row.status == "running"}
    row = pick(chance, [row for row in firm_schedules(evidence) if row.id not in busy])
    return change_schedule(evidence, row, next_run_at=None)


def fall_behind(evidence: Evidence, chance: random.Random) -> Evidence:
    """An active schedule should have run long ago."""
    return change_schedule(evidence, pick(chance, firm_schedules(evidence)), next_run_at=at(100))


def beside(evidence: Evidence, row: ExecutionRow, verb: Verb, body: Any = None, answer: Any = None) -> list[Request]:
    """The requests, with one about the slot of a run, long before its end."""
    asked = Request(
        schedule_id=row.scheduled_job_id,
        verb=verb,
        asked=row.scheduled_for,
        answered=row.scheduled_for,
        ack=Ack.YES,
        body=body or {},
        answer=answer,
    )
    return [*evidence.requests, asked]


def fire_a_skipped_slot(evidence: Evidence, chance: random.Random) -> Evidence:
    """A slot fired that was to be skipped."""
    row = pick(chance, firm_executions(evidence))
    skipped = {"skipped": [row.scheduled_for.isoformat()]}
    return replace(evidence, requests=beside(evidence, row, Verb.SKIP, answer=skipped))


def backfilled(evidence: Evidence, row: ExecutionRow, number: int, *, asked: bool) -> Evidence:
    """Runs of a slot by a backfill, beside the run that it had."""
    runs = [replace(row, id=UUID(int=2**100 + one), trigger="backfill", status="failed") for one in range(number)]
    span = {"from": (row.scheduled_for - SECOND).isoformat(), "to": (row.scheduled_for + SECOND).isoformat()}
    requests = beside(evidence, row, Verb.BACKFILL, span) if asked else evidence.requests
    return replace(evidence, executions=[*evidence.executions, *runs], requests=requests)


def backfill_by_nobody(evidence: Evidence, chance: random.Random) -> Evidence:
    """A slot was run by a backfill that was never asked for."""
    return backfilled(evidence, pick(chance, firm_executions(evidence)), 1, asked=False)


def backfill_twice(evidence: Evidence, chance: random.Random) -> Evidence:
    """One backfill ran a slot twice."""
    return backfilled(evidence, pick(chance, firm_executions(evidence)), 2, asked=True)


def exceed_a_limit(evidence: Evidence, chance: random.Random) -> Evidence:
    """Two runs of one limit were under way at once, where one is allowed."""
    row = pick(chance, firm_executions(evidence))
    long = replace(row, finished_at=known(row.finished_at) + SECOND)
    other = replace(long, id=some_id(chance), trigger="backfill", started_at=known(long.finished_at) - SECOND / 2)
    schedule = next(one for one in evidence.schedules if one.id == row.scheduled_job_id)
    limited = change_schedule(evidence, schedule, limit="one")
    executions = [*exchanged(limited.executions, row, long), other]
    span = {"from": (row.scheduled_for - SECOND).isoformat(), "to": (row.scheduled_for + SECOND).isoformat()}
    requests = beside(evidence, row, Verb.BACKFILL, span)
    return replace(limited, executions=executions, requests=requests, bounds={"one": 1})


def crowd_the_target(evidence: Evidence, _: random.Random) -> Evidence:
    """The target had two calls at once after the last fault, where one is allowed."""
    return replace(evidence, bounds={"one": 1}, crowds=[Crowd(evidence.ended, "one", 2)], faults=[])


MUTATIONS: list[tuple[Mutation, str]] = [
    (fire_a_skipped_slot, "phantom"),
    (backfill_by_nobody, "phantom"),
    (backfill_twice, "duplicate"),
    (exceed_a_limit, "overlap"),
    (crowd_the_target, "overlap"),
    (drop_execution, "lost"),
    (drop_execution, "phantom"),
    (drop_execution, "counters"),
    (drop_first_attempt, "lost"),
    (drop_retries, "lost"),
    (drop_call, "lost"),
    (drop_entry, "lost"),
    (shorten_range, "lost"),
    (miscount_range, "phantom"),
    (shift_range, "phantom"),
    (shift_range, "lost"),
    (repeat_execution, "duplicate"),
    (enter_fired_slot, "duplicate"),
    (repeat_entry, "duplicate"),
    (repeat_call, "duplicate"),
    (repeat_call, "mislabelled"),
    (call_once_too_often, "duplicate"),
    (call_under_another_id, "duplicate"),
    (shift_execution, "lost"),
    (call_early, "early"),
    (start_early, "early"),
    (relabel_slot, "mislabelled"),
    (relabel_schedule, "mislabelled"),
    (relabel_attempt, "mislabelled"),
    (swap_labels, "mislabelled"),
    (confuse_keys, "mislabelled"),
    (overlap_executions, "overlap"),
    (miscount("run_count"), "counters"),
    (miscount("error_count"), "counters"),
    (miscount("current_repeat"), "counters"),
    (forget("name", "nobody's"), "writes"),
    (forget("interval_seconds", 9), "writes"),
    (forget("max_retries", 7), "writes"),
    (forget("trigger_payload", {"y": 1}), "writes"),
    (forget("status", "paused"), "writes"),
    (forget_patch, "writes"),
    (forget_pause, "writes"),
    (forget_manual_run, "writes"),
    (resurrect, "writes"),
    (remove, "writes"),
    (call_in_a_pause, "phantom"),
    (execute_in_a_pause, "phantom"),
    (call_after_deletion, "phantom"),
    (leave_orphans, "phantom"),
    (call_for_a_stranger, "phantom"),
    (run_by_nobody, "phantom"),
    (fire_after_death, "phantom"),
    (leave_running, "unsettled"),
    (leave_pending, "unsettled"),
    (plan_nothing, "unsettled"),
    (fall_behind, "unsettled"),
]


@pytest.mark.parametrize(
    ("mutate", "kind"), [pytest.param(mutate, kind, id=f"{mutate.__name__}: {kind}") for mutate, kind in MUTATIONS]
)
def test_what_is_broken_is_found(mutate: Mutation, kind: str) -> None:
    """Each under the kind that fits, and the report is not ok."""
    broken = list(islice(broken_histories(mutate), BROKEN_HISTORIES))

    assert BROKEN_HISTORIES == len(broken)
    for evidence in broken:
        report = checked(evidence)
        assert kind in found(report), "\n".join(report.lines())
        assert not report.ok


def test_a_backfill_leaves_the_live_history_as_it_was() -> None:
    """Its run has a slot that fired, beside other runs; the counters and the cadence do not know it."""
    evidence = sound(0)
    report = checked(backfilled(evidence, firm_executions(evidence)[0], 1, asked=True))
    assert {} == found(report), "\n".join(report.lines())


def broken_histories(mutate: Mutation) -> Iterator[Evidence]:
    """Sound histories that were broken, where there is something to break."""
    for seed in SEEDS:
        with suppress(NothingToBreakError):
            yield mutate(sound(seed), random.Random(seed))


def test_a_schedule_that_poisoned_itself_is_named_and_loses_nothing() -> None:
    """It counts as paused since it was last seen active."""
    evidence = sound(0)
    row = next(row for row in firm_schedules(evidence) if count_of_requests(evidence, row.id) == 1)
    until = at(110)
    kept = [other for other in evidence.executions if other.scheduled_job_id != row.id or other.scheduled_for < until]
    ended = [other for other in kept if other.scheduled_job_id == row.id and other.status == "success"]
    evidence = replace(
        change_schedule(
            evidence,
            row,
            status="paused",
            status_reason="poisoned",
            next_run_at=None,
            run_count=len(ended),
            current_repeat=len(ended),
        ),
        executions=kept,
        arrivals=[call for call in evidence.arrivals if call.schedule_id != row.id or call.slot < until],
        ledger=[other for other in evidence.ledger if other.scheduled_job_id != row.id or other.last_slot < until],
    )
    report = checked(evidence)

    assert {"poisoned"} == set(found(report)), "\n".join(report.lines())
    assert report.ok


# Measures and words.


def steady(fault: Fault, late_seconds: Callable[[datetime], float]) -> Evidence:
    """One schedule that fires every two seconds for a minute, so much late."""
    created = replace(CREATED, body={"name": "steady"})
    slots = [at(0.1 + 2 * number) for number in range(1, 30)]
    calls = [
        Arrival(
            at=slot + timedelta(seconds=late_seconds(slot)),
            path="/steady",
            schedule_id=SCHEDULE,
            execution_id=UUID(int=number),
            slot=slot,
            attempt=1,
            key=str(slot),
        )
        for number, slot in enumerate(slots, start=10)
    ]
    return Evidence(
        requests=[created],
        arrivals=calls,
        executions=[run_of(call) for call in calls],
        ledger=[],
        schedules=[steady_row(len(slots))],
        faults=[fault],
        began=BEGAN,
        calm=fault.ended,
        ended=at(59),
    )


def run_of(call: Arrival) -> ExecutionRow:
    """The execution that made a call."""
    return ExecutionRow(
        id=call.execution_id,
        scheduled_job_id=call.schedule_id,
        trigger="schedule",
        status="success",
        retry_attempt=0,
        repeat_number=0,
        scheduled_for=call.slot,
        started_at=call.at,
        finished_at=call.at + timedelta(milliseconds=1),
        token=2,
    )


def steady_row(runs: int) -> ScheduleRow:
    """The schedule that fires every two seconds, after so many runs."""
    return ScheduleRow(
        id=SCHEDULE,
        name="steady",
        status="active",
        status_reason="",
        interval_seconds=2,
        if_running="skip",
        max_retries=3,
        total_repeats=0,
        trigger_payload={},
        current_repeat=runs,
        current_retry=0,
        run_count=runs,
        error_count=0,
        next_slot=at(60.1),
        next_run_at=at(60.1),
        created_at=at(0.1),
    )


def test_lateness_and_recovery_are_measured_inside_and_outside_of_faults() -> None:
    """A slow time is a fault's if it lies in it or within the settling after it."""
    fault = Fault("slow", at(20), at(30))
    evidence = steady(fault, lambda slot: 1.5 if at(20) <= slot <= at(33) else 0.25)
    report = check(evidence, settle_seconds=5)

    assert {} == found(report), "\n".join(report.lines())
    # The slots from 20.1 to 34.1 s are the fault's, seven of them slow.
    assert (8, 1.5, 1.5, 1.5) == measured(report.lateness_inside)
    assert (21, 0.25, 0.25, 0.25) == measured(report.lateness_outside)
    # Calm at 30 s; the first slot on time is that of 34.1 s.
    assert 4.35 == pytest.approx(report.slowest_recovery)
    assert [] == report.unrecovered


def test_a_schedule_that_is_never_on_time_again_is_named() -> None:
    """Though that is a measure, not a finding."""
    report = check(steady(Fault("slow", at(20), at(30)), lambda _: 1.5), settle_seconds=5)

    assert report.ok
    assert [SCHEDULE] == report.unrecovered
    assert any("not on time since the calm: 1" in line for line in report.lines())


def test_a_call_that_arrives_while_the_tables_are_read_needs_no_execution() -> None:
    """Its row may be younger than what was read; a moment earlier it would be a finding."""
    evidence = steady(Fault("none", at(1), at(1)), lambda _: 0.1)
    younger = replace(evidence, ended=at(58.15), executions=evidence.executions[:-1], schedules=[steady_row(28)])
    older = replace(younger, ended=at(58.25))

    assert {} == found(check(younger, settle_seconds=5))
    assert {"phantom", "mislabelled"} == set(found(check(older, settle_seconds=5)))


def test_a_call_that_arrives_while_the_tables_are_read_needs_no_beginning() -> None:
    """Its run may have waited in them; a moment earlier it would be a finding."""
    evidence = steady(Fault("none", at(1), at(1)), lambda _: 0.1)
    waiting = replace(evidence.executions[-1], status="pending", started_at=None, finished_at=None, token=1)
    rows = [*evidence.executions[:-1], waiting]
    younger = replace(evidence, ended=at(58.15), executions=rows, schedules=[steady_row(28)])
    older = replace(younger, ended=at(58.25))

    assert {} == found(check(younger, settle_seconds=5))
    assert {"phantom", "mislabelled"} == set(found(check(older, settle_seconds=5)))


def test_an_address_names_its_schedule_whatever_its_calls_carry() -> None:
    """Even if all of them carry another one."""
    evidence = steady(Fault("none", at(1), at(1)), lambda _: 0.1)
    relabelled = [replace(call, schedule_id=OTHER) for call in evidence.arrivals]
    report = check(replace(evidence, arrivals=relabelled), settle_seconds=5)

    assert len(relabelled) == len(report.mislabelled)
    assert all(f"the address is that of {SCHEDULE}" in finding for finding in report.mislabelled)


def test_the_report_shows_no_more_than_twenty_findings_of_a_kind() -> None:
    """And says how many more there are."""
    evidence = steady(Fault("none", at(1), at(1)), lambda _: 0.1)
    lines = check(replace(evidence, executions=[]), settle_seconds=5).lines()

    assert "promises kept: no" == lines[0]
    assert "1 schedules, 0 executions, 29 arrivals" in lines
    lost = lines.index("lost: 26")
    assert "  and 6 more" == lines[lost + 21]


# Choosing what to break.


class NothingToBreakError(Exception):
    """A history has nothing of the kind."""


def pick(chance: random.Random, candidates: Sequence[T]) -> T:
    """One of them, if there are any."""
    if not candidates:
        raise NothingToBreakError
    return chance.choice(candidates)


@cache
def sound(seed: int) -> Evidence:
    """A sound history, made once."""
    return history(seed)


def checked(evidence: Evidence) -> Report:
    """The report on a made-up history."""
    return check(evidence, settle_seconds=SETTLE_SECONDS)


def found(report: Report) -> dict[str, list[str]]:
    """The findings, by those kinds that there are."""
    return {kind: findings for kind in (*KINDS, "poisoned") if (findings := getattr(report, kind))}


def measured(late: Any) -> tuple[int, float, float, float]:
    """Lateness as a tuple."""
    return (late.count, late.p50, late.p99, late.maximum)


def unsure(evidence: Evidence) -> set[UUID]:
    """The schedules of which something was asked without an answer."""
    return {asked.schedule_id for asked in evidence.requests if asked.ack is Ack.UNKNOWN}


def firm_schedules(evidence: Evidence) -> list[ScheduleRow]:
    """Active schedules whose every request was answered."""
    known = {asked.schedule_id for asked in evidence.requests} - unsure(evidence)
    return [row for row in evidence.schedules if row.status == "active" and row.id in known and not row.total_repeats]


def firm_executions(evidence: Evidence) -> list[ExecutionRow]:
    """Runs that succeeded at once, at a time at which nobody asked anything and nothing else accounts for the slot."""
    firm = {row.id for row in firm_schedules(evidence)}
    return [
        row
        for row in evidence.executions
        if row.scheduled_job_id in firm
        and row.trigger == "schedule"
        and (row.status, row.retry_attempt, row.token) == ("success", 0, 2)
        and is_quiet(evidence, row.scheduled_job_id, row.scheduled_for)
    ]


def firm_entries(evidence: Evidence) -> list[LedgerRow]:
    """Entries of the ledger at times at which nobody asked anything."""
    firm = {row.id for row in firm_schedules(evidence)}
    return [
        row
        for row in evidence.ledger
        if row.scheduled_job_id in firm
        and is_quiet(evidence, row.scheduled_job_id, row.first_slot)
        and is_quiet(evidence, row.scheduled_job_id, row.last_slot)
    ]


def firm_ranges(evidence: Evidence) -> list[LedgerRow]:
    """Those that stand for several slots."""
    return [row for row in firm_entries(evidence) if row.slot_count > 1]


def firm_neighbours(evidence: Evidence, chance: random.Random) -> tuple[Arrival, Arrival]:
    """The calls of a run and of the one before it, at least two seconds apart."""
    rows = sorted(firm_executions(evidence), key=lambda row: (row.scheduled_job_id, row.scheduled_for))
    pairs = [
        (later, earlier)
        for earlier, later in pairwise(rows)
        if earlier.scheduled_job_id == later.scheduled_job_id
        and later.scheduled_for - known(earlier.finished_at) > 2 * SECOND
    ]
    later, earlier = pick(chance, pairs)
    return call_of(evidence, later), call_of(evidence, earlier)


def retried(evidence: Evidence) -> list[ExecutionRow]:
    """First attempts that failed and were retried, long before the end, while nobody asked anything."""
    retries = {(row.scheduled_job_id, row.scheduled_for) for row in evidence.executions if row.retry_attempt == 1}
    firm = {row.id for row in firm_schedules(evidence)}
    return [
        row
        for row in evidence.executions
        if row.retry_attempt == 0
        and row.scheduled_job_id in firm
        and (row.scheduled_job_id, row.scheduled_for) in retries
        and is_quiet(evidence, row.scheduled_job_id, row.scheduled_for, margin=20 * SECOND)
    ]


def is_quiet(evidence: Evidence, schedule_id: UUID, moment: datetime, margin: timedelta = SECOND) -> bool:
    """Whether a moment is long before the end and not near any request."""
    own = [asked for asked in evidence.requests if asked.schedule_id == schedule_id]
    near = any(asked.asked - margin <= moment <= asked.answered + margin for asked in own)
    return moment < at(140) and not near


def slots_in_pauses(evidence: Evidence) -> list[tuple[UUID, datetime]]:
    """A moment in every pause that was certain."""
    moments = []
    for row in firm_schedules(evidence):
        own = [asked for asked in evidence.requests if asked.schedule_id == row.id and asked.ack is Ack.YES]
        paused = [asked.answered for asked in own if asked.verb is Verb.PAUSE]
        resumed = [asked.asked for asked in own if asked.verb is Verb.RESUME]
        moments += [(row.id, first + (last - first) / 2) for first, last in zip(paused, resumed, strict=False)]
    return moments


def deleted(evidence: Evidence) -> list[UUID]:
    """The schedules whose deletion was acknowledged and of which nothing is unsure."""
    gone = {asked.schedule_id for asked in evidence.requests if (asked.verb, asked.ack) == (Verb.DELETE, Ack.YES)}
    return sorted(gone - unsure(evidence))


def call_of(evidence: Evidence, row: ExecutionRow) -> Arrival:
    """The first call of a run."""
    return next(call for call in evidence.arrivals if call.execution_id == row.id)


def asked_interval(evidence: Evidence, schedule_id: UUID) -> timedelta:
    """The interval that a schedule was created with."""
    body = next(asked.body for asked in evidence.requests if asked.schedule_id == schedule_id)
    return timedelta(seconds=body["interval_seconds"])


def count_of_requests(evidence: Evidence, schedule_id: UUID) -> int:
    """How much was asked about a schedule."""
    return sum(asked.schedule_id == schedule_id for asked in evidence.requests)


def change_schedule(evidence: Evidence, row: ScheduleRow, **changes: Any) -> Evidence:
    """The evidence with another row for a schedule."""
    return replace(evidence, schedules=exchanged(evidence.schedules, row, replace(row, **changes)))


def without(rows: Iterable[T], row: T) -> list[T]:
    """All but one."""
    return [other for other in rows if other is not row]


def exchanged(rows: Iterable[T], row: T, new: T) -> list[T]:
    """All, with another for one."""
    return [new if other is row else other for other in rows]


def some_id(chance: random.Random) -> UUID:
    """A new id."""
    return UUID(int=chance.getrandbits(128), version=4)
