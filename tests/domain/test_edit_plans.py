"""The plan of an edit says what the following days show."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.domain.edit_plans import (
    MOST_FIRES,
    EditPlan,
    Horizon,
    change_digests,
    plan_creation,
    plan_edit,
    require_planned,
)
from app.domain.errors import InvalidError, PlanDiffersError
from app.domain.planning import with_retry
from app.domain.schedule_lifecycle import edited, paused
from app.domain.schedules import ScheduledJob, Status
from app.domain.specs import canonical
from app.domain.upcoming import Fire
from tests.domain.strategies import expressions, windows, zones
from tests.domain.test_upcoming import schedules, some_slots
from tests.support.domain_builders import T0, after, live, lived, schedule
from tests.support.hypothesis_examples import examples

WEEK = timedelta(days=7)
edits: st.SearchStrategy[dict[str, Any]] = st.one_of(
    expressions.map(lambda text: {"cron": text}),
    st.sampled_from([600, 3600, 5000, 86_400]).map(lambda seconds: {"interval_seconds": seconds}),
    zones.map(lambda zone: {"timezone": zone}),
    windows().map(lambda window: {"only_between": window}),
    st.sampled_from([0, 90, 5000]).map(lambda seconds: {"jitter_seconds": seconds}),
    st.sampled_from([0, 1, 3, 40]).map(lambda number: {"total_repeats": number}),
    st.integers(1, 150).map(lambda hours: {"end_at": T0 + timedelta(hours=hours)}),
    st.integers(-50, 50).map(lambda hours: {"start_at": T0 + timedelta(hours=hours)}),
    st.integers(1, 100).map(lambda hours: {"at": T0 + timedelta(hours=hours)}),
)


def planned(job: ScheduledJob, changes: dict[str, Any], seconds: float = 0) -> EditPlan:
    """Return the plan of an edit so many seconds after ``T0``, for a week."""
    now = after(seconds)
    return plan_edit(job, edited(job, canonical(changes), 0, now), 0, Horizon(now, now + WEEK))


@given(schedules(), edits, edits, st.integers(0, 200_000), st.sets(st.integers(0, 39), max_size=4))
@examples(80)
def test_a_plan_says_what_the_following_days_show(
    new: ScheduledJob, change: dict[str, Any], other: dict[str, Any], seconds: int, numbers: set[int]
) -> None:
    """Whatever is edited, skipped and whenever: the plan tells the fires without and with the edit apart."""
    job, _ = lived(new, after(seconds), 3000)
    now = max(after(seconds), job.last_fired_at or T0)
    try:
        changed = edited(job, canonical(other | change), 0, now)
    except InvalidError:
        return
    skipped = {slot for slot in some_slots(job, numbers) if slot > now}
    fires = plan_edit(job, changed, 0, Horizon(now, now + WEEK), skipped).fires
    old, new_ones = (
        {Fire(*fire) for fire in live(one, fires.until, MOST_FIRES + 10, skipped) if fire[0] >= now}
        for one in (job, changed)
    )
    stayed = old - set(fires.removed) - {pair.before for pair in fires.moved}
    assert stayed == new_ones - set(fires.added) - {pair.after for pair in fires.moved}
    assert fires.kept == len(stayed) == len(old & new_ones)
    assert len(old) == fires.kept + len(fires.removed) + len(fires.moved)
    assert len(new_ones) == fires.kept + len(fires.added) + len(fires.moved)
    assert fires.until == now + WEEK or MOST_FIRES in {len(old), len(new_ones)}


def test_a_daily_schedule_moves() -> None:
    """Each day's fire to the new time of that day."""
    plan = planned(schedule(cron="0 9 * * *", timezone="Europe/Berlin"), {"cron": "30 10 * * *"})
    assert (0, 7, (), ()) == (plan.fires.kept, len(plan.fires.moved), plan.fires.added, plan.fires.removed)
    assert {timedelta(minutes=90)} == {pair.after.at - pair.before.at for pair in plan.fires.moved}
    assert {"cron": {"from": "0 9 * * *", "to": "30 10 * * *"}} == plan.changes
    assert (False, ()) == (plan.fires_now, plan.lost.days)


