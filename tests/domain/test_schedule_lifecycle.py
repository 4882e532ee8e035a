"""What people do to schedules.

Covers app.domain.schedules.
"""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from app.domain.errors import InvalidError, WrongStateError
from app.domain.executions import ExecutionStatus
from app.domain.schedule_lifecycle import edited, paused, paused_until, problems, resumed, returned, revived
from app.domain.schedules import TRANSITIONS, Reason, ScheduledJob, Status, with_status
from tests.support.domain_builders import T0, after, ended, fired, schedule, settle


def failed_once(**values: object) -> ScheduledJob:
    """A schedule that waits for its first retry."""
    job, fire = fired(schedule(**values), after(300))
    return settle(job, ended(fire, ExecutionStatus.FAILED, "no"), 0, after(310))


def dead() -> ScheduledJob:
    """A schedule that has died."""
    return failed_once(max_retries=0)


@pytest.mark.parametrize(
    ("start", "expected"),
    [(None, 300), (1000, 1000), (-100, 200), (-300, 300), (0, 300)],
)
def test_the_first_slot(start: float | None, expected: float) -> None:
    """start_at, or one interval from creation; a start in the past gives the phase, and never fires retroactively."""
    job = schedule(start_at=None if start is None else after(start))
    assert (after(expected), after(expected)) == (job.next_slot, job.next_run_at)


@pytest.mark.parametrize(
    "spec",
    [
        {"rrule": "FREQ=DAILY;COUNT=1"},
        {"rrule": "FREQ=DAILY;UNTIL=20260801T100000Z"},
    ],
)
def test_the_start_may_be_the_only_slot(spec: dict[str, Any]) -> None:
    """A schedule has a slot even if none follows the one at its start."""
    start = datetime(2026, 8, 1, 10, tzinfo=UTC)
    assert [] == problems(schedule(start_at=start, **spec), T0)


def test_a_schedule_that_ends_before_it_begins_is_done_at_once() -> None:
    """There is no slot to wait for."""
    job = schedule(end_at=after(100))
    assert (Status.DONE, Reason.END_REACHED) == (job.status, job.status_reason)


@pytest.mark.corner("pause")
def test_pause_clears_the_plan_and_keeps_the_counters() -> None:
    """A pending retry is dropped, the count of failures is not."""
    job = paused(failed_once())
    assert (Status.PAUSED, Reason.MANUAL) == (job.status, job.status_reason)
    assert (None, None, 0, 1) == (job.next_run_at, job.next_slot, job.next_attempt, job.current_retry)


@pytest.mark.corner("resume")
def test_resume_takes_a_fresh_slot_one_interval_from_now() -> None:
    """Not the old one; the retry count is kept."""
    job = resumed(paused(failed_once()), 0, after(1234))
    assert (Status.ACTIVE, after(1534), after(1534)) == (job.status, job.next_run_at, job.next_slot)
    assert (0, 1) == (job.next_attempt, job.current_retry)


@pytest.mark.corner("pause until")
@pytest.mark.parametrize(
    ("spec", "first"),
    [
        ({"interval_seconds": 300.0}, 3900),
        ({"cron": "0 * * * *"}, 3600),
        ({"interval_seconds": 300.0, "end_at": after(3700)}, None),
        ({"at": after(60)}, 60),
        ({"after": "10m"}, 4200),
    ],
)
def test_a_pause_that_ends_goes_on_from_its_end(spec: dict[str, Any], first: float | None) -> None:
    """However late a worker notices: slots inside the pause are not expected, those since then are due."""
    job = returned(paused_until(schedule(**spec), after(3600), T0), 0)
    assert (None if first is None else after(first), None) == (job.next_slot, job.paused_until)
    assert (Status.DONE if first is None else Status.ACTIVE) is job.status


def test_resume_with_the_last_repeat_still_running_plans_nothing() -> None:
    """N + active runs = R."""
    job, _ = fired(schedule(total_repeats=1), after(300))
    assert resumed(paused(job), 1, after(301)).next_run_at is None


def test_revive_gives_a_dead_schedule_all_its_retries() -> None:
    """Active again, one interval from now."""
    job = revived(dead(), 0, after(5000))
    assert (Status.ACTIVE, 0, None, after(5300)) == (job.status, job.current_retry, job.dead_at, job.next_run_at)


