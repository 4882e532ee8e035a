"""The slots of recurrence rules: those of a brute-force oracle, of dateutil, and of what was written by hand.

Covers app.domain.rrule_days, app.domain.rrule_times.
"""

import time
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.domain.local_time import hours
from app.domain.recurrence import Recurrence
from app.domain.rrule import parse_rrule
from app.domain.rrule_days import canonical_rrule
from app.domain.rrule_times import RRuleTimes, rrule_times
from tests.domain import oracle, rrule_oracle
from tests.domain.golden import compiled, shown, utc
from tests.domain.rrule_oracle import CODES, rule_text
from tests.domain.strategies import limits, moments, zones
from tests.domain.test_differential import assert_agree, backward, onward
from tests.support.hypothesis_examples import examples

DAY = timedelta(days=1)
INSTANT = timedelta.resolution
ANCHOR = datetime(2026, 1, 1, 9, tzinfo=UTC)
ALL_HOURS = ",".join(map(str, range(24)))
ALL_MINUTES = ",".join(map(str, range(60)))
WORKING_DAYS = "MO,TU,WE,TH,FR"


def times(rule: str, anchor: datetime = ANCHOR, place: str = "UTC", **limits: Any) -> RRuleTimes:
    """The slots of a rule as it is written, with nothing kept from before."""
    allowed = hours(place, limits.get("only_between"), tuple(limits.get("not_on", ())))
    return RRuleTimes(parse_rrule(rule), anchor, allowed, counts_anchor=limits.get("counts_anchor", True))


def first(rule: str, number: int, anchor: datetime = ANCHOR, place: str = "UTC", **limits: Any) -> list[str]:
    """The first slots of a rule, as the clock of the place shows them."""
    slots = onward(times(rule, anchor, place, **limits), anchor - INSTANT, datetime(2999, 1, 1, tzinfo=UTC))
    return [shown(slot, place) for slot in islice(slots, number)]


def numbers(low: int, high: int, *, most: int = 3, negative: bool = False) -> st.SearchStrategy[str]:
    """A list of numbers in any order."""
    number = st.integers(low, high)
    drawn = number | number.map(lambda value: -value) if negative else number
    return st.lists(drawn, min_size=1, max_size=most).map(lambda values: ",".join(map(str, values)))


@st.composite
def rules(draw: st.DrawFn) -> dict[str, str]:
    """The parts of a rule that is valid; some name no date."""
    freq = draw(st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]))
    parts = {"FREQ": freq}
    nth = st.just("")
    if draw(st.booleans()):
        parts["INTERVAL"] = str(draw(st.integers(1, 5) | st.sampled_from([7, 12, 14, 24, 100])))
    if draw(st.integers(0, 2)) == 0:
        parts["BYMONTH"] = draw(numbers(1, 12))
    if freq in {"MONTHLY", "YEARLY"}:
        highest = 53 if freq == "YEARLY" and "BYMONTH" not in parts else 5
        nth |= st.integers(1, highest).map(str) | st.integers(-highest, -1).map(str)
    if freq != "WEEKLY" and draw(st.integers(0, 2)) == 0:
        parts["BYMONTHDAY"] = draw(numbers(1, 31, negative=True))
    if draw(st.booleans()):
        weekday = st.builds("{}{}".format, nth, st.sampled_from(CODES))
        parts["BYDAY"] = ",".join(draw(st.lists(weekday, min_size=1, max_size=4)))
    if draw(st.booleans()):
        parts["BYHOUR"] = draw(numbers(0, 23) | st.sampled_from(["0", "1", "2", "3", "0,1,2,3,23"]))
    if draw(st.booleans()):
        parts["BYMINUTE"] = draw(numbers(0, 59) | st.just("0,30"))
    if len(parts.keys() - {"FREQ", "INTERVAL"}) and draw(st.integers(0, 2)) == 0:
        parts["BYSETPOS"] = draw(numbers(1, 6, most=2, negative=True))
    if draw(st.booleans()):
        parts["WKST"] = draw(st.sampled_from(CODES))
    return parts


