"""Entities: their next time, in phase and in their zone, and what is wrong with them in words."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import pytest
from msgspec.structs import replace

from app.domain.entity_jobs import ScheduledJobConfig, is_due, planned, planned_anew, retry_at
from app.domain.executions import ExecutionStatus

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def job(**values: Any) -> ScheduledJobConfig:
    """A job of some entity that is due at noon."""
    sound: dict[str, Any] = {"id": "j", "entity_id": "7", "entity_type": "feed", "job_type": "core.noop"}
    return ScheduledJobConfig(**(sound | {"next_execution_time": T0} | values))


@pytest.mark.parametrize(
    ("values", "now", "expected"),
    [
        ({"interval_minutes": 5}, T0, T0 + timedelta(minutes=5)),
        ({"interval_minutes": 5}, T0 - timedelta(seconds=50), T0 + timedelta(minutes=5)),
        ({"interval_minutes": 5}, T0 + timedelta(minutes=12), T0 + timedelta(minutes=15)),
        ({"cron_expression": "*/15 * * * *"}, T0 + timedelta(seconds=1), T0 + timedelta(minutes=15)),
        ({"cron_expression": "0 9 * * *", "timezone": "Asia/Tokyo"}, T0, datetime(2026, 3, 2, 0, 0, tzinfo=UTC)),
        ({"cron_expression": "0 9 * * *", "timezone": None}, T0, datetime(2026, 3, 2, 9, 0, tzinfo=UTC)),
        ({"interval_minutes": 5, "timezone": None, "active": None}, T0, T0 + timedelta(minutes=5)),
        ({}, T0, None),
        ({}, T0 + timedelta(days=9), None),
    ],
)
def test_the_next_time_is_the_first_that_is_still_to_come(
    values: dict[str, object], now: datetime, expected: datetime | None
) -> None:
    """In the same phase, in the entity's own zone or in UTC; what has passed is not made up for; a one-off has none."""
    after = planned(job(**values), now)
    assert (expected, T0, "") == (after.job.next_execution_time, after.job.last_execution_time, after.job.error)
    assert after.runs


@pytest.mark.parametrize(
    ("values", "gist"),
    [
        ({"cron_expression": "every now and then"}, "Expected five fields"),
        ({"cron_expression": "0 0 30 2 *"}, "No date fits"),
        ({"cron_expression": "* * * * *", "interval_minutes": 5}, "At most one"),
        ({"interval_minutes": 0}, "The shortest interval"),
        ({"interval_minutes": 10**30}, "too long"),
        ({"interval_minutes": "5"}, "Expected `int | null`, got `str` - at `interval_minutes`."),
        ({"interval_minutes": 5, "next_execution_time": "noon"}, "at `next_execution_time`"),
        ({"interval_minutes": 5, "next_execution_time": T0.replace(tzinfo=None)}, "with a timezone component"),
        ({"interval_minutes": 5, "timezone": 1}, "at `timezone`"),
        ({"interval_minutes": 5, "active": "yes"}, "at `active`"),
        ({"interval_minutes": 5, "timeout_seconds": 0}, "at `timeout_seconds`"),
        ({"interval_minutes": 5, "max_retries": None}, "at `max_retries`"),
        ({"cron_expression": 5}, "at `cron_expression`"),
        ({"job_data": ["a"]}, "at `job_data`"),
        ({"job_data": {1: 2}}, "`job_data`"),
        ({"job_data": {"a": object()}}, "`job_data` cannot be written as JSON"),
    ],
)
def test_what_is_written_wrongly_says_why_and_is_not_run(values: dict[str, object], gist: str) -> None:
    """It counts as due, is never planned by some default instead, and when it ran last is not touched."""
    wrong = job(**values)
    assert is_due(wrong, T0)
    after = planned(wrong, T0)
    assert gist in after.job.error
    assert (None, None, False) == (after.job.next_execution_time, after.job.last_execution_time, after.runs)


@pytest.mark.parametrize("spec", [{"cron_expression": "* * * * *"}, {"interval_minutes": 5}])
def test_an_unknown_timezone_stops_what_follows_and_not_the_due_time(spec: dict[str, object]) -> None:
    """The due time is known and is run; once the timezone is known again there is a next time, in phase."""
    after = planned(job(**spec, timezone="Mars/Olympus"), T0)
    assert (True, None, T0) == (after.runs, after.job.next_execution_time, after.job.last_execution_time)
    assert "There is no timezone" in after.job.error
    assert planned_anew(after.job, T0) is None
    later = planned_anew(replace(after.job, timezone="Europe/Berlin"), T0 + timedelta(seconds=50))
    assert later is not None
    expected = T0 + timedelta(minutes=5 if "interval_minutes" in spec else 1)
    assert (expected, T0, "") == (later.next_execution_time, later.last_execution_time, later.error)


def test_a_one_off_is_not_planned_anew() -> None:
    """It has no time but the one that it was given."""
    assert planned_anew(job(next_execution_time=None, error="?"), T0) is None
    assert planned_anew(job(interval_minutes=5, last_execution_time=T0.replace(tzinfo=None)), T0) is None


def test_a_year_beyond_the_calendar_is_an_error() -> None:
    """As everything that goes wrong in planning."""
    last = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
    after = planned(job(interval_minutes=5, next_execution_time=last), T0)
    assert (None, True) == (after.job.next_execution_time, after.job.error != "")


class OwnTime(datetime):
    """A time as libraries for dates have it."""


class Kind(StrEnum):
    """A name as plugins have it."""

    NOOP = "core.noop"


def test_values_of_subclasses_are_right() -> None:
    """Whatever a plugin's libraries make of times and names."""
    time = OwnTime(2026, 3, 1, 12, 0, tzinfo=UTC)
    after = planned(job(next_execution_time=time, job_type=Kind.NOOP, interval_minutes=5), T0)
    assert (T0 + timedelta(minutes=5), "", True) == (after.job.next_execution_time, after.job.error, after.runs)


def test_a_job_is_due_unless_it_is_switched_off_or_later() -> None:
    """An unset switch of a nullable column is not off."""
    found = [is_due(job(active=active, interval_minutes=5), T0) for active in (True, None, False)]
    assert [True, True, False] == found
    assert [False, False] == [is_due(job(), T0 - timedelta(seconds=1)), is_due(job(next_execution_time=None), T0)]


def test_failed_runs_are_tried_again_later_and_later() -> None:
    """As often as the job allows; what did not fail is not."""
    entity = job(interval_minutes=5, max_retries=2).entity
    failed = [retry_at(entity, ExecutionStatus.LOST, attempt, T0) for attempt in range(3)]
    assert [T0 + timedelta(seconds=60), T0 + timedelta(seconds=120), None] == failed
    assert retry_at(entity, ExecutionStatus.SUCCESS, 0, T0) is None
    assert retry_at(entity, ExecutionStatus.SKIPPED, 0, T0) is None
