"""Caches in memory, bounded by entries and by bytes; the oldest entries are evicted first.

``BoundedCache`` holds plain values, ``RowCache`` values that are valid for one version of a row, and ``ExpiringCache``
values that are valid for some seconds. Both are built on ``BoundedCache``, which alone evicts.
"""

import sys
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Values by key. The caller passes the weight of each, usually its size in bytes."""

    def __init__(self, most: int, most_bytes: int = sys.maxsize) -> None:
        """Hold at most this many entries, and entries of at most this weight together."""
        self._most = most
        self._most_bytes = most_bytes
        self._entries: dict[K, tuple[V, int]] = {}
        self.weight = 0

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None if there is none."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def values(self) -> list[V]:
        """Return all values, oldest first."""
        return [value for value, _ in self._entries.values()]

    def weight_of(self, key: K) -> int:
        """Return the weight of an entry, or 0 if there is none."""
        entry = self._entries.get(key)
        return 0 if entry is None else entry[1]

    def keep(self, key: K, value: V, weight: int = 0) -> None:
        """Store a value as the newest entry. A value that is heavier than the whole cache may hold is not stored."""
        self.drop(key)
        if weight > self._most_bytes:
            return
        while self._entries and (len(self._entries) >= self._most or self.weight + weight > self._most_bytes):
            self.drop(next(iter(self._entries)))
        self._entries[key] = (value, weight)
        self.weight += weight

    def get_or_make(self, key: K, make: Callable[[K], V], weight: int) -> V:
        """Return the value of a key; make and store it first if there is none."""
        value = self.get(key)
        if value is None:
            value = make(key)
            self.keep(key, value, weight)
        return value

    def drop(self, key: K) -> None:
        """Remove an entry, if there is one."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.weight -= entry[1]

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
        self.weight = 0


class RowCache(Generic[K, V]):
    """Values made from database rows, each with the version (``xmin``) of its row.

    Versions are comparable within one server only: after a failover or a restored backup the same number may stand for
    other contents. So every row cache is handed to ``ServerIdentity.watch``, which clears it when the server changes.
    """

    def __init__(self, most: int, most_bytes: int = sys.maxsize) -> None:
        """Hold at most this many entries, and entries of at most this weight together."""
        self._rows: BoundedCache[K, tuple[int, V]] = BoundedCache(most, most_bytes)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._rows)

    @property
    def weight(self) -> int:
        """The weight of all entries together."""
        return self._rows.weight

    def get(self, key: K) -> tuple[int, V] | None:
        """Return the version and the value of a key, or None if there is none."""
        return self._rows.get(key)

    def values(self) -> list[V]:
        """Return all values."""
        return [value for _, value in self._rows.values()]

    def at_version(self, key: K, version: int | None) -> V | None:
        """Return the value of a key if it was made from this version of the row, else None."""
        row = self._rows.get(key)
        return row[1] if row is not None and row[0] == version else None

    def weight_of(self, key: K) -> int:
        """Return the weight of an entry, or 0 if there is none."""
        return self._rows.weight_of(key)

    def keep(self, key: K, version: int, value: V, weight: int = 0) -> None:
        """Store the value of a row in this version."""
        self._rows.keep(key, (version, value), weight)

    def clear(self) -> None:
        """Remove all entries."""
        self._rows.clear()


class ExpiringCache(Generic[K, V]):
    """Values that may be used until a moment of the monotonic clock."""

    def __init__(self, most: int, most_bytes: int = sys.maxsize) -> None:
        """Hold at most this many entries, and entries of at most this weight together."""
        self._entries: BoundedCache[K, tuple[float, V]] = BoundedCache(most, most_bytes)

    def fresh(self, key: K, now: float) -> V | None:
        """Return the value of a key unless it has expired, else None."""
        entry = self._entries.get(key)
        return entry[1] if entry is not None and entry[0] > now else None

    def stale(self, key: K) -> V | None:
        """Return the value of a key even if it has expired, for when nothing newer can be read."""
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def keep(self, key: K, value: V, expires_at: float, weight: int = 0) -> None:
        """Store a value until a moment."""
        self._entries.keep(key, (expires_at, value), weight)

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