@st.composite
def anchors(draw: st.DrawFn, place: str) -> datetime:
    """A moment near a clock change, whose wall time the clock shows once."""
    anchor = draw(moments(place)).replace(microsecond=0)
    wall = anchor.astimezone(ZoneInfo(place))
    assume(wall.replace(fold=0).utcoffset() == wall.replace(fold=1).utcoffset())
    # At the end of a gap, a time that the gap skips would be a slot although it lies before the start on the wall.
    assume(anchor.replace(second=0) not in oracle.changes(place, anchor.year, anchor.year))
    return anchor


def local(moment: datetime, place: str) -> datetime:
    """What the clock of the place shows."""
    return moment.astimezone(ZoneInfo(place)).replace(tzinfo=None, fold=0)


@given(data=st.data(), parts=rules(), narrowed=limits())
@examples(120)
def test_slots_are_those_of_the_brute_force_oracle(
    data: st.DataObject, parts: dict[str, str], narrowed: dict[str, Any]
) -> None:
    """Over three years, in both directions, over clock changes, in windows and without excluded weekdays."""
    place = narrowed["timezone"]
    anchor = data.draw(anchors(place))
    last = anchor + data.draw(st.sampled_from([30, 1100])) * DAY
    walls = rrule_oracle.walls(parts, local(anchor, place), local(last, place).date() + DAY)
    named = [slot for slot in rrule_oracle.slots(walls, place) if anchor <= slot <= last]
    expected = oracle.allowed(named, place, narrowed["only_between"], narrowed["not_on"])
    slots = times(rule_text(parts), anchor, place, **narrowed)
    assert_agree(expected, slots, anchor - INSTANT, last)


@given(data=st.data(), parts=rules(), place=zones)
@examples(120)
def test_slots_are_those_of_dateutil(data: st.DataObject, parts: dict[str, str], place: str) -> None:
    """The second opinion, wherever there is a slot within three years."""
    assume(not rrule_oracle.mixes_weekdays(parts))
    anchor = data.draw(anchors(place))
    last = anchor + 1100 * DAY
    found = list(islice(onward(times(rule_text(parts), anchor, place), anchor - INSTANT, last), 50))
    assume(found)
    expected = rrule_oracle.dateutil_slots(parts, local(anchor, place), place, found[-1])
    assert [slot for slot in expected if slot >= anchor] == found


@given(data=st.data(), parts=rules(), place=zones, count=st.integers(1, 60))
@examples(60)
def test_count_ends_a_rule_after_so_many_slots(
    data: st.DataObject, parts: dict[str, str], place: str, count: int
) -> None:
    """Counted from the anchor, which counts if it is a slot and is expected; the last slot is found backwards too."""
    anchor, counts_anchor = data.draw(anchors(place)), data.draw(st.booleans())
    endless = times(rule_text(parts), anchor, place)
    ending = times(rule_text({**parts, "COUNT": count}), anchor, place, counts_anchor=counts_anchor)
    after = anchor - INSTANT if counts_anchor else anchor
    horizon = anchor + 60 * 366 * DAY
    expected = list(islice(onward(endless, after, horizon), count))
    assert expected == list(islice(onward(ending, after, horizon), count + 1))
    if len(expected) == count:
        assert expected[-1] == ending.end == ending.previous(datetime(2500, 1, 1, tzinfo=UTC))


@given(data=st.data(), parts=rules(), place=zones)
@examples(60)
def test_until_ends_a_rule(data: st.DataObject, parts: dict[str, str], place: str) -> None:
    """The moment itself is included, in each spelling; a date includes its whole day."""
    anchor = data.draw(anchors(place))
    until = anchor + data.draw(st.integers(0, 400)) * DAY
    wall = local(until, place)
    assume(wall == local(wall.replace(tzinfo=ZoneInfo(place)).astimezone(UTC), place))
    moment = wall.replace(tzinfo=ZoneInfo(place)).astimezone(UTC)
    last = anchor + 800 * DAY
    endless = list(islice(onward(times(rule_text(parts), anchor, place), anchor - INSTANT, last), 3000))
    ends = {f"{moment:%Y%m%dT%H%M%SZ}": moment, f"{wall:%Y%m%dT%H%M%S}": moment}
    for text, end in ends.items():
        ending = times(rule_text({**parts, "UNTIL": text}), anchor, place)
        assert [slot for slot in endless if slot <= end] == list(islice(onward(ending, anchor - INSTANT, last), 3000))
    by_date = times(rule_text({**parts, "UNTIL": f"{wall:%Y%m%d}"}), anchor, place)
    expected = [slot for slot in endless if slot <= moment or local(slot, place).date() <= wall.date()]
    assert expected == list(islice(onward(by_date, anchor - INSTANT, last), 3000))


