"""A recurrence rule in plain words: part of a sentence, such as "every second Tuesday at 09:00"."""

from collections.abc import Iterable, Iterator
from datetime import time
from functools import lru_cache

import msgspec

from app.domain.local_time import WEEKDAYS
from app.domain.phrases import (
    WORKING_DAYS,
    counted,
    is_stretch,
    joined,
    month_names,
    numbered,
    ordinal,
    quoted,
    times_text,
    weekdays,
)
from app.domain.rrule import Frequency, NthWeekday, Rule, parse_rrule
from app.domain.trigger_event import rfc3339

# A longer text is harder to read than the rule itself, which is shown instead.
_LONGEST_TEXT = 160
_WORDS = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}
_UNITS = {Frequency.DAILY: "day", Frequency.WEEKLY: "week", Frequency.MONTHLY: "month", Frequency.YEARLY: "year"}
_WEEKEND = [5, 6]


class RuleText(msgspec.Struct, frozen=True):
    """A rule in words: its days and times, its end, and whether it names a time of day."""

    text: str
    end: str = ""
    names_time: bool = False


@lru_cache(maxsize=4096)
def rrule_text(text: str) -> RuleText:
    """Return a rule in words, or itself if that is clearer or if it is not valid."""
    try:
        rule = parse_rrule(text)
    except ValueError:
        return RuleText(f"rrule {quoted(text)}")
    sentence = "" if _is_intricate(rule) else _sentence(rule)
    if not sentence or len(sentence) > _LONGEST_TEXT:
        return RuleText(f"rrule {quoted(text)}", names_time=True)
    return RuleText(sentence, _end(rule), names_time=bool(rule.hours and rule.minutes))


def _is_intricate(rule: Rule) -> bool:
    """Return whether words for a rule would be ambiguous."""
    if rule.positions:
        several_times = len(rule.hours) > 1 or len(rule.minutes) > 1
        several_months = rule.freq is Frequency.YEARLY and len(rule.months) > 1
        plain = bool(rule.weekdays) and not rule.month_days and all(not day.nth for day in rule.weekdays)
        return rule.freq is Frequency.DAILY or several_times or several_months or not plain
    if not rule.month_days:
        return False
    in_year = not rule.nth_in_month and any(day.nth for day in rule.weekdays)
    return in_year or (rule.freq is Frequency.DAILY and rule.interval > 1)


def _sentence(rule: Rule) -> str:
    times = _times(rule)
    listed = times.startswith("at ")
    days = _days(rule, first=listed)
    text = f"{days} {times}" if listed else f"{times} {days}"
    return text.replace("of its start at the time of its start", "and at the time of its start")


def _times(rule: Rule) -> str:
    hours, minutes = list(rule.hours), list(rule.minutes)
    if hours and minutes:
        return times_text(hours, minutes, stepped=False)
    if hours:
        return f"at {numbered('hour', hours)}, at the minute of its start"
    return f"at {numbered('minute', minutes)} of the hour of its start" if minutes else "at the time of its start"


def _end(rule: Rule) -> str:
    if rule.count is not None:
        return counted(str(rule.count), "time")
    if rule.until is None:
        return ""
    if rule.until.tzinfo is not None:
        return f"until {rfc3339(rule.until)}"
    return f"until {rule.until:%Y-%m-%d}" if rule.until.time() == time.max else f"until {rule.until:%Y-%m-%d %H:%M:%S}"


def _days(rule: Rule, *, first: bool) -> str:
    """Return the days. If they do not come first in the sentence, "on Mondays" is said in place of "every Monday"."""
    if rule.positions:
        return f"on {_selected(rule)} {_of_period(rule)}"
    if rule.month_days:
        return f"on {_month_days(rule)} {_of_period(rule)}{_if_weekday(rule)}"
    if not rule.weekdays:
        return f"{_every(rule)}{_in_months(rule)}{_day_of_start(rule)}"
    if rule.freq is Frequency.DAILY and rule.interval > 1:
        return f"{_every(rule)}{_if_weekday(rule)}{_in_months(rule)}"
    return _on_weekdays(rule, first=first)


