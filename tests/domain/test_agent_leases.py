"""Leases of agents as decisions: what a schedule takes from one, and that ticks never take more.

Covers app.domain.agent_leases.
"""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.domain.agent_leases import (
    Lease,
    Review,
    Usage,
    adopted,
    charge,
    compiled,
    first_slot_errors,
    require_room,
    shortest_gap,
    term_errors,
    with_lease_end,
)
from app.domain.errors import LeaseExhaustedError, WrongStateError
from app.domain.executions import ActiveRun, ExecutionStatus, Trigger
from app.domain.schedule_lifecycle import created, edited, paused, resumed, revived
from app.domain.schedules import Reason, ScheduledJob, Status
from app.domain.settle import EndedRun, after_run
from app.domain.ticks import Decided
from tests.support.domain_builders import T0, after, decision, schedule

END = after(3600)


def lease(**terms: object) -> Lease:
    """Return a lease that was granted at ``T0`` for an hour."""
    values: dict[str, object] = {
        "max_schedules": 3,
        "max_runs": 10,
        "max_retries": 1,
        "min_interval_seconds": 60,
        "max_writes": 0,
    }
    values |= {"id": 7, "user_profile_id": 1, "owner": "mia", "granted_by": "mia", "agent": "a", "created_at": T0}
    return Lease(expires_at=END, **(values | terms))  # type: ignore[arg-type]


def leased(terms: Lease | None = None, **values: object) -> ScheduledJob:
    """Return a schedule that an agent created at ``T0``."""
    draft = replace(schedule(**values), next_run_at=None, next_slot=None, cadence_slot=None)
    return created(compiled(terms or lease(), draft), T0)


def test_a_lease_compiles_into_fields_that_ticks_heed() -> None:
    """The end and the retries are the lesser of both; a review begins as a pause or as a flag."""
    assert (END, 1) == ((job := leased(total_repeats=2)).end_at, job.max_retries)
    own = leased(total_repeats=2, end_at=after(900), max_retries=0)
    assert (after(900), 0) == (own.end_at, own.max_retries)
    waits = leased(lease(review=Review.BEFORE), total_repeats=2)
    assert (Status.PAUSED, Reason.AWAITING_REVIEW, None) == (waits.status, waits.status_reason, waits.next_run_at)
    flagged = leased(lease(review=Review.AFTER), total_repeats=2)
    assert (Status.ACTIVE, Reason.AWAITING_REVIEW, after(300)) == (
        flagged.status,
        flagged.status_reason,
        flagged.next_run_at,
    )


@pytest.mark.parametrize(
    ("values", "gap"),
    [
        ({"interval_seconds": 59.0}, 59),
        ({"cron": "0,1 9 * * *"}, 60),
        ({"cron": "0 */6 * * *", "timezone": "Europe/Berlin"}, 5 * 3600),
        ({"every": "monthly"}, 28 * 86_400),
        ({"after": "5m"}, None),
    ],
)
def test_the_shortest_gap_of_a_spec(values: dict[str, object], gap: int | None) -> None:
    """Over its next slots, in real time: a night with a clock change is shorter."""
    expected = None if gap is None else timedelta(seconds=gap)
    assert expected == shortest_gap(schedule(**values), T0)


def test_terms_are_checked_field_by_field() -> None:
    """What a lease demands of each schedule."""
    wrong = replace(schedule(interval_seconds=30.0), max_retries=5)
    assert ["total_repeats", "max_retries", "interval_seconds"] == [e.field for e in term_errors(lease(), wrong, T0)]
    assert [] == term_errors(lease(), leased(total_repeats=2), T0)
    assert ["at"] == [e.field for e in first_slot_errors(lease(), leased(at=after(3601)), T0)]
    assert [] == first_slot_errors(lease(), leased(at=after(3600)), T0)


def test_room_is_refused_with_what_is_left_and_what_to_do() -> None:
    """The sentence names the bound, the lease and who extends it."""
    require_room(lease(), Usage(schedules=2, runs=9), Usage(schedules=1, runs=1))
    with pytest.raises(LeaseExhaustedError, match=r"allows 10 runs: 9 are used.*ask mia to extend it: PATCH") as caught:
        require_room(lease(), Usage(schedules=2, runs=9), Usage(runs=2))
    assert {"schedules": 1, "runs": 1, "writes": None} == caught.value.left


