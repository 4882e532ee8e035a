"""What differs between two values, and where: fields, and what lies within them."""

from collections.abc import Iterator
from typing import Any

import msgspec

# One side has nothing at this place.
ABSENT = msgspec.UNSET


class Difference(msgspec.Struct, frozen=True):
    """One place, before and after."""

    path: str
    before: Any
    after: Any


def differences(before: Any, after: Any, path: str = "") -> Iterator[Difference]:
    """Every place that differs. The order of keys is nothing; 1 and true are two."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*after, *before)):
            inner = f"{path}.{name}" if path else name
            yield from differences(before.get(name, ABSENT), after.get(name, ABSENT), inner)
    elif _is_list(before) and _is_list(after) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif isinstance(before, bool) is not isinstance(after, bool) or before != after:
        yield Difference(path, before, after)


def same(before: Any, after: Any) -> bool:
    """Whether nothing differs."""
    return next(differences(before, after), None) is None


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))