@pytest.mark.parametrize(
    ("verb", "status"),
    [
        ("pause", Status.PAUSED),
        ("pause", Status.DONE),
        ("pause", Status.DEAD),
        ("resume", Status.ACTIVE),
        ("resume", Status.DONE),
        ("resume", Status.DEAD),
        ("revive", Status.ACTIVE),
        ("revive", Status.PAUSED),
        ("revive", Status.DONE),
    ],
)
def test_the_wrong_state_is_refused(verb: str, status: Status) -> None:
    """In words that name the state."""
    job = replace(schedule(), status=status)
    actions = {
        "pause": lambda: paused(job),
        "resume": lambda: resumed(job, 0, after(1)),
        "revive": lambda: revived(job, 0, after(1)),
    }
    with pytest.raises(WrongStateError, match=f"^Cannot {verb} job with status '{status}'\\.$"):
        actions[verb]()


def test_the_table_of_transitions_is_kept() -> None:
    """A move that the table does not know is a defect."""
    for status in Status:
        for target in set(Status) - TRANSITIONS[status]:
            with pytest.raises(AssertionError):
                with_status(replace(schedule(), status=status), target, Reason.NONE)


@pytest.mark.corner("PATCH")
def test_the_same_values_change_nothing() -> None:
    """Not even the generation."""
    job = schedule()
    assert job is edited(job, {"interval_seconds": 300, "name": "s"}, 0, after(10))


@pytest.mark.corner("PATCH")
def test_a_new_interval_moves_the_tick_at_once() -> None:
    """Anchored at now; a pending retry is dropped, rc is kept."""
    job = edited(failed_once(), {"interval_seconds": 60}, 0, after(400))
    assert (after(460), after(460), 0, 1) == (job.next_run_at, job.next_slot, job.next_attempt, job.current_retry)


def test_an_edit_that_is_not_about_time_leaves_the_tick_alone() -> None:
    """The pending message stays valid."""
    job = schedule()
    changed = edited(job, {"name": "other", "timeout_seconds": 5, "trigger_payload": {"a": 1}}, 0, after(10))
    assert (job.generation, job.next_run_at) == (changed.generation, changed.next_run_at)


def test_a_new_start_moves_the_first_slot() -> None:
    """To the start, if that is to come."""
    assert after(9000) == edited(schedule(), {"start_at": after(9000)}, 0, after(10)).next_run_at


@pytest.mark.parametrize("status", [Status.PAUSED, Status.DEAD])
def test_a_new_interval_does_not_wake_a_schedule(status: Status) -> None:
    """Paused stays paused, dead stays dead."""
    job = paused(schedule()) if status is Status.PAUSED else dead()
    changed = edited(job, {"interval_seconds": 60}, 0, after(400))
    assert (status, None) == (changed.status, changed.next_run_at)


def completed(repeats: int, limit: int) -> ScheduledJob:
    """A schedule with so many repeats completed."""
    job = schedule(total_repeats=limit)
    for k in range(repeats):
        running, fire = fired(job, after(300 * (k + 1)))
        job = settle(running, ended(fire, ExecutionStatus.SUCCESS), 0, after(300 * (k + 1) + 1))
    return job


@pytest.mark.corner("PATCH")
def test_a_limit_at_or_below_what_is_completed_finishes_it() -> None:
    """R <= n: done."""
    job = edited(completed(2, 5), {"total_repeats": 2}, 0, after(700))
    assert (Status.DONE, Reason.REPEAT_LIMIT, None) == (job.status, job.status_reason, job.next_run_at)


def test_a_limit_that_the_run_under_way_will_reach_drops_the_tick() -> None:
    """N + active runs = R: nothing is planned, it stays active."""
    running, _ = fired(completed(1, 5), after(600))
    job = edited(running, {"total_repeats": 2}, 1, after(601))
    assert (Status.ACTIVE, None) == (job.status, job.next_run_at)


def test_a_raised_limit_with_the_last_repeat_in_flight_plans_the_next_slot() -> None:
    """There is something left to do again."""
    running, _ = fired(completed(1, 2), after(600))
    assert running.next_run_at is None
    assert after(900) == edited(running, {"total_repeats": 3}, 1, after(601)).next_run_at


