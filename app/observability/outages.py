"""What lasts is said at once and then every few seconds: never once for each that suffers from it."""

from structlog.typing import FilteringBoundLogger

from app import clock

SAY_SECONDS = 5.0


class Seldom:
    """Whether something that comes again and again is to be said now; each kind of it has turns of its own."""

    def __init__(self, seconds: float = SAY_SECONDS) -> None:
        """Everything is to be said the first time, and then after so long."""
        self._seconds = seconds
        self._said_at: dict[str, float] = {}

    def is_turn(self, kind: str) -> bool:
        """Whether it has not been said for some seconds; now it has."""
        now = clock.monotonic()
        if kind in self._said_at and now - self._said_at[kind] < self._seconds:
            return False
        self._said_at[kind] = now
        return True


class Outage:
    """Something that this process needs is away. However many miss it, it is said once in a while; so is its end."""

    def __init__(self, log: FilteringBoundLogger, *, away: str, back: str) -> None:
        """Say these events to this log."""
        self._log = log
        self._away = away
        self._back = back
        self._missed_by: set[str] = set()
        self._began = 0.0
        self._seldom = Seldom()
        self._is_said = False

    def missed(self, by: str, error: str) -> None:
        """Someone cannot work without it, for this reason."""
        now = clock.monotonic()
        if not self._missed_by:
            self._began = now
        self._missed_by.add(by)
        if self._seldom.is_turn(self._away):
            self._log.warning(self._away, seconds=round(now - self._began, 1), error=error)
            self._is_said = True

    def found(self, by: str) -> None:
        """It was there for someone; it is over when that is so for all who missed it."""
        if by not in self._missed_by:
            return
        self._missed_by.discard(by)
        if self._is_said and not self._missed_by:
            self._log.info(self._back, seconds=round(clock.monotonic() - self._began, 1))
            self._is_said = False
