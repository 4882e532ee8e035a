"""Slots in order, as a person reads them off the calendar and the clock on the wall.

Covers app.domain.local_time.
"""

from datetime import datetime, timedelta
from typing import Any

import pytest

from app.domain.local_time import Hours, window, zone
from app.domain.recurrence import CronTimes
from app.domain.schedules import ScheduledJob
from app.domain.specs import Cadence
from tests.domain.golden import Row, compiled, moment, shown, utc
from tests.domain.golden_calendar import CALENDAR
from tests.domain.golden_clock_changes import CLOCK_CHANGES
from tests.domain.golden_windows import WINDOWS
from tests.support.domain_builders import schedule

INSTANT = timedelta.resolution
ROWS = [*CLOCK_CHANGES, *CALENDAR, *WINDOWS]
every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


@every_row
def test_the_slots_from_a_moment_on(row: Row) -> None:
    """Each follows the one before it, and the first is the first from the moment on."""
    start, place = utc(row.start), row.spec.get("timezone", "UTC")
    slots = compiled(row.spec, start)
    found = [slots.next(start - INSTANT)]
    while found[-1] is not None and len(found) < len(row.expected):
        found.append(slots.next(found[-1]))
    assert row.expected == [shown(slot, place) for slot in found]


@every_row
def test_the_same_slots_backwards(row: Row) -> None:
    """From just after the last, each precedes the one after it; counted, they are as many."""
    start, place = utc(row.start), row.spec.get("timezone", "UTC")
    slots = compiled(row.spec, start)
    found = [slots.previous(moment(row.expected[-1]) + INSTANT)]
    while found[-1] is not None and len(found) < len(row.expected):
        found.append(slots.previous(found[-1]))
    assert row.expected[::-1] == [shown(slot, place) for slot in found]
    assert len(row.expected) == slots.count(moment(row.expected[0]), moment(row.expected[-1]))


def sequence(cadence: Cadence, after: datetime, most: int = 10) -> list[str]:
    """The slots of a schedule after a moment."""
    found: list[str] = []
    slot = cadence.first_after(after)
    while slot is not None and len(found) < most:
        found.append(shown(slot))
        slot = cadence.first_after(slot)
    return found


def test_a_cadence_lies_between_its_start_and_its_end() -> None:
    """Slots at start_at and at end_at count, none lies outside."""
    job = schedule(cron="0 12 * * *", start_at=utc("2026-03-10 12:00"), end_at=utc("2026-03-13 12:00"))
    expected = [
        "Tue 2026-03-10 12:00 +0000",
        "Wed 2026-03-11 12:00 +0000",
        "Thu 2026-03-12 12:00 +0000",
        "Fri 2026-03-13 12:00 +0000",
    ]
    assert expected == sequence(job.cadence, utc("2026-01-01"))
    assert expected[-1] == shown(job.cadence.latest_at(utc("2026-12-31")))
    assert expected[-2] == shown(job.cadence.before(moment(expected[-1])))
    assert "never" == shown(job.cadence.before(moment(expected[0])))
    assert 4 == job.cadence.count(moment(expected[0]), moment(expected[-1]))


def test_a_cadence_begins_with_the_first_cron_slot_from_its_start_on() -> None:
    """For a cron, start_at need not be a slot; an end right before a slot leaves it out."""
    job = schedule(cron="0 12 * * *", start_at=utc("2026-03-10 12:01"), end_at=utc("2026-03-13 11:59"))
    assert ["Wed 2026-03-11 12:00 +0000", "Thu 2026-03-12 12:00 +0000"] == sequence(job.cadence, utc("2026-01-01"))


def test_an_interval_begins_at_its_start() -> None:
    """start_at is the first slot, and the phase of all others."""
    job = schedule(every="90m", start_at=utc("2026-03-10 10:10"), end_at=utc("2026-03-10 14:00"))
    expected = ["Tue 2026-03-10 10:10 +0000", "Tue 2026-03-10 11:40 +0000", "Tue 2026-03-10 13:10 +0000"]
    assert expected == sequence(job.cadence, utc("2026-01-01"))
    assert "never" == shown(job.cadence.latest_at(utc("2026-03-10 10:09")))


def test_without_a_start_the_first_slot_is_one_interval_after_the_creation() -> None:
    """The anchor itself was never expected."""
    job = schedule(every="hourly", end_at=utc("2026-03-01 15:30"))
    expected = ["Sun 2026-03-01 13:00 +0000", "Sun 2026-03-01 14:00 +0000", "Sun 2026-03-01 15:00 +0000"]
    assert expected == sequence(job.cadence, utc("2026-01-01"))


def test_an_interval_whose_start_lies_outside_its_window_keeps_the_phase_of_the_start() -> None:
    """The first slot is the first multiple of the interval that is allowed."""
    job = schedule(every="7h", start_at=utc("2026-03-10 06:00"), only_between="08:00-18:00", not_on=["thursday"])
    expected = [
        "Tue 2026-03-10 13:00 +0000",
        "Wed 2026-03-11 10:00 +0000",
        "Wed 2026-03-11 17:00 +0000",
        "Fri 2026-03-13 11:00 +0000",
    ]
    assert expected == sequence(job.cadence, utc("2026-01-01"), most=4)


