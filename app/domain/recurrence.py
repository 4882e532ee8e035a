"""Slots without beginning or end: what follows a moment, what precedes it, and how many lie between two.

A search is bounded: what is not found within it never comes.
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
# From slot to slot over closed windows: at one a day, almost three years.
_MAX_JUMPS = 1000
_HORIZON_YEARS = 50
# Slots at the same time of the day move against the window by changes of the clocks alone.
_DAILY_HORIZON_YEARS = 2
# No slot lies beyond; an interval or a search more would leave the calendar.
FIRST_YEAR, LAST_YEAR = 200, 9800
_MONTHS_IN_YEAR = 12


class Recurrence(Protocol):
    """Slots in both directions."""

    def next(self, after: datetime) -> datetime | None:
        """The first slot strictly after a moment."""

    def previous(self, before: datetime) -> datetime | None:
        """The last slot strictly before a moment."""

    def count(self, first: datetime, last: datetime) -> int:
        """How many slots lie from slot ``first`` to slot ``last``, both included."""


class Once:
    """A single slot."""

    def __init__(self, slot: datetime, allowed: Hours) -> None:
        """None at all if the slot lies outside the allowed hours."""
        self._slot = slot if allowed.allows(slot) else None

    def next(self, after: datetime) -> datetime | None:
        """It, or nothing."""
        return self._slot if self._slot is not None and self._slot > after else None

    def previous(self, before: datetime) -> datetime | None:
        """It, or nothing."""
        return self._slot if self._slot is not None and self._slot < before else None

    def count(self, first: datetime, last: datetime) -> int:
        """One, or none."""
        return int(self._slot is not None and first <= self._slot <= last)


class Evenly:
    """Slots at even distances of real time, counted from an anchor, within the allowed hours."""

    def __init__(self, anchor: datetime, interval: timedelta, allowed: Hours) -> None:
        """The anchor is one of the slots."""
        self._anchor = anchor
        self._interval = interval
        self._allowed = allowed

    @property
    def _horizon(self) -> timedelta:
        years = _HORIZON_YEARS if self._interval % DAY else _DAILY_HORIZON_YEARS
        # The weekdays come round within seven slots.
        return years * 366 * DAY + 8 * self._interval

    def next(self, after: datetime) -> datetime | None:
        """Over closed hours it jumps."""
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
        """The same in the other direction."""
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
        """By arithmetic, one allowed stretch at a time."""
        if self._allowed.always:
            return (last - first) // self._interval + 1
        stretches = self._allowed.stretches(first, last)
        past = last + timedelta.resolution
        return sum(self._number(min(end, past)) - self._number(start) for start, end in stretches)

    def _number(self, moment: datetime) -> int:
        """The number of the first slot at or after a moment."""
        return -((self._anchor - moment) // self._interval)

    def _first_from(self, moment: datetime) -> datetime:
        return self._anchor + self._number(moment) * self._interval


class Monthly:
    """The same wall time every month, on the anchor's day or the month's last, within the allowed hours."""

    def __init__(self, anchor: datetime, allowed: Hours) -> None:
        """The anchor is one of the slots."""
        self._anchor = anchor
        self._wall = allowed.zone.local(anchor)
        self._allowed = allowed

    def next(self, after: datetime) -> datetime | None:
        """Month by month."""
        if after.year > LAST_YEAR:
            return None
        number = self._number(after) - 1
        found = (self._slot(number + k) for k in range(_HORIZON_YEARS * _MONTHS_IN_YEAR))
        return next((slot for slot in found if slot > after and self._allowed.allows(slot)), None)

    def previous(self, before: datetime) -> datetime | None:
        """Month by month, backwards."""
        if before.year < FIRST_YEAR:
            return None
        number = self._number(before) + 1
        found = (self._slot(number - k) for k in range(_HORIZON_YEARS * _MONTHS_IN_YEAR))
        return next((slot for slot in found if slot < before and self._allowed.allows(slot)), None)

    def count(self, first: datetime, last: datetime) -> int:
        """By looking at each."""
        found = map(self._slot, range(self._number(first) - 1, self._number(last) + 2))
        return sum(first <= slot <= last and self._allowed.allows(slot) for slot in found)

    def _number(self, moment: datetime) -> int:
        wall = self._allowed.zone.local(moment)
        return (wall.year - self._wall.year) * _MONTHS_IN_YEAR + wall.month - self._wall.month

    def _slot(self, number: int) -> datetime:
        if number == 0:
            # Even where the wall shows its time twice.
            return self._anchor
        years, month = divmod(self._wall.month - 1 + number, _MONTHS_IN_YEAR)
        first = self._wall.replace(year=self._wall.year + years, month=month + 1, day=1)
        following = (first + 31 * DAY).replace(day=1)
        day = min(self._wall.day, (following - first).days)
        return self._allowed.zone.instant(first.replace(day=day))


class CronTimes:
    """The slots of a cron expression on the wall clock of a zone, within the allowed hours.

    Days on which no clock changes are arithmetic; on the others each minute is looked at, by the rule that a fixed
    wall time fires once (after the gap that skips it, the first time where it is repeated) and all else follows
    elapsed time.
    """

    def __init__(self, expression: str, allowed: Hours) -> None:
        """Prepare the minutes of a plain day."""
        self._cron = cron(expression)
        self._fixed = is_fixed(expression)
        self._allowed = allowed
        self._zone = allowed.zone
        # Two bytes each: thousands of expressions are kept, with up to 1,440 minutes.
        walls = (h * 60 + m for h in sorted(self._cron.hours) for m in sorted(self._cron.minutes))
        self._walls = array("H", walls)
        self._minutes = array("H", (minute for minute in self._walls if allowed.allows_minute(minute)))

    def next(self, after: datetime) -> datetime | None:
        """Day by day."""
        day = self._zone.local(after).date()
        for candidate in self._days(day - DAY if self._zone.is_clock_change_day(day) else day, 1):
            found = self._first_on(candidate, after)
            if found is not None:
                # Where the clocks were set back over midnight, two days are interleaved.
                other = self._first_on(candidate + DAY, after) if self._interleaved(candidate) else None
                return min(found, other or found)
        return None

    def previous(self, before: datetime) -> datetime | None:
        """Day by day, backwards."""
        day = self._zone.local(before).date()
        for candidate in self._days(day + DAY if self._zone.is_clock_change_day(day) else day, -1):
            found = self._last_on(candidate, before)
            if found is not None:
                other = self._last_on(candidate - DAY, before) if self._interleaved(candidate - DAY) else None
                return max(found, other or found)
        return None

    def count(self, first: datetime, last: datetime) -> int:
        """Whole days by their number of minutes."""
        plain, uneven = 0, set[datetime]()
        final = self._zone.local(last).date() + DAY
        for day in self._days(self._zone.local(first).date() - DAY, 1, final.year):
            if day > final:
                break
            if self._zone.is_clock_change_day(day):
                uneven.update(slot for slot in self._taken_apart(day) if first <= slot <= last)
            elif self._minutes:
                start = self._zone.midnight(day)
                plain += bisect_right(self._minutes, (last - start) // MINUTE)
                plain -= bisect_left(self._minutes, -((start - first) // MINUTE))
        return plain + len(uneven)

    def moved(self, slot: datetime) -> datetime | None:
        """The skipped wall time that a slot stands for, if a change of the clocks moved it."""
        if not self._fixed or self._named(self._zone.local(slot)):
            return None
        day = self._zone.local(slot).date()
        for candidate in (day, day - DAY):
            if self._zone.is_clock_change_day(candidate) and self._cron.match_day(candidate):
                walls = (datetime.combine(candidate, time()) + minute * MINUTE for minute in self._walls)
                found = next((wall for wall in walls if self._zone.instant(wall) == slot), None)
                if found is not None:
                    return found
        return None

    def repeated(self, slot: datetime) -> bool:
        """Whether the wall shows the slot's time twice, and only the first is taken."""
        wall = self._zone.local(slot)
        pieces = self._zone.pieces(wall.date()) if self._zone.is_clock_change_day(wall.date()) else []
        return self._fixed and sum(piece.wall(piece.start) <= wall < piece.wall(piece.end) for piece in pieces) > 1

    def _named(self, wall: datetime) -> bool:
        minute = wall.hour in self._cron.hours and wall.minute in self._cron.minutes
        return minute and wall.month in self._cron.months and self._cron.match_day(wall.date())

    def _interleaved(self, day: date) -> bool:
        return self._zone.is_clock_change_day(day) and self._zone.is_clock_change_day(day + DAY)

    def _days(self, day: date, step: int, last_year: int | None = None) -> Iterator[date]:
        """The days that the expression names, from one on up to the horizon, that may have a slot."""
        if not self._minutes and not self._fixed:
            return
        if last_year is None:
            last_year = min(max(day.year + step * _HORIZON_YEARS, FIRST_YEAR), LAST_YEAR)
        for year in range(day.year, last_year + step, step):
            if self._minutes:
                yield from self._days_of_year(year, step, day)
            else:
                # Only where the clocks change may a slot be moved into the window.
                uneven = sorted(self._zone.clock_change_days(year), reverse=step < 0)
                yield from (one for one in uneven if self._matches(one) and (one >= day if step > 0 else one <= day))

    def _days_of_year(self, year: int, step: int, start: date) -> Iterator[date]:
        # The weekday that counts is the slot's own, which a change of the clocks may move.
        uneven = self._zone.clock_change_days(year) if self._fixed else frozenset()
        allowed, matches = self._allowed.allows_day, self._cron.match_day
        for month in sorted(self._cron.months, reverse=step < 0):
            first = date(year, month, 1).toordinal()
            last = date(year + month // 12, month % 12 + 1, 1).toordinal() - 1
            onward = range(max(first, start.toordinal()), last + 1)
            back = range(min(last, start.toordinal()), first - 1, -1)
            for number in onward if step > 0 else back:
                day = date.fromordinal(number)
                if (allowed(day) or day in uneven) and matches(day):
                    yield day

    def _matches(self, day: date) -> bool:
        return day.month in self._cron.months and self._cron.match_day(day)

    def _first_on(self, day: date, after: datetime) -> datetime | None:
        if self._zone.is_clock_change_day(day):
            slots = self._taken_apart(day) if self._matches(day) else []
            index = bisect_right(slots, after)
            return slots[index] if index < len(slots) else None
        start = self._zone.midnight(day)
        index = bisect_right(self._minutes, (after - start) // MINUTE)
        return start + self._minutes[index] * MINUTE if index < len(self._minutes) else None

    def _last_on(self, day: date, before: datetime) -> datetime | None:
        if self._zone.is_clock_change_day(day):
            slots = self._taken_apart(day) if self._matches(day) else []
            index = bisect_left(slots, before)
            return slots[index - 1] if index else None
        start = self._zone.midnight(day)
        index = bisect_left(self._minutes, -((start - before) // MINUTE))
        return start + self._minutes[index - 1] * MINUTE if index else None

    def _taken_apart(self, day: date) -> list[datetime]:
        return _slots_on(self, day)

    def take_apart(self, day: date) -> list[datetime]:
        """The slots of a day on which the clocks change: those at their own wall time, and those that are moved."""
        minutes = self._minutes if self._allowed.allows_day(day) else array("H")
        midnight = datetime.combine(day, time())
        seen: set[datetime] = set()
        slots: set[datetime] = set()
        for piece in self._zone.pieces(day):
            for wall in _within(piece, midnight, minutes):
                if wall not in seen or not self._fixed:
                    slots.add((wall - piece.offset).replace(tzinfo=UTC))
                seen.add(wall)
        return sorted(slots | (self._moved_to(day) if self._fixed else set()))

    def _moved_to(self, day: date) -> set[datetime]:
        """The moments right after the gaps that skip a wall time of this day."""
        midnight = datetime.combine(day, time())
        found = set()
        for start, end in self._zone.gaps(day):
            first = bisect_left(self._walls, -((midnight - start) // MINUTE))
            if first < len(self._walls) and midnight + self._walls[first] * MINUTE < end:
                found.add(self._zone.instant(start))
        return {slot for slot in found if self._allowed.allows(slot)}


def _within(piece: Piece, midnight: datetime, minutes: Sequence[int]) -> Iterator[datetime]:
    """The wall times of these minutes that a piece of the day shows."""
    first = bisect_left(minutes, -((midnight - piece.wall(piece.start)) // MINUTE))
    last = bisect_left(minutes, -((midnight - piece.wall(piece.end)) // MINUTE))
    return (midnight + minute * MINUTE for minute in minutes[first:last])


# One bound for all expressions: a day may have as many slots as minutes, and takes 100 kB then.
@lru_cache(maxsize=256)
def _slots_on(times: CronTimes, day: date) -> list[datetime]:
    return times.take_apart(day)


@lru_cache(maxsize=4096)
def cron_times(expression: str, timezone: str, only_between: str | None, not_on: tuple[str, ...]) -> CronTimes:
    """The slots of an expression; kept, as many schedules share one."""
    return CronTimes(expression, hours(timezone, only_between, not_on))
