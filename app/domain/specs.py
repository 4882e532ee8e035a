"""Specs: what users write to say when a schedule is due, converted into one stored form and compiled to slots."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from app.domain.calendars import NO_CALENDARS, CalendarRules, canonical_names, filtered
from app.domain.cron_expression import canonical_cron
from app.domain.errors import FieldError, InvalidError
from app.domain.local_time import WEEKDAYS, Hours, canonical_zone, hours, weekdays, window
from app.domain.recurrence import Evenly, Monthly, Once, Recurrence, cron_times
from app.domain.rrule_days import canonical_rrule
from app.domain.rrule_times import rrule_times

MONTHLY = "monthly"
EVERY_WORDS = {"hourly": "1h", "daily": "1d", "weekly": "1w"}
# The fields that say when; a spec has exactly one. ``interval_seconds`` and ``every`` are two spellings of one kind.
KINDS = ("interval_seconds", "every", "cron", "rrule", "at", "after")
# Whether a spec compiles does not depend on the anchor, so any will do for a check.
_ANY_ANCHOR = datetime(2000, 1, 1, tzinfo=UTC)
UNITS = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
}
# A longer duration is a mistake, and adding it to a date could leave the calendar.
LONGEST_DURATION = timedelta(seconds=2**31 - 1)
SHORTEST_INTERVAL = "The shortest interval is one second."
_PART = re.compile(r"([0-9]{1,10}(?:\.[0-9]{1,6})?)\s*([wdhms])")
_WHOLE = re.compile(rf"(?:{_PART.pattern}\s*)+")
_MICROSECOND = timedelta(microseconds=1)
_INSTANT = timedelta.resolution
# How many stretches that calendars leave out are looked at for a moment that they allow.
_MAX_OPENINGS = 1000


@lru_cache(maxsize=4096)
def parse_duration(text: str) -> timedelta:
    """Return the length of a duration such as ``1h 30m``. Raise ``ValueError`` if the text is not a duration."""
    normalized = text.strip().lower()
    if not _WHOLE.fullmatch(normalized):
        raise ValueError("Expected a duration such as '90s', '5m', '1.5h', '3d' or '2w'.")
    micros = sum(Decimal(number) * (UNITS[unit] // _MICROSECOND) for number, unit in _PART.findall(normalized))
    if micros > LONGEST_DURATION // _MICROSECOND:
        raise ValueError("The duration is too long: at most 68 years.")
    return timedelta(microseconds=int(micros))


def format_duration(length: timedelta) -> str:
    """Return a duration in its stored form: a whole number of the largest unit possible."""
    for letter, unit in UNITS.items():
        if length >= unit and not length % unit:
            return f"{length // unit}{letter}"
    return f"{Decimal(length // _MICROSECOND) / 1_000_000:f}s"


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """A spec in its stored form. ``every`` is used only for what is not a number of seconds: ``monthly``."""

    interval_seconds: float | None = None
    every: str | None = None
    cron: str | None = None
    rrule: str | None = None
    at: datetime | None = None
    after: str | None = None
    timezone: str = "UTC"
    only_between: str | None = None
    not_on: tuple[str, ...] = ()
    calendars: CalendarRules = NO_CALENDARS

    @property
    def hours(self) -> Hours:
        """Return the window and weekdays in which slots are allowed."""
        return hours(self.timezone, self.only_between, self.not_on)

    @property
    def interval(self) -> timedelta | None:
        """Return the distance between slots, or None if it varies."""
        return None if self.interval_seconds is None else timedelta(seconds=self.interval_seconds)

    @property
    def is_one_shot(self) -> bool:
        """Return whether the spec has a single slot."""
        return self.at is not None or self.after is not None

    def allows(self, moment: datetime) -> bool:
        """Return whether window, weekdays and calendars allow a moment."""
        return self.hours.allows(moment) and self.calendars.allows(moment)

    def opening(self, moment: datetime) -> datetime | None:
        """Return the first moment, not before this one, that window, weekdays and calendars allow, or None."""
        opening = self.hours.opening(moment)
        for _ in range(_MAX_OPENINGS if self.calendars else 0):
            if opening is None or self.calendars.allows(opening):
                return opening
            opening = self.hours.opening(self.calendars.until(opening))
        return None if self.calendars else opening

    def slots(self, anchor: datetime, *, counts_anchor: bool = True) -> Recurrence:
        """Return all slots, counted from ``anchor``. Raise ``ValueError`` if the stored form is no longer valid.

        COUNT of a rule counts the anchor too if it is a slot, unless ``counts_anchor`` is false.
        """
        return filtered(self._recurrence(anchor, self.hours, counts_anchor=counts_anchor), self.calendars)

    def unrestricted_slots(self, anchor: datetime, *, counts_anchor: bool = True) -> Recurrence:
        """Return the slots without regard to the window, the excluded weekdays and the calendars."""
        return self._recurrence(anchor, hours(self.timezone, None, ()), counts_anchor=counts_anchor)

    def slots_from(self, anchor_at: datetime, start_at: datetime | None) -> Recurrence:
        """Return the slots of a schedule with this anchor and start."""
        start, counts_start = self.start(anchor_at, start_at)
        return self.slots(start, counts_anchor=counts_start)

    def unrestricted_slots_from(self, anchor_at: datetime, start_at: datetime | None) -> Recurrence:
        """Return the slots of a schedule without regard to the window, the excluded weekdays and the calendars."""
        start, counts_start = self.start(anchor_at, start_at)
        return self.unrestricted_slots(start, counts_anchor=counts_start)

    def start(self, anchor_at: datetime, start_at: datetime | None) -> tuple[datetime, bool]:
        """Return from where slots are counted, and whether that moment is itself expected if it is a slot.

        A rule starts at ``start_at`` even if that has passed: weeks and COUNT go on after a pause as if there had been
        none. Without it, the rule starts at the anchor, which is a moment at which nothing was expected yet.
        """
        if self.rrule is not None and start_at is not None:
            return start_at, True
        return anchor_at, anchor_at == start_at

    def _recurrence(self, anchor: datetime, allowed: Hours, *, counts_anchor: bool) -> Recurrence:
        if self.interval is not None:
            if self.interval < timedelta(seconds=1):
                raise ValueError(SHORTEST_INTERVAL)
            return Evenly(anchor, self.interval, allowed)
        if self.cron is not None:
            restricted = not allowed.always
            return cron_times(
                self.cron, self.timezone, self.only_between if restricted else None, self.not_on if restricted else ()
            )
        if self.rrule is not None:
            return rrule_times(self.rrule, anchor, allowed, counts_anchor=counts_anchor)
        if self.every is not None:
            return _monthly(self.every, anchor, allowed)
        if self.after is not None:
            parse_duration(self.after)
        return Once(anchor, allowed)

    @property
    def problem(self) -> str:
        """Return why the stored form does not compile, or an empty string."""
        try:
            # Calendars are large, and the cache would keep each version of them.
            _compiles(replace(self, calendars=NO_CALENDARS) if self.calendars else self)
        except (ValueError, OverflowError) as error:
            return str(error)
        return self.calendars.problem

    @property
    def spelled_every(self) -> str | None:
        """Return the value of ``every`` for this spec, also if it was given in seconds; None if that is no duration."""
        if self.interval_seconds is None:
            return self.every
        return format_duration(timedelta(seconds=self.interval_seconds)) if is_duration(self.interval_seconds) else None


def is_duration(seconds: float) -> bool:
    """Return whether a stored number is the length of an interval; false for NaN and infinity."""
    return 0 < seconds <= LONGEST_DURATION.total_seconds()


@lru_cache(maxsize=4096)
def _compiles(spec: Spec) -> None:
    """Compile a spec, to see whether it raises. Errors are not cached: a missing timezone may be installed later."""
    spec.slots(_ANY_ANCHOR)


def canonical(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given fields of a spec in their stored form. Raise ``InvalidError`` with each that is not valid.

    If one of ``KINDS`` is given, the others are set to None, so that it replaces the kind that is stored.
    """
    errors: list[FieldError] = []
    stored = {name: value for name, value in given.items() if name not in _READERS}
    for name, reader in _READERS.items():
        if name in given and given[name] is not None:
            try:
                stored |= reader(given[name])
            except ValueError as error:
                errors.append(FieldError(name, str(error)))
        elif name in given:
            stored.setdefault(name, () if name in _LISTS else None)
    kinds = [name for name in KINDS if given.get(name) is not None]
    if len(kinds) > 1:
        errors.append(FieldError(kinds[1], f"Exactly one of {', '.join(KINDS)} may be given."))
    if errors:
        raise InvalidError(*errors)
    return dict.fromkeys(KINDS) | stored if kinds else stored


