"""What a node leaves behind is bounded: an output that is too large is cut, and says so."""

from typing import Any

import msgspec

# Of an output as JSON: what an HTTP answer may hold, and its surroundings.
OUTPUT_BYTES = 65 * 1024
# For names, brackets and the word that says that something was cut.
_SURROUNDINGS = 64
_BRACKETS = 2
# What nothing is written as takes so many bytes.
_SHORTEST = len("null")

_encode = msgspec.json.Encoder().encode


def bounded(output: Any) -> Any:
    """The output as it is if it fits, else its first part.

    An object keeps the values that fit, the largest is cut, and ``truncated`` is true. All else becomes
    ``{"truncated": true, "text": ...}`` with the beginning of its text, or of its JSON.
    """
    if output is None or isinstance(output, int | float) or len(_encode(output)) <= OUTPUT_BYTES:
        return output
    output = msgspec.to_builtins(output)
    if isinstance(output, dict):
        return {**_fitting(output, OUTPUT_BYTES - _SURROUNDINGS), "truncated": True}
    text = output if isinstance(output, str) else _encode(output).decode()
    return {"truncated": True, "text": _beginning(text, OUTPUT_BYTES - _SURROUNDINGS)}


def _fitting(values: dict[str, Any], room: int) -> dict[str, Any]:
    """The smallest values as they are, the first that does not fit cut, the others left out; in their own order."""
    sizes = {name: len(_encode(name)) + len(_encode(value)) + 2 for name, value in values.items()}
    kept = {}
    for name in sorted(sizes, key=lambda one: sizes[one]):
        if sizes[name] > room:
            left = room - len(_encode(name)) - 2
            if left >= _SHORTEST:
                kept[name] = _cut(values[name], left)
            break
        kept[name] = values[name]
        room -= sizes[name]
    return {name: kept[name] for name in values if name in kept}


def _cut(value: Any, room: int) -> Any:
    if isinstance(value, str):
        return _beginning(value, room)
    if isinstance(value, list):
        return _first(value, room - _BRACKETS)
    return _fitting(value, room - _BRACKETS) if isinstance(value, dict) else None


def _first(items: list[Any], room: int) -> list[Any]:
    """As many items from the beginning as fit."""
    kept = []
    for item in items:
        room -= len(_encode(item)) + 1
        if room < 0:
            break
        kept.append(item)
    return kept


def _beginning(text: str, room: int) -> str:
    """The beginning of a text that fits as JSON, in which some characters take several bytes."""
    text = text[:room]
    while text and len(_encode(text)) > room:
        text = text[: len(text) * room // (len(_encode(text)) + 1)]
    return text
