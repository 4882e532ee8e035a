"""Recurrence rules of iCalendar (RFC 5545): validation, and the conversion of all spellings into one stored form.

A rule names wall times. It has no start of its own: the start is the anchor of the schedule, or of a calendar's event.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, time
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec

LONGEST_RULE = 1000
MAX_INTERVAL = 1000
MAX_COUNT = 10_000
WEEKDAY_CODES = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
# Years of UNTIL: old ones occur in imported calendars.
EARLIEST_UNTIL, LATEST_UNTIL = 1900, 2999
_MONDAY = 0
_NTH_IN_MONTH, _NTH_IN_YEAR = 5, 53
_EXPECTED = "Expected parts such as FREQ=WEEKLY;BYDAY=TU, separated by ';'."
# Parts of RFC 5545 and of its extensions that are refused, and what to use instead.
_UNSUPPORTED = {
    "BYSECOND": "BYSECOND is not supported: times of day have hours and minutes only.",
    "BYYEARDAY": "BYYEARDAY is not supported. Use BYMONTH and BYMONTHDAY.",
    "BYWEEKNO": "BYWEEKNO is not supported. Use BYMONTH and BYDAY, or FREQ=WEEKLY with INTERVAL.",
    "BYEASTER": "BYEASTER is not supported. Use a calendar of holidays.",
    "DTSTART": "DTSTART is not a part of the rule: its start is start_at.",
    "TZID": "TZID is not a part of the rule: its timezone is the field timezone.",
    "EXDATE": "EXDATE is not a part of the rule. Use a calendar to exclude dates.",
    "RDATE": "RDATE is not a part of the rule. Use a rule for each schedule.",
}
_WEEKDAY = re.compile(rf"([+-]?[0-9]{{1,2}})?({'|'.join(WEEKDAY_CODES)})")
_NUMBER = re.compile(r"[+-]?[0-9]{1,7}")
_UNTIL = re.compile(r"[0-9]{8}(T[0-9]{6}Z?)?")
_END_OF_DAY = time.max


class Frequency(StrEnum):
    """The period of a rule. Its parts name days and times within each period."""

    DAILY = "DAILY"
    WEEKLY = "WEEKLY"
    MONTHLY = "MONTHLY"
    YEARLY = "YEARLY"


class NthWeekday(msgspec.Struct, frozen=True, order=True):
    """A weekday (Monday is 0): the nth of the month or year, the nth from its end if negative, each if ``nth`` is 0."""

    nth: int
    weekday: int

    def __str__(self) -> str:
        """Return the stored form, such as ``TU`` or ``-1FR``."""
        return f"{self.nth or ''}{WEEKDAY_CODES[self.weekday]}"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule, parsed. An empty tuple is a part that was not given.

    ``until`` without a timezone is a wall time; the last moment of a day stands for the whole day.
    """

    freq: Frequency
    interval: int = 1
    months: tuple[int, ...] = ()
    month_days: tuple[int, ...] = ()
    weekdays: tuple[NthWeekday, ...] = ()
    hours: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    week_start: int = _MONDAY
    count: int | None = None
    until: datetime | None = None

    @property
    def nth_in_month(self) -> bool:
        """Return whether numbers of weekdays count within a month, not within a year."""
        return self.freq is Frequency.MONTHLY or bool(self.months)

    @property
    def has_positions_of_days(self) -> bool:
        """Return whether BYSETPOS selects from the days of a period, not from the times of one day."""
        return bool(self.positions) and self.freq is not Frequency.DAILY

    def __str__(self) -> str:
        """Return the stored form: the parts that matter, in one order."""
        parts: dict[str, Any] = {
            "FREQ": self.freq.value,
            "INTERVAL": self.interval if self.interval > 1 else "",
            "BYMONTH": _listed(self.months),
            "BYMONTHDAY": _listed(self.month_days),
            "BYDAY": _listed(self.weekdays),
            "BYHOUR": _listed(self.hours),
            "BYMINUTE": _listed(self.minutes),
            "BYSETPOS": _listed(self.positions),
            "WKST": WEEKDAY_CODES[self.week_start] if self.week_start != _MONDAY else "",
            "COUNT": self.count or "",
            "UNTIL": "" if self.until is None else _until_text(self.until),
        }
        return ";".join(f"{name}={value}" for name, value in parts.items() if value != "")


