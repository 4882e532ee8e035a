"""Warnings and notes about recurrence rules and calendars.

Covers app.domain.calendar_warnings.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.domain.calendars import Calendar, CalendarRules
from app.domain.schedules import ScheduledJob
from app.domain.spec_preview import next_runs, spec_warnings
from app.domain.specs import Spec, canonical
from tests.domain.golden import utc
from tests.support.domain_builders import schedule

BERLIN = "Europe/Berlin"
# A Friday.
NOW = datetime(2027, 1, 15, 12, tzinfo=UTC)
AT_NINE = ";BYHOUR=9;BYMINUTE=0"
HOLIDAYS = Calendar(name="closed", timezone=BERLIN, dates=("--01-01", "--12-01/--12-31"))


def warnings(
    *,
    start_at: datetime | None = None,
    end_at: datetime | None = None,
    excluded: tuple[Calendar, ...] = (),
    only: tuple[Calendar, ...] = (),
    **spec: Any,
) -> list[str]:
    """The warnings for a schedule that is created now."""
    read = Spec(**canonical(spec), calendars=CalendarRules(excluded, only))
    bounds: dict[str, Any] = {"start_at": start_at, "end_at": end_at, "timeout_seconds": 1, "now": NOW}
    return spec_warnings(read, anchor=read.at or start_at or NOW, **bounds)


@pytest.mark.parametrize(
    "spec",
    [
        {"rrule": f"FREQ=DAILY{AT_NINE}"},
        {"rrule": f"FREQ=WEEKLY;BYDAY=TU{AT_NINE}", "timezone": BERLIN},
        {"rrule": f"FREQ=MONTHLY;BYMONTHDAY=-1{AT_NINE}"},
        {"rrule": f"FREQ=MONTHLY;BYMONTHDAY=28,29,30,31;BYSETPOS=-1{AT_NINE}"},
        {"rrule": "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU", "start_at": NOW + timedelta(days=1)},
        {"rrule": f"FREQ=DAILY{AT_NINE}", "excluded": (Calendar(name="x", dates=("--12-24/--12-26",)),)},
        {"cron": "0 9 * * *", "only": (Calendar(name="x", dates=("--12-24/--12-26",)),)},
    ],
)
def test_what_surprises_nobody_is_left_alone(spec: dict[str, Any]) -> None:
    """No warning without a reason."""
    assert [] == warnings(**spec)


CREATED = "it is that of the creation"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"rrule": "FREQ=DAILY"},
            [f"The rule names no time of day: {CREATED}, 12:00. Set BYHOUR and BYMINUTE, or start_at."],
        ),
        (
            {"rrule": "FREQ=DAILY;BYHOUR=9"},
            [f"The rule names no minute: {CREATED}, 00. Set BYHOUR and BYMINUTE, or start_at."],
        ),
        ({"rrule": "FREQ=DAILY;BYMINUTE=9"}, [f"The rule names no hour: {CREATED}, 12. Set BYHOUR, or start_at."]),
        (
            {"rrule": f"FREQ=WEEKLY;INTERVAL=2;BYDAY=TU{AT_NINE}"},
            ["INTERVAL counts from the creation. Set start_at to choose the first week."],
        ),
        (
            {"rrule": f"FREQ=MONTHLY;BYMONTHDAY=31{AT_NINE}"},
            ["Day 31 is left out in months that do not have it."],
        ),
        (
            {"rrule": "FREQ=MONTHLY", "start_at": utc("2027-01-30")},
            ["Day 30 is left out in months that do not have it."],
        ),
        ({"rrule": f"FREQ=MONTHLY;BYMONTH=3;BYMONTHDAY=31{AT_NINE}"}, []),
        (
            {"rrule": f"FREQ=MONTHLY;BYDAY=5MO{AT_NINE}"},
            ["A fifth weekday is left out in months that do not have it."],
        ),
        (
            {"rrule": "FREQ=DAILY;BYHOUR=2;BYMINUTE=30", "timezone": BERLIN},
            [
                "On 2027-03-28 the clocks in Europe/Berlin skip 02:30: it fires at 03:00 instead.",
                "On 2027-10-31 the clocks in Europe/Berlin show 02:30 twice: it fires once, the first time.",
            ],
        ),
        (
            {"rrule": f"FREQ=DAILY;UNTIL=20270101{AT_NINE}"},
            ["It never fires: the rule ended at 2027-01-01T23:59:59.999999Z."],
        ),
        (
            {"rrule": f"FREQ=DAILY;COUNT=3{AT_NINE}", "start_at": utc("2026-01-01")},
            ["It never fires: the rule ended at 2026-01-03T09:00:00Z."],
        ),
        ({"rrule": f"FREQ=DAILY;INTERVAL=7;BYDAY=MO{AT_NINE}"}, ["It never fires: no date fits the rule."]),
        (
            {"rrule": f"FREQ=DAILY{AT_NINE}", "only_between": "10:00-11:00"},
            ["It never fires: the window leaves out every slot."],
        ),
    ],
)
def test_traps_of_rules(spec: dict[str, Any], expected: list[str]) -> None:
    """What a rule leaves out, what it takes from its creation, and what clock changes do to it."""
    assert expected == warnings(**spec)


def test_a_count_without_a_start_gives_as_many_slots() -> None:
    """The moment of creation is not a slot, so it is not counted."""
    spec = Spec(**canonical({"rrule": "FREQ=DAILY;COUNT=3"}))
    created, started = spec.slots_from(NOW, None), spec.slots_from(NOW + timedelta(days=9), NOW)
    last = utc("2100-01-01")
    assert NOW + timedelta(days=3) == created.previous(last)
    assert NOW + timedelta(days=2) == started.previous(last)


def test_a_start_in_the_past_still_decides_which_weeks() -> None:
    """After a pause the anchor is new; weeks are counted from the start as before."""
    spec = Spec(**canonical({"rrule": f"FREQ=WEEKLY;INTERVAL=2;BYDAY=TU{AT_NINE}"}))
    start = utc("2027-01-05 00:00")
    expected = [utc("2027-01-19 09:00"), utc("2027-02-02 09:00")]
    for anchor in (start, NOW, NOW + timedelta(days=2)):
        slots = spec.slots_from(anchor, start)
        assert expected == [slots.next(NOW), slots.next(expected[0])]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"cron": "0 9 * * *", "excluded": (HOLIDAYS,)},
            ["Every slot of December 2027 is excluded by calendar 'closed'."],
        ),
        (
            {"cron": "0 9 1 * *", "excluded": (HOLIDAYS, Calendar(name="spring", dates=("--02-15/--04-15",)))},
            [
                "Every slot of March 2027 and April 2027 is excluded by calendar 'spring'.",
                "Every slot of December 2027 is excluded by calendar 'closed'.",
            ],
        ),
        (
            {"cron": "0 9 1 * *", "excluded": (Calendar(name="x", dates=("--02-01/--10-31",)),)},
            ["Every slot of 9 of the next 12 months is excluded by calendar 'x'."],
        ),
        (
            {"cron": "0 9 * * *", "excluded": (HOLIDAYS,), "end_at": utc("2027-06-01")},
            [],
        ),
        (
            {"cron": "0 9 25 12 *", "excluded": (HOLIDAYS,)},
            ["It never fires: calendar 'closed' left no slot in a search over 20 years."],
        ),
        (
            {"cron": "0 9 * * *", "only": (Calendar(name="none"),), "excluded": (HOLIDAYS,)},
            ["It never fires: calendars 'closed' and 'none' left no slot in a search over 20 years."],
        ),
        (
            {"at": utc("2027-12-25 09:00"), "excluded": (HOLIDAYS,)},
            ["It never fires: calendar 'closed' excludes it (--12-01/--12-31)."],
        ),
        (
            {
                "cron": "30 2 * * *",
                "timezone": BERLIN,
                "excluded": (Calendar(name="x", dates=("2027-03-28", "2027-10-31")),),
            },
            [],
        ),
    ],
)
def test_traps_of_calendars(spec: dict[str, Any], expected: list[str]) -> None:
    """Months in which nothing fires, and schedules that never fire, with the calendars that are why."""
    assert expected == warnings(**spec)


class _Job(ScheduledJob, frozen=True, kw_only=True):
    """A schedule with a spec that its own fields cannot hold yet."""

    given: Spec

    @property
    def spec(self) -> Spec:
        """Return the spec with its rule and calendars."""
        return self.given


def job_with(spec: Spec) -> ScheduledJob:
    """A schedule with this spec, created now."""
    plain = replace(schedule(cron="0 0 1 1 *"), anchor_at=NOW, timezone=spec.timezone)
    fields = {name: getattr(plain, name) for name in plain.__struct_fields__}
    return _Job(**{**fields, "next_slot": None, "cadence_slot": None, "given": spec})


def test_next_runs_say_what_calendars_leave_out_before_them() -> None:
    """The first slot that is left out, whether there are more, and the entry."""
    calendar = Calendar(name="closed", timezone=BERLIN, dates=("2027-01-17", "2027-01-19/2027-01-20"))
    spec = Spec(**canonical({"cron": "0 9 * * *", "timezone": BERLIN}), calendars=CalendarRules((calendar,), ()))
    runs = next_runs(job_with(spec), 4, NOW).runs
    expected = [
        ("2027-01-16", ""),
        ("2027-01-18", "2027-01-17 09:00 left out: calendar 'closed' excludes it (2027-01-17)"),
        ("2027-01-21", "2027-01-19 09:00 and others left out: calendar 'closed' excludes it (2027-01-19/2027-01-20)"),
        ("2027-01-22", ""),
    ]
    assert expected == [(f"{run.at:%Y-%m-%d}", run.note) for run in runs]


def test_next_runs_of_a_rule_say_what_clock_changes_do() -> None:
    """As for cron expressions."""
    spec = Spec(**canonical({"rrule": "FREQ=WEEKLY;BYDAY=SU;BYHOUR=2;BYMINUTE=30;BYMONTH=3,10", "timezone": BERLIN}))
    notes = {f"{run.at:%Y-%m-%d}": run.note for run in next_runs(job_with(spec), 9, NOW).runs if run.note}
    assert {
        "2027-03-28": "the clocks skip 02:30 on 2027-03-28: moved to 03:00",
        "2027-10-31": "the clocks repeat 02:30 on 2027-10-31: only the first one counts",
    } == notes