def test_the_end_of_a_lease_pauses_and_an_extension_resumes() -> None:
    """Without further slots it waits for the end; at the end it is paused, not done."""
    job = leased(interval_seconds=3000.0, total_repeats=5)
    decided = decision(job, after(3000))
    assert isinstance(decided, Decided)
    run = EndedRun(
        execution_id=decided.fires[0].execution_id,
        trigger=Trigger.SCHEDULE,
        slot=decided.fires[0].slot,
        attempt=0,
        status=ExecutionStatus.SUCCESS,
    )
    waiting = after_run(decided.job, run, 0, after(3001)).job
    assert (Status.ACTIVE, None) == (waiting.status, waiting.next_run_at)
    late = decision(leased(total_repeats=5), END)
    assert isinstance(late, Decided)
    assert ((), Status.PAUSED, Reason.LEASE_EXPIRED) == (late.fires, late.job.status, late.job.status_reason)
    with pytest.raises(WrongStateError, match="lease 7 has ended"):
        resumed(late.job, 0, after(3700))
    extended = with_lease_end(late.job, after(7200), 0, after(3650))
    assert (Status.ACTIVE, after(7200), after(3900)) == (extended.status, extended.end_at, extended.next_run_at)
    free = adopted(leased(total_repeats=5), 0, after(10))
    assert (None, None, after(300)) == (free.lease_id, free.end_at, free.next_run_at)


@given(st.data())
def test_whatever_happens_a_schedule_makes_no_more_runs_than_it_reserves(data: st.DataObject) -> None:
    """Runs fail, are cancelled or lost, people pause, resume, revive and edit: the charge bounds it."""
    policy = data.draw(st.sampled_from(["skip", "queue", "cancel", "allow"]))
    repeats = data.draw(st.integers(1, 4))
    catch_up = data.draw(st.sampled_from(["skip", "run_all"]))
    job = leased(
        lease(min_interval_seconds=1),
        interval_seconds=60.0,
        total_repeats=repeats,
        if_running=policy,
        catch_up=catch_up,
    )
    now, started = T0, 0
    active: tuple[tuple[ActiveRun, datetime], ...] = ()
    for _ in range(data.draw(st.integers(1, 25))):
        now += timedelta(seconds=data.draw(st.sampled_from([1, 60, 200])))
        match data.draw(st.sampled_from(["tick", "tick", "end", "pause", "resume", "revive", "edit"])):
            case "tick":
                job, active, fires = _ticked(job, active, now)
                started += fires
            case "end" if active:
                job, active = _ended(job, active, now, data)
            case "pause" if job.status is Status.ACTIVE:
                job = paused(job)
            case "resume" if job.status is Status.PAUSED and now < END:
                job = resumed(job, len(active), now)
            case "revive" if job.status is Status.DEAD and now < END:
                job = revived(job, len(active), now)
            case "edit" if job.status in {Status.ACTIVE, Status.PAUSED}:
                job = edited(job, {"description": f"at {now}", "end_at": after(9000)}, len(active), now)
            case _:
                pass
        assert started == job.lease_runs <= charge(job).runs
        assert started <= repeats


def _ticked(
    job: ScheduledJob, active: tuple[tuple[ActiveRun, datetime], ...], now: datetime
) -> tuple[ScheduledJob, tuple[tuple[ActiveRun, datetime], ...], int]:
    decided = decision(job, now, *(run for run, _ in active))
    if not isinstance(decided, Decided):
        return job, active, 0
    left = tuple((run, slot) for run, slot in active if run.execution_id not in decided.cancels)
    made = tuple(
        (ActiveRun(fire.execution_id, fire.trigger, False, True, False, fire.attempt), fire.slot)
        for fire in decided.fires
    )
    return decided.job, (*left, *made), sum(not fire.attempt for fire in decided.fires)


def _ended(
    job: ScheduledJob, active: tuple[tuple[ActiveRun, datetime], ...], now: datetime, data: st.DataObject
) -> tuple[ScheduledJob, tuple[tuple[ActiveRun, datetime], ...]]:
    (run, slot), *others = active
    statuses = [ExecutionStatus.SUCCESS, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED, ExecutionStatus.LOST]
    result = EndedRun(
        execution_id=run.execution_id,
        trigger=Trigger.SCHEDULE,
        slot=slot,
        attempt=run.attempt,
        status=data.draw(st.sampled_from(statuses)),
    )
    settled = after_run(job, result, len(others), now)
    return settled.job, tuple(others)
