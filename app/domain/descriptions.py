"""A spec in plain words: part of a sentence, such as "every weekday at 09:00 Europe/Berlin".

The text is made from the stored form alone, so that a spec that has become invalid has one too.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import lru_cache
from itertools import groupby, pairwise

from cronsim import CronSim

from app.domain.cron_expression import canonical_cron, cron
from app.domain.local_time import WEEKDAYS
from app.domain.specs import MONTHLY, Spec, parse_duration
from app.domain.trigger_event import rfc3339

_HOUR_MINUTES = 60
_DAY_MINUTES = 24 * _HOUR_MINUTES
_LAST_DATE = 31
# One day is written as 24 hours: an interval counts hours, and a local day may have 23.
_UNITS = (("day", 86_400, 2), ("hour", 3600, 1), ("minute", 60, 1))
# Up to _FEW times are listed even if they have a pattern, up to _SEVERAL if they have none.
_FEW, _SEVERAL = 4, 8
# From _STRETCH neighbours on, only the ends are named; more than _STRETCHES stretches are not easier to read.
_STRETCH, _STRETCHES = 3, 3
# A longer text is harder to read than the expression itself, which is shown instead.
_LONGEST_TEXT = 160
_LONGEST_QUOTE = 150

_WORKING_DAYS = list(range(5))
_WEEKEND = [5, 6]
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_NTH = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", CronSim.LAST: "last"}
_LAST_DAYS = {CronSim.LAST: "the last day", CronSim.LAST_WEEKDAY: "the last weekday"}


def describe(
    spec: Spec, *, start_at: datetime | None = None, end_at: datetime | None = None, jitter_seconds: int = 0
) -> str:
    """Return when a schedule is due, with its window, bounds and jitter. The zone is named once, if it matters."""
    text, uses_zone = _when(spec)
    if uses_zone:
        text = _in_zone(text, spec.timezone)
    limits = list(_limits(spec))
    text = ", ".join((text, *limits))
    if limits and not uses_zone:
        text = _in_zone(text, spec.timezone)
    return ", ".join((text, *_bounds(start_at, end_at), *_delay(jitter_seconds)))


def _when(spec: Spec) -> tuple[str, bool]:
    """Return the text for the kind of the spec, and whether the zone matters for it."""
    if spec.cron is not None:
        return _describe_cron(spec.cron)
    if spec.every is not None:
        # UTC is what a reader expects, so it is not named.
        return f"every {'month' if spec.every == MONTHLY else _quoted(spec.every)}", spec.timezone != "UTC"
    return _elapsed(spec), False


def _elapsed(spec: Spec) -> str:
    if spec.interval_seconds is not None:
        return _every(spec.interval_seconds)
    if spec.at is not None:
        return f"once at {rfc3339(spec.at)}"
    return "at no time" if spec.after is None else f"once, {_delay_text(spec.after)} after it was created"


def _limits(spec: Spec) -> Iterator[str]:
    if spec.only_between:
        start, _, end = spec.only_between.partition("-")
        yield f"only between {start} and {end}" if end else f"only between {_quoted(start)}"
    if spec.not_on:
        yield f"not on {_joined(_plural(name) for name in spec.not_on)}"


def _bounds(start_at: datetime | None, end_at: datetime | None) -> Iterator[str]:
    if start_at is not None:
        yield f"from {rfc3339(start_at)}"
    if end_at is not None:
        yield f"until {rfc3339(end_at)}"


def _delay(jitter_seconds: int) -> Iterator[str]:
    if jitter_seconds:
        yield f"up to {_length(jitter_seconds)} later"


def _in_zone(text: str, zone: str) -> str:
    """Add the zone: without a comma if the text ends with a time of day."""
    return f"{text} {zone}" if text[-3:-2] == ":" else f"{text}, {zone}"


def _every(seconds: float) -> str:
    return f"every {_length(seconds).removeprefix('1 ')}"


def _length(seconds: float) -> str:
    """Return a length as a whole number of the largest unit possible."""
    for unit, size, least in _UNITS:
        count, rest = divmod(seconds, size)
        if count >= least and not rest:
            return _counted(f"{count:.0f}", unit)
    return _counted(f"{seconds:.6f}".rstrip("0").rstrip("."), "second")


def _counted(number: str, unit: str) -> str:
    return f"{number} {unit}" if number == "1" else f"{number} {unit}s"


def _delay_text(text: str) -> str:
    try:
        return _length(parse_duration(text).total_seconds())
    except ValueError:
        return _quoted(text)


@lru_cache(maxsize=4096)
def _describe_cron(expression: str) -> tuple[str, bool]:
    """Return an expression in words, or itself if that is clearer, and whether the zone matters for it."""
    try:
        fields = cron(canonical_cron(expression))
    except ValueError:
        return f"cron {_quoted(expression)}", False
    times = _times(fields)
    listed = times.startswith("at ")
    days = _days(fields, first=listed)
    text = f"{days} {times}" if listed else f"{times} {days}".rstrip()
    if len(text) > _LONGEST_TEXT:
        return f"cron {_quoted(expression)}", True
    return text, listed or ":" in times or bool(days)


def _times(fields: CronSim) -> str:
    """Return the times of day. A text that begins with "at" comes after the days in the sentence, others before."""
    walls = [hour * _HOUR_MINUTES + minute for hour in sorted(fields.hours) for minute in sorted(fields.minutes)]
    stepped = fields.parts[2].startswith("*")
    even = _around_the_clock(walls) if stepped or len(walls) > _FEW else ""
    return (
        even
        or _listed(walls, _FEW)
        or _stretches(walls)
        or _listed(walls, _SEVERAL)
        or _minutes_past_hours(sorted(fields.minutes), sorted(fields.hours))
    )


def _around_the_clock(walls: list[int]) -> str:
    """Return the text for equal steps through the whole day, or an empty string."""
    step, rest = divmod(_DAY_MINUTES, len(walls))
    first = walls[0]
    if rest or len(walls) == 1 or walls != list(range(first, _DAY_MINUTES, step)):
        return ""
    every = _every(step * 60)
    if not first:
        return every
    if step > _HOUR_MINUTES:
        return f"{every} from {_clock(first)}"
    return f"{every} at minute {first}" if step == _HOUR_MINUTES else f"{every} from minute {first} of the hour"


def _listed(walls: list[int], most: int) -> str:
    return f"at {_joined(map(_clock, walls))}" if len(walls) <= most else ""


def _stretches(walls: list[int]) -> str:
    """Return the text for equal steps from one time to another, or an empty string."""
    step = min(later - earlier for earlier, later in pairwise(walls))
    stretches = _neighbours(walls, step)
    if len(stretches) > _STRETCHES or max(map(len, stretches)) < _STRETCH:
        return ""
    return f"{_every(step * 60)} {_joined(map(_stretch, stretches))}"


def _stretch(walls: list[int]) -> str:
    first, last = _clock(walls[0]), _clock(walls[-1])
    return f"at {first}" if first == last else f"from {first} to {last}"


def _minutes_past_hours(minutes: list[int], hours: list[int]) -> str:
    at = _numbered("minute", minutes)
    if len(minutes) > _FEW and minutes == list(range(0, _HOUR_MINUTES, minutes[1])):
        at = f"every {_ordinal(minutes[1])} minute"
    if len(hours) * _HOUR_MINUTES == _DAY_MINUTES:
        return f"every hour at {at}"
    return f"at {at} past {_numbered('hour', hours)}"


def _clock(wall: int) -> str:
    return f"{wall // _HOUR_MINUTES:02}:{wall % _HOUR_MINUTES:02}"


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
        nouns.insert(0, _numbered("day", days))
    step = days[1] - days[0] if len(days) > _FEW else 1
    if step > 1 and days == list(range(days[0], _LAST_DATE + 1, step)):
        nouns[0] = f"every {_ordinal(step)} day from day {days[0]}"
    return f"on {_joined(nouns)} {_of_months(fields)}"


def _on_weekdays(fields: CronSim, *, first: bool) -> str:
    # cron counts from Sunday, WEEKDAYS from Monday.
    plain = sorted({(day - 1) % 7 for day in fields.weekdays if isinstance(day, int)})
    special = [(nth, day) for day, nth in (item for item in fields.weekdays if not isinstance(item, int))]
    parts = []
    if plain:
        parts.append(f"{_weekdays(plain, each=first and not special)}{_in_months(fields)}")
    if special:
        nouns = (f"the {_NTH[nth]} {WEEKDAYS[day - 1].capitalize()}" for nth, day in sorted(special, key=_in_order))
        parts.append(f"on {_joined(nouns)} {_of_months(fields)}")
    return " and ".join(parts)


def _in_order(nth_weekday: tuple[int, int]) -> tuple[bool, int, int]:
    """Return the sort key of an nth weekday; "last" comes after "fifth"."""
    nth, day = nth_weekday
    return nth < 0, nth, day


def _weekdays(days: list[int], *, each: bool) -> str:
    if days == _WORKING_DAYS:
        return "every weekday" if each else "on weekdays"
    if days == _WEEKEND:
        return "on weekends"
    if len(days) == 1 and each:
        return f"every {WEEKDAYS[days[0]].capitalize()}"
    return f"on {_spans(days, lambda day: _plural(WEEKDAYS[day]), ' to ')}"


def _of_months(fields: CronSim) -> str:
    months = sorted(fields.months)
    return f"of every month{_in_months(fields)}" if _is_stretch(months) else f"of {_month_names(months)}"


def _in_months(fields: CronSim) -> str:
    months = sorted(fields.months)
    if len(months) == len(_MONTHS):
        return ""
    return f" {'from' if _is_stretch(months) else 'in'} {_month_names(months)}"


def _month_names(months: list[int]) -> str:
    return _spans(months, lambda month: _MONTHS[month - 1], " to ")


def _is_stretch(values: list[int]) -> bool:
    return len(values) >= _STRETCH and len(_neighbours(values, 1)) == 1


def _numbered(noun: str, numbers: list[int]) -> str:
    return f"{noun} {numbers[0]}" if len(numbers) == 1 else f"{noun}s {_spans(numbers, str, '-')}"


def _spans(values: list[int], say: Callable[[int], str], to: str) -> str:
    """Return sorted values as a list with neighbours joined: 1-5, 7 and 9."""
    parts: list[str] = []
    for run in _neighbours(values, 1):
        parts += [f"{say(run[0])}{to}{say(run[-1])}"] if len(run) >= _STRETCH else map(say, run)
    return _joined(parts)


def _neighbours(values: list[int], step: int) -> list[list[int]]:
    """Split sorted values where two neighbours are not one step apart."""
    runs = groupby(enumerate(values), key=lambda numbered: numbered[1] - numbered[0] * step)
    return [[value for _, value in run] for _, run in runs]


def _joined(items: Iterable[str]) -> str:
    *others, last = items
    return f"{', '.join(others)} and {last}" if others else last


def _plural(weekday: str) -> str:
    return f"{weekday.capitalize()}s"


def _ordinal(number: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(number, f"{number}th")


def _quoted(text: str) -> str:
    return f"'{text}'" if len(text) <= _LONGEST_QUOTE else f"'{text[:_LONGEST_QUOTE]}...'"
