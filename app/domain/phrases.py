"""The words of descriptions: lengths, times of day, weekdays, months and lists, as parts of a sentence."""

from collections.abc import Callable, Iterable
from itertools import groupby, pairwise

from app.domain.local_time import WEEKDAYS

_HOUR_MINUTES = 60
_DAY_MINUTES = 24 * _HOUR_MINUTES
# One day is written as 24 hours: an interval counts hours, and a local day may have 23.
_UNITS = (("day", 86_400, 2), ("hour", 3600, 1), ("minute", 60, 1))
# Up to FEW times are listed even if they have a pattern, up to _SEVERAL if they have none.
FEW, _SEVERAL = 4, 8
# From _STRETCH neighbours on, only the ends are named; more than _STRETCHES stretches are not easier to read.
_STRETCH, _STRETCHES = 3, 3
_LONGEST_QUOTE = 150
WORKING_DAYS = list(range(5))
_WEEKEND = [5, 6]
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def times_text(hours: list[int], minutes: list[int], *, stepped: bool) -> str:
    """Return the times of day. A text that begins with "at" comes after the days in a sentence, others before."""
    walls = [hour * _HOUR_MINUTES + minute for hour in hours for minute in minutes]
    even = _around_the_clock(walls) if stepped or len(walls) > FEW else ""
    return (
        even
        or _listed(walls, FEW)
        or _stretches(walls)
        or _listed(walls, _SEVERAL)
        or _minutes_past_hours(minutes, hours)
    )


def every_text(seconds: float) -> str:
    """Return a period: "every 5 minutes", "every hour"."""
    return f"every {length_text(seconds).removeprefix('1 ')}"


def length_text(seconds: float) -> str:
    """Return a length as a whole number of the largest unit possible."""
    for unit, size, least in _UNITS:
        count, rest = divmod(seconds, size)
        if count >= least and not rest:
            return counted(f"{count:.0f}", unit)
    return counted(f"{seconds:.6f}".rstrip("0").rstrip("."), "second")


def counted(number: str, unit: str) -> str:
    """Return a number with its unit, in the plural unless it is 1."""
    return f"{number} {unit}" if number == "1" else f"{number} {unit}s"


def _around_the_clock(walls: list[int]) -> str:
    """Return the text for equal steps through the whole day, or an empty string."""
    step, rest = divmod(_DAY_MINUTES, len(walls))
    first = walls[0]
    if rest or len(walls) == 1 or walls != list(range(first, _DAY_MINUTES, step)):
        return ""
    every = every_text(step * 60)
    if not first:
        return every
    if step > _HOUR_MINUTES:
        return f"{every} from {clock(first)}"
    return f"{every} at minute {first}" if step == _HOUR_MINUTES else f"{every} from minute {first} of the hour"


def _listed(walls: list[int], most: int) -> str:
    return f"at {joined(map(clock, walls))}" if len(walls) <= most else ""


def _stretches(walls: list[int]) -> str:
    """Return the text for equal steps from one time to another, or an empty string."""
    step = min(later - earlier for earlier, later in pairwise(walls))
    stretches = _neighbours(walls, step)
    if len(stretches) > _STRETCHES or max(map(len, stretches)) < _STRETCH:
        return ""
    return f"{every_text(step * 60)} {joined(map(_stretch, stretches))}"


def _stretch(walls: list[int]) -> str:
    first, last = clock(walls[0]), clock(walls[-1])
    return f"at {first}" if first == last else f"from {first} to {last}"


def _minutes_past_hours(minutes: list[int], hours: list[int]) -> str:
    at = numbered("minute", minutes)
    if len(minutes) > FEW and minutes == list(range(0, _HOUR_MINUTES, minutes[1])):
        at = f"every {ordinal(minutes[1])} minute"
    if len(hours) * _HOUR_MINUTES == _DAY_MINUTES:
        return f"every hour at {at}"
    return f"at {at} past {numbered('hour', hours)}"


def clock(wall: int) -> str:
    """Return a minute of the day as a time: 09:00."""
    return f"{wall // _HOUR_MINUTES:02}:{wall % _HOUR_MINUTES:02}"


def weekdays(days: list[int], *, each: bool) -> str:
    """Return weekdays (Monday is 0): "every weekday" or "every Monday" if ``each``, else "on Mondays"."""
    if days == WORKING_DAYS:
        return "every weekday" if each else "on weekdays"
    if days == _WEEKEND:
        return "on weekends"
    if len(days) == 1 and each:
        return f"every {WEEKDAYS[days[0]].capitalize()}"
    return f"on {spans(days, lambda day: plural(WEEKDAYS[day]), ' to ')}"


def month_names(months: list[int]) -> str:
    """Return months by their names, with neighbours joined."""
    return spans(months, lambda month: MONTHS[month - 1], " to ")


def is_stretch(values: list[int]) -> bool:
    """Return whether values are so many neighbours that only the ends are named."""
    return len(values) >= _STRETCH and len(_neighbours(values, 1)) == 1


def numbered(noun: str, numbers: list[int]) -> str:
    """Return numbers after their noun: "day 1", "days 1-5 and 7"."""
    return f"{noun} {numbers[0]}" if len(numbers) == 1 else f"{noun}s {spans(numbers, str, '-')}"


def spans(values: list[int], say: Callable[[int], str], to: str) -> str:
    """Return sorted values as a list with neighbours joined: 1-5, 7 and 9."""
    parts: list[str] = []
    for run in _neighbours(values, 1):
        parts += [f"{say(run[0])}{to}{say(run[-1])}"] if len(run) >= _STRETCH else map(say, run)
    return joined(parts)


def _neighbours(values: list[int], step: int) -> list[list[int]]:
    """Split sorted values where two neighbours are not one step apart."""
    runs = groupby(enumerate(values), key=lambda numbered: numbered[1] - numbered[0] * step)
    return [[value for _, value in run] for _, run in runs]


def joined(items: Iterable[str]) -> str:
    """Return a list with "and" before its last item."""
    *others, last = items
    return f"{', '.join(others)} and {last}" if others else last


def plural(weekday: str) -> str:
    """Return a weekday with a capital letter, in the plural."""
    return f"{weekday.capitalize()}s"


def ordinal(number: int) -> str:
    """Return the ordinal of a number from 2 on: 2nd, 3rd, 4th."""
    return {2: "2nd", 3: "3rd"}.get(number, f"{number}th")


def quoted(text: str) -> str:
    """Return a text in quotes, shortened if it is long."""
    return f"'{text}'" if len(text) <= _LONGEST_QUOTE else f"'{text[:_LONGEST_QUOTE]}...'"
