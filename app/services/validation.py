"""Reading what was sent: bytes to a typed value, or an error that names the field."""

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from app.domain.errors import CarillonError, FieldError, InvalidError, field_error

T = TypeVar("T")

MAX_DEPTH = 100


class MalformedError(CarillonError):
    """The body is not JSON."""

    code = "malformed"
    text = "The body is not JSON."


def read(body: bytes, wanted: type[T]) -> T:
    """The body as a value of this type."""
    return checked(_parsed(body), wanted)


def checked(raw: Any, wanted: type[T]) -> T:
    """JSON values as a value of this type."""
    nul = next(_nul_fields(raw), None)
    if nul is not None:
        raise InvalidError(FieldError(nul, "NUL characters cannot be stored."))
    try:
        return msgspec.convert(raw, wanted)
    except msgspec.ValidationError as error:
        raise InvalidError(field_error(error)) from None


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
    """Level by level, so that no depth can exhaust the stack."""
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
    """Where there are NUL characters, which Postgres keeps neither in text nor in jsonb."""
    if isinstance(raw, str) and "\x00" in raw:
        yield path
    elif isinstance(raw, dict):
        for key, value in raw.items():
            yield from _nul_fields(key, f"{path}.{key}".lstrip(".").replace("\x00", "\\0"))
            yield from _nul_fields(value, f"{path}.{key}".lstrip("."))
    elif isinstance(raw, list):
        for index, value in enumerate(raw):
            yield from _nul_fields(value, f"{path}[{index}]")
