"""Reading request bodies: bytes become a typed value, or an error that names every field that is wrong."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeVar

import msgspec

from app.domain.errors import CarillonError, FieldError, InvalidError
from app.domain.field_errors import MOST_ERRORS, read_as

T = TypeVar("T")

MAX_DEPTH = 100


class MalformedError(CarillonError):
    """The body is not valid JSON."""

    code = "malformed"
    message = "The body is not valid JSON."


def read(body: bytes, kind: type[T]) -> T:
    """Return a body as a value of this type."""
    return checked(_parsed(body), kind)


def require_json(body: bytes) -> None:
    """Refuse a body that is not JSON, whatever it says."""
    _parsed(body)


def checked(raw: Any, kind: type[T]) -> T:
    """Return JSON values as a value of this type."""
    nuls = list(islice(_nul_fields(raw), MOST_ERRORS))
    if nuls:
        raise InvalidError(*(FieldError(place, "NUL characters cannot be stored.") for place in nuls))
    return read_as(raw, kind)


def _parsed(body: bytes) -> Any:
    try:
        text = body.decode()
        raw = msgspec.json.decode(text)
    except UnicodeDecodeError:
        raise MalformedError("The body is not valid UTF-8.") from None
    except RecursionError:
        raise MalformedError("The JSON is nested too deeply.") from None
    except msgspec.DecodeError as error:
        raise MalformedError(f"The body is not valid JSON: {error}.") from None
    if _deeper_than(raw, MAX_DEPTH):
        raise MalformedError(f"The JSON is nested more than {MAX_DEPTH} levels deep.")
    return raw


def _deeper_than(raw: Any, levels: int) -> bool:
    """Return whether a value is nested deeper. It goes level by level, so that no depth can exhaust the stack."""
    layer = [raw]
    for _ in range(levels):
        layer = [child for node in layer for child in _children(node)]
        if not layer:
            return False
    return True


def _children(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else []


def _nul_fields(raw: Any, path: str = "") -> Iterator[str]:
    """Yield the places of NUL characters, which Postgres can store neither in text nor in jsonb."""
    if isinstance(raw, str) and "\x00" in raw:
        yield path
    elif isinstance(raw, dict):
        for key, value in raw.items():
            yield from _nul_fields(key, f"{path}.{key}".lstrip(".").replace("\x00", "\\0"))
            yield from _nul_fields(value, f"{path}.{key}".lstrip("."))
    elif isinstance(raw, list):
        for index, value in enumerate(raw):
            yield from _nul_fields(value, f"{path}[{index}]")
