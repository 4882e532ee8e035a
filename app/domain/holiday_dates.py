"""Public holidays by names such as ``DE-BE`` (a country and a part of it), from the package ``holidays``.

The package is optional. It is imported when a name is used for the first time.
"""

import re
from collections.abc import Iterator
from datetime import datetime, time
from functools import lru_cache
from types import ModuleType
from typing import Any

import msgspec

from app.domain.calendar_layers import Span
from app.domain.local_time import DAY

_NAME = re.compile(r"([A-Za-z]{2,6})(?:-([A-Za-z0-9]{1,6}))?")
_SOME_YEAR = 2026


class HolidaySpans(msgspec.Struct, frozen=True):
    """The public holidays of a country, a part of a country, or an exchange."""

    name: str

    def spans(self, year: int) -> Iterator[Span]:
        """Yield the holidays of a year."""
        for day, text in _dates(self.name, year):
            yield Span(day, day + DAY, text)


def canonical_holidays(name: str) -> str:
    """Return a name such as ``DE-BE`` in its stored form. Raise ``ValueError`` if no holidays are known for it."""
    match = _NAME.fullmatch(name.strip())
    if match is None:
        raise ValueError(f"There are no holidays for '{name[:40]}'. Use a country such as 'DE', or a part: 'DE-BE'.")
    stored = "-".join(part.upper() for part in match.groups() if part)
    _dates(stored, _SOME_YEAR)
    return stored


@lru_cache(maxsize=4096)
def _dates(name: str, year: int) -> tuple[tuple[datetime, str], ...]:
    package = _package()
    country, _, part = name.partition("-")
    # English names, whatever language a worker is set to.
    asked = {"years": year, "language": "en_US"}
    try:
        found = package.country_holidays(country, subdiv=part or None, **asked)
    except NotImplementedError:
        found = _of_exchange(package, name, asked)
    return tuple((datetime.combine(day, time()), text) for day, text in sorted(found.items()))


def _of_exchange(package: ModuleType, name: str, asked: dict[str, Any]) -> Any:
    try:
        return package.financial_holidays(name, **asked)
    except NotImplementedError:
        raise ValueError(
            f"There are no holidays for '{name}'. Use a country such as 'DE', or a part: 'DE-BE'."
        ) from None


def _package() -> ModuleType:
    try:
        # Optional, and large.
        import holidays
    except ImportError:
        raise ValueError("Public holidays need the package 'holidays': install carillon[holidays].") from None
    return holidays
