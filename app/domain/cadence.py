"""The slots that a schedule expects: what its spec says, between a beginning and an end."""

from datetime import datetime, timedelta

from app.domain.recurrence import Recurrence

_INSTANT = timedelta.resolution


class Cadence:
    """Slots from ``start`` (included) to ``end`` (included), where there is one. They never drift."""

    def __init__(self, slots: Recurrence, start: datetime, end: datetime | None = None) -> None:
        """Nothing is computed yet."""
        self._slots = slots
        self._start = start
        self._end = end

    def first_after(self, moment: datetime) -> datetime | None:
        """The first slot strictly after ``moment``, or None when there is none left."""
        slot = self._slots.next(max(moment, self._start - _INSTANT))
        return None if slot is None or (self._end is not None and slot > self._end) else slot

    def latest_at(self, moment: datetime) -> datetime | None:
        """The last slot at or before ``moment``, or None when the first is still to come."""
        until = moment if self._end is None else min(moment, self._end)
        slot = self._slots.previous(until + _INSTANT) if until >= self._start else None
        return None if slot is None or slot < self._start else slot

    def before(self, slot: datetime) -> datetime | None:
        """The slot that precedes ``slot``."""
        return self.latest_at(slot - _INSTANT)

    def count(self, first: datetime, last: datetime) -> int:
        """How many slots lie from slot ``first`` to slot ``last``, both included."""
        return 1 if first == last else self._slots.count(first, last)