@pytest.mark.parametrize("limit", [0, 5])
@pytest.mark.corner("PATCH")
def test_a_raised_limit_arms_a_finished_schedule_again(limit: int) -> None:
    """Active, one interval from now."""
    job = edited(completed(2, 2), {"total_repeats": limit}, 0, after(5000))
    assert (Status.ACTIVE, Reason.NONE, after(5300)) == (job.status, job.status_reason, job.next_run_at)


@pytest.mark.parametrize("end", [after(100_000), None])
@pytest.mark.corner("PATCH")
def test_a_later_end_arms_a_schedule_that_had_reached_its_end(end: datetime | None) -> None:
    """Active, one interval from now."""
    job = edited(schedule(end_at=after(100)), {"end_at": end}, 0, after(5000))
    assert (Status.ACTIVE, after(5300)) == (job.status, job.next_run_at)


def test_an_edit_that_leaves_nothing_to_do_does_not_arm_it() -> None:
    """An end that is still past, or a name."""
    job = schedule(end_at=after(100))
    assert Status.DONE is edited(job, {"end_at": after(200)}, 0, after(5000)).status
    assert Status.DONE is edited(job, {"name": "other"}, 0, after(5000)).status


def test_an_earlier_end_finishes_a_schedule_whose_next_slot_lies_beyond() -> None:
    """Done; with a run under way, only once that has settled."""
    assert Status.DONE is edited(schedule(), {"end_at": after(200)}, 0, after(10)).status
    running, fire = fired(schedule(), after(300))
    waiting = edited(running, {"end_at": after(400)}, 1, after(301))
    assert (Status.ACTIVE, None) == (waiting.status, waiting.next_run_at)
    assert Status.DONE is settle(waiting, ended(fire, ExecutionStatus.SUCCESS), 0, after(302)).status


def test_an_end_and_a_limit_can_be_lifted_one_after_the_other() -> None:
    """Whatever had finished it, what counts is whether something is left to do."""
    job = replace(completed(2, 2), end_at=after(1000))
    raised = edited(job, {"total_repeats": 5}, 0, after(5000))
    assert Status.DONE is raised.status
    assert Status.ACTIVE is edited(raised, {"end_at": None}, 0, after(5001)).status


def test_a_dead_schedule_at_its_limit_is_done_when_revived() -> None:
    """There is nothing to revive it for."""
    job = edited(replace(dead(), current_repeat=3), {"total_repeats": 2}, 0, after(400))
    assert Status.DEAD is job.status
    assert Status.DONE is revived(job, 0, after(500)).status


def test_a_limit_raised_while_the_last_retry_is_pending_expects_slots_again() -> None:
    """So that those which the retry holds up are accounted for."""
    job = failed_once(total_repeats=1)
    assert job.cadence_slot is None
    changed = edited(job, {"total_repeats": 2}, 0, after(320))
    assert (after(600), job.next_run_at) == (changed.cadence_slot, changed.next_run_at)


@pytest.mark.corner("PATCH")
def test_a_dead_schedule_stays_dead_whatever_is_edited() -> None:
    """Until it is revived."""
    changed = edited(dead(), {"max_retries": 100, "total_repeats": 9, "end_at": after(10**6)}, 0, after(400))
    assert (Status.DEAD, 100, None) == (changed.status, changed.max_retries, changed.next_run_at)


def test_an_end_before_the_start_is_refused() -> None:
    """Whichever of the two is edited."""
    job = schedule(start_at=after(1000))
    with pytest.raises(InvalidError) as refused:
        edited(job, {"end_at": after(500)}, 0, after(10))
    assert ["end_at"] == [error.field for error in refused.value.errors]


def test_one_and_true_are_two_in_a_payload() -> None:
    """As they are in JSON."""
    job = schedule(trigger_payload={"a": 1})
    assert {"a": True} == edited(job, {"trigger_payload": {"a": True}}, 0, after(10)).trigger_payload
    assert job is edited(job, {"trigger_payload": {"a": 1}}, 0, after(10))


def test_the_order_of_keys_in_a_payload_is_nothing() -> None:
    """Postgres keeps another order than the one that was sent."""
    job = schedule(trigger_payload={"a": {"b": 1}, "cc": [1, 2]})
    assert job is edited(job, {"trigger_payload": {"cc": [1, 2], "a": {"b": 1}}}, 0, after(10))
