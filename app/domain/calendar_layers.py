"""The entries of a calendar on the wall clock of a zone: which moments they cover, and how long nothing changes.

Entries are spans of wall time, computed for each year. A search for slots jumps over covered spans by ``until`` and
``since``, which may be too near but never too far: near a clock change they stop at the change.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from typing import Protocol

import msgspec

from app.domain.local_time import DAY, Piece, Zone

# The years that are kept for each layer: as many as a search looks at, and some.
_MAX_KEPT_YEARS = 32


class Span(msgspec.Struct, frozen=True, order=True):
    """A stretch of wall time that an entry covers; the end is excluded."""

    start: datetime
    end: datetime
    entry: str


class Source(Protocol):
    """Entries of a calendar."""

    def spans(self, year: int) -> Iterable[Span]:
        """Return the spans that begin in a year or last into it. Others may be returned too."""


class _YearSpans:
    """The spans of one year without overlaps, and for each how far the spans reach that adjoin it."""

    def __init__(self, year: int, spans: Iterable[Span]) -> None:
        """Cut off what an earlier span covers already."""
        self.first, self.last = datetime(year, 1, 1), datetime(year + 1, 1, 1)  # noqa: DTZ001 - wall times
        self.spans = list(_disjoint(span for span in spans if span.start < self.last and span.end > self.first))
        self._starts = [span.start for span in self.spans]
        self._since = list(_reaches((span.start, span.end) for span in self.spans))
        self._until = list(_reaches((span.end, span.start) for span in reversed(self.spans)))[::-1]

    def at(self, wall: datetime) -> tuple[str | None, datetime, datetime]:
        """Return the entry at a wall time, or None, and since when and until when it is covered, or is not."""
        index = bisect_right(self._starts, wall) - 1
        if index >= 0 and wall < self.spans[index].end:
            return self.spans[index].entry, self._since[index], self._until[index]
        since = self.spans[index].end if index >= 0 else self.first
        return None, since, self._starts[index + 1] if index + 1 < len(self.spans) else self.last


def _disjoint(spans: Iterable[Span]) -> Iterator[Span]:
    reached = datetime.min  # noqa: DTZ901 - a wall time
    for span in sorted(spans):
        if span.end > reached:
            yield Span(max(span.start, reached), span.end, span.entry)
            reached = span.end


def _reaches(edges: Iterable[tuple[datetime, datetime]]) -> Iterator[datetime]:
    """Yield for each span the edge of the first of those that adjoin each other up to it."""
    reach, last = None, None
    for near, far in edges:
        reach = near if reach is None or near != last else reach
        last = far
        yield reach


class Layer:
    """The entries of a calendar that are on the wall clock of one zone."""

    def __init__(self, zone: Zone, sources: Iterable[Source]) -> None:
        """Take the entries; their spans are computed when a year is asked for."""
        self._zone = zone
        self._sources = tuple(sources)
        self._years: dict[int, _YearSpans] = {}

    def entry_at(self, moment: datetime) -> str | None:
        """Return the entry that covers a moment, or None."""
        wall = self._zone.local(moment)
        return self._year(wall.year).at(wall)[0]

    def until(self, moment: datetime) -> datetime:
        """Return a later moment before which nothing changes: all is covered, or nothing is."""
        wall = self._zone.local(moment)
        change = self._year(wall.year).at(wall)[2]
        if self._zone.is_clock_change_day(wall.date()):
            return min(self._piece(wall.date(), moment).end, moment + (change - wall))
        return self._zone.instant(change)

    def since(self, moment: datetime) -> datetime:
        """Return a moment, not later, from which on nothing changes up to ``moment``."""
        wall = self._zone.local(moment)
        change = self._year(wall.year).at(wall)[1]
        if self._zone.is_clock_change_day(wall.date()):
            return max(self._piece(wall.date(), moment).start, moment - (wall - change))
        # On a day on which the clocks are set back, the same wall time may come before and after others.
        while self._zone.is_clock_change_day(change.date()):
            change = datetime.combine(change.date() + DAY, time())
        return self._zone.instant(change)

    def _piece(self, day: date, moment: datetime) -> Piece:
        return next(piece for piece in self._zone.pieces(day) if piece.start <= moment < piece.end)

    def _year(self, year: int) -> _YearSpans:
        known = self._years.get(year)
        if known is None:
            known = _YearSpans(year, (span for source in self._sources for span in source.spans(year)))
            if len(self._years) >= _MAX_KEPT_YEARS:
                self._years.clear()
            self._years[year] = known
        return known


class FixedSpans(msgspec.Struct, frozen=True):
    """Entries that do not repeat."""

    fixed: tuple[Span, ...]

    def spans(self, year: int) -> Iterable[Span]:
        """Return all of them."""
        del year
        return self.fixed


class YearlySpan(msgspec.Struct, frozen=True):
    """A date, or a range of dates, that comes every year. A range may go over the end of the year."""

    first: tuple[int, int]
    last: tuple[int, int]
    entry: str

    def spans(self, year: int) -> Iterator[Span]:
        """Yield the span that begins in this year, and the one of the year before, which may last into it."""
        for start_year in (year - 1, year):
            first = _first_existing(start_year, *self.first)
            last = _first_existing(start_year + (self.last < self.first), *self.last, step=-DAY)
            if first <= last:
                yield Span(datetime.combine(first, time()), datetime.combine(last + DAY, time()), self.entry)


def _first_existing(year: int, month: int, day: int, step: timedelta = DAY) -> date:
    """Return a date; in years without 29 February the day after it, or before it if ``step`` is negative."""
    try:
        return date(year, month, day)
    except ValueError:
        return date(year, 3, 1) if step > timedelta(0) else date(year, 2, 28)
