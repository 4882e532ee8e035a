"""The slots of a recurrence rule by brute force: every day is looked at, and every wall time is found on the clock.

It shares nothing with the application. dateutil is a second opinion, but for three things in which it differs from RFC
5545: of weekdays with and without a number (``TU,1FR``) it takes those that are both; in the first week of a
weekly rule with BYSETPOS it selects from what is left of the week; and it counts wall times, not slots.
"""

from bisect import bisect_right
from calendar import isleap, monthrange
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby
from typing import Any
from zoneinfo import ZoneInfo

from dateutil.rrule import rrulestr

from tests.domain.strategies import changes

DAY = timedelta(days=1)
CODES = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]


def rule_text(parts: dict[str, Any]) -> str:
    """A rule as it is written."""
    return ";".join(f"{name}={value}" for name, value in parts.items())


def walls(parts: dict[str, str], start: datetime, last: date) -> list[datetime]:
    """The wall times of a rule from its start to a day, by a look at each day."""
    day, found = start.date() - 370 * DAY, list[datetime]()
    days = []
    while day <= last + 370 * DAY:
        if _fits(parts, start, day):
            days.append(day)
        day += DAY
    times = _times(parts, start)
    for _, group in groupby(days, key=lambda day: _period(parts, day)):
        period = [datetime.combine(day, at) for day in group for at in times]
        found += _selected(parts, period)
    return [wall for wall in found if start <= wall and wall.date() <= last]


def dateutil_slots(parts: dict[str, str], start: datetime, zone: str, last: datetime) -> list[datetime]:
    """The slots by dateutil up to ``last``, which is one of them: after its last it searches up to the year 9999."""
    given = dict(parts)
    if "BYMINUTE" in given:
        start = start.replace(second=0)
    begin = start
    if parts["FREQ"] == "WEEKLY" and "BYSETPOS" in parts:
        given.setdefault("BYDAY", CODES[start.weekday()])
        begin -= (start.weekday() - CODES.index(parts.get("WKST", "MO"))) % 7 * DAY
    found: set[datetime] = set()
    for wall in rrulestr(rule_text(given), dtstart=begin):
        moment = _moment(wall, zone)
        if wall >= start:
            found.add(moment)
        if moment >= last:
            break
    return sorted(found)


def mixes_weekdays(parts: dict[str, str]) -> bool:
    """Whether some weekdays of a rule have a number and others have none."""
    return len({len(item) > len("MO") for item in parts.get("BYDAY", "MO").split(",")}) > 1


def slots(found: Iterable[datetime], zone: str) -> list[datetime]:
    """The moment of each wall time: when the clock first shows it, or the end of the gap that skips it."""
    return sorted({_moment(wall, zone) for wall in found})


def _moment(wall: datetime, zone: str) -> datetime:
    info = ZoneInfo(zone)
    moment = wall.replace(tzinfo=info).astimezone(UTC)
    if moment.astimezone(info).replace(tzinfo=None, fold=0) == wall:
        return moment
    return changes(zone)[bisect_right(changes(zone), moment) - 1]


def _fits(parts: dict[str, str], start: datetime, day: date) -> bool:
    freq = parts["FREQ"]
    number, first = _period(parts, day), _period(parts, start.date())
    months = _numbers(parts.get("BYMONTH"))
    month_days = _numbers(parts.get("BYMONTHDAY"))
    weekdays = parts["BYDAY"].split(",") if "BYDAY" in parts else []
    if not month_days and not weekdays:
        if freq == "WEEKLY":
            weekdays = [CODES[start.weekday()]]
        if freq in {"MONTHLY", "YEARLY"}:
            month_days = [start.day]
            months = months or ([start.month] if freq == "YEARLY" else [])
    length = monthrange(day.year, day.month)[1]
    return (
        (number - first) % int(parts.get("INTERVAL", "1")) == 0
        and (not months or day.month in months)
        and (not month_days or bool({day.day, day.day - length - 1} & set(month_days)))
        and (not weekdays or any(_fits_weekday(parts, item, day) for item in weekdays))
    )


def _fits_weekday(parts: dict[str, str], item: str, day: date) -> bool:
    if CODES[day.weekday()] != item[-2:]:
        return False
    if item[:-2] == "":
        return True
    if parts["FREQ"] == "MONTHLY" or "BYMONTH" in parts:
        place, length = day.day, monthrange(day.year, day.month)[1]
    else:
        place, length = day.timetuple().tm_yday, 365 + isleap(day.year)
    return int(item[:-2]) in {(place - 1) // 7 + 1, -((length - place) // 7 + 1)}


def _period(parts: dict[str, str], day: date) -> int:
    if parts["FREQ"] == "YEARLY":
        return day.year
    if parts["FREQ"] == "MONTHLY":
        return day.year * 12 + day.month
    if parts["FREQ"] == "DAILY":
        return day.toordinal()
    return (day - (day.weekday() - CODES.index(parts.get("WKST", "MO"))) % 7 * DAY).toordinal() // 7


def _times(parts: dict[str, str], start: datetime) -> list[time]:
    hours = _numbers(parts.get("BYHOUR")) or [start.hour]
    minutes = _numbers(parts.get("BYMINUTE")) or [start.minute]
    second = 0 if "BYMINUTE" in parts else start.second
    return sorted({time(hour, minute, second) for hour in hours for minute in minutes})


def _selected(parts: dict[str, str], period: list[datetime]) -> list[datetime]:
    if "BYSETPOS" not in parts:
        return period
    positions = {number - 1 if number > 0 else number + len(period) for number in _numbers(parts["BYSETPOS"])}
    return [wall for index, wall in enumerate(period) if index in positions]


def _numbers(text: str | None) -> list[int]:
    return [int(item) for item in text.split(",")] if text else []
