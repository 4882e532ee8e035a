"""Places: how many runs a worker has at once, shared among owners; and the quota on parked runs."""

import asyncio
from collections import Counter
from types import TracebackType
from typing import Self

from app import clock
from app.domain.limits import PlaceUsage, Quota, equal_share, may_take_place, min_reserved, next_reserved, require_room
from app.persistence import parked_runs
from app.persistence.database import Database
from app.persistence.quotas import QuotaBook

# The owner of a run that has just come out of the queue: a message does not name it, the claim does.
UNKNOWN = 0


class Place:
    """A taken place. Use it as a context manager, or call ``release``."""

    __slots__ = ("_owner", "_places")

    def __init__(self, places: "Places", owner: int) -> None:
        """Note who has taken it; ``Places`` makes these."""
        self._places = places
        self._owner = owner

    def __enter__(self) -> Self:
        """Hold the place until the block ends."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the place."""
        self.release()

    def belongs_to(self, owner: int) -> None:
        """Note the owner, once it is known."""
        if owner != self._owner:
            self._places.held[self._owner] -= 1
            self._places.held[owner] += 1
            self._owner = owner

    def release(self) -> None:
        """Free the place for other runs."""
        self._places.released(self._owner)


class Places:
    """The places of a worker. Some are reserved for owners who hold few, so that one owner cannot take them all."""

    def __init__(self, total: int) -> None:
        """Start with all places free."""
        self.total = total
        self.used = 0
        self.held: Counter[int] = Counter()
        self.empty = asyncio.Event()
        self.empty.set()
        self._reserved = min_reserved(total)
        self._owners_wanting = 1

    @property
    def room(self) -> int:
        """Return how many places are free for whatever comes next in the queue."""
        return max(0, self.total - self._reserved - self.used)

    @property
    def is_full(self) -> bool:
        """Return whether no more messages are taken out of the queue now."""
        return self.room == 0

    @property
    def large_owners(self) -> list[int]:
        """Return the owners who hold an equal share of the places or more."""
        # A single owner counts from half of the places on.
        share = equal_share(self.total, max(2, len(self.owners)))
        return [owner for owner in self.owners if self.held[owner] >= share]

    @property
    def owners(self) -> list[int]:
        """Return the owners who hold a place."""
        return [owner for owner, number in self.held.items() if number > 0 and owner != UNKNOWN]

    def take(self, owner: int = UNKNOWN) -> Place:
        """Take a place without a check: what has been taken out of the queue is run."""
        self.used += 1
        self.held[owner] += 1
        self.empty.clear()
        return Place(self, owner)

    def take_if_fair(self, owner: int) -> Place | None:
        """Take a place, reserved ones included, for a run found in Postgres. Return None if it is others' turn."""
        wanting = max(self._owners_wanting, len({*self.owners, owner}))
        usage = PlaceUsage(total=self.total, used=self.used, reserved=self._reserved, owners=wanting)
        return self.take(owner) if may_take_place(usage, self.held[owner]) else None

    def released(self, owner: int) -> None:
        """Note that a place of this owner is free again."""
        self.used -= 1
        self.held[owner] -= 1
        if not self.held[owner]:
            del self.held[owner]
        if not self.used:
            self.empty.set()

    def reserve(self, owners: int, *, were_short: bool) -> None:
        """Reserve more places, or fewer, for owners who hold few.

        ``owners`` is how many have runs or due work; ``were_short`` whether some of that work found no place.
        """
        self._owners_wanting = owners
        self._reserved = next_reserved(self.total, owners, self._reserved, were_short=were_short)


# How often parked runs are counted in Postgres. Between two counts only the runs that this process parks are added.
COUNT_SECONDS = 2.0


class ParkedRuns:
    """The quota on parked runs, by a count that may be some seconds old."""

    def __init__(self, database: Database, quotas: QuotaBook) -> None:
        """Allow each owner as many parked runs as the quotas say."""
        self._database = database
        self._quotas = quotas
        self._counts: Counter[int] = Counter()
        self._counted_at = 0.0

    async def require_room(self, owner: int) -> None:
        """Count one more parked run. Raise ``QuotaExceededError`` if the owner has as many as allowed."""
        limit = self._quotas.current.limit_of(Quota.PARKED_RUNS, owner)
        if not limit:
            return
        if clock.monotonic() - self._counted_at > COUNT_SECONDS:
            async with self._database.reading("count_owner_runs") as connection:
                self._counts = Counter(await parked_runs.parked_counts(connection))
            self._counted_at = clock.monotonic()
        require_room(Quota.PARKED_RUNS, limit, self._counts[owner])
        self._counts[owner] += 1
