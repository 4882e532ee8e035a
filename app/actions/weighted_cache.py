"""A cache that is bounded by what its entries weigh together, not by their number."""

from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class WeightedCache(Generic[Key, Value]):
    """Values by key; the oldest are dropped when the sum of the weights is over the bound."""

    def __init__(self, most_weight: int) -> None:
        """An entry heavier than a tenth of the bound is not kept at all."""
        self._most = most_weight
        self._weight = 0
        self._entries: dict[Key, tuple[int, Value]] = {}

    def get(self, key: Key) -> Value | None:
        """Return the value of a key, else None."""
        found = self._entries.get(key)
        return None if found is None else found[1]

    def keep(self, key: Key, value: Value, weight: int) -> None:
        """Remember a value, and forget the oldest that no longer fit."""
        self.drop(key)
        if weight * 10 > self._most:
            return
        self._entries[key] = (weight, value)
        self._weight += weight
        while self._weight > self._most:
            self.drop(next(iter(self._entries)))

    def drop(self, key: Key) -> None:
        """Forget a key."""
        found = self._entries.pop(key, None)
        if found is not None:
            self._weight -= found[0]

    def get_or_make(self, key: Key, make: Callable[[Key], Value], weight: int) -> Value:
        """Return the value of a key, made and remembered if it is not there."""
        value = self.get(key)
        if value is None:
            value = make(key)
            self.keep(key, value, weight)
        return value
