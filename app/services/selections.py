"""Which fields of listed schedules somebody wants to see."""

import msgspec

from app.domain.errors import FieldError, InvalidError
from app.services.views import ScheduleView

# It may be large: a list shows it only to those who name it.
PAYLOAD = "trigger_payload"
NAMES = ScheduleView.__struct_fields__

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def given_fields(text: str | None) -> frozenset[str] | None:
    """The fields that a list with commas names, and ``id``; None for all but the payload."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise InvalidError(FieldError("fields", f"A schedule has no field '{unknown[0][:100]}'."))
    return frozenset(("id", *names))


def selected(view: msgspec.Raw, fields: frozenset[str] | None) -> msgspec.Raw:
    """An encoded schedule with these fields only."""
    if fields is None:
        return view
    return msgspec.Raw(_encode({name: value for name, value in _decode(view).items() if name in fields}))
