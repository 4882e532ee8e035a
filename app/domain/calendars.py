"""Calendars: named sets of dates and times, by which schedules leave slots out or keep only some.

A calendar has dates as people write them, events of an iCalendar file, and public holidays. Both ends of a range of
dates are included.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timedelta
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any

import msgspec

from app.domain.calendar_layers import FixedSpans, Layer, Source, Span, YearlySpan
from app.domain.errors import FieldError, InvalidError
from app.domain.holiday_dates import HolidaySpans, canonical_holidays
from app.domain.icalendar import EARLIEST_YEAR, LATEST_YEAR, read_events, sources
from app.domain.local_time import DAY, canonical_zone, zone
from app.domain.phrases import joined
from app.domain.recurrence import Recurrence

MAX_DATES = 10_000
# How many calendars a schedule may name in each of its lists.
MAX_NAMED = 20
# Calendars that are not stored: their names begin with this, and the rest names the holidays.
HOLIDAYS_PREFIX = "holidays:"
# The fields of a calendar that say which moments it has.
CONTENT_FIELDS = ("timezone", "dates", "ics", "holidays")
# How far a search goes on past slots that calendars leave out, and over how many stretches that they leave out.
SEARCHED_YEARS = 20
_MAX_JUMPS = 1000
_INSTANT = timedelta.resolution
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DATE = r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
_TIME = r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)"
_YEARLY = r"--([0-9]{2})-([0-9]{2})"
_DATES = re.compile(rf"{_DATE}(?:/{_DATE})?")
_TIMES = re.compile(rf"{_TIME}/{_TIME}")
_YEARLY_DATES = re.compile(rf"{_YEARLY}(?:/{_YEARLY})?")
_EXPECTED = "expected '2026-12-25', '2026-12-24/2027-01-01', '--05-01' or '2026-12-24T12:00/2026-12-24T18:00'"
_LEAP_YEAR = 2000


class Calendar(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A calendar in its stored form. What is computed from it is kept with the value."""

    name: str
    timezone: str = "UTC"
    dates: tuple[str, ...] = ()
    ics: str | None = None
    holidays: str | None = None

    @property
    def problem(self) -> str:
        """Return why the calendar cannot be used (the package of holidays is missing, say), or an empty string."""
        try:
            _ = self._layers
            if self.holidays is not None:
                canonical_holidays(self.holidays)
        except (ValueError, OverflowError) as error:
            return f"Calendar '{self.name}': {error}"
        return ""

    def entry_at(self, moment: datetime) -> str | None:
        """Return the entry that covers a moment: a date as it was written, or the name of an event or holiday."""
        return next((entry for layer in self._layers if (entry := layer.entry_at(moment)) is not None), None)

    def until(self, moment: datetime) -> datetime:
        """Return a later moment before which nothing changes: all is covered, or nothing is."""
        covering = [layer for layer in self._layers if layer.entry_at(moment) is not None]
        if covering:
            return max(layer.until(moment) for layer in covering)
        return min(layer.until(moment) for layer in self._layers)

    def since(self, moment: datetime) -> datetime:
        """Return a moment, not later, from which on nothing changes up to ``moment``."""
        covering = [layer for layer in self._layers if layer.entry_at(moment) is not None]
        if covering:
            return min(layer.since(moment) for layer in covering)
        return max(layer.since(moment) for layer in self._layers)

    @cached_property
    def _layers(self) -> tuple[Layer, ...]:
        by_zone: dict[str, list[Source]] = defaultdict(list)
        by_zone[self.timezone] += map(_source, self.dates)
        if self.holidays is not None:
            by_zone[self.timezone].append(HolidaySpans(self.holidays))
        if self.ics is not None:
            for name, found in sources(read_events(self.ics, self.timezone)).items():
                by_zone[name or self.timezone] += found
        return tuple(Layer(zone(name), found) for name, found in by_zone.items())


class Exclusion(msgspec.Struct, frozen=True):
    """Why calendars leave a moment out: the calendar and its entry, or the calendars of which none has the moment."""

    calendars: tuple[str, ...]
    entry: str | None

    def __str__(self) -> str:
        """Return the reason as part of a sentence."""
        if self.entry is not None:
            return f"calendar '{self.calendars[0]}' excludes it ({self.entry})"
        return f"it is not in {calendar_names(self.calendars)}"


