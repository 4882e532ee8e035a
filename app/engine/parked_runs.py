"""How many runs each owner has parked, counted now and then, so that parking one costs no count of them all."""

from collections import Counter

from app import clock
from app.domain.quotas import Quota, require_room
from app.persistence import parking_part
from app.persistence.database import Database

# Between two counts what this process parks is added; what other workers park is seen by the next count.
COUNT_SECONDS = 2.0


class ParkedRuns:
    """The quota on parked runs, as far as this process knows."""

    def __init__(self, database: Database, limit: int) -> None:
        """A limit of 0 is none."""
        self._database = database
        self._limit = limit
        self._counts: Counter[int] = Counter()
        self._counted_at = 0.0

    async def require_room(self, owner: int) -> None:
        """Raise ``QuotaExceededError`` if this owner may park no more; else one more is counted."""
        if not self._limit:
            return
        if clock.monotonic() - self._counted_at > COUNT_SECONDS:
            async with self._database.reading() as connection:
                self._counts = Counter(await parking_part.counts(connection))
            self._counted_at = clock.monotonic()
        require_room(Quota.PARKED_RUNS, self._limit, self._counts[owner])
        self._counts[owner] += 1
