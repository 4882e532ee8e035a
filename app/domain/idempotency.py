"""Idempotency keys: a request that is sent again with the same key gets the first answer again."""

import re
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256

import msgspec

from app.domain.errors import CarillonError

# For how long an answer is kept.
KEPT = timedelta(hours=24)
# A request whose answer was not stored for so long has failed: it may be carried out again.
GIVEN_UP_AFTER = timedelta(seconds=60)
_SOUND_KEY = re.compile(r"[\x21-\x7e]{1,255}")


class IdempotencyMismatchError(CarillonError):
    """Another request was sent with the key."""

    code = "idempotency_mismatch"
    message = "Another request was sent with this Idempotency-Key. Use a new key for a new request."


class InProgressError(CarillonError):
    """The first request with the key is still being carried out."""

    code = "idempotency_in_progress"
    message = "The first request with this Idempotency-Key is still being carried out. Retry in a second."


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A request with a key, and its answer once there is one."""

    request_hash: bytes
    began_at: datetime
    status: int | None
    headers: dict[str, str]
    body: bytes | None


class Verdict(StrEnum):
    """What to do with a request whose key is known."""

    # The key is as good as new.
    CARRY_OUT = "carry_out"
    REPLAY = "replay"


def is_sound(key: str) -> bool:
    """Return whether a text can be a key."""
    return bool(_SOUND_KEY.fullmatch(key))


def hash_request(*parts: bytes) -> bytes:
    """Return what tells one request from another."""
    digest = sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


def decide(known: StoredAnswer, request_hash: bytes, now: datetime) -> Verdict:
    """Decide about a request whose key is known; raise if it is another request, or the first one is under way."""
    age = now - known.began_at
    if age > KEPT or (known.status is None and age > GIVEN_UP_AFTER and known.request_hash == request_hash):
        return Verdict.CARRY_OUT
    if known.request_hash != request_hash:
        raise IdempotencyMismatchError
    if known.status is None:
        raise InProgressError
    return Verdict.REPLAY


def is_kept(status: int) -> bool:
    """Return whether an answer is kept: not if the same request may be answered otherwise a moment later."""
    return status < 500 and status not in {401, 403, 408, 429}  # noqa: PLR2004 - statuses of HTTP
