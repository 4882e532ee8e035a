"""A cache that is bounded by the number of its entries and by their weight in bytes. The oldest are dropped."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Values by key; whoever keeps one says how much it weighs."""

    def __init__(self, most: int, most_bytes: int) -> None:
        """Nothing is kept yet."""
        self._most = most
        self._most_bytes = most_bytes
        self._kept: dict[K, tuple[V, int]] = {}
        self.weight = 0

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self._kept)

    def get(self, key: K) -> V | None:
        """What is kept under a key; None if nothing is."""
        found = self._kept.get(key)
        return None if found is None else found[0]

    def keep(self, key: K, value: V, weight: int) -> None:
        """Keep a value as the newest; one that is heavier than all may be together is not kept."""
        self.drop(key)
        if weight > self._most_bytes:
            return
        while self._kept and (len(self._kept) >= self._most or self.weight + weight > self._most_bytes):
            self.drop(next(iter(self._kept)))
        self._kept[key] = (value, weight)
        self.weight += weight

    def get_or_make(self, key: K, make: Callable[[K], V], weight: int) -> V:
        """What is kept under a key, made and kept if it is not there."""
        value = self.get(key)
        if value is None:
            value = make(key)
            self.keep(key, value, weight)
        return value

    def drop(self, key: K) -> None:
        """Forget one, if it is there."""
        found = self._kept.pop(key, None)
        if found is not None:
            self.weight -= found[1]

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()
        self.weight = 0
