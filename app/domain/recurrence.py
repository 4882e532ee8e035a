"""Recurrences: the slots of a spec without beginning or end, asked for the next, the previous or the number of slots.

Every search is bounded: a spec whose next slot lies beyond the bound never fires, and no spec can make a worker loop.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Protocol

from app.domain.cron_expression import cron, is_fixed
from app.domain.local_time import DAY, Hours, Piece, hours

MINUTE = timedelta(minutes=1)
# How many closed windows a search jumps over: with one a day, almost three years.
_MAX_JUMPS = 1000
_HORIZON_YEARS = 50
# Slots with an interval of whole days move relative to the window only when the clocks change, so two years show all.
_DAILY_HORIZON_YEARS = 2
# Slots lie between these years only. Python's calendar ends soon after, and a search must not run over its end.
FIRST_YEAR, LAST_YEAR = 200, 9800
_MONTHS_IN_YEAR = 12


class Recurrence(Protocol):
    """Slots that can be searched in both directions."""

    def next(self, after: datetime) -> datetime | None:
        """Return the first slot strictly after a moment, or None."""

    def previous(self, before: datetime) -> datetime | None:
        """Return the last slot strictly before a moment, or None."""

    def count(self, first: datetime, last: datetime) -> int:
        """Return the number of slots from slot ``first`` to slot ``last``, both included."""


class Once:
    """A single slot."""

    def __init__(self, slot: datetime, allowed: Hours) -> None:
        """Take the slot; there is none if it lies outside the allowed hours."""
        self._slot = slot if allowed.allows(slot) else None

    def next(self, after: datetime) -> datetime | None:
        """Return the slot if it lies after ``after``, else None."""
        return self._slot if self._slot is not None and self._slot > after else None

    def previous(self, before: datetime) -> datetime | None:
        """Return the slot if it lies before ``before``, else None."""
        return self._slot if self._slot is not None and self._slot < before else None

    def count(self, first: datetime, last: datetime) -> int:
        """Return 1 if the slot lies within the bounds, else 0."""
        return int(self._slot is not None and first <= self._slot <= last)


class Evenly:
    """Slots at equal distances of real time, counted from an anchor, within the allowed hours."""

    def __init__(self, anchor: datetime, interval: timedelta, allowed: Hours) -> None:
        """Take the anchor, which is one of the slots, and the allowed hours."""
        self._anchor = anchor
        self._interval = interval
        self._allowed = allowed

    @property
    def _horizon(self) -> timedelta:
        years = _HORIZON_YEARS if self._interval % DAY else _DAILY_HORIZON_YEARS
        # After seven slots every weekday that the interval reaches has been tried.
        return years * 366 * DAY + 8 * self._interval

    def next(self, after: datetime) -> datetime | None:
        """Return the first slot after a moment. A search jumps over closed hours to their end."""
        if after.year > LAST_YEAR:
            return None
        slot = self._first_from(after)
        if slot == after:
            slot += self._interval
        for _ in range(_MAX_JUMPS):
            opening = self._allowed.opening(slot)
            if opening is None or opening == slot:
                return opening
            slot = self._first_from(opening)
            if slot - after > self._horizon:
                break
        return None

    def previous(self, before: datetime) -> datetime | None:
        """Return the last slot before a moment. A search jumps over closed hours to their start."""
        if before.year < FIRST_YEAR:
            return None
        slot = self._first_from(before) - self._interval
        for _ in range(_MAX_JUMPS):
            if self._allowed.allows(slot):
                return slot
            closing = self._allowed.closing(slot)
            if closing is None:
                return None
            slot = self._first_from(closing) - self._interval
            if before - slot > self._horizon:
                break
        return None

    def count(self, first: datetime, last: datetime) -> int:
        """Return the number of slots, computed for each allowed stretch."""
        if self._allowed.always:
            return (last - first) // self._interval + 1
        stretches = self._allowed.stretches(first, last)
        past = last + timedelta.resolution
        return sum(self._number(min(end, past)) - self._number(start) for start, end in stretches)

    def _number(self, moment: datetime) -> int:
        """Return k for the first slot anchor + k x interval at or after a moment."""
        return -((self._anchor - moment) // self._interval)

    def _first_from(self, moment: datetime) -> datetime:
        return self._anchor + self._number(moment) * self._interval


class Monthly:
    """The same wall time every month, on the anchor's day or else the last of the month, within the allowed hours."""

    def __init__(self, anchor: datetime, allowed: Hours) -> None:
        """Take the anchor, which is one of the slots, and the allowed hours."""
        self._anchor = anchor
        self._wall = allowed.zone.local(anchor)
        self._allowed = allowed

    def next(self, after: datetime) -> datetime | None:
        """Return the first slot after a moment, searched month by month."""
        if after.year > LAST_YEAR:
            return None
        number = self._number(after) - 1
        slots = (self._slot(number + k) for k in range(_HORIZON_YEARS * _MONTHS_IN_YEAR))
        return next((slot for slot in slots if slot > after and self._allowed.allows(slot)), None)

    def previous(self, before: datetime) -> datetime | None:
        """Return the last slot before a moment, searched month by month."""
        if before.year < FIRST_YEAR:
            return None
        number = self._number(before) + 1
        slots = (self._slot(number - k) for k in range(_HORIZON_YEARS * _MONTHS_IN_YEAR))
        return next((slot for slot in slots if slot < before and self._allowed.allows(slot)), None)

    def count(self, first: datetime, last: datetime) -> int:
        """Return the number of slots, by a look at each."""
        slots = map(self._slot, range(self._number(first) - 1, self._number(last) + 2))
        return sum(first <= slot <= last and self._allowed.allows(slot) for slot in slots)

    def _number(self, moment: datetime) -> int:
        """Return the number of months from the anchor's month to that of a moment."""
        wall = self._allowed.zone.local(moment)
        return (wall.year - self._wall.year) * _MONTHS_IN_YEAR + wall.month - self._wall.month

    def _slot(self, number: int) -> datetime:
        if number == 0:
            # The anchor may be the second of two moments with the same wall time; its own moment is the slot.
            return self._anchor
        years, month = divmod(self._wall.month - 1 + number, _MONTHS_IN_YEAR)
        first = self._wall.replace(year=self._wall.year + years, month=month + 1, day=1)
        following = (first + 31 * DAY).replace(day=1)
        day = min(self._wall.day, (following - first).days)
        return self._allowed.zone.instant(first.replace(day=day))


