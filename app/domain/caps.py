"""Upper bounds of single values: what one schedule or webhook may ask of the workers."""

from collections.abc import Mapping
from typing import Any

import msgspec

from app.domain.errors import FieldError

PAYLOADS = ("trigger_payload", "payload")


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """The largest values that new and changed objects may have; what is stored already is not judged again."""

    max_retries: int = 1_000
    timeout_seconds: int = 30 * 86_400
    # As JSON.
    payload_bytes: int = 65_536

    def errors(self, values: Mapping[str, Any]) -> list[FieldError]:
        """Return what is too large among these values, by their names."""
        return [
            *_too_many("max_retries", values, self.max_retries),
            *_too_many("timeout_seconds", values, self.timeout_seconds),
            *(error for name in PAYLOADS for error in _too_long(name, values, self.payload_bytes)),
        ]


DEFAULT_CAPS = Caps()


def _too_many(name: str, values: Mapping[str, Any], most: int) -> list[FieldError]:
    if values.get(name, 0) <= most:
        return []
    return [FieldError(name, f"The value must not be greater than {most}.")]


def _too_long(name: str, values: Mapping[str, Any], most: int) -> list[FieldError]:
    size = len(msgspec.json.encode(values[name])) if values.get(name) else 0
    if size <= most:
        return []
    return [FieldError(name, f"The payload has {size} bytes of JSON; at most {most} are allowed.")]
