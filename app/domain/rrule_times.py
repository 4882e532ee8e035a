"""The slots of a recurrence rule on the wall clock of a zone.

A rule names wall times, so clock changes do to it what they do to a cron expression with fixed times: a time that is
skipped fires right after the gap, and one that is repeated fires the first time.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import takewhile

from app.domain.local_time import DAY, Hours, Zone
from app.domain.recurrence import FIRST_YEAR, LAST_YEAR, MINUTE
from app.domain.rrule import Frequency, Rule, parse_rrule
from app.domain.rrule_days import Times, day_rule, midnight, times_of_day

_INSTANT = timedelta.resolution
_HORIZON_YEARS = 50
# A rule with COUNT ends this long after its start, even if it has not come so often.
_COUNTED_YEARS = 100
# How many periods a year has at least.
_PERIODS_IN_YEAR = {Frequency.DAILY: 365, Frequency.WEEKLY: 52, Frequency.MONTHLY: 12, Frequency.YEARLY: 1}
_PERIODS_SEARCHED = 8
_LAST_MOMENT = datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC)


class RRuleTimes:
    """The slots of a rule from its anchor on, within the allowed hours.

    COUNT counts the slots of the rule itself, from the anchor on: those that the allowed hours leave out count too.
    """

    def __init__(self, rule: Rule, anchor: datetime, allowed: Hours, *, counts_anchor: bool = True) -> None:
        """Take the rule and its start. COUNT leaves the anchor out if it is not ``counts_anchor``."""
        self._rule = rule
        self._anchor = anchor
        self._allowed = allowed
        self._zone = allowed.zone
        self._counts_anchor = counts_anchor
        start = allowed.zone.local(anchor)
        self._days = day_rule(rule, start)
        self._times = times_of_day(rule, start)
        self._open = self._in_window(self._times)

    def next(self, after: datetime) -> datetime | None:
        """Return the first slot after a moment, searched day by day."""
        if after.year > LAST_YEAR:
            return None
        moment = max(after, self._anchor - _INSTANT)
        for day, times in self._days_onward(self._zone.local(moment).date()):
            slot = self._first_on(day, times, moment)
            if slot is not None:
                return slot if self.end is None or slot <= self.end else None
        return None

    def previous(self, before: datetime) -> datetime | None:
        """Return the last slot before a moment, searched day by day."""
        moment = min(before, _LAST_MOMENT if self.end is None else self.end + _INSTANT)
        if moment <= self._anchor:
            return None
        # Where the clocks were set back over midnight, times of the following local day have been shown already.
        for day, times in self._days_backward(self._zone.local(moment).date() + DAY):
            slot = self._last_on(day, times, moment)
            if slot is not None:
                return slot if slot >= self._anchor else None
        return None

    def count(self, first: datetime, last: datetime) -> int:
        """Return the number of slots: by arithmetic for plain days, one by one for clock-change days."""
        first, last = max(first, self._anchor), last if self.end is None else min(last, self.end)
        plain, irregular = 0, set[datetime]()
        final = self._zone.local(last).date() + DAY
        for number, times in self._all_days(self._zone.local(first).date() - DAY, final):
            day = date.fromordinal(number)
            if self._zone.is_clock_change_day(day):
                slots = self._slots_of_change_day(day, times)
                irregular.update(slot for slot in slots if first <= slot <= last)
            elif self._allowed.allows_day(day):
                start, minutes = self._zone.midnight(day), self._open_times(times)
                plain += max(0, bisect_right(minutes, last - start) - bisect_left(minutes, first - start))
        return plain + len(irregular)

    def between(self, first: datetime, last: datetime) -> Iterator[datetime]:
        """Yield the slots from ``first`` to ``last``, both included, day by day and without a search for each."""
        low, high = max(first, self._anchor), last if self.end is None else min(last, self.end)
        for day, times in self._all_days(self._zone.local(low).date() - DAY, self._zone.local(high).date() + DAY):
            start, slots = self._slots_on(date.fromordinal(day), times)
            for at in slots:
                if low <= start + at <= high:
                    low = start + at + _INSTANT
                    yield start + at

    @cached_property
    def end(self) -> datetime | None:
        """Return the last moment that can be a slot, by UNTIL or COUNT, or None if the rule goes on."""
        if self._rule.until is not None:
            until = self._rule.until
            return until if until.tzinfo is not None else self._zone.instant(until)
        if self._rule.count is not None:
            return _end_of_count(self._rule, self._anchor, self._zone, counts_anchor=self._counts_anchor)
        return None

    def moved(self, slot: datetime) -> datetime | None:
        """Return the skipped wall time for which a slot fires, or None if the clocks did not move the slot."""
        wall = self._zone.local(slot)
        named = [at for day in (wall.date() - DAY, wall.date()) for at in self._walls_of_change_day(day)]
        return None if wall in named else next((at for at in named if self._zone.instant(at) == slot), None)

    def repeated(self, slot: datetime) -> bool:
        """Return whether the wall clock shows the slot's time twice and the slot fires only the first time."""
        return self._zone.shows_twice(self._zone.local(slot))

    def nth(self, number: int, last_year: int) -> datetime:
        """Return the nth slot from the anchor on, or the last moment of ``last_year`` if there are fewer by then."""
        horizon = datetime(last_year + 1, 1, 1, tzinfo=UTC) - _INSTANT
        latest = self._anchor - _INSTANT if self._counts_anchor else self._anchor
        for day, times in self._all_days(self._zone.local(self._anchor).date(), horizon.date()):
            start, slots = self._slots_on(date.fromordinal(day), times)
            fresh = len(slots) - bisect_right(slots, latest - start)
            if fresh >= number:
                return start + slots[number - fresh - 1]
            number -= fresh
            latest = max(latest, start + slots[-1]) if slots else latest
        return horizon

    def _walls_of_change_day(self, day: date) -> list[datetime]:
        """Return the wall times that the rule names on a day, if it is a clock-change day."""
        if not self._zone.is_clock_change_day(day):
            return []
        named = next(self._days.year(day.year).onward(day.toordinal()), None)
        if named is None or named[0] != day.toordinal():
            return []
        return [midnight(named[0]) + at for at in (self._times if named[1] is None else named[1])]

    def _days_onward(self, day: date) -> Iterator[tuple[int, Times | None]]:
        """Yield the days that may have an allowed slot, from ``day`` to the horizon."""
        last = min(day.year + self._horizon_years, LAST_YEAR)
        if self.end is not None:
            last = min(last, self.end.year + 1)
        years = (year for year in range(day.year, last + 1) if self._days.has_slots_in(year))
        return self._that_may_fire(pair for year in years for pair in self._days.year(year).onward(day.toordinal()))

    def _days_backward(self, day: date) -> Iterator[tuple[int, Times | None]]:
        """Yield the days that may have an allowed slot, from ``day`` back to the anchor or the horizon."""
        first = max(day.year - self._horizon_years, self._zone.local(self._anchor).year - 1, FIRST_YEAR)
        years = (year for year in range(day.year, first - 1, -1) if self._days.has_slots_in(year))
        return self._that_may_fire(pair for year in years for pair in self._days.year(year).backward(day.toordinal()))

    def _all_days(self, day: date, final: date) -> Iterator[tuple[int, Times | None]]:
        """Yield all days of the rule from ``day`` to ``final``."""
        years = (year for year in range(day.year, final.year + 1) if self._days.has_slots_in(year))
        pairs = (pair for year in years for pair in self._days.year(year).onward(day.toordinal()))
        return takewhile(lambda pair: pair[0] <= final.toordinal(), pairs)

    @property
    def _horizon_years(self) -> int:
        # After a few periods every weekday and every length of month that the interval reaches has been tried.
        return _HORIZON_YEARS + _PERIODS_SEARCHED * self._rule.interval // _PERIODS_IN_YEAR[self._rule.freq]

    def _that_may_fire(self, days: Iterator[tuple[int, Times | None]]) -> Iterator[tuple[int, Times | None]]:
        if self._allowed.always:
            return days
        return (pair for pair in days if self._may_fire(date.fromordinal(pair[0]), pair[1]))

    def _may_fire(self, day: date, times: Times | None) -> bool:
        """Return whether a day may have an allowed slot; a clock change may move one into the allowed hours."""
        plain = self._allowed.allows_day(day) and (self._open if times is None else True)
        return bool(plain) or self._zone.is_clock_change_day(day)

    def _first_on(self, day: int, times: Times | None, after: datetime) -> datetime | None:
        start, slots = self._slots_on(date.fromordinal(day), times)
        index = bisect_right(slots, after - start)
        return start + slots[index] if index < len(slots) else None

    def _last_on(self, day: int, times: Times | None, before: datetime) -> datetime | None:
        start, slots = self._slots_on(date.fromordinal(day), times)
        index = bisect_left(slots, before - start)
        return start + slots[index - 1] if index else None

    def _slots_on(self, day: date, times: Times | None) -> tuple[datetime, Times]:
        """Return a moment, and the slots of a day as distances from it."""
        if not self._zone.is_clock_change_day(day):
            return self._zone.midnight(day), self._open_times(times) if self._allowed.allows_day(day) else ()
        slots = self._slots_of_change_day(day, times)
        return (slots[0], tuple(slot - slots[0] for slot in slots)) if slots else (self._anchor, ())

    def _open_times(self, times: Times | None) -> Times:
        return self._open if times is None else self._in_window(times)

    def _in_window(self, times: Times) -> Times:
        if self._allowed.always:
            return times
        return tuple(at for at in times if self._allowed.allows_minute(at // MINUTE))

    def _slots_of_change_day(self, day: date, times: Times | None) -> list[datetime]:
        return _slots_of_change_day(self._allowed, day, self._times if times is None else times)


# Shared by all rules and small, as for cron expressions.
@lru_cache(maxsize=256)
def _slots_of_change_day(allowed: Hours, day: date, times: Times) -> list[datetime]:
    """Compute the slots of a clock-change day: those at their own wall time, and those that a gap moves."""
    start = midnight(day.toordinal())
    walls = [start + at for at in times if allowed.allows_minute(at // MINUTE)] if allowed.allows_day(day) else []
    for gap_start, gap_end in allowed.zone.gaps(day):
        # Of the times that a gap skips, one is enough: they all fire at its end.
        skipped = times[bisect_left(times, gap_start - start) : bisect_left(times, gap_end - start)][:1]
        walls += (start + at for at in skipped)
    return sorted(filter(allowed.allows, set(map(allowed.zone.instant, walls))))


@lru_cache(maxsize=1024)
def _end_of_count(rule: Rule, anchor: datetime, zone: Zone, *, counts_anchor: bool) -> datetime:
    """Return the last slot of a rule with COUNT. It is found by counting, so it is cached."""
    slots = RRuleTimes(rule, anchor, Hours(zone, None, ()), counts_anchor=counts_anchor)
    return slots.nth(rule.count or 0, min(anchor.year + _COUNTED_YEARS, LAST_YEAR))


@lru_cache(maxsize=4096)
def rrule_times(text: str, anchor: datetime, allowed: Hours, *, counts_anchor: bool = True) -> RRuleTimes:
    """Return the slots of a rule in its stored form. They are cached, with what was counted for them."""
    return RRuleTimes(parse_rrule(text), anchor, allowed, counts_anchor=counts_anchor)
