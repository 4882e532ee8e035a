"""A spec in plain words: part of a sentence, such as "every weekday at 09:00 Europe/Berlin".

The words come from the stored form alone, so there are some, too, for one that has become invalid.
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
# A single day is told as 24 hours: that is what is counted, and a day may have 23.
_UNITS = (("day", 86_400, 2), ("hour", 3600, 1), ("minute", 60, 1))
# Up to so many are listed, whatever pattern they have; and up to so many where they have none.
_FEW, _SEVERAL = 4, 8
# A stretch of neighbours is told by its ends from three on; more than three stretches are no help.
_STRETCH, _STRETCHES = 3, 3
# What takes more words than this is clearer as the expression itself.
_LONGEST_WORDS = 160
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
    """When a schedule is due, with all that narrows it down. The zone is named once, where it matters."""
    words, by_the_wall = _when(spec)
    if by_the_wall:
        words = _in_zone(words, spec.timezone)
    limits = list(_limits(spec))
    words = ", ".join((words, *limits))
    if limits and not by_the_wall:
        words = _in_zone(words, spec.timezone)
    return ", ".join((words, *_bounds(start_at, end_at), *_delay(jitter_seconds)))


def _when(spec: Spec) -> tuple[str, bool]:
    """What the spec names, and whether the zone has a say in it."""
    if spec.cron is not None:
        return _cron_words(spec.cron)
    if spec.every is not None:
        # In UTC there is nothing that a reader could mistake.
        return f"every {'month' if spec.every == MONTHLY else _quoted(spec.every)}", spec.timezone != "UTC"
    return _elapsed(spec), False


def _elapsed(spec: Spec) -> str:
    if spec.interval_seconds is not None:
        return _every(spec.interval_seconds)
    if spec.at is not None:
        return f"once at {rfc3339(spec.at)}"
    return "at no time" if spec.after is None else f"once, {_delay_words(spec.after)} after it was created"


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


def _in_zone(words: str, zone: str) -> str:
    """The zone follows a time of day without a comma."""
    return f"{words} {zone}" if words[-3:-2] == ":" else f"{words}, {zone}"


def _every(seconds: float) -> str:
    return f"every {_length(seconds).removeprefix('1 ')}"


def _length(seconds: float) -> str:
    """In the largest unit that it is a whole number of."""
    for unit, size, least in _UNITS:
        count, rest = divmod(seconds, size)
        if count >= least and not rest:
            return _counted(f"{count:.0f}", unit)
    return _counted(f"{seconds:.6f}".rstrip("0").rstrip("."), "second")


def _counted(number: str, unit: str) -> str:
    return f"{number} {unit}" if number == "1" else f"{number} {unit}s"


def _delay_words(text: str) -> str:
    try:
        return _length(parse_duration(text).total_seconds())
    except ValueError:
        return _quoted(text)


@lru_cache(maxsize=4096)
def _cron_words(text: str) -> tuple[str, bool]:
    """An expression in words, and whether the zone has a say in it; itself, where words fail or are too many."""
    try:
        fields = cron(canonical_cron(text))
    except ValueError:
        return f"cron {_quoted(text)}", False
    times = _times(fields)
    listed = times.startswith("at ")
    days = _days(fields, first=listed)
    words = f"{days} {times}" if listed else f"{times} {days}".rstrip()
    if len(words) > _LONGEST_WORDS:
        return f"cron {_quoted(text)}", True
    return words, listed or ":" in times or bool(days)


def _times(fields: CronSim) -> str:
    """At which times of a day; what begins with "at" wants the day before it, all else after it."""
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
    """Even steps that meet again at midnight."""
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
    """Even steps from one time to another."""
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
    """On which days; nothing for every day, unless these words come ``first`` in the sentence."""
    by_date = not fields.days.issuperset(range(1, _LAST_DATE + 1))
    by_weekday = not fields.weekdays.issuperset(range(len(WEEKDAYS)))
    if by_date and by_weekday:
        also = "but only" if fields.day_and else "or"
        return f"{_on_dates(fields)} {also} {_on_weekdays(fields, first=False)}"
    # Either is enough where neither has a star: what names all days leaves nothing to the other.
    if by_date and fields.day_and:
        return _on_dates(fields)
    if by_weekday and fields.day_and:
        return _on_weekdays(fields, first=first)
    return f"{'every day' if first else ''}{_in_months(fields)}".strip()


def _on_dates(fields: CronSim) -> str:
    days = sorted(day for day in fields.days if day > 0)
    nouns = [words for mark, words in _LAST_DAYS.items() if mark in fields.days]
    if days:
        nouns.insert(0, _numbered("day", days))
    step = days[1] - days[0] if len(days) > _FEW else 1
    if step > 1 and days == list(range(days[0], _LAST_DATE + 1, step)):
        nouns[0] = f"every {_ordinal(step)} day from day {days[0]}"
    return f"on {_joined(nouns)} {_of_months(fields)}"


def _on_weekdays(fields: CronSim, *, first: bool) -> str:
    # cron counts from Sunday, the house from Monday.
    plain = sorted({(day - 1) % 7 for day in fields.weekdays if isinstance(day, int)})
    special = [(nth, day) for day, nth in (one for one in fields.weekdays if not isinstance(one, int))]
    words = []
    if plain:
        words.append(f"{_weekdays(plain, each=first and not special)}{_in_months(fields)}")
    if special:
        nouns = (f"the {_NTH[nth]} {WEEKDAYS[day - 1].capitalize()}" for nth, day in sorted(special, key=_in_order))
        words.append(f"on {_joined(nouns)} {_of_months(fields)}")
    return " and ".join(words)


def _in_order(nth_weekday: tuple[int, int]) -> tuple[bool, int, int]:
    """The last after the fifth."""
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
    """Sorted values as a list, neighbours joined: 1-5, 7 and 9."""
    words: list[str] = []
    for run in _neighbours(values, 1):
        words += [f"{say(run[0])}{to}{say(run[-1])}"] if len(run) >= _STRETCH else map(say, run)
    return _joined(words)


def _neighbours(values: list[int], step: int) -> list[list[int]]:
    """Sorted values, cut where one is not a step away from the one before."""
    runs = groupby(enumerate(values), key=lambda numbered: numbered[1] - numbered[0] * step)
    return [[value for _, value in run] for _, run in runs]


def _joined(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def _plural(weekday: str) -> str:
    return f"{weekday.capitalize()}s"


def _ordinal(number: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(number, f"{number}th")


def _quoted(text: str) -> str:
    return f"'{text}'" if len(text) <= _LONGEST_QUOTE else f"'{text[:_LONGEST_QUOTE]}...'"