def test_fewer_days_are_lost_and_more_are_added() -> None:
    """Days without any fire are named; what stays is counted."""
    plan = planned(schedule(cron="0 9 * * *"), {"not_on": ["sat", "sun"]})
    assert (5, 2, 0) == (plan.fires.kept, len(plan.fires.removed), len(plan.fires.added))
    assert ["2026-03-07", "2026-03-08"] == [day.isoformat() for day in plan.lost.days]
    plan = planned(schedule(cron="0 9 * * *"), {"cron": "0 9,21 * * *"})
    assert (7, 7, 0) == (plan.fires.kept, len(plan.fires.added), len(plan.fires.removed))


def test_a_jitter_moves_fires_and_keeps_slots() -> None:
    """Both times are told."""
    plan = planned(schedule(cron="0 * * * *"), {"jitter_seconds": 600})
    assert (167, set()) == (plan.fires.kept + len(plan.fires.moved), {*plan.fires.added, *plan.fires.removed})
    assert all(pair.before.slot == pair.after.slot == pair.before.at for pair in plan.fires.moved)


def test_lost_repeats_retries_and_ends_are_told() -> None:
    """A smaller limit, a dropped retry, an end that makes the schedule done."""
    limited = replace(schedule(interval_seconds=60, total_repeats=10), current_repeat=3)
    assert 5 == planned(limited, {"total_repeats": 5}).lost.repeats
    done = planned(limited, {"total_repeats": 3})
    assert (7, (Status.ACTIVE, Status.DONE)) == (done.lost.repeats, done.status)
    assert done.next_run_at[1] is None
    assert ("The schedule becomes done (repeat_limit).",) == done.warnings
    retrying = with_retry(schedule(interval_seconds=60), T0, 1, after(150))
    plan = planned(retrying, {"interval_seconds": 120}, 10)
    assert plan.lost.retry
    assert "The pending retry of the slot 2026-03-01T12:00:00Z is dropped." in plan.warnings
    assert ("The schedule is paused: nothing fires.",) == planned(paused(limited), {"name": "x"}).warnings


def test_what_fires_at_once_is_told() -> None:
    """A one-shot whose time has just passed, and nothing else of the past."""
    assert planned(schedule(after="1h"), {"at": after(10)}, 20).fires_now
    overdue = planned(schedule(interval_seconds=60), {"interval_seconds": 50}, 100)
    assert not overdue.fires_now
    assert "The slot 2026-03-01T12:01:00Z is overdue. It does not fire after the edit." in overdue.warnings


def test_frequent_schedules_are_compared_for_a_shorter_time() -> None:
    """So that a plan stays small."""
    plan = planned(schedule(interval_seconds=1), {"interval_seconds": 2})
    assert plan.fires.until < after(MOST_FIRES + 2)
    assert MOST_FIRES >= plan.fires.kept + len(plan.fires.removed) + len(plan.fires.moved)


def test_a_new_schedule_adds_its_fires() -> None:
    """All of them, with what may surprise about its spec."""
    plan = plan_creation(schedule(cron="30 2 * * *", timezone="Europe/Berlin"), Horizon(T0, T0 + 30 * WEEK / 7))
    assert (0, 30, (), ()) == (plan.fires.kept, len(plan.fires.added), plan.fires.removed, plan.fires.moved)
    assert (None, plan.fires.added[0].at, {}) == (*plan.next_run_at, plan.changes)
    assert plan.warnings
    few = plan_creation(schedule(interval_seconds=60), Horizon(T0, T0 + WEEK, 10))
    assert (10, after(660)) == (len(few.fires.added), few.fires.until)


def test_an_edit_must_be_the_planned_one() -> None:
    """Fields that have their value already do not count; the error names those that differ."""
    job = schedule(cron="0 9 * * *", trigger_payload={"a": 1, "b": 2})
    planned_edit = change_digests(job, {"cron": "0 8 * * *", "name": "s", "trigger_payload": {"c": 1, "d": 2}})
    assert {"cron", "trigger_payload"} == planned_edit.keys()
    require_planned(planned_edit, change_digests(job, {"trigger_payload": {"d": 2, "c": 1}, "cron": "0 8 * * *"}))
    for other in ({"cron": "0 8 * * *"}, {"cron": "0 7 * * *", "trigger_payload": {"c": 1, "d": 2}, "name": "x"}):
        with pytest.raises(PlanDiffersError) as refused:
            require_planned(planned_edit, change_digests(job, other))
    assert "differs from the planned one in `cron`, `name`." in refused.value.detail