@given(data=st.data(), narrowed=limits(), hour=numbers(0, 23), minute=numbers(0, 59))
@examples(60)
def test_clock_changes_do_to_a_rule_what_they_do_to_fixed_cron_times(
    data: st.DataObject, narrowed: dict[str, Any], hour: str, minute: str
) -> None:
    """A daily rule and a cron expression that name the same times have the same slots."""
    anchor = data.draw(moments(narrowed["timezone"]))
    last = anchor + 5 * DAY
    expected = list(onward(compiled({"cron": f"{minute} {hour} * * *", **narrowed}, anchor), anchor, last))
    rule = compiled({"rrule": f"FREQ=DAILY;BYHOUR={hour};BYMINUTE={minute}", **narrowed}, anchor)
    assert_agree(expected, rule, anchor, last)


@given(data=st.data(), parts=rules(), narrowed=limits())
@examples(80)
def test_previous_is_the_mirror_of_next(data: st.DataObject, parts: dict[str, str], narrowed: dict[str, Any]) -> None:
    """Walked in either direction the sequence is the same, and its length is what count says."""
    anchor = data.draw(moments(narrowed["timezone"]))
    slots = times(rule_text(parts), anchor, narrowed["timezone"], **narrowed)
    sequence = list(islice(onward(slots, anchor - INSTANT, anchor + 900 * DAY), 150))
    assert all(slot >= anchor for slot in sequence)
    if sequence:
        assert sequence[::-1] == list(backward(slots, anchor - INSTANT, sequence[-1]))
        assert len(sequence) == slots.count(sequence[0], sequence[-1])


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (
            "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU;BYHOUR=9;BYMINUTE=0",
            ["Tue 2026-01-13 09:00", "Tue 2026-01-27 09:00", "Tue 2026-02-10 09:00"],
        ),
        (
            f"FREQ=MONTHLY;BYDAY={WORKING_DAYS};BYSETPOS=-1;BYHOUR=9;BYMINUTE=0",
            ["Fri 2026-01-30 09:00", "Fri 2026-02-27 09:00", "Tue 2026-03-31 09:00"],
        ),
        ("FREQ=MONTHLY;BYDAY=-1FR", ["Fri 2026-01-30 09:00", "Fri 2026-02-27 09:00", "Fri 2026-03-27 09:00"]),
        ("FREQ=MONTHLY;BYMONTHDAY=-1", ["Sat 2026-01-31 09:00", "Sat 2026-02-28 09:00", "Tue 2026-03-31 09:00"]),
        (
            "FREQ=MONTHLY;BYMONTHDAY=13;BYDAY=FR",
            ["Fri 2026-02-13 09:00", "Fri 2026-03-13 09:00", "Fri 2026-11-13 09:00"],
        ),
        (
            "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29",
            ["Tue 2028-02-29 09:00", "Sun 2032-02-29 09:00", "Fri 2036-02-29 09:00"],
        ),
        ("FREQ=YEARLY;BYDAY=20MO", ["Mon 2026-05-18 09:00", "Mon 2027-05-17 09:00", "Mon 2028-05-15 09:00"]),
        ("FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU", ["Sun 2026-03-29 09:00", "Sun 2027-03-28 09:00", "Sun 2028-03-26 09:00"]),
        ("FREQ=YEARLY", ["Thu 2026-01-01 09:00", "Fri 2027-01-01 09:00", "Sat 2028-01-01 09:00"]),
        ("FREQ=DAILY;INTERVAL=10;COUNT=2", ["Thu 2026-01-01 09:00", "Sun 2026-01-11 09:00"]),
        ("FREQ=DAILY;BYHOUR=8,12,17;BYMINUTE=0;BYSETPOS=-1", ["Thu 2026-01-01 17:00", "Fri 2026-01-02 17:00"]),
        ("FREQ=DAILY;UNTIL=20260102", ["Thu 2026-01-01 09:00", "Fri 2026-01-02 09:00"]),
        # Weeks that begin on Sunday put Sunday before Tuesday: RFC 5545 has this example.
        (
            "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,SU;WKST=MO",
            ["Sun 2026-01-04 09:00", "Tue 2026-01-13 09:00", "Sun 2026-01-18 09:00"],
        ),
        (
            "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,SU;WKST=SU",
            ["Sun 2026-01-11 09:00", "Tue 2026-01-13 09:00", "Sun 2026-01-25 09:00"],
        ),
    ],
)
def test_slots_as_a_person_reads_them_off_the_calendar(rule: str, expected: list[str]) -> None:
    """From Thursday, 1 January 2026, 09:00 on."""
    limited = "COUNT" in rule or "UNTIL" in rule
    assert [f"{slot} +0000" for slot in expected] == first(rule, len(expected) + limited)


