"""Entities: their next time, in phase and in their zone, and what is wrong with them in words."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.domain.entity_jobs import ScheduledJobConfig, retry_at, with_next_time
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
    ],
)
def test_the_next_time_is_the_first_that_is_still_to_come(
    values: dict[str, object], now: datetime, expected: datetime
) -> None:
    """In the same phase, and in the entity's own zone; what has passed is not made up for."""
    after = with_next_time(job(**values), now)
    assert (expected, T0, "") == (after.next_execution_time, after.last_execution_time, after.error)


@pytest.mark.parametrize(
    ("values", "gist"),
    [
        ({"cron_expression": "every now and then"}, "Expected five fields"),
        ({"cron_expression": "0 0 30 2 *"}, "No date fits"),
        ({"cron_expression": "* * * * *", "timezone": "Mars/Olympus"}, "There is no timezone"),
        ({"cron_expression": "* * * * *", "interval_minutes": 5}, "Exactly one"),
        ({}, "Exactly one"),
        ({"interval_minutes": 0}, "The shortest interval"),
    ],
)
def test_what_cannot_be_planned_says_why(values: dict[str, object], gist: str) -> None:
    """And is never planned by some default instead; when it ran last is not touched."""
    after = with_next_time(job(**values), T0)
    assert gist in after.error
    assert (None, None) == (after.next_execution_time, after.last_execution_time)


def test_failed_runs_are_tried_again_later_and_later() -> None:
    """As often as the job allows; what did not fail is not."""
    entity = job(interval_minutes=5, max_retries=2).entity
    failed = [retry_at(entity, ExecutionStatus.LOST, attempt, T0) for attempt in range(3)]
    assert [T0 + timedelta(seconds=60), T0 + timedelta(seconds=120), None] == failed
    assert retry_at(entity, ExecutionStatus.SUCCESS, 0, T0) is None
    assert retry_at(entity, ExecutionStatus.SKIPPED, 0, T0) is None
