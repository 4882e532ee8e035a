"""A spec in plain words: part of a sentence, such as "every weekday at 09:00 Europe/Berlin".

The text is made from the stored form alone, so that a spec that has become invalid has one too.
"""

from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache

from cronsim import CronSim

from app.domain.calendars import calendar_names
from app.domain.cron_expression import canonical_cron, cron
from app.domain.local_time import WEEKDAYS
from app.domain.phrases import (
    FEW,
    MONTHS,
    every_text,
    is_stretch,
    joined,
    length_text,
    month_names,
    numbered,
    ordinal,
    plural,
    quoted,
    times_text,
    weekdays,
)
from app.domain.rrule_phrases import rrule_text
from app.domain.specs import MONTHLY, Spec, parse_duration
from app.domain.trigger_event import rfc3339

_LAST_DATE = 31
# A longer text is harder to read than the expression itself, which is shown instead.
_LONGEST_TEXT = 160

_NTH = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", CronSim.LAST: "last"}
_LAST_DAYS = {CronSim.LAST: "the last day", CronSim.LAST_WEEKDAY: "the last weekday"}


def describe(
    spec: Spec, *, start_at: datetime | None = None, end_at: datetime | None = None, jitter_seconds: int = 0
) -> str:
    """Return when a schedule is due, with its window, calendars, bounds and jitter. The zone is named if it matters."""
    text, uses_zone = _when(spec)
    if uses_zone:
        text = _in_zone(text, spec.timezone)
    limits = list(_limits(spec))
    text = ", ".join((text, *_end_of_rule(spec), *limits))
    if limits and not uses_zone:
        text = _in_zone(text, spec.timezone)
    return ", ".join((text, *_calendars(spec), *_bounds(start_at, end_at), *_delay(jitter_seconds)))


def _when(spec: Spec) -> tuple[str, bool]:
    """Return the text for the kind of the spec, and whether the zone matters for it."""
    if spec.cron is not None:
        return _describe_cron(spec.cron)
    if spec.rrule is not None:
        rule = rrule_text(spec.rrule)
        return rule.text, rule.names_time or spec.timezone != "UTC"
    if spec.every is not None:
        # UTC is what a reader expects, so it is not named.
        return f"every {'month' if spec.every == MONTHLY else quoted(spec.every)}", spec.timezone != "UTC"
    return _elapsed(spec), False


def _elapsed(spec: Spec) -> str:
    if spec.interval_seconds is not None:
        return every_text(spec.interval_seconds)
    if spec.at is not None:
        return f"once at {rfc3339(spec.at)}"
    return "at no time" if spec.after is None else f"once, {_delay_text(spec.after)} after it was created"


def _limits(spec: Spec) -> Iterator[str]:
    if spec.only_between:
        start, _, end = spec.only_between.partition("-")
        yield f"only between {start} and {end}" if end else f"only between {quoted(start)}"
    if spec.not_on:
        yield f"not on {joined(plural(name) for name in spec.not_on)}"


def _calendars(spec: Spec) -> Iterator[str]:
    if spec.calendars.only:
        yield f"only in {calendar_names(calendar.name for calendar in spec.calendars.only)}"
    if spec.calendars.excluded:
        yield f"not in {calendar_names(calendar.name for calendar in spec.calendars.excluded)}"


def _end_of_rule(spec: Spec) -> Iterator[str]:
    if spec.rrule is not None and rrule_text(spec.rrule).end:
        yield rrule_text(spec.rrule).end


def _bounds(start_at: datetime | None, end_at: datetime | None) -> Iterator[str]:
    if start_at is not None:
        yield f"from {rfc3339(start_at)}"
    if end_at is not None:
        yield f"until {rfc3339(end_at)}"


def _delay(jitter_seconds: int) -> Iterator[str]:
    if jitter_seconds:
        yield f"up to {length_text(jitter_seconds)} later"


def _in_zone(text: str, zone: str) -> str:
    """Add the zone: without a comma if the text ends with a time of day."""
    return f"{text} {zone}" if text[-3:-2] == ":" else f"{text}, {zone}"


def _delay_text(text: str) -> str:
    try:
        return length_text(parse_duration(text).total_seconds())
    except ValueError:
        return quoted(text)


@lru_cache(maxsize=4096)
def _describe_cron(expression: str) -> tuple[str, bool]:
    """Return an expression in words, or itself if that is clearer, and whether the zone matters for it."""
    try:
        fields = cron(canonical_cron(expression))
    except ValueError:
        return f"cron {quoted(expression)}", False
    times = times_text(sorted(fields.hours), sorted(fields.minutes), stepped=fields.parts[2].startswith("*"))
    listed = times.startswith("at ")
    days = _days(fields, first=listed)
    text = f"{days} {times}" if listed else f"{times} {days}".rstrip()
    if len(text) > _LONGEST_TEXT:
        return f"cron {quoted(expression)}", True
    return text, listed or ":" in times or bool(days)


def _days(fields: CronSim, *, first: bool) -> str:
    """Return the days; an empty string for every day, unless this text comes ``first`` in the sentence."""
    by_date = not fields.days.issuperset(range(1, _LAST_DATE + 1))
    by_weekday = not fields.weekdays.issuperset(range(len(WEEKDAYS)))
    if by_date and by_weekday:
        also = "but only" if fields.day_and else "or"
        return f"{_on_dates(fields)} {also} {_on_weekdays(fields, first=False)}"
    # If neither field has a star, a day that fits one of them is enough; a field that fits all days includes the other.
    if by_date and fields.day_and:
        return _on_dates(fields)
    if by_weekday and fields.day_and:
        return _on_weekdays(fields, first=first)
    return f"{'every day' if first else ''}{_in_months(fields)}".strip()


def _on_dates(fields: CronSim) -> str:
    days = sorted(day for day in fields.days if day > 0)
    nouns = [noun for mark, noun in _LAST_DAYS.items() if mark in fields.days]
    if days:
        nouns.insert(0, numbered("day", days))
    step = days[1] - days[0] if len(days) > FEW else 1
    if step > 1 and days == list(range(days[0], _LAST_DATE + 1, step)):
        nouns[0] = f"every {ordinal(step)} day from day {days[0]}"
    return f"on {joined(nouns)} {_of_months(fields)}"


def _on_weekdays(fields: CronSim, *, first: bool) -> str:
    # cron counts from Sunday, WEEKDAYS from Monday.
    plain = sorted({(day - 1) % 7 for day in fields.weekdays if isinstance(day, int)})
    special = [(nth, day) for day, nth in (item for item in fields.weekdays if not isinstance(item, int))]
    parts = []
    if plain:
        parts.append(f"{weekdays(plain, each=first and not special)}{_in_months(fields)}")
    if special:
        nouns = (f"the {_NTH[nth]} {WEEKDAYS[day - 1].capitalize()}" for nth, day in sorted(special, key=_in_order))
        parts.append(f"on {joined(nouns)} {_of_months(fields)}")
    return " and ".join(parts)


def _in_order(nth_weekday: tuple[int, int]) -> tuple[bool, int, int]:
    """Return the sort key of an nth weekday; "last" comes after "fifth"."""
    nth, day = nth_weekday
    return nth < 0, nth, day


def _of_months(fields: CronSim) -> str:
    months = sorted(fields.months)
    return f"of every month{_in_months(fields)}" if is_stretch(months) else f"of {month_names(months)}"


def _in_months(fields: CronSim) -> str:
    months = sorted(fields.months)
    if len(months) == len(MONTHS):
        return ""
    return f" {'from' if is_stretch(months) else 'in'} {month_names(months)}"
