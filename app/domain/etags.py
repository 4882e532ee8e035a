"""Entity tags: versions of objects that clients compare."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

_encode = msgspec.json.Encoder(order="deterministic").encode


def etag_of(values: Mapping[str, Any]) -> str:
    """Return the entity tag of an object with these values."""
    return f'"{blake2b(_encode(values), digest_size=12).hexdigest()}"'


def given_tags(header: str) -> list[str]:
    """Return the entity tags that a header lists; a weak one counts like a strong one."""
    return [tag.strip().removeprefix("W/") for tag in header.split(",") if tag.strip()]


def matches(header: str, tag: str) -> bool:
    """Return whether a header lists an entity tag, or ``*``, which every object matches."""
    return bool({"*", tag} & set(given_tags(header)))