def _day_of_start(rule: Rule) -> str:
    """Return which day of the start decides, if the rule names none."""
    if rule.freq is Frequency.DAILY:
        return ""
    if rule.freq is Frequency.WEEKLY:
        return " on the weekday of its start"
    return " on the day of its start" if rule.freq is Frequency.MONTHLY or rule.months else " on the date of its start"


def _on_weekdays(rule: Rule, *, first: bool) -> str:
    plain = _plain(rule.weekdays)
    if len(plain) < len(rule.weekdays):
        return f"on {joined(_weekday_nouns(rule.weekdays))} {_of_period(rule)}"
    if rule.interval == 1:
        return f"{weekdays(plain, each=first)}{_in_months(rule)}"
    if rule.freq is not Frequency.WEEKLY:
        return f"{weekdays(plain, each=False)} {_of_period(rule)}"
    if len(plain) == 1:
        return f"{_every(rule, WEEKDAYS[plain[0]].capitalize())}{_in_months(rule)}"
    return f"{_every(rule)} {weekdays(plain, each=False)}{_in_months(rule)}"


def _month_days(rule: Rule) -> str:
    positive = [number for number in rule.month_days if number > 0]
    nouns = [numbered("day", positive)] if positive else []
    return joined([*nouns, *(f"the {_place(number)} day" for number in reversed(rule.month_days) if number < 0)])


def _weekday_nouns(days: Iterable[NthWeekday]) -> Iterator[str]:
    for day in days:
        name = WEEKDAYS[day.weekday].capitalize()
        yield f"the {_place(day.nth)} {name}" if day.nth else f"every {name}"


def _selected(rule: Rule) -> str:
    """Return what BYSETPOS selects, such as "the last working day"."""
    return f"the {joined(map(_place, rule.positions))} {_noun(_plain(rule.weekdays))}"


def _noun(days: list[int]) -> str:
    if days == WORKING_DAYS:
        return "working day"
    if days == _WEEKEND:
        return "day of the weekend"
    return "day" if len(days) == len(WEEKDAYS) else " or ".join(WEEKDAYS[day].capitalize() for day in days)


def _plain(days: Iterable[NthWeekday]) -> list[int]:
    return sorted(day.weekday for day in days if not day.nth)


def _if_weekday(rule: Rule) -> str:
    if not rule.weekdays:
        return ""
    names = [
        f"{f'the {_place(day.nth)} ' if day.nth else 'a '}{WEEKDAYS[day.weekday].capitalize()}" for day in rule.weekdays
    ]
    return f" if it is {' or '.join(names)}"


def _every(rule: Rule, unit: str = "") -> str:
    """Return the period of a rule: "every day", "every second week", "every 10 days"."""
    noun = unit or _UNITS[rule.freq]
    if rule.interval == 1:
        return f"every {noun}"
    return f"every {_WORDS.get(rule.interval) or ordinal(rule.interval)} {noun}"


def _of_period(rule: Rule) -> str:
    """Return what dates belong to: "of the month", "of March", "of every second month", "of the year"."""
    if rule.freq is Frequency.WEEKLY or (rule.freq is Frequency.MONTHLY and rule.interval > 1):
        return f"of {_every(rule) if rule.interval > 1 else 'the week'}{_in_months(rule)}"
    of = f"of {_month_or_year(rule)}"
    return f"{of} {_every(rule)}" if rule.interval > 1 else of


def _month_or_year(rule: Rule) -> str:
    months = list(rule.months)
    if months:
        return f"{'the months from ' if is_stretch(months) else ''}{month_names(months)}"
    return "the month" if rule.month_days or rule.freq is Frequency.MONTHLY else "the year"


def _in_months(rule: Rule) -> str:
    months = list(rule.months)
    if not months:
        return ""
    return f" {'from' if is_stretch(months) else 'in'} {month_names(months)}"


def _place(number: int) -> str:
    """Return a place counted from the start, or from the end if it is negative: "second", "last", "third to last"."""
    if number == -1:
        return "last"
    word = _WORDS.get(abs(number)) or _long_ordinal(abs(number))
    return word if number > 0 else f"{word} to last"


def _long_ordinal(number: int) -> str:
    teens = number % 100 in {11, 12, 13}
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