def require_kind(stored: Mapping[str, Any]) -> None:
    """Raise ``InvalidError`` if no field says when the schedule is due."""
    if all(stored.get(name) is None for name in KINDS):
        raise InvalidError(FieldError("interval_seconds", f"One of {', '.join(KINDS)} is needed."))


def _monthly(every: str, anchor: datetime, allowed: Hours) -> Monthly:
    if every != MONTHLY:
        raise ValueError(f"'{every}' is not an interval. Write a duration such as '5m', or 'monthly'.")
    return Monthly(anchor, allowed)


def _every(text: str) -> dict[str, Any]:
    word = text.strip().lower()
    if word == MONTHLY:
        return {"every": MONTHLY}
    length = parse_duration(EVERY_WORDS.get(word, word))
    if length < timedelta(seconds=1):
        raise ValueError(SHORTEST_INTERVAL)
    return {"every": None, "interval_seconds": length.total_seconds()}


def _after(text: str) -> dict[str, Any]:
    return {"after": format_duration(parse_duration(text))}


def _not_on(days: Iterable[int | str]) -> dict[str, Any]:
    excluded = weekdays(days)
    if len(excluded) == len(WEEKDAYS):
        raise ValueError("Every day of the week is excluded.")
    return {"not_on": excluded}


def _only_between(text: str) -> dict[str, Any]:
    return {"only_between": str(window(text))}