def test_a_skipped_time_fires_after_the_gap_and_a_repeated_one_once() -> None:
    """As fixed times of cron do; the preview can say so."""
    rule, place = "FREQ=DAILY;BYHOUR=2;BYMINUTE=30", "Europe/Berlin"
    expected = ["Sat 2026-03-28 02:30 +0100", "Sun 2026-03-29 03:00 +0200", "Mon 2026-03-30 02:30 +0200"]
    assert expected == first(rule, 3, utc("2026-03-28"), place)
    expected = ["Sat 2026-10-24 02:30 +0200", "Sun 2026-10-25 02:30 +0200", "Mon 2026-10-26 02:30 +0100"]
    assert expected == first(rule, 3, utc("2026-10-24"), place)
    slots = times(rule, utc("2026-03-01"), place)
    assert datetime(2026, 3, 29, 2, 30) == slots.moved(utc("2026-03-29 01:00"))  # noqa: DTZ001
    assert slots.moved(utc("2026-03-30 00:30")) is None
    assert slots.repeated(utc("2026-10-25 00:30"))
    assert not slots.repeated(utc("2026-10-26 01:30"))


def test_the_seconds_of_the_anchor_are_kept_only_if_no_minute_is_named() -> None:
    """A schedule that is created at 09:13:27 and names 10:00 means 10:00:00."""
    anchor = datetime(2026, 1, 1, 9, 13, 27, 500_000, tzinfo=UTC)
    assert anchor == times("FREQ=DAILY", anchor).next(anchor - INSTANT)
    assert anchor.replace(hour=10) == times("FREQ=DAILY;BYHOUR=10", anchor).next(anchor)
    assert datetime(2026, 1, 1, 10, tzinfo=UTC) == times("FREQ=DAILY;BYHOUR=10;BYMINUTE=0", anchor).next(anchor)


def test_an_anchor_that_the_clock_shows_for_the_second_time() -> None:
    """Times of its day that were shown before it are over; the next day has them."""
    second = utc("2026-10-25 01:15")
    expected = ["Mon 2026-10-26 02:00 +0100", "Mon 2026-10-26 02:30 +0100"]
    assert expected == first("FREQ=DAILY;BYHOUR=2;BYMINUTE=0,30", 2, second, "Europe/Berlin")


def test_slots_that_windows_leave_out_count() -> None:
    """COUNT is a part of the rule; windows and weekdays narrow down what it names."""
    expected = ["Fri 2026-01-02 09:00 +0000", "Mon 2026-01-05 09:00 +0000"]
    assert expected == first("FREQ=DAILY;COUNT=5", 9, not_on=["thursday", "saturday", "sunday"])


