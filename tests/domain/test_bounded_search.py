"""Specs whose next slot is far away, or never comes: the search ends, soon."""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import _lru_cache_wrapper
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from app.domain import local_time, recurrence
from app.domain.errors import InvalidError
from app.domain.local_time import Hours, Zone, window, zone
from app.domain.recurrence import CronTimes, Evenly, Monthly, Recurrence
from app.domain.spec_preview import HORIZON, next_runs
from app.domain.specs import Spec, canonical
from tests.support.domain_builders import schedule

ANCHOR = datetime(2026, 1, 1, 0, 30, tzinfo=UTC)
# Best of some runs, so that a busy machine does not decide.
RUNS = 5
MOST_SECONDS = 0.05
# The first search in a zone finds out where its clocks change, for 50 years; that is kept.
MOST_SECONDS_IN_A_NEW_ZONE = 0.1

ALL_BUT_SUNDAY = ["mon", "tue", "wed", "thu", "fri", "sat"]
NEVER = {
    "a wall time outside its window": {"cron": "30 2 * * *", "only_between": "04:00-04:01"},
    "many wall times outside their window": {"cron": "0-59 0-22 * * *", "only_between": "23:00-23:01"},
    "steps outside their window": {"cron": "* 0-22 * * *", "only_between": "23:00-23:01"},
    "steps of hours outside their window": {"cron": "5 */2 * * *", "only_between": "07:00-07:30"},
    "Mondays, but not on Mondays": {"cron": "0 12 * * mon", "not_on": ["mon"]},
    "every minute of Mondays, but not on Mondays": {"cron": "* * * * mon", "not_on": ["mon"]},
    "each wall time of Mondays, but not on Mondays": {"cron": "0-59 0-23 * * mon", "not_on": ["mon"]},
    "a fifth weekday in the first 28 days": {"cron": "0 0 */40,1-28 * 1#5,2#5,3#5"},
    "a last weekday in the first 21 days": {"cron": "0 0 */40,1-21 * 0L,1L,2L,3L,4L,5L,6L"},
    "a fifth Friday in February that is not the 29th": {"cron": "0 0 */3 2 5#5"},
    "a day in a closed window": {"every": "1d", "only_between": "04:00-04:01"},
    "a day and a second in a narrow window": {"every": "86401s", "only_between": "00:00-00:01"},
    "a week on an excluded day": {"every": "1w", "not_on": ["thu"]},
    "a year of weeks on an excluded day": {"every": "52w", "not_on": ["thu"]},
    "eight years on an excluded day": {"every": "420w", "not_on": ["thu"]},
    "an age on an excluded day": {"every": "3500w", "not_on": ["thu"]},
    "monthly in a closed window": {"every": "monthly", "only_between": "04:00-04:01"},
}
SELDOM = {
    "29 February on a Sunday": {"cron": "0 12 29 2 *", "not_on": ALL_BUT_SUNDAY},
    "29 February on a Sunday, by the star": {"cron": "0 12 29 2 */7"},
    "a fifth Sunday of February": {"cron": "0 12 * 2 0#5"},
    "each wall time on a day on which the clocks change": {"cron": "0-59 0-23 29 3 *"},
    "a wall time that only a change of the clocks allows": {"cron": "30 2 * * *", "only_between": "03:00-03:01"},
    "seconds in a narrow window": {"every": "1s", "only_between": "04:00-04:01", "not_on": ALL_BUT_SUNDAY},
    "an odd interval in a narrow window": {"every": "3601s", "only_between": "04:00-04:01", "not_on": ["sun"]},
    "an age": {"every": "3500w"},
    "a thousand days, if they end on a Sunday": {"every": "1000d", "not_on": ALL_BUT_SUNDAY},
    "eight years, but not on the day on which the first of them end": {"every": "3000d", "not_on": ["mon"]},
    "monthly on Sundays": {"every": "monthly", "not_on": ALL_BUT_SUNDAY},
}
each_way = pytest.mark.parametrize("direction", ["next", "previous"])


def fresh(fields: dict[str, Any], place: Zone) -> Recurrence:
    """The slots of a spec, with nothing kept from before but what is known of the zone."""
    spec = Spec(**canonical(fields))
    allowed = Hours(place, window(spec.only_between) if spec.only_between else None, spec.not_on)
    if spec.cron is not None:
        return CronTimes(spec.cron, allowed)
    return Monthly(ANCHOR, allowed) if spec.interval is None else Evenly(ANCHOR, spec.interval, allowed)


def best(work: Callable[[], object], enough: float) -> float:
    """The shortest of some runs, in seconds of the processor; one that is short enough is the last."""
    shortest = float("inf")
    for _ in range(RUNS):
        start = time.process_time()
        work()
        shortest = min(shortest, time.process_time() - start)
        if shortest < enough:
            break
    return shortest


@each_way
@pytest.mark.parametrize("fields", NEVER.values(), ids=NEVER)
def test_what_never_comes_is_none(fields: dict[str, Any], direction: str) -> None:
    """No error and no endless search, in either direction."""
    slots = fresh(fields, zone("Europe/Berlin"))
    assert getattr(slots, direction)(ANCHOR) is None


