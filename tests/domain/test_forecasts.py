"""Fires by bucket: those that are listed as upcoming, counted."""

from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.domain.calendars import Calendar, CalendarRules
from app.domain.forecasts import (
    Buckets,
    Load,
    Peak,
    closed_spans,
    expected_pattern,
    fire_pattern,
    peak_of,
    quiet_spans,
)
from app.domain.schedule_lifecycle import paused_until
from app.domain.schedules import ScheduledJob
from app.domain.upcoming import coming_fires
from tests.domain.test_upcoming import schedules, some_slots
from tests.support.domain_builders import T0, after, schedule
from tests.support.hypothesis_examples import examples

HOUR = timedelta(hours=1)


def buckets_from(seconds: float, count: int, length: float) -> Buckets:
    """Return so many buckets that begin so many seconds after ``T0``."""
    return Buckets(after(seconds), after(seconds + count * length), timedelta(seconds=length))


@given(
    schedules(),
    st.integers(0, 50_000),
    st.sampled_from([60, 300, 1000, 3600]),
    st.integers(0, 3),
    st.sets(st.integers(0, 39), max_size=6),
)
@examples(60)
def test_a_pattern_counts_what_is_upcoming(
    job: ScheduledJob, seconds: int, length: int, active: int, numbers: set[int]
) -> None:
    """For every kind of schedule, wherever the buckets begin, however long they are, whatever is left out."""
    buckets, skipped = buckets_from(seconds, 50, length), some_slots(job, numbers)
    fires = coming_fires(job, active, buckets.since, buckets.until, skipped)
    expected = Counter((fire.at - buckets.since) // buckets.length for fire in fires)
    assert expected == fire_pattern(job, active, buckets, skipped)


def test_a_pause_that_ends_by_itself_is_followed_by_fires() -> None:
    """They are expected from the end of the pause on."""
    job = paused_until(schedule(cron="*/10 * * * *"), after(3600), T0)
    assert {3: 1, 4: 1} == fire_pattern(job, 0, buckets_from(1800, 5, 600))


def test_many_jitters_are_spread_evenly() -> None:
    """Over the length of the jitter, and not beyond the next slot."""
    hourly = schedule(cron="0 * * * *", jitter_seconds=1800)
    assert {0: 0.5, 1: 0.5, 4: 0.5, 5: 0.5} == expected_pattern(hourly, 0, buckets_from(3600, 8, 900))
    assert {0: 1.0, 4: 1.0} == expected_pattern(replace(hourly, jitter_seconds=600), 0, buckets_from(3600, 8, 900))
    frequent = schedule(interval_seconds=60, jitter_seconds=3600)
    inner = {index: fires for index, fires in expected_pattern(frequent, 0, buckets_from(600, 10, 30)).items() if index}
    assert all(0.49 < fires < 0.51 for index, fires in inner.items() if index < 8)


@given(st.lists(st.floats(0, 50), min_size=1, max_size=30))
def test_averages_are_rounded_to_the_same_total(numbers: list[float]) -> None:
    """Every bucket has a whole number, and no fire is lost or added on the way."""
    load = Load(buckets_from(0, len(numbers), 60))
    load.add(dict(enumerate(numbers)), 3, 2.0)
    assert round(3 * sum(numbers)) == sum(load.fires)
    assert all(abs(fires - 3 * number) <= 1 for fires, number in zip(load.fires, numbers, strict=True))
    assert [round(2 * number, 3) for number in numbers] == load.busy_seconds


def test_closed_spans_are_those_of_calendars_within_the_forecast() -> None:
    """Entries of all calendars of the schedules, each once, cut at the ends; a calendar that allows closes nothing."""
    strike = Calendar(name="strike", timezone="Europe/Berlin", dates=("2026-12-24/2026-12-25", "--12-31"))
    works = Calendar(name="works", dates=("2026-12-26",))
    jobs = [
        schedule(calendars=CalendarRules(excluded=(strike,))),
        schedule(calendars=CalendarRules(excluded=(strike, works))),
        schedule(calendars=CalendarRules(only=(Calendar(name="open", dates=("2026-12-26",)),))),
    ]
    since, until = datetime(2026, 12, 24, 12, tzinfo=UTC), datetime(2026, 12, 26, 12, tzinfo=UTC)
    assert [
        ("strike", since, datetime(2026, 12, 25, 23, tzinfo=UTC)),
        ("works", datetime(2026, 12, 26, tzinfo=UTC), until),
    ] == [(span.calendar, span.since, span.until) for span in closed_spans(jobs, since, until)]
    assert [] == closed_spans(jobs[2:], since, until)


def test_peaks_and_quiet_spans() -> None:
    """The first of the largest buckets, and the spans with at most a tenth of it."""
    buckets = buckets_from(0, 6, 3600)
    assert Peak(T0 + 2 * HOUR, 40) == peak_of(buckets, [0, 4, 40, 5, 40, 1])
    assert [(T0, T0 + 2 * HOUR), (T0 + 5 * HOUR, T0 + 6 * HOUR)] == quiet_spans(buckets, [0, 4, 40, 5, 40, 1])
    assert [(T0, T0 + 6 * HOUR)] == quiet_spans(buckets, [0] * 6)