class CalendarRules(msgspec.Struct, frozen=True):
    """The calendars of a schedule: none of ``excluded`` has a kept slot, and one of ``only``, if any, has it.

    ``missing`` are names of calendars that do not exist: a schedule that names one has no slots that can be known.
    """

    excluded: tuple[Calendar, ...] = ()
    only: tuple[Calendar, ...] = ()
    missing: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is any calendar."""
        return bool(self.excluded or self.only or self.missing)

    @property
    def problem(self) -> str:
        """Return why a calendar cannot be used, or an empty string."""
        if self.missing:
            return f"There is no calendar '{self.missing[0]}' that the schedule can use."
        return next((problem for calendar in (*self.excluded, *self.only) if (problem := calendar.problem)), "")

    def exclusion(self, moment: datetime) -> Exclusion | None:
        """Return why a moment is left out, or None if it is kept."""
        for calendar in self.excluded:
            entry = calendar.entry_at(moment)
            if entry is not None:
                return Exclusion((calendar.name,), entry)
        if self.only and all(calendar.entry_at(moment) is None for calendar in self.only):
            return Exclusion(tuple(calendar.name for calendar in self.only), None)
        return None

    def allows(self, moment: datetime) -> bool:
        """Return whether a moment is kept."""
        return self.exclusion(moment) is None

    def until(self, moment: datetime) -> datetime:
        """Return a later moment before which all is kept, or nothing is."""
        excluding, including = _having(self.excluded, moment), _having(self.only, moment)
        if excluding:
            return max(calendar.until(moment) for calendar in excluding)
        if self.only and not including:
            return min(calendar.until(moment) for calendar in self.only)
        ends = [calendar.until(moment) for calendar in self.excluded]
        return min([*ends, max(calendar.until(moment) for calendar in including)] if including else ends)

    def since(self, moment: datetime) -> datetime:
        """Return a moment, not later, from which on all is kept up to ``moment``, or nothing is."""
        excluding, including = _having(self.excluded, moment), _having(self.only, moment)
        if excluding:
            return min(calendar.since(moment) for calendar in excluding)
        if self.only and not including:
            return max(calendar.since(moment) for calendar in self.only)
        starts = [calendar.since(moment) for calendar in self.excluded]
        return max([*starts, min(calendar.since(moment) for calendar in including)] if including else starts)


NO_CALENDARS = CalendarRules()


def _having(calendars: Iterable[Calendar], moment: datetime) -> list[Calendar]:
    return [calendar for calendar in calendars if calendar.entry_at(moment) is not None]


class FilteredSlots:
    """The slots of a recurrence that the calendars of a schedule keep."""

    def __init__(self, slots: Recurrence, rules: CalendarRules) -> None:
        """Take the slots and the calendars, of which there must be one at least."""
        self.slots = slots
        self.rules = rules

    def next(self, after: datetime) -> datetime | None:
        """Return the first slot after a moment, or None if there is none in ``SEARCHED_YEARS``."""
        slot = self.slots.next(after)
        if slot is None:
            return None
        horizon = slot + SEARCHED_YEARS * 366 * DAY
        for _ in range(_MAX_JUMPS):
            if slot is None or slot > horizon:
                return None
            if self.rules.allows(slot):
                return slot
            slot = self.slots.next(self.rules.until(slot) - _INSTANT)
        return None

    def previous(self, before: datetime) -> datetime | None:
        """Return the last slot before a moment, or None if there is none in ``SEARCHED_YEARS``."""
        slot = self.slots.previous(before)
        if slot is None:
            return None
        horizon = slot - SEARCHED_YEARS * 366 * DAY
        for _ in range(_MAX_JUMPS):
            if slot is None or slot < horizon:
                return None
            if self.rules.allows(slot):
                return slot
            slot = self.slots.previous(self.rules.since(slot))
        return None

    def count(self, first: datetime, last: datetime) -> int:
        """Return the number of slots, counted for each stretch that the calendars keep."""
        number, slot = 0, self.slots.next(first - _INSTANT)
        while slot is not None and slot <= last:
            until = self.rules.until(slot)
            if self.rules.allows(slot):
                number += self.slots.count(slot, self.slots.previous(min(until, last + _INSTANT)) or slot)
            slot = self.slots.next(until - _INSTANT)
        return number


def filtered(slots: Recurrence, rules: CalendarRules) -> Recurrence:
    """Return the slots that the calendars keep; all of them if there is no calendar."""
    return FilteredSlots(slots, rules) if rules else slots


def stored_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return those of these names that are names of stored calendars, not of public holidays."""
    return tuple(name for name in names if not name.startswith(HOLIDAYS_PREFIX))


