"""The days of a recurrence rule: which dates of a year it names, and at which times of day."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from itertools import chain, groupby

import msgspec

from app.domain.rrule import Frequency, NthWeekday, Rule, parse_rrule

_MONTHS = range(1, 13)
_WEEK = 7

# In these years every weekday begins a year of either length, so what does not occur in them never occurs.
_ALL_KINDS_OF_YEARS = range(2000, 2028)
# A day that every month has.
_SOME_START = datetime(2000, 1, 1)  # noqa: DTZ001 - a wall time has no zone

Times = tuple[timedelta, ...]


class Year(msgspec.Struct, frozen=True):
    """The days of one year, as ordinals in their order, and for each its times if these differ from day to day."""

    days: Sequence[int]
    times: tuple[Times, ...] | None

    def onward(self, first: int) -> Iterator[tuple[int, Times | None]]:
        """Yield the days from ``first`` on, with their times."""
        return (self._at(index) for index in range(bisect_left(self.days, first), len(self.days)))

    def backward(self, last: int) -> Iterator[tuple[int, Times | None]]:
        """Yield the days up to ``last``, the latest first, with their times."""
        return (self._at(index) for index in range(bisect_right(self.days, last) - 1, -1, -1))

    def _at(self, index: int) -> tuple[int, Times | None]:
        return self.days[index], None if self.times is None else self.times[index]


class DayRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule with everything that its start decides.

    ``phase`` is the number of the period of the start, modulo the interval: these periods have slots. Rules with the
    same days are equal, whatever their start, so that they share what is computed for a year.
    """

    freq: Frequency
    interval: int
    phase: int
    months: tuple[int, ...]
    month_days: tuple[int, ...]
    weekdays: tuple[NthWeekday, ...]
    nth_in_month: bool
    positions: tuple[int, ...]
    week_start: int
    # The times from which BYSETPOS selects; empty if it selects nothing, so that days do not depend on times.
    times: Times = ()

    def year(self, year: int) -> Year:
        """Return the days of a year."""
        return _year(self, year)

    def has_slots_in(self, year: int) -> bool:
        """Return whether a year has a period with slots. Only a yearly rule leaves out whole years."""
        return self.freq is not Frequency.YEARLY or year % self.interval == self.phase

    def compute_year(self, year: int) -> Year:
        """Compute ``year``, which is cached."""
        periods = self._periods(year)
        if not self.positions:
            return Year(array("l", chain.from_iterable(periods)), None)
        selected = sorted(chain.from_iterable(map(self._selected, periods)))
        first, last = _ordinal(year, 1), _ordinal(year + 1, 1)
        days = [(day, tuple(at for _, at in group)) for day, group in groupby(selected, key=lambda pair: pair[0])]
        kept = [(day, times) for day, times in days if first <= day < last]
        return Year(array("l", (day for day, _ in kept)), tuple(times for _, times in kept))

    def _selected(self, days: Sequence[int]) -> set[tuple[int, timedelta]]:
        """Return the days and times of a period that BYSETPOS selects."""
        number = len(days) * len(self.times)
        indexes = (position - 1 if position > 0 else position + number for position in self.positions)
        places = (divmod(index, len(self.times)) for index in indexes if 0 <= index < number)
        return {(days[day], self.times[at]) for day, at in places}

    def _periods(self, year: int) -> Iterator[list[int]]:
        """Yield the days of each period of a year, in their order."""
        if self.freq is Frequency.YEARLY:
            if self.has_slots_in(year):
                yield self._of_year(year)
        elif self.freq is Frequency.MONTHLY:
            numbers = (
                month for month in self.months or _MONTHS if _month_number(year, month) % self.interval == self.phase
            )
            yield from (sorted(self._of_month(year, month)) for month in numbers)
        elif self.freq is Frequency.WEEKLY:
            yield from self._weeks(year)
        else:
            yield from (self._daily(year, month) for month in self.months or _MONTHS)

    def _daily(self, year: int, month: int) -> list[int]:
        first, length = _span(year, month)
        days = range(first + (self.phase - first) % self.interval, first + length, self.interval)
        kept = self._named(first, length) if self.month_days or self.weekdays else days
        return [day for day in days if day in kept]

    def _weeks(self, year: int) -> Iterator[list[int]]:
        # With positions, weeks are complete: those that begin in the year before or end in the year after count too.
        first, last = _ordinal(year, 1), _ordinal(year + 1, 1)
        margin = _WEEK - 1 if self.positions else 0
        weekdays = {day.weekday for day in self.weekdays}
        number = self.week_number(first - margin)
        number += (self.phase - number) % self.interval
        while (monday := number * _WEEK + 1 + self.week_start) < last + margin:
            days = (day for day in range(monday, monday + _WEEK) if first - margin <= day < last + margin)
            yield [day for day in days if _weekday(day) in weekdays and self._in_months(day)]
            number += self.interval

    def week_number(self, day: int) -> int:
        """Return the number of a day's week, by the weekday on which weeks begin."""
        return (day - 1 - self.week_start) // _WEEK

    def _in_months(self, day: int) -> bool:
        return not self.months or date.fromordinal(day).month in self.months

    def _of_year(self, year: int) -> list[int]:
        months = self.months or _MONTHS
        if self.nth_in_month or not self.weekdays:
            return sorted(chain.from_iterable(self._of_month(year, month) for month in months))
        first = _ordinal(year, 1)
        days = _weekdays_in(self.weekdays, first, _ordinal(year + 1, 1) - first)
        if self.month_days:
            days &= set(chain.from_iterable(_month_days_in(self.month_days, *_span(year, month)) for month in months))
        return sorted(days)

    def _of_month(self, year: int, month: int) -> set[int]:
        return self._named(*_span(year, month))

    def _named(self, first: int, length: int) -> set[int]:
        """Return the days of a month that fit both BYMONTHDAY and BYDAY, as far as these are given."""
        if not self.weekdays:
            return _month_days_in(self.month_days, first, length)
        days = _weekdays_in(self.weekdays, first, length)
        return days & _month_days_in(self.month_days, first, length) if self.month_days else days