@pytest.mark.speed
@each_way
@pytest.mark.parametrize("fields", [*NEVER.values(), *SELDOM.values()], ids=[*NEVER, *SELDOM])
def test_a_search_is_short(fields: dict[str, Any], direction: str) -> None:
    """With nothing kept but the clock changes of the zone, a search takes milliseconds."""
    place = zone("Europe/Berlin")
    assert best(lambda: getattr(fresh(fields, place), direction)(ANCHOR), MOST_SECONDS) < MOST_SECONDS


@pytest.mark.speed
@pytest.mark.parametrize("fields", [*NEVER.values(), *SELDOM.values()], ids=[*NEVER, *SELDOM])
def test_a_search_in_a_new_zone_is_short(fields: dict[str, Any]) -> None:
    """Also when the zone is seen for the first time."""
    info = ZoneInfo("Europe/Berlin")
    taken = best(lambda: fresh(fields, Zone(info)).next(ANCHOR), MOST_SECONDS_IN_A_NEW_ZONE)
    assert taken < MOST_SECONDS_IN_A_NEW_ZONE


@pytest.mark.parametrize("fields", SELDOM.values(), ids=SELDOM)
def test_what_seldom_comes_is_found(fields: dict[str, Any]) -> None:
    """A slot is found over any gap, and from just before it, it is found again."""
    slots = fresh(fields, zone("Europe/Berlin"))
    found = slots.next(ANCHOR)
    assert found is not None
    assert found == slots.next(found - timedelta.resolution)
    assert found == slots.previous(found + timedelta.resolution)


@pytest.mark.parametrize(
    "fields",
    [
        {"cron": "* * * * *"},
        {"cron": "* * * * *", "only_between": "08:00-18:00", "not_on": ["sun"]},
        {"cron": "0-59 0-23 * * *"},
        {"every": "1s"},
        {"every": "1s", "only_between": "08:00-18:00", "not_on": ["sun"]},
        {"every": "monthly"},
    ],
    ids=str,
)
def test_the_slots_of_a_year_are_counted_soon(fields: dict[str, Any]) -> None:
    """By arithmetic, not one by one."""
    place = zone("Europe/Berlin")
    slots = fresh(fields, place)
    first, last = slots.next(ANCHOR), slots.previous(ANCHOR + timedelta(days=366))
    assert first is not None
    assert last is not None
    assert best(lambda: fresh(fields, place).count(first, last), MOST_SECONDS) < MOST_SECONDS


@pytest.mark.parametrize("items", [["1"] * 200_000, ["0-59"] * 195], ids=["too long", "as long as it may be"])
def test_a_long_expression_is_read_or_refused_soon(items: list[str]) -> None:
    """Its length is bounded, and so is the work."""
    text = f"{','.join(items)} * * * *"

    def read() -> None:
        with suppress(InvalidError):
            canonical({"cron": text})

    assert best(read, MOST_SECONDS) < MOST_SECONDS


@pytest.mark.parametrize("fields", SELDOM.values(), ids=SELDOM)
def test_a_preview_ends_at_its_horizon(fields: dict[str, Any]) -> None:
    """Five hundred runs of what comes once in 28 years would be searched for up to the end of the calendar."""
    job = replace(schedule(), **canonical(fields), timezone="Europe/Berlin", anchor_at=ANCHOR)
    found = next_runs(job, 500, ANCHOR)
    assert found.runs[-1].at - found.runs[0].at <= HORIZON


def test_a_preview_ends_when_it_is_enough() -> None:
    """It shows what it has by then, and one run at least."""
    job = replace(schedule(), interval_seconds=None, cron="* * * * *", anchor_at=ANCHOR)
    answers = iter([False, False, True])
    found = next_runs(job, 500, ANCHOR, lambda: next(answers))
    assert (3, True) == (len(found.runs), found.cut)
    assert 1 == len(next_runs(job, 500, ANCHOR, lambda: True).runs)


def test_what_is_kept_of_zones_and_expressions_is_bounded() -> None:
    """Whoever asks for all zones and all years pushes out what others asked for; what is kept does not grow."""
    zones = (local_time._transitions, local_time._clock_change_days, local_time._pieces, local_time._spans)
    kept = (*zones, recurrence._slots_of_change_day)
    for number, name in enumerate(sorted(local_time._names().values())[::3]):
        place = zone(name)
        for year in range(2000 + number % 9, 2060):
            place.clock_change_days(year)
            for day in list(place.clock_change_days(year))[:2]:
                place.pieces(day)
        fresh({"cron": "* * * * *"}, place).previous(ANCHOR)
        fresh({"cron": "0-59 0-23 29 3 *", "only_between": "01:00-05:00"}, place).next(ANCHOR)
    assert all(cache.cache_info().currsize <= limit(cache) <= 8192 for cache in kept)
    assert local_time._transitions.cache_info().currsize == limit(local_time._transitions)
    assert limit(recurrence._slots_of_change_day) <= 256


def limit(cached: "_lru_cache_wrapper[Any]") -> int:
    """Return how many answers a cache keeps at the most; one without a limit fails the test."""
    size = cached.cache_info().maxsize
    assert size is not None
    return size