def canonical_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of calendars, each once, in their stored form. Raise ``ValueError`` if one cannot be a name."""
    stored = []
    for name in names:
        holidays = holiday_calendar(name, "UTC")
        stored.append(_name(name) if holidays is None else holidays.name)
    return tuple(dict.fromkeys(stored))


def rules_of(
    excluded: Iterable[str], only: Iterable[str], known: Mapping[str, Calendar], timezone: str
) -> CalendarRules:
    """Return the rules of a schedule that names these calendars; public holidays are days of its timezone."""
    excluded, only = tuple(excluded), tuple(only)
    missing = tuple(name for name in dict.fromkeys(stored_names((*excluded, *only))) if name not in known)

    def found(names: tuple[str, ...]) -> tuple[Calendar, ...]:
        return tuple(known.get(name) or _holidays(name, timezone) for name in names if name not in missing)

    return CalendarRules(found(excluded), found(only), missing)


@lru_cache(maxsize=1024)
def _holidays(name: str, timezone: str) -> Calendar:
    """Return a calendar of holidays; its ``problem`` says if they are not known any more."""
    return Calendar(name=name, timezone=timezone, holidays=name[len(HOLIDAYS_PREFIX) :])


def content_digest(content: Mapping[str, Any]) -> str:
    """Return what tells the contents of a calendar from all others: two calendars with equal dates share it."""
    parts = [content[name] for name in CONTENT_FIELDS]
    return blake2b(msgspec.json.encode(parts), digest_size=16).hexdigest()


def holiday_calendar(name: str, timezone: str) -> Calendar | None:
    """Return the calendar of a name such as ``holidays:DE-BE``, or None if it is the name of a stored calendar.

    Raise ``ValueError`` if the holidays are not known, or the package for them is not installed.
    """
    if not name.lower().startswith(HOLIDAYS_PREFIX):
        return None
    holidays = canonical_holidays(name[len(HOLIDAYS_PREFIX) :])
    return Calendar(name=f"{HOLIDAYS_PREFIX}{holidays}", timezone=timezone, holidays=holidays)


def calendar_names(names: Iterable[str]) -> str:
    """Return names as part of a sentence: ``calendar 'a'`` or ``calendars 'a' and 'b'``."""
    quoted = [f"'{name}'" for name in names]
    return f"calendar{'s' if len(quoted) > 1 else ''} {joined(quoted)}"


def canonical_calendar(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given fields of a calendar in their stored form. Raise ``InvalidError`` with each that is not valid.

    An ``ics`` is read with ``timezone``, so that must be among the fields if it is not UTC.
    """
    errors: list[FieldError] = []
    stored: dict[str, Any] = {}
    for name, value in given.items():
        try:
            stored[name] = value if value is None else _READERS.get(name, _unchanged)(value)
        except ValueError as error:
            errors.append(FieldError(name, str(error)))
    if errors:
        raise InvalidError(*errors)
    try:
        if stored.get("ics") is not None:
            read_events(stored["ics"], stored.get("timezone") or "UTC")
    except (ValueError, OverflowError) as error:
        raise InvalidError(FieldError("ics", str(error))) from None
    return stored


def _unchanged(value: Any) -> Any:
    return value


def _name(text: str) -> str:
    if _NAME.fullmatch(text) is None:
        raise ValueError("Expected 1 to 100 letters, digits, '.', '_' or '-', the first a letter or a digit.")
    return text


def _dates(texts: Iterable[str]) -> tuple[str, ...]:
    """Return dates and ranges in one order, each once."""
    stored = sorted({text.strip().upper() for text in texts})
    if len(stored) > MAX_DATES:
        raise ValueError(f"A calendar has at most {MAX_DATES:,} dates.")
    for text in stored:
        _source(text)
    return tuple(stored)


_READERS: dict[str, Callable[[Any], Any]] = {
    "name": _name,
    "timezone": canonical_zone,
    "dates": _dates,
    "holidays": canonical_holidays,
}


def _source(text: str) -> Source:
    """Return the entry that a date or a range names. Raise ``ValueError`` if it names none."""
    if (match := _YEARLY_DATES.fullmatch(text)) is not None:
        return _yearly(text, *(int(number) if number else None for number in match.groups()))
    match = _DATES.fullmatch(text) or _TIMES.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text[:50]}' is not a date: {_EXPECTED}.")
    try:
        start, last = datetime.fromisoformat(match[1]), datetime.fromisoformat(match[2] or match[1])
    except ValueError:
        raise ValueError(f"'{text}' does not exist: {_EXPECTED}.") from None
    if last < start:
        raise ValueError(f"'{text}' ends before it begins.")
    if not EARLIEST_YEAR < start.year <= last.year <= LATEST_YEAR:
        raise ValueError(f"'{text}': years must be after {EARLIEST_YEAR} and before {LATEST_YEAR + 1}.")
    # The end is included: the whole day, or the moment itself.
    return FixedSpans((Span(start, last + (_INSTANT if "T" in text else DAY), text),))


def _yearly(text: str, *numbers: int | None) -> YearlySpan:
    month, day, last_month, last_day = numbers
    first, last = (month or 0, day or 0), (last_month or month or 0, last_day or day or 0)
    try:
        for edge in (first, last):
            date(_LEAP_YEAR, *edge)
    except ValueError:
        raise ValueError(f"'{text}' does not exist: {_EXPECTED}.") from None
    return YearlySpan(first, last, text)