class CronTimes:
    """The slots of a cron expression on the wall clock of a zone, within the allowed hours.

    On plain days slots are arithmetic: midnight plus minutes. On a clock-change day that would fire a skipped time at a
    wrong hour and a repeated one twice, so the slots are computed from the pieces of the day: a fixed wall time fires
    once (right after the gap that skips it; the first time if it is repeated), and all else follows elapsed time.
    """

    def __init__(self, expression: str, allowed: Hours) -> None:
        """Compute the minutes of a plain day."""
        self._cron = cron(expression)
        self._fixed = is_fixed(expression)
        self._allowed = allowed
        self._zone = allowed.zone
        # An array of two-byte numbers: thousands of expressions are cached, with up to 1,440 minutes each.
        walls = (h * 60 + m for h in sorted(self._cron.hours) for m in sorted(self._cron.minutes))
        self._walls = array("H", walls)
        self._minutes = array("H", (minute for minute in self._walls if allowed.allows_minute(minute)))

    def next(self, after: datetime) -> datetime | None:
        """Return the first slot after a moment, searched day by day."""
        day = self._zone.local(after).date()
        for candidate in self._days(day - DAY if self._zone.is_clock_change_day(day) else day, 1):
            slot = self._first_on(candidate, after)
            if slot is not None:
                # Where the clocks were set back over midnight, two local days alternate in real time.
                other = self._first_on(candidate + DAY, after) if self._interleaved(candidate) else None
                return min(slot, other or slot)
        return None

    def previous(self, before: datetime) -> datetime | None:
        """Return the last slot before a moment, searched day by day."""
        day = self._zone.local(before).date()
        for candidate in self._days(day + DAY if self._zone.is_clock_change_day(day) else day, -1):
            slot = self._last_on(candidate, before)
            if slot is not None:
                other = self._last_on(candidate - DAY, before) if self._interleaved(candidate - DAY) else None
                return max(slot, other or slot)
        return None

    def count(self, first: datetime, last: datetime) -> int:
        """Return the number of slots: by arithmetic for plain days, one by one for clock-change days."""
        plain, irregular = 0, set[datetime]()
        final = self._zone.local(last).date() + DAY
        for day in self._days(self._zone.local(first).date() - DAY, 1, final.year):
            if day > final:
                break
            if self._zone.is_clock_change_day(day):
                irregular.update(slot for slot in self._slots_of_change_day(day) if first <= slot <= last)
            elif self._minutes:
                start = self._zone.midnight(day)
                plain += bisect_right(self._minutes, (last - start) // MINUTE)
                plain -= bisect_left(self._minutes, -((start - first) // MINUTE))
        return plain + len(irregular)

    def moved(self, slot: datetime) -> datetime | None:
        """Return the skipped wall time for which a slot fires, or None if the clocks did not move the slot."""
        if not self._fixed or self._named(self._zone.local(slot)):
            return None
        day = self._zone.local(slot).date()
        for candidate in (day, day - DAY):
            if self._zone.is_clock_change_day(candidate) and self._cron.match_day(candidate):
                walls = (datetime.combine(candidate, time()) + minute * MINUTE for minute in self._walls)
                skipped = next((wall for wall in walls if self._zone.instant(wall) == slot), None)
                if skipped is not None:
                    return skipped
        return None

    def repeated(self, slot: datetime) -> bool:
        """Return whether the wall clock shows the slot's time twice and the slot fires only the first time."""
        return self._fixed and self._zone.shows_twice(self._zone.local(slot))

    def _named(self, wall: datetime) -> bool:
        """Return whether the expression names a wall time."""
        minute = wall.hour in self._cron.hours and wall.minute in self._cron.minutes
        return minute and wall.month in self._cron.months and self._cron.match_day(wall.date())

    def _interleaved(self, day: date) -> bool:
        """Return whether slots of a day and of the day after it may alternate in real time."""
        return self._zone.is_clock_change_day(day) and self._zone.is_clock_change_day(day + DAY)

    def _days(self, day: date, step: int, last_year: int | None = None) -> Iterator[date]:
        """Yield the days that may have a slot, from ``day`` on to the horizon; backwards if ``step`` is -1."""
        if not self._minutes and not self._fixed:
            return
        if last_year is None:
            last_year = min(max(day.year + step * _HORIZON_YEARS, FIRST_YEAR), LAST_YEAR)
        for year in range(day.year, last_year + step, step):
            if self._minutes:
                yield from self._days_of_year(year, step, day)
            else:
                # No named time lies in the window. Only a clock change can move a slot into it.
                days = sorted(self._zone.clock_change_days(year), reverse=step < 0)
                yield from (other for other in days if self._matches(other) and (other - day).days * step >= 0)

    def _days_of_year(self, year: int, step: int, start: date) -> Iterator[date]:
        # An excluded weekday is still searched if a clock change may move its slot to the next day.
        change_days = self._zone.clock_change_days(year) if self._fixed else frozenset()
        allowed, matches = self._allowed.allows_day, self._cron.match_day
        for month in sorted(self._cron.months, reverse=step < 0):
            first = date(year, month, 1).toordinal()
            last = date(year + month // 12, month % 12 + 1, 1).toordinal() - 1
            onward = range(max(first, start.toordinal()), last + 1)
            back = range(min(last, start.toordinal()), first - 1, -1)
            for number in onward if step > 0 else back:
                day = date.fromordinal(number)
                if (allowed(day) or day in change_days) and matches(day):
                    yield day

    def _matches(self, day: date) -> bool:
        return day.month in self._cron.months and self._cron.match_day(day)

    def _first_on(self, day: date, after: datetime) -> datetime | None:
        if self._zone.is_clock_change_day(day):
            slots = self._slots_of_change_day(day) if self._matches(day) else []
            index = bisect_right(slots, after)
            return slots[index] if index < len(slots) else None
        start = self._zone.midnight(day)
        index = bisect_right(self._minutes, (after - start) // MINUTE)
        return start + self._minutes[index] * MINUTE if index < len(self._minutes) else None

    def _last_on(self, day: date, before: datetime) -> datetime | None:
        if self._zone.is_clock_change_day(day):
            slots = self._slots_of_change_day(day) if self._matches(day) else []
            index = bisect_left(slots, before)
            return slots[index - 1] if index else None
        start = self._zone.midnight(day)
        index = bisect_left(self._minutes, -((start - before) // MINUTE))
        return start + self._minutes[index - 1] * MINUTE if index else None

    def _slots_of_change_day(self, day: date) -> list[datetime]:
        return _slots_of_change_day(self, day)

    def compute_change_day(self, day: date) -> list[datetime]:
        """Compute the slots of a clock-change day: those at their own wall time, and those that a gap moves."""
        minutes = self._minutes if self._allowed.allows_day(day) else array("H")
        midnight = datetime.combine(day, time())
        seen: set[datetime] = set()
        slots: set[datetime] = set()
        for piece in self._zone.pieces(day):
            for wall in _walls_in(piece, midnight, minutes):
                if wall not in seen or not self._fixed:
                    slots.add((wall - piece.offset).replace(tzinfo=UTC))
                seen.add(wall)
        return sorted(slots | (self._moved_to(day) if self._fixed else set()))

    def _moved_to(self, day: date) -> set[datetime]:
        """Return the moments right after the gaps that skip a named wall time of this day."""
        midnight = datetime.combine(day, time())
        slots = set()
        for start, end in self._zone.gaps(day):
            first = bisect_left(self._walls, -((midnight - start) // MINUTE))
            if first < len(self._walls) and midnight + self._walls[first] * MINUTE < end:
                slots.add(self._zone.instant(start))
        return {slot for slot in slots if self._allowed.allows(slot)}


def _walls_in(piece: Piece, midnight: datetime, minutes: Sequence[int]) -> Iterator[datetime]:
    """Yield the wall times of these minutes of the day that lie in a piece."""
    first = bisect_left(minutes, -((midnight - piece.wall(piece.start)) // MINUTE))
    last = bisect_left(minutes, -((midnight - piece.wall(piece.end)) // MINUTE))
    return (midnight + minute * MINUTE for minute in minutes[first:last])


# Shared by all expressions and small: a day may have 1,440 slots, which take 100 kB.
@lru_cache(maxsize=256)
def _slots_of_change_day(times: CronTimes, day: date) -> list[datetime]:
    return times.compute_change_day(day)


@lru_cache(maxsize=4096)
def cron_times(expression: str, timezone: str, only_between: str | None, not_on: tuple[str, ...]) -> CronTimes:
    """Return the slots of an expression. They are cached: many schedules share an expression."""
    return CronTimes(expression, hours(timezone, only_between, not_on))
