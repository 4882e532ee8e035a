"""The coming fires of schedules are those that happen, and a calendar program can read them.

Covers app.domain.icalendar_feed.
"""

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.domain.icalendar import read_events
from app.domain.icalendar_feed import FeedEvent, feed_text
from app.domain.planning import with_retry
from app.domain.schedule_lifecycle import paused
from app.domain.schedules import ScheduledJob
from app.domain.upcoming import Fire, coming_fires, merged_fires
from tests.domain.strategies import expressions, limits
from tests.support.domain_builders import T0, after, live, schedule
from tests.support.hypothesis_examples import examples

DAY = timedelta(days=1)
MOST_TICKS = 2000


@st.composite
def schedules(draw: st.DrawFn) -> ScheduledJob:
    """A schedule of any kind that was created at ``T0``, with limits and jitter perhaps."""
    kinds: st.SearchStrategy[dict[str, Any]] = st.one_of(
        st.sampled_from([1800, 3600, 5400, 7201, 86_400]).map(lambda seconds: {"interval_seconds": seconds}),
        expressions.map(lambda text: {"cron": text}),
        st.integers(60, 200_000).map(lambda seconds: {"after": f"{seconds}s"}),
    )
    values = draw(kinds) | draw(limits())
    values["total_repeats"] = draw(st.sampled_from([0, 0, 1, 5]))
    values["jitter_seconds"] = draw(st.sampled_from([0, 0, 40, 4000]))
    values["end_at"] = draw(st.sampled_from([None, None, T0 + timedelta(hours=30)]))
    return schedule(**values)


def some_slots(job: ScheduledJob, numbers: set[int]) -> set[datetime]:
    """Return those of the first slots that have these numbers, and a time that is none."""
    slots = [fire.slot for fire in islice(coming_fires(job, 0, T0, T0 + 5 * DAY), 40)]
    return {slot for number, slot in enumerate(slots) if number in numbers} | ({T0} if numbers else set())


@given(schedules(), st.integers(0, 100), st.sets(st.integers(0, 39), max_size=6))
@examples(60)
def test_the_coming_fires_are_those_that_happen(job: ScheduledJob, hours: int, numbers: set[int]) -> None:
    """With jitter, repeats, window, end and slots that are left out; from now on, and from a later moment on."""
    since, until = T0 + timedelta(hours=hours), T0 + 5 * DAY
    skipped = some_slots(job, numbers)
    happened = [Fire(at, slot) for at, slot in live(job, until, MOST_TICKS, skipped)]
    if len(happened) == MOST_TICKS:
        until = happened[-1].at
    expected = [fire for fire in happened if since <= fire.at < until]
    assert expected == list(coming_fires(job, 0, since, until, skipped))


def test_what_is_not_expected_is_not_listed() -> None:
    """A paused schedule has no coming fires, active runs count as repeats, and a retry holds the cadence."""
    job = schedule(interval_seconds=60, total_repeats=3)
    assert 3 == len(list(coming_fires(job, 0, T0, after(3600))))
    assert 1 == len(list(coming_fires(job, 2, T0, after(3600))))
    assert [] == list(coming_fires(paused(job), 0, T0, after(3600)))
    retrying = with_retry(schedule(interval_seconds=60), T0, 1, after(150))
    assert [after(180), after(240)] == [fire.at for fire in coming_fires(retrying, 0, T0, after(241))]


def test_fires_of_several_schedules_are_merged_by_due_time() -> None:
    """Those of one moment are in the order of the schedules' ids."""
    jobs = [replace(schedule(interval_seconds=seconds), id=UUID(int=seconds)) for seconds in (120, 60, 45)]
    merged = [
        (coming.job.id.int, int((coming.fire.at - T0).total_seconds()))
        for coming in merged_fires(jobs, {}, T0, after(121))
    ]
    assert [(45, 45), (60, 60), (45, 90), (60, 120), (120, 120)] == merged
    skipped = {UUID(int=60): {after(60)}, UUID(int=120): {after(120)}}
    left = [(one.job.id.int, one.fire.at) for one in merged_fires(jobs, {}, T0, after(121), lambda: False, skipped)]
    assert [(45, after(45)), (45, after(90)), (60, after(120))] == left


def test_a_calendar_is_read_back() -> None:
    """Long names, other alphabets and special characters survive; no line is longer than 75 bytes."""
    name = "Nachtlauf; \\ täglich, " + "東京" * 40
    events = [FeedEvent(f"{number}@carillon", at, name, "a\nb") for number, at in enumerate((after(60), after(90)))]
    text = feed_text("Alle", events, T0)
    assert max(len(line.encode()) for line in text.split("\r\n")) <= 75
    assert text.endswith("END:VCALENDAR\r\n")
    assert not [line for line in text.split("\r\n") if "\n" in line]
    assert text.replace("\r\n ", "").count("DESCRIPTION:a\\nb") == len(events)
    read = read_events(text, "UTC")
    assert [(name[:200], T0 + timedelta(seconds=seconds)) for seconds in (60, 90)] == [
        (event.summary, event.start.replace(tzinfo=UTC)) for event in read
    ]
