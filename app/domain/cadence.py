"""The slots of a schedule: anchor + k x interval. They never drift, whatever the work takes."""

from datetime import datetime, timedelta

import msgspec


class Cadence(msgspec.Struct, frozen=True, kw_only=True):
    """An endless, evenly spaced sequence of slots from ``anchor`` on, or up to and including ``end_at``."""

    anchor: datetime
    interval: timedelta
    end_at: datetime | None = None

    def first_after(self, moment: datetime) -> datetime | None:
        """The first slot strictly after ``moment``, or None when there is none left."""
        if moment < self.anchor:
            return self._unless_ended(self.anchor)
        steps = (moment - self.anchor) // self.interval + 1
        return self._unless_ended(self.anchor + steps * self.interval)

    def latest_at(self, moment: datetime) -> datetime | None:
        """The last slot at or before ``moment``, or None when the first is still to come."""
        if self.end_at is not None:
            moment = min(moment, self.end_at)
        if moment < self.anchor:
            return None
        return self.anchor + (moment - self.anchor) // self.interval * self.interval

    def count(self, first: datetime, last: datetime) -> int:
        """How many slots lie from slot ``first`` to slot ``last``, both included."""
        return (last - first) // self.interval + 1

    def before(self, slot: datetime) -> datetime:
        """The slot that precedes ``slot``."""
        return slot - self.interval

    def _unless_ended(self, slot: datetime) -> datetime | None:
        return None if self.end_at is not None and slot > self.end_at else slot
