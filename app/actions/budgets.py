"""How large a configuration may become when its templates are filled in: counted before anything is copied."""

from collections.abc import Mapping
from typing import Any

import msgspec

MOST_BYTES = 1024 * 1024
MOST_TEMPLATES = 20_000
# Each has to be compiled, which takes a third of a millisecond.
MOST_DIFFERENT_TEMPLATES = 500
# Deeper values could exhaust the stack of whoever encodes them.
MOST_LEVELS = 100
# A number, a literal or the punctuation around a value, roughly.
SMALL_BYTES = 8


class OverBudgetError(Exception):
    """A configuration would become too large, or too deep; the message says which bound it meets."""

    code = "over_budget"


class Budget:
    """What one configuration may still use. Every reference to a value counts with the value's whole size."""

    def __init__(self) -> None:
        """Nothing is used yet."""
        self._bytes_left = MOST_BYTES
        self._templates_left = MOST_TEMPLATES
        self._different: set[str] = set()
        # Sizes of objects and lists by id, with the value, so that no other value can get the same id meanwhile.
        self._sizes: dict[int, tuple[Any, int]] = {}

    def use_template(self, text: str) -> None:
        """Count one template, before it is read."""
        self._templates_left -= 1
        self._different.add(text)
        if self._templates_left < 0 or len(self._different) > MOST_DIFFERENT_TEMPLATES:
            raise OverBudgetError(
                f"a configuration may have {MOST_TEMPLATES} templates, {MOST_DIFFERENT_TEMPLATES} different ones"
            )

    def use_bytes(self, count: int) -> None:
        """Count bytes of the configuration."""
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise OverBudgetError(f"the configuration would be larger than {MOST_BYTES} bytes")

    def use_value(self, value: Any) -> None:
        """Count a value by its size in JSON."""
        if isinstance(value, Mapping | list | tuple):
            known = self._sizes.get(id(value))
            if known is None:
                known = self._sizes[id(value)] = (value, self._size_of_container(value))
            self.use_bytes(known[1])
        else:
            self.use_bytes(self._size_of_scalar(value))

    def _size_of_container(self, value: Any) -> int:
        """Level by level, so that no depth can exhaust the stack; given up as soon as it is too large."""
        size, layer = 0, [value]
        for _ in range(MOST_LEVELS):
            inner: list[Any] = []
            for item in layer:
                if isinstance(item, Mapping):
                    size += sum(len(str(key)) + SMALL_BYTES for key in item)
                    inner += item.values()
                elif isinstance(item, list | tuple):
                    size += len(item) + SMALL_BYTES
                    inner += item
                else:
                    size += self._size_of_scalar(item)
                if size > self._bytes_left:
                    return size
            if not inner:
                return size
            layer = inner
        raise OverBudgetError(f"a value is nested more than {MOST_LEVELS} levels deep")

    def _size_of_scalar(self, value: Any) -> int:
        if isinstance(value, str):
            is_small = value.isascii() or len(value) > self._bytes_left
            return len(value) if is_small else len(value.encode(errors="surrogatepass"))
        if value is None or isinstance(value, bool | float):
            return SMALL_BYTES
        if isinstance(value, int):
            return SMALL_BYTES + value.bit_length() // 3
        # What a plugin answered: whatever its JSON is.
        return len(msgspec.json.encode(value))