def test_monthly_from_the_second_of_two_equal_wall_times_begins_there() -> None:
    """start_at is the first slot, be it in the hour that the clocks repeat."""
    start = utc("2026-10-25 01:30")
    job = schedule(every="monthly", start_at=start, timezone="Europe/Berlin")
    expected = ["Sun 2026-10-25 01:30 +0000", "Wed 2026-11-25 01:30 +0000", "Fri 2026-12-25 01:30 +0000"]
    assert expected == sequence(job.cadence, utc("2026-10-01"), most=3)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["Fri 2026-03-06 09:00 +0000"]),
        ({"only_between": "09:00-10:00"}, ["Fri 2026-03-06 09:00 +0000"]),
        ({"only_between": "08:00-09:00"}, []),
        ({"not_on": ["fri"]}, []),
        ({"only_between": "10:00-11:00", "timezone": "Europe/Berlin"}, ["Fri 2026-03-06 09:00 +0000"]),
    ],
)
def test_a_moment_is_the_only_slot_if_it_is_allowed(fields: dict[str, Any], expected: list[str]) -> None:
    """Outside its window or on an excluded day there is none."""
    at = utc("2026-03-06 09:00")
    cadence = Cadence(compiled({"at": at, **fields}, at), at)
    assert expected == sequence(cadence, utc("2026-01-01"))
    assert len(expected) == compiled({"at": at, **fields}, at).count(at, at)
    assert (expected or ["never"]) == [shown(cadence.latest_at(utc("2027-01-01")))]


def times(job: ScheduledJob) -> CronTimes:
    """The slots of a cron schedule, with what is special about them."""
    found = job.spec.slots(job.anchor_at)
    assert isinstance(found, CronTimes)
    return found


@pytest.mark.parametrize(
    ("cron", "place", "slot", "expected"),
    [
        ("30 2 * * *", "Europe/Berlin", "Sun 2026-03-29 03:00 +0200", "2026-03-29 02:30"),
        ("30 2 * * *", "Europe/Berlin", "Mon 2026-03-30 02:30 +0200", None),
        ("30 2,3 * * *", "Europe/Berlin", "Sun 2026-03-29 03:30 +0200", None),
        ("0 2,3 * * *", "Europe/Berlin", "Sun 2026-03-29 03:00 +0200", None),
        ("0 * * * *", "Europe/Berlin", "Sun 2026-03-29 03:00 +0200", None),
        ("30 23 * * *", "America/Nuuk", "Sun 2026-03-29 00:00 -0100", "2026-03-28 23:30"),
        ("0 12 * * *", "Pacific/Apia", "Sat 2011-12-31 00:00 +1400", "2011-12-30 12:00"),
        ("30 0 * * *", "America/Goose_Bay", "Sun 2010-03-14 01:01 -0300", "2010-03-14 00:30"),
    ],
)
def test_a_moved_slot_knows_the_wall_time_that_it_stands_for(
    cron: str, place: str, slot: str, expected: str | None
) -> None:
    """The skipped time for a slot after a gap, nothing for all others."""
    found = times(schedule(cron=cron, timezone=place)).moved(moment(slot))
    assert expected == (None if found is None else f"{found:%Y-%m-%d %H:%M}")


@pytest.mark.parametrize(
    ("cron", "slot", "expected"),
    [
        ("30 2 * * *", "Sun 2026-10-25 02:30 +0200", True),
        ("30 1 * * *", "Sun 2026-10-25 01:30 +0200", False),
        ("0 3 * * *", "Sun 2026-10-25 03:00 +0100", False),
        ("30 2 * * *", "Sat 2026-10-24 02:30 +0200", False),
        ("*/30 2 * * *", "Sun 2026-10-25 02:30 +0200", False),
    ],
)
def test_a_slot_knows_whether_its_wall_time_is_repeated(cron: str, slot: str, expected: bool) -> None:
    """Only of a wall time that fires once does it matter."""
    assert expected is times(schedule(cron=cron, timezone="Europe/Berlin")).repeated(moment(slot))


def test_the_openings_of_a_window_that_clocks_repeat_over_midnight() -> None:
    """Where two days are interleaved the first opening that comes is the first one named."""
    allowed = Hours(zone("America/Goose_Bay"), window("00:00-23:30"), ())
    closed = moment("Sat 2010-11-06 23:45 -0300")
    assert "Sun 2010-11-07 00:00 -0300" == shown(allowed.opening(closed), "America/Goose_Bay")
    again = moment("Sat 2010-11-06 23:45 -0400")
    assert "Sat 2010-11-06 23:30 -0400" == shown(allowed.closing(again), "America/Goose_Bay")