@lru_cache(maxsize=4096)
def parse_rrule(text: str) -> Rule:
    """Return a rule, parsed. Raise ``ValueError`` with the part that is wrong and what is allowed."""
    given = _parts(text)
    if "FREQ" not in given:
        raise ValueError("FREQ is missing: expected FREQ=DAILY, WEEKLY, MONTHLY or YEARLY.")
    fields: dict[str, Any] = {}
    for name, value in given.items():
        field, read = _READERS[name]
        fields[field] = read(name, value)
    _check(fields)
    return _simplified(Rule(**fields))


def _parts(text: str) -> dict[str, str]:
    """Return the parts of a rule by their names. Raise ``ValueError`` if one is unknown, repeated or empty."""
    if len(text) > LONGEST_RULE:
        raise ValueError(f"The rule is longer than {LONGEST_RULE} characters.")
    given: dict[str, str] = {}
    for part in text.strip().upper().removeprefix("RRULE:").removesuffix(";").split(";"):
        name, equals, value = (side.strip() for side in part.partition("="))
        _require_known(re.split(r"[:\s]", name)[0], known=bool(equals and value))
        if name in given:
            raise ValueError(f"{name} is given twice.")
        given[name] = value
    return given


def _require_known(name: str, *, known: bool) -> None:
    if name in _UNSUPPORTED:
        raise ValueError(_UNSUPPORTED[name])
    if not known:
        raise ValueError(_EXPECTED)
    if name not in _READERS:
        raise ValueError(f"'{name[:20]}' is not a part of a rule. Allowed: {', '.join(_READERS)}.")