def _interval(seconds: float) -> dict[str, Any]:
    if seconds < 1:
        raise ValueError(SHORTEST_INTERVAL)
    if seconds > LONGEST_DURATION.total_seconds():
        raise ValueError("The interval is too long: at most 68 years.")
    return {"interval_seconds": float(seconds)}


_READERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "interval_seconds": _interval,
    "every": _every,
    "cron": lambda text: {"cron": canonical_cron(text)},
    "rrule": lambda text: {"rrule": canonical_rrule(text)},
    "at": lambda moment: {"at": moment},
    "after": _after,
    "timezone": lambda name: {"timezone": canonical_zone(name)},
    "only_between": _only_between,
    "not_on": _not_on,
    "exclude_calendars": lambda names: {"exclude_calendars": canonical_names(names)},
    "only_calendars": lambda names: {"only_calendars": canonical_names(names)},
}
_LISTS = frozenset({"not_on", "exclude_calendars", "only_calendars"})


class Cadence:
    """The slots of a schedule from ``start`` to ``end``, both included; without ``end``, they go on."""

    def __init__(self, slots: Recurrence, start: datetime, end: datetime | None = None) -> None:
        """Take the slots and their bounds; nothing is computed yet."""
        self._slots = slots
        self._start = start
        self._end = end

    def first_after(self, moment: datetime) -> datetime | None:
        """Return the first slot strictly after ``moment``, or None if there is none."""
        slot = self._slots.next(max(moment, self._start - _INSTANT))
        return None if slot is None or (self._end is not None and slot > self._end) else slot

    def latest_at(self, moment: datetime) -> datetime | None:
        """Return the last slot at or before ``moment``, or None if the first comes later."""
        until = moment if self._end is None else min(moment, self._end)
        slot = self._slots.previous(until + _INSTANT) if until >= self._start else None
        return None if slot is None or slot < self._start else slot

    def before(self, slot: datetime) -> datetime | None:
        """Return the last slot before ``slot``, or None."""
        return self.latest_at(slot - _INSTANT)

    def count(self, first: datetime, last: datetime) -> int:
        """Return the number of slots from slot ``first`` to slot ``last``, both included."""
        return 1 if first == last else self._slots.count(first, last)