NEVER = {
    "30 February": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
    "30 February, monthly": "FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30",
    "30 February, daily": "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30",
    "the 31st of short months": "FREQ=DAILY;BYMONTH=4,6,9,11;BYMONTHDAY=31",
    "the 5th of three Mondays": "FREQ=WEEKLY;BYDAY=MO,TU,WE;BYSETPOS=5",
    "the 9th Monday": "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=9",
    "the 200th Monday": "FREQ=YEARLY;BYDAY=MO;BYSETPOS=200;BYHOUR=0,1",
    "a third time of two": "FREQ=DAILY;BYHOUR=1,2;BYSETPOS=3",
}
NEVER_FROM_HERE = {
    "Mondays, every seventh day from a Thursday": "FREQ=DAILY;INTERVAL=7;BYDAY=MO",
    "February, every twelfth month from January": "FREQ=MONTHLY;INTERVAL=12;BYMONTH=2",
    "30 February, every 999 years": "FREQ=YEARLY;INTERVAL=999;BYMONTH=2;BYMONTHDAY=30",
}
SELDOM = {
    "29 February on a Sunday": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=SU",
    "29 February, every third year": "FREQ=YEARLY;INTERVAL=3;BYMONTH=2;BYMONTHDAY=29",
    "every thousandth month": "FREQ=MONTHLY;INTERVAL=1000",
    "every hundredth year": "FREQ=YEARLY;INTERVAL=100",
    "every time of day, ten thousand times": f"FREQ=DAILY;BYHOUR={ALL_HOURS};BYMINUTE={ALL_MINUTES};COUNT=10000",
    "ten thousand days": "FREQ=DAILY;COUNT=10000",
    "one of all times of a year": f"FREQ=YEARLY;BYMONTHDAY=31;BYHOUR={ALL_HOURS};BYMINUTE={ALL_MINUTES};BYSETPOS=-1",
}


@pytest.mark.parametrize("rule", NEVER.values(), ids=NEVER)
def test_a_rule_that_names_no_date_is_refused(rule: str) -> None:
    """It is refused when it is written, whatever its start would be."""
    with pytest.raises(ValueError, match="No date fits the rule"):
        canonical_rrule(rule)


@pytest.mark.parametrize("direction", ["next", "previous"])
@pytest.mark.parametrize("rule", [*NEVER.values(), *NEVER_FROM_HERE.values()], ids=[*NEVER, *NEVER_FROM_HERE])
def test_what_never_comes_is_none(rule: str, direction: str) -> None:
    """No error and no endless search, in either direction."""
    assert getattr(times(rule, place="Europe/Berlin"), direction)(ANCHOR + 3000 * DAY) is None


@pytest.mark.parametrize("rule", SELDOM.values(), ids=SELDOM)
def test_what_seldom_comes_is_found(rule: str) -> None:
    """A slot is found over any gap, and from just before it, it is found again."""
    slots = times(rule, place="Europe/Berlin")
    slot = slots.next(ANCHOR)
    assert slot is not None
    assert slot == slots.next(slot - INSTANT)
    assert slot == slots.previous(slot + INSTANT)


@pytest.mark.speed
@pytest.mark.parametrize("window", [None, "04:00-04:01"])
@pytest.mark.parametrize("rule", [*NEVER.values(), *NEVER_FROM_HERE.values(), *SELDOM.values()])
def test_a_search_is_short(rule: str, window: str | None) -> None:
    """In seconds of the processor, the best of some runs: with a window that leaves everything out, too."""
    allowed = hours("Europe/Berlin", window, ())
    RRuleTimes(parse_rrule("FREQ=DAILY"), ANCHOR, allowed).next(ANCHOR)
    assert min(_seconds(rule, allowed_window=window, minute=minute) for minute in range(5)) < 0.1


def _seconds(rule: str, *, allowed_window: str | None, minute: int) -> float:
    anchor = ANCHOR + timedelta(minutes=minute)
    begun = time.process_time()
    times(rule, anchor, "Europe/Berlin", only_between=allowed_window).next(anchor + DAY)
    return time.process_time() - begun


def test_the_ends_of_the_calendar_are_no_errors() -> None:
    """Questions about the first and the last years are answered with None."""
    slots: Recurrence = times("FREQ=DAILY")
    assert slots.next(datetime.max.replace(tzinfo=UTC)) is None
    assert slots.previous(datetime.min.replace(tzinfo=UTC)) is None
    assert datetime(9800, 12, 31, 9, tzinfo=UTC) == slots.previous(datetime.max.replace(tzinfo=UTC))


def test_equal_rules_share_what_is_kept() -> None:
    """The compiled rule is kept for its anchor, with the end that was counted."""
    allowed = hours("UTC", None, ())
    assert rrule_times("FREQ=DAILY;COUNT=3", ANCHOR, allowed) is rrule_times("FREQ=DAILY;COUNT=3", ANCHOR, allowed)