@lru_cache(maxsize=1024)
def _year(rule: DayRule, year: int) -> Year:
    return rule.compute_year(year)


def _ordinal(year: int, month: int) -> int:
    return date(year, month, 1).toordinal()


def _span(year: int, month: int) -> tuple[int, int]:
    """Return the first day of a month and its length."""
    first = _ordinal(year, month)
    return first, _ordinal(year + month // 12, month % 12 + 1) - first


def _month_number(year: int, month: int) -> int:
    return year * len(_MONTHS) + month - 1


def _weekday(day: int) -> int:
    return (day - 1) % _WEEK


def _month_days_in(numbers: tuple[int, ...], first: int, length: int) -> set[int]:
    """Return the days of a month with these numbers; negative ones count from its end."""
    days = (first + number - 1 if number > 0 else first + length + number for number in numbers)
    return {day for day in days if first <= day < first + length}


def _weekdays_in(weekdays: tuple[NthWeekday, ...], first: int, length: int) -> set[int]:
    """Return the weekdays of a month or year, each or the nth."""
    days: set[int] = set()
    for wanted in weekdays:
        every = range(first + (wanted.weekday - _weekday(first)) % _WEEK, first + length, _WEEK)
        if not wanted.nth:
            days.update(every)
        elif abs(wanted.nth) <= len(every):
            days.add(every[wanted.nth - 1 if wanted.nth > 0 else wanted.nth])
    return days


def times_of_day(rule: Rule, start: datetime) -> Times:
    """Return the times of a day. What the rule leaves out is taken from its start; named minutes have no seconds."""
    hours, minutes = rule.hours or (start.hour,), rule.minutes or (start.minute,)
    rest = timedelta(0) if rule.minutes else timedelta(seconds=start.second, microseconds=start.microsecond)
    times = _times(hours, minutes, rest)
    if rule.positions and rule.freq is Frequency.DAILY:
        indexes = {position - 1 if position > 0 else position + len(times) for position in rule.positions}
        return tuple(at for index, at in enumerate(times) if index in indexes)
    return times


# Shared by all rules that name the same times: a day may have 1,440, and thousands of rules are cached.
@lru_cache(maxsize=256)
def _times(hours: tuple[int, ...], minutes: tuple[int, ...], rest: timedelta) -> Times:
    return tuple(timedelta(hours=hour, minutes=minute) + rest for hour in hours for minute in minutes)


def day_rule(rule: Rule, start: datetime) -> DayRule:
    """Return the days of a rule that starts at a wall time. Days that the rule leaves out are those of the start."""
    months, month_days, weekdays = rule.months, rule.month_days, rule.weekdays
    if not month_days and not weekdays:
        if rule.freq is Frequency.WEEKLY:
            weekdays = (NthWeekday(0, start.weekday()),)
        elif rule.freq is not Frequency.DAILY:
            month_days = (start.day,)
            months = months or ((start.month,) if rule.freq is Frequency.YEARLY else ())
    resolved = DayRule(
        freq=rule.freq,
        interval=rule.interval,
        phase=0,
        months=months,
        month_days=month_days,
        weekdays=weekdays,
        nth_in_month=rule.nth_in_month,
        positions=rule.positions if rule.has_positions_of_days else (),
        week_start=rule.week_start,
        times=times_of_day(rule, start) if rule.has_positions_of_days else (),
    )
    return msgspec.structs.replace(resolved, phase=_period(resolved, start) % rule.interval)


def _period(rule: DayRule, start: datetime) -> int:
    """Return the number of the period in which a rule starts."""
    if rule.freq is Frequency.YEARLY:
        return start.year
    if rule.freq is Frequency.MONTHLY:
        return _month_number(start.year, start.month)
    return rule.week_number(start.toordinal()) if rule.freq is Frequency.WEEKLY else start.toordinal()


def canonical_rrule(text: str) -> str:
    """Return a rule in its stored form. Raise ``ValueError`` if it is not valid or names no date that exists."""
    rule = parse_rrule(text)
    days = day_rule(msgspec.structs.replace(rule, interval=1), _SOME_START)
    named = any(days.year(year).days for year in _ALL_KINDS_OF_YEARS)
    if not named or not times_of_day(rule, _SOME_START):
        raise ValueError("No date fits the rule.")
    return str(rule)


def most_in_year(rule: Rule) -> int:
    """Return about how often a rule comes in a year at the most."""
    days = day_rule(msgspec.structs.replace(rule, interval=1), _SOME_START).year(_SOME_START.year)
    number = len(days.days) * len(times_of_day(rule, _SOME_START)) if days.times is None else sum(map(len, days.times))
    return number if rule.freq is Frequency.YEARLY else number // rule.interval + 1


def midnight(day: int) -> datetime:
    """Return the wall time at which a day begins."""
    return datetime.combine(date.fromordinal(day), time())
