"""The places of a worker: one bound for everything it runs, shared among owners, and the count of parked runs."""

import asyncio
from collections import Counter
from types import TracebackType
from typing import Self

from app import clock
from app.domain.limits import Crowd, Quota, equal_share, kept_at_least, kept_for_others, may_enter, require_room
from app.persistence import parking
from app.persistence.database import Database

# The owner of what has just come out of the queue: known once it is claimed.
UNKNOWN = 0


class Place:
    """One place, taken; to be used as a context, or left by hand."""

    __slots__ = ("_owner", "_places")

    def __init__(self, places: "Places", owner: int) -> None:
        """Taken by this owner."""
        self._places = places
        self._owner = owner

    def __enter__(self) -> Self:
        """Hold it while the block lasts."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave it."""
        self.leave()

    def belongs_to(self, owner: int) -> None:
        """Say whose it is, once that is known."""
        if owner != self._owner:
            self._places.held[self._owner] -= 1
            self._places.held[owner] += 1
            self._owner = owner

    def leave(self) -> None:
        """Let others have it."""
        self._places.given_back(self._owner)


class Places:
    """So many runs at once, of all owners together."""

    def __init__(self, total: int) -> None:
        """All of them are free."""
        self.total = total
        self.used = 0
        self.held: Counter[int] = Counter()
        self.empty = asyncio.Event()
        self.empty.set()
        self._kept = kept_at_least(total)
        self._owners_wanting = 1

    @property
    def room(self) -> int:
        """How many may be taken by whatever is next in the queue."""
        return max(0, self.total - self._kept - self.used)

    @property
    def is_crowded(self) -> bool:
        """Whether nothing more is taken out of the queue now."""
        return self.room == 0

    @property
    def greedy(self) -> list[int]:
        """The owners who hold their equal share or more."""
        # One who is alone is greedy with half of them.
        share = equal_share(self.total, max(2, len(self.owners)))
        return [owner for owner in self.owners if self.held[owner] >= share]

    @property
    def owners(self) -> list[int]:
        """Those who hold a place."""
        return [owner for owner, number in self.held.items() if number > 0 and owner != UNKNOWN]

    def take(self, owner: int = UNKNOWN) -> Place:
        """A place, whoever it is for: what has been taken out of the queue is run."""
        self.used += 1
        self.held[owner] += 1
        self.empty.clear()
        return Place(self, owner)

    def take_if_fair(self, owner: int) -> Place | None:
        """A place for what is found in Postgres, the kept ones included; None if others have more right to it."""
        wanting = max(self._owners_wanting, len({*self.owners, owner}))
        crowd = Crowd(total=self.total, used=self.used, kept=self._kept, owners=wanting)
        return self.take(owner) if may_enter(crowd, self.held[owner]) else None

    def given_back(self, owner: int) -> None:
        """A place is free again."""
        self.used -= 1
        self.held[owner] -= 1
        if not self.held[owner]:
            del self.held[owner]
        if not self.used:
            self.empty.set()

    def keep(self, owners: int, *, were_short: bool) -> None:
        """Keep more places for others, or fewer, by whether they found one; ``owners`` want something in all."""
        self._owners_wanting = owners
        self._kept = kept_for_others(self.total, owners, self._kept, were_short=were_short)


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
            async with self._database.reading("count_owner_runs") as connection:
                self._counts = Counter(await parking.parked_counts(connection))
            self._counted_at = clock.monotonic()
        require_room(Quota.PARKED_RUNS, self._limit, self._counts[owner])
        self._counts[owner] += 1
