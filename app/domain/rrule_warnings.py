"""Warnings about recurrence rules: dates that some months lack, and what a rule takes from its creation."""

from collections.abc import Collection, Iterator
from datetime import datetime

from app.domain.phrases import MONTHS
from app.domain.rrule import Frequency, Rule
from app.domain.rrule_days import day_rule

# Days that some months do not have, with those months.
_LACKED_BY = {29: {2}, 30: {2}, 31: {2, 4, 6, 9, 11}}
# Some months have no fifth weekday of a name.
_SELDOM_NTH = 5
_PERIODS = {Frequency.DAILY: "day", Frequency.WEEKLY: "week", Frequency.MONTHLY: "month", Frequency.YEARLY: "year"}


def rule_warnings(rule: Rule, start: datetime, *, is_chosen: bool) -> Iterator[str]:
    """Yield the warnings for a rule that starts at a wall time, which was chosen or is that of the creation."""
    days = day_rule(rule, start)
    yield from lacking_days(days.month_days, days.months or range(1, len(MONTHS) + 1))
    if days.nth_in_month and any(abs(weekday.nth) == _SELDOM_NTH for weekday in days.weekdays):
        yield "A fifth weekday is left out in months that do not have it."
    if not is_chosen:
        yield from _undecided(rule, start)


def lacking_days(days: Collection[object], months: Collection[int]) -> Iterator[str]:
    """Yield a warning for each day that is left out because some of the months do not have it."""
    for day, lacking in _LACKED_BY.items():
        # If the day before is named too, the end of the month was meant, whatever its length.
        if day in days and day - 1 not in days and not lacking.isdisjoint(months):
            yield f"Day {day} is left out in months that do not have it."


def _undecided(rule: Rule, start: datetime) -> Iterator[str]:
    if not rule.minutes:
        part, at = ("minute", f"{start:%M}") if rule.hours else ("time of day", f"{start:%H:%M}")
        yield f"The rule names no {part}: it is that of the creation, {at}. Set BYHOUR and BYMINUTE, or start_at."
    elif not rule.hours:
        yield f"The rule names no hour: it is that of the creation, {start:%H}. Set BYHOUR, or start_at."
    if rule.interval > 1:
        yield f"INTERVAL counts from the creation. Set start_at to choose the first {_PERIODS[rule.freq]}."
