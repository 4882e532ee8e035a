"""Filters of lists, and keys in paths: how requests write them, and what they mean."""

from typing import Annotated
from urllib.parse import unquote_to_bytes
from uuid import UUID

import msgspec
from litestar.params import PathParameter, QueryParameter

from app.api.requests import AnyRequest
from app.domain.errors import FieldError, InvalidError, NotFoundError
from app.domain.field_errors import field_errors
from app.domain.labels import LONGEST_KEY, Key, label_pairs

MOST_IDS = 500

Search = Annotated[str | None, QueryParameter(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]
LabelFilter = Annotated[
    list[str] | None,
    QueryParameter(max_items=32, schema_extra={"examples": [["team=shop"]], "items": {"type": "string"}}),
]
_UUID = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
UUIDS = rf"^{_UUID}(?:,{_UUID})*$"
# ``given_ids`` checks how many there are, because a number of characters would not say that.
IdsFilter = Annotated[str | None, QueryParameter(schema_extra={"pattern": UUIDS, "maxLength": 37 * MOST_IDS})]
# With slashes: keys may have them. ``key_of`` checks it, because an unknown object is 404 and a new one 422.
KeyInPath = Annotated[
    str, PathParameter(schema_extra={"pattern": r"^[A-Za-z0-9._:/-]+$", "minLength": 1, "maxLength": LONGEST_KEY})
]


def given_labels(given: list[str] | None) -> tuple[tuple[str, str], ...]:
    """Return the labels that a query names as ``name=value``."""
    return label_pairs(given or ())


def given_ids(given: str | None, field: str = "ids") -> tuple[UUID, ...] | None:
    """Return the ids that a query lists with commas; None if it lists none."""
    if given is None:
        return None
    try:
        ids = tuple(dict.fromkeys(UUID(text.strip()) for text in given.split(",")))
    except ValueError:
        raise InvalidError(FieldError(field, "Write UUIDs, separated by commas.")) from None
    if len(ids) > MOST_IDS:
        raise InvalidError(FieldError(field, f"At most {MOST_IDS} ids can be given."))
    return ids


def key_of(key: str, request: AnyRequest) -> str:
    """Return the key at the end of a path; ``NotFoundError`` if no object can have it."""
    try:
        return msgspec.convert(_key_as_sent(key, request), Key)
    except msgspec.ValidationError:
        raise NotFoundError("There is no object with this key: a key has 1 to 200 of A-Z a-z 0-9 . _ : / -") from None


def new_key_of(key: str, request: AnyRequest) -> str:
    """Return the key at the end of a path that may create an object; ``InvalidError`` if no object can have it."""
    sent = _key_as_sent(key, request)
    errors = field_errors(sent, Key)
    if errors:
        raise InvalidError(FieldError("key", errors[0].message))
    return sent


def _key_as_sent(key: str, request: AnyRequest) -> str:
    """Return the key with all its slashes: Litestar drops those at its ends, and one of two that follow each other."""
    raw: bytes = request.scope.get("raw_path") or b""
    _, mark, sent = unquote_to_bytes(raw).decode(errors="replace").partition("/by-key/")
    return sent.removesuffix("/") if mark else key.strip("/")
