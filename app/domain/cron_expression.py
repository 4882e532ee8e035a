"""Cron expressions: validation, the conversion of all spellings into one stored form, and parsing.

cronsim parses the stored form and knows the calendar (last days, nth weekdays). Spellings that it does not know
(``@daily`` and other aliases, ranges such as ``22-2``, ``?``) are rewritten before.
"""

from datetime import UTC, datetime
from functools import lru_cache

import msgspec
from cronsim import CronSim, CronSimError

LONGEST_EXPRESSION = 1000
ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# cronsim wants a start; the parsed fields do not depend on it.
_SOME_TIME = datetime(2000, 1, 1, tzinfo=UTC)


class Field(msgspec.Struct, frozen=True):
    """One of the five fields: its name in messages, its bounds, and the names of its values."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def canonical(self, text: str) -> str:
        """Return the field in its stored form. Raise ``ValueError`` if it is not valid."""
        items = text.split(",")
        if any(not item for item in items):
            raise ValueError(f"The {self.name} field has an empty item.")
        if text.startswith("*"):
            # The star must stay: it decides how days are combined and whether slots follow the wall clock.
            return self._starred(items)
        numbers: set[int] = set()
        special: set[str] = set()
        for item in items:
            if self.names is not MONTHS and any(mark in item for mark in "#l"):
                special.add(self._special(item))
            else:
                numbers |= self._numbers(item)
        return ",".join((*_ranges(sorted(numbers)), *sorted(special)))

    def _starred(self, items: list[str]) -> str:
        """Return a field that begins with a star: its smallest step, then the values that the step does not reach."""
        values = set[int]().union(*map(self._numbers, items))
        if len(items) == 1:
            step = int(items[0].partition("/")[2] or 1)
            return "*" if step == 1 else f"*/{step}"
        stepped = next(steps for steps in map(self._every, range(1, self.top + 2)) if steps <= values)
        step = min(stepped - {self.low}, default=self.top + 1) - self.low
        return "*" if step == 1 else ",".join((f"*/{step}", *_ranges(sorted(values - stepped))))

    def _every(self, step: int) -> set[int]:
        return set(range(self.low, self.top + 1, step))

    @property
    def top(self) -> int:
        """Return the highest value of the stored form, in which Sunday is 0 and not 7."""
        return 6 if self.names is DAYS else self.high

    def _numbers(self, item: str) -> set[int]:
        span, _, step = item.partition("/")
        if "/" in item and not (step.isdecimal() and step.isascii() and int(step)):
            raise ValueError(f"The {self.name} field has a bad step: '{item[:20]}'.")
        first, last = self._span(span, stepped=bool(step))
        if last < first:
            # A range such as 22-2 or fri-mon goes on at the start of the field.
            last += self.top - self.low + 1
        values = range(first, last + 1, int(step or 1))
        return {(value - self.low) % (self.top - self.low + 1) + self.low for value in values}

    def _span(self, span: str, *, stepped: bool) -> tuple[int, int]:
        if span == "*":
            return self.low, self.top
        start, dash, end = span.partition("-")
        first = self._value(start)
        if dash:
            return first, self._value(end)
        return first, self.top if stepped else first

    def _value(self, text: str) -> int:
        if text in self.names:
            return self.names.index(text) + self.low
        if not (text.isdecimal() and text.isascii()) or len(text) > 2 or not self.low <= int(text) <= self.high:  # noqa: PLR2004 - no value has three digits
            raise ValueError(f"The {self.name} field cannot be '{text[:20]}'.")
        return int(text)

    def _special(self, item: str) -> str:
        if self.name == "day-of-month" and item in {"l", "lw"}:
            return item.upper()
        if self.names is DAYS and item.endswith("l"):
            return f"{self._value(item[:-1]) % 7}L"
        if self.names is DAYS and "#" in item:
            day, _, nth = item.partition("#")
            if nth in {"1", "2", "3", "4", "5"}:
                return f"{self._value(day) % 7}#{nth}"
        raise ValueError(f"The {self.name} field cannot be '{item[:20]}'.")


FIELDS = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day-of-month", 1, 31),
    Field("month", 1, 12, MONTHS),
    Field("day-of-week", 0, 7, DAYS),
)


def canonical_cron(text: str) -> str:
    """Return an expression in its stored form. Raise ``ValueError`` if it is not valid or names no date that exists."""
    if len(text) > LONGEST_EXPRESSION:
        raise ValueError(f"The expression is longer than {LONGEST_EXPRESSION} characters.")
    lowered = text.strip().lower()
    parts = ALIASES.get(lowered, lowered).split()
    if len(parts) != len(FIELDS):
        raise ValueError(
            "Expected five fields: minute, hour, day of month, month, day of week; or an alias such as @daily."
        )
    parts[2], parts[4] = ("*" if part == "?" else part for part in (parts[2], parts[4]))
    expression = " ".join(field.canonical(part) for field, part in zip(FIELDS, parts, strict=True))
    cron(expression)
    return expression


@lru_cache(maxsize=4096)
def cron(expression: str) -> CronSim:
    """Return a stored expression, parsed. Raise ``ValueError`` if it names no date that exists."""
    if len(expression.split()) != len(FIELDS):
        raise ValueError("The expression does not have five fields.")
    try:
        parsed = CronSim(expression, _SOME_TIME)
    except CronSimError as error:
        raise ValueError(f"No date fits the expression ({error}).") from None
    return parsed


def is_fixed(expression: str) -> bool:
    """Return whether an expression names wall times (plain hours and minutes), not steps of elapsed time."""
    minute, hour, *_ = expression.split()
    return not minute.startswith("*") and not hour.startswith("*")


def _ranges(numbers: list[int]) -> list[str]:
    """Return sorted numbers with neighbours joined: 1-5,7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [str(a) if a == b else f"{a},{b}" if b == a + 1 else f"{a}-{b}" for a, b in runs]
