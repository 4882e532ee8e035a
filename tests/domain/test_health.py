"""The health of a schedule: from what became of its slots, and from how long its tick is overdue."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.domain.health import Health, health_facts, health_of
from app.domain.schedules import Reason, Status
from tests.support.domain_builders import schedule

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def seconds(number: float) -> timedelta:
    """Return a duration."""
    return timedelta(seconds=number)


def due(overdue: float, **values: Any) -> Any:
    """Return an active schedule whose tick is overdue for so many seconds, and that has run."""
    at = NOW - seconds(overdue)
    defaults = {"next_run_at": at, "next_slot": at, "last_attempt_at": at - seconds(60), "interval_seconds": 60.0}
    return replace(schedule(), **{**defaults, **values})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"status": Status.PAUSED, "status_reason": Reason.MANUAL}, Health.PAUSED),
        ({"status": Status.PAUSED, "status_reason": Reason.INVALID_SPEC}, Health.INVALID),
        ({"status": Status.DEAD, "status_reason": Reason.MAX_RETRIES, "dead_at": NOW}, Health.DEAD),
        ({"status": Status.DONE, "status_reason": Reason.REPEAT_LIMIT}, Health.DONE),
    ],
)
def test_what_rests_is_named_by_its_status(values: dict[str, Any], expected: Health) -> None:
    """Whatever its last run was like."""
    resting = replace(schedule(), next_run_at=None, next_slot=None, last_error_at=NOW, **values)
    assert expected is health_of(resting, NOW)


def test_an_overdue_tick_is_late_and_then_silent() -> None:
    """Later than five seconds, and for three intervals or half a minute at least; before that, outcomes decide."""
    assert Health.HEALTHY is health_of(due(5), NOW)
    assert Health.LATE is health_of(due(5.1), NOW)
    assert Health.LATE is health_of(due(179), NOW)
    assert Health.SILENT is health_of(due(180), NOW)
    assert Health.LATE is health_of(due(29, interval_seconds=1.0), NOW)
    assert Health.SILENT is health_of(due(30, interval_seconds=1.0), NOW)
    daily = {"interval_seconds": None, "cron": "0 9 * * *"}
    assert Health.LATE is health_of(due(2 * 86_400, **daily), NOW)
    assert Health.SILENT is health_of(due(3 * 86_400 + 1, **daily), NOW)
    once = {"interval_seconds": None, "at": NOW - seconds(31), "anchor_at": NOW - seconds(100)}
    assert Health.SILENT is health_of(due(31, **once), NOW)
    assert Health.LATE is health_of(due(20, interval_seconds=None, cron="0 9 * * *", timezone="No/Where"), NOW)


def test_the_last_run_that_ended_decides() -> None:
    """A schedule that has not run yet has no last run; one that failed after it succeeded is failing."""
    early, late = NOW - seconds(50), NOW - seconds(40)
    assert Health.NEVER_RAN is health_of(due(-10, last_attempt_at=None), NOW)
    assert Health.FAILING is health_of(due(-10, last_error_at=early), NOW)
    assert Health.FAILING is health_of(due(-10, last_error_at=late, last_success_at=early), NOW)
    assert Health.HEALTHY is health_of(due(-10, last_error_at=early, last_success_at=late), NOW)
    assert Health.LATE is health_of(due(10, last_error_at=early), NOW)


@given(st.floats(-100, 100_000), st.sampled_from([1.0, 60.0, 3600.0]))
def test_the_facts_say_the_same_at_every_moment(overdue: float, interval: float) -> None:
    """Views keep the facts, and ask them later."""
    job = due(0, interval_seconds=interval)
    later = NOW + seconds(overdue)
    assert health_of(job, later) is health_facts(job).at(later)
