"""Durations as people write them: ``90s``, ``5m``, ``1.5h``, ``1h30m``."""

import re
from datetime import timedelta
from decimal import Decimal
from functools import lru_cache

UNITS = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
}
# Beyond this a duration is a mistake, and a date could leave the calendar.
LONGEST = timedelta(seconds=2**31 - 1)
_PART = re.compile(r"([0-9]{1,10}(?:\.[0-9]{1,6})?)\s*([wdhms])")
_WHOLE = re.compile(rf"(?:{_PART.pattern}\s*)+")
_MICROSECOND = timedelta(microseconds=1)


@lru_cache(maxsize=4096)
def duration(text: str) -> timedelta:
    """What the text says; ``ValueError`` if it says no duration."""
    spelled = text.strip().lower()
    if not _WHOLE.fullmatch(spelled):
        raise ValueError("Expected a duration such as '90s', '5m', '1.5h', '3d' or '2w'.")
    micros = sum(Decimal(number) * (UNITS[unit] // _MICROSECOND) for number, unit in _PART.findall(spelled))
    if micros > LONGEST // _MICROSECOND:
        raise ValueError("The duration is too long.")
    return timedelta(microseconds=int(micros))


def spelled(length: timedelta) -> str:
    """The one way in which a duration is stored: in the largest unit that it is a whole number of."""
    for letter, unit in UNITS.items():
        if length >= unit and not length % unit:
            return f"{length // unit}{letter}"
    return f"{Decimal(length // _MICROSECOND) / 1_000_000:f}s"
