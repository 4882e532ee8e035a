"""The slots of a spec by brute force: every minute of real time is looked at, with the clock of the place beside it.

It shares nothing with the application, and is written to be obvious, not fast.
"""

from calendar import monthrange
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
# What a walk begins before the span that is asked for, so that it knows which wall times it has seen.
_MARGIN = 2 * DAY
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * sun",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 jan *",
    "@annually": "0 0 1 jan *",
}

DayRule = Callable[[date], bool]


class Cron:
    """An expression as it is written, in any spelling."""

    def __init__(self, text: str) -> None:
        text = text.strip().lower()
        minute, hour, dom, month, dow = _SHORTHANDS.get(text, text).replace("?", "*").split()
        self._times = {(h, m) for h in _numbers(hour, 0, 23) for m in _numbers(minute, 0, 59)}
        self._months = _numbers(month, 1, 12, _MONTHS)
        self._doms = [_day_of_month(item) for item in dom.split(",")]
        self._dows = [_weekday(item) for item in dow.split(",")]
        self._both = dom.startswith("*") or dow.startswith("*")
        self._known: dict[date, bool] = {}
        self.is_fixed = not minute.startswith("*") and not hour.startswith("*")

    def names(self, wall: datetime) -> bool:
        """Whether the fields match what the clock on the wall shows."""
        return (wall.hour, wall.minute) in self._times and self.names_day(wall.date())

    def names_day(self, day: date) -> bool:
        """Whether month, day of month and day of week match."""
        if day not in self._known:
            dom, dow = any(fits(day) for fits in self._doms), any(fits(day) for fits in self._dows)
            self._known[day] = day.month in self._months and (dom and dow if self._both else dom or dow)
        return self._known[day]


def cron_slots(text: str, zone: str, first: datetime, last: datetime) -> list[datetime]:
    """The slots after ``first``, up to ``last``."""
    cron = Cron(text)
    return list(_once(cron.names, zone, first, last) if cron.is_fixed else _always(cron.names, zone, first, last))


def monthly_slots(anchor: datetime, zone: str, first: datetime, last: datetime) -> list[datetime]:
    """The same for the anchor's wall time, on its day of each month or on the month's last."""
    named = _wall(anchor, zone)

    def names(wall: datetime) -> bool:
        return wall.time() == named.time() and wall.day == min(named.day, monthrange(wall.year, wall.month)[1])

    return list(_once(names, zone, first, last))


def interval_slots(anchor: datetime, interval: timedelta, first: datetime, last: datetime) -> Iterator[datetime]:
    """The same for even distances."""
    slot = anchor + (first - anchor) // interval * interval
    while slot <= last:
        if slot > first:
            yield slot
        slot += interval


def allowed(slots: Iterable[datetime], zone: str, only_between: str | None, not_on: Iterable[str]) -> list[datetime]:
    """Those slots that lie in the window, and not on an excluded day."""
    excluded = {_DAYS.index(day[:3]) for day in not_on}
    walls = ((slot, _wall(slot, zone)) for slot in slots)
    return [
        slot
        for slot, wall in walls
        if wall.isoweekday() % 7 not in excluded and (only_between is None or _is_between(wall, only_between))
    ]


def changes(zone: str, first_year: int, last_year: int) -> list[datetime]:
    """The moments at which the clocks of a place change."""
    found = []
    moment = datetime(first_year, 1, 1, tzinfo=UTC)
    while moment.year <= last_year:
        following = moment + DAY / 2
        if _offset(moment, zone) != _offset(following, zone):
            found.append(next(at for at in _minutes(moment, following) if _offset(at, zone) != _offset(moment, zone)))
        moment = following
    return found


def _always(names: Callable[[datetime], bool], zone: str, first: datetime, last: datetime) -> Iterator[datetime]:
    """Each minute of real time at which the wall shows what is named."""
    return (moment for moment, wall in _walk(zone, first, last) if moment > first and names(wall))


def _once(names: Callable[[datetime], bool], zone: str, first: datetime, last: datetime) -> Iterator[datetime]:
    """Each wall time that is named when the clock first reaches it, or has just jumped over it."""
    reached: datetime | None = None
    for moment, wall in _walk(zone, first - _MARGIN, last):
        is_named = False
        reached = reached or wall - MINUTE
        while reached < wall:
            reached += MINUTE
            is_named = is_named or names(reached)
        if is_named and moment > first:
            yield moment


def _walk(zone: str, first: datetime, last: datetime) -> Iterator[tuple[datetime, datetime]]:
    info = ZoneInfo(zone)
    for moment in _minutes(first.replace(second=0, microsecond=0), last):
        yield moment, moment.astimezone(info).replace(tzinfo=None, fold=0)


def _minutes(first: datetime, last: datetime) -> Iterator[datetime]:
    while first <= last:
        yield first
        first += MINUTE


def _wall(moment: datetime, zone: str) -> datetime:
    return moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)


def _offset(moment: datetime, zone: str) -> timedelta | None:
    return moment.astimezone(ZoneInfo(zone)).utcoffset()


def _is_between(wall: datetime, only_between: str) -> bool:
    start, end = (int(hour) * 60 + int(minute) for hour, minute in (x.split(":") for x in only_between.split("-")))
    minute = wall.hour * 60 + wall.minute
    return start <= minute < end if start < end else minute >= start or minute < end


def _day_of_month(item: str) -> DayRule:
    if item == "l":
        return lambda day: day.month != (day + DAY).month
    if item == "lw":
        return _is_last_working_day
    numbers = _numbers(item, 1, 31)
    return lambda day: day.day in numbers


def _is_last_working_day(day: date) -> bool:
    later = [day + k * DAY for k in range(1, 7)]
    return _is_working_day(day) and not any(_is_working_day(one) for one in later if one.month == day.month)


def _is_working_day(day: date) -> bool:
    return day.isoweekday() <= 5


def _weekday(item: str) -> DayRule:
    if item.endswith("l"):
        fits = _weekday(item[:-1])
        return lambda day: fits(day) and day.month != (day + 7 * DAY).month
    if "#" in item:
        weekday, nth = item.split("#")
        fits = _weekday(weekday)
        return lambda day: fits(day) and (day.day - 1) // 7 + 1 == int(nth)
    numbers = _numbers(item, 0, 6, _DAYS)
    return lambda day: day.isoweekday() % 7 in numbers


def _numbers(field: str, low: int, high: int, names: list[str] | None = None) -> set[int]:
    """The values of a list, counted out one by one; those of a range may go round the end."""
    found: set[int] = set()
    for item in field.split(","):
        span, _, step = item.partition("/")
        start, dash, end = span.replace("*", f"{low}-{high}").partition("-")
        first = _value(start, low, names)
        last = _value(end, low, names) if dash else high if step else first
        if names is _DAYS and (first == 7 or last != 7):
            # Sunday is 0, unless it ends a range such as 0-7 or 5-7.
            first, last = first % 7, last % 7
        value, taken = first, 0
        while True:
            if taken % int(step or 1) == 0:
                found.add(value % 7 if names is _DAYS else value)
            if value == last:
                break
            value, taken = (value + 1 if value < max(high, last) else low), taken + 1
    return found


def _value(text: str, low: int, names: list[str] | None) -> int:
    return names.index(text) + low if names is not None and text in names else int(text)