def _check(fields: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` if parts do not go together."""
    freq = fields["freq"]
    if freq is Frequency.WEEKLY and fields.get("month_days"):
        raise ValueError("BYMONTHDAY cannot be used with FREQ=WEEKLY. Use FREQ=MONTHLY.")
    _check_nth(freq, fields.get("weekdays", ()), in_month=bool(fields.get("months")))
    if fields.get("positions") and not any(fields.get(name) for name in _SELECTED_FROM):
        raise ValueError("BYSETPOS needs another part to select from, such as BYDAY or BYMONTHDAY.")
    if "count" in fields and "until" in fields:
        raise ValueError("COUNT and UNTIL cannot be used together.")


_SELECTED_FROM = ("months", "month_days", "weekdays", "hours", "minutes")


def _check_nth(freq: Frequency, weekdays: Iterable[NthWeekday], *, in_month: bool) -> None:
    numbered = [day for day in weekdays if day.nth]
    if not numbered:
        return
    if freq not in {Frequency.MONTHLY, Frequency.YEARLY}:
        raise ValueError(f"BYDAY with a number, such as {numbered[0]}, needs FREQ=MONTHLY or FREQ=YEARLY.")
    highest = _NTH_IN_MONTH if in_month or freq is Frequency.MONTHLY else _NTH_IN_YEAR
    for day in numbered:
        if abs(day.nth) > highest:
            raise ValueError(f"BYDAY cannot be '{day}': expected a number from 1 to {highest} or -{highest} to -1.")


def _simplified(rule: Rule) -> Rule:
    """Return the rule without what has no effect: a week's start that decides nothing, a weekday named twice."""
    each = {day.weekday for day in rule.weekdays if not day.nth}
    weekdays = tuple(day for day in rule.weekdays if not day.nth or day.weekday not in each)
    weeks_matter = rule.freq is Frequency.WEEKLY and (rule.interval > 1 or rule.positions)
    return msgspec.structs.replace(rule, weekdays=weekdays, week_start=rule.week_start if weeks_matter else _MONDAY)


def _freq(_: str, value: str) -> Frequency:
    if value in {"SECONDLY", "MINUTELY", "HOURLY"}:
        raise ValueError(f"FREQ={value} is not supported. Use interval_seconds, every or cron.")
    if value not in Frequency.__members__:
        raise ValueError(f"FREQ cannot be '{value[:20]}': expected DAILY, WEEKLY, MONTHLY or YEARLY.")
    return Frequency(value)


def _between(low: int, high: int) -> Callable[[str, str], int]:
    """Return the reader of a part that is one number."""
    return lambda name, value: _number(name, value, low, high, negative=False)


def _list_of(low: int, high: int, *, negative: bool = False) -> Callable[[str, str], tuple[int, ...]]:
    """Return the reader of a part that is a list of numbers, counted from the end if ``negative``."""

    def read(name: str, value: str) -> tuple[int, ...]:
        numbers = {_number(name, item.strip(), low, high, negative=negative) for item in value.split(",")}
        return tuple(sorted(numbers, key=lambda number: (number < 0, number)))

    return read


def _number(name: str, text: str, low: int, high: int, *, negative: bool) -> int:
    number = int(text) if _NUMBER.fullmatch(text) else None
    if number is None or not low <= (abs(number) if negative else number) <= high:
        also = f" or -{high} to -{low}" if negative else ""
        raise ValueError(f"{name} cannot be '{text[:20]}': expected {low} to {high}{also}.")
    return number


def _weekdays(name: str, value: str) -> tuple[NthWeekday, ...]:
    days = {_nth_weekday(name, item.strip()) for item in value.split(",")}
    return tuple(sorted(days, key=lambda day: (day.nth < 0, day.nth, day.weekday)))


def _nth_weekday(name: str, text: str) -> NthWeekday:
    match = _WEEKDAY.fullmatch(text)
    if match is None or (match[1] is not None and int(match[1]) == 0):
        codes = ", ".join(WEEKDAY_CODES)
        raise ValueError(f"{name} cannot be '{text[:20]}': expected {codes}, or one with a number such as 2TU or -1FR.")
    return NthWeekday(int(match[1] or 0), WEEKDAY_CODES.index(match[2]))


def _week_start(name: str, value: str) -> int:
    if value not in WEEKDAY_CODES:
        raise ValueError(f"{name} cannot be '{value[:20]}': expected {', '.join(WEEKDAY_CODES)}.")
    return WEEKDAY_CODES.index(value)


def _until(name: str, value: str) -> datetime:
    form = "%Y%m%d" if "T" not in value else "%Y%m%dT%H%M%S"
    try:
        if _UNTIL.fullmatch(value) is None:
            raise ValueError  # noqa: TRY301 - the message is below, for both reasons
        moment = datetime.strptime(value.removesuffix("Z"), form)  # noqa: DTZ007 - a wall time has no zone
    except ValueError:
        expected = "expected a date or time such as 20261231, 20261231T235959 or 20261231T235959Z"
        raise ValueError(f"{name} cannot be '{value[:20]}': {expected}.") from None
    if not EARLIEST_UNTIL <= moment.year <= LATEST_UNTIL:
        raise ValueError(f"The year of {name} must be between {EARLIEST_UNTIL} and {LATEST_UNTIL}.")
    if value.endswith("Z"):
        return moment.replace(tzinfo=UTC)
    return moment if "T" in value else datetime.combine(moment, _END_OF_DAY)


_READERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "FREQ": ("freq", _freq),
    "INTERVAL": ("interval", _between(1, MAX_INTERVAL)),
    "BYMONTH": ("months", _list_of(1, 12)),
    "BYMONTHDAY": ("month_days", _list_of(1, 31, negative=True)),
    "BYDAY": ("weekdays", _weekdays),
    "BYHOUR": ("hours", _list_of(0, 23)),
    "BYMINUTE": ("minutes", _list_of(0, 59)),
    "BYSETPOS": ("positions", _list_of(1, 366, negative=True)),
    "WKST": ("week_start", _week_start),
    "COUNT": ("count", _between(1, MAX_COUNT)),
    "UNTIL": ("until", _until),
}


def _listed(values: Iterable[object]) -> str:
    return ",".join(map(str, values))


def _until_text(until: datetime) -> str:
    if until.tzinfo is not None:
        return f"{until:%Y%m%dT%H%M%SZ}"
    return f"{until:%Y%m%d}" if until.time() == _END_OF_DAY else f"{until:%Y%m%dT%H%M%S}"
