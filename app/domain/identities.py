"""Deterministic ids: the same schedule, slot and attempt always give the same execution id."""

import hashlib
from datetime import UTC, datetime, timedelta
from uuid import UUID

from asyncpg.pgproto import pgproto


def parse_uuid(value: str | bytes) -> UUID:
    """From its text or its 16 bytes; ``ValueError`` if it is neither."""
    made: UUID = pgproto.UUID(value)
    return made


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DIGEST = 2**62 - 1
_LAST_ATTEMPT = 2**12 - 1
_LAST_MILLISECOND = 2**48 - 1


def execution_id(source: UUID | str, slot: datetime, attempt: int) -> UUID:
    """The fire key as an id: the same (schedule or entity, slot, attempt) is the same execution.

    A UUID of version 8 that begins with the slot's milliseconds and the attempt, so that ids sort by time.
    """
    since = (slot - _EPOCH) // _MICROSECOND
    return _timed_id(since, f"{source}/{since}/{attempt}", attempt)


def manual_execution_id(job_id: UUID, slot: datetime, nonce: str) -> UUID:
    """The id of a run that a person asked for: two requests in one microsecond are still two runs."""
    return _timed_id((slot - _EPOCH) // _MICROSECOND, f"{job_id}/manual/{nonce}")


def slot_of(execution: UUID) -> datetime:
    """The slot of an execution, which its id begins with, to the millisecond."""
    return _EPOCH + timedelta(milliseconds=execution.int >> 80)


def idempotency_key(source: str, slot: datetime, node_id: str) -> str:
    """The key that an HTTP target sees: constant over all attempts at one slot's node."""
    return hashlib.sha256(f"{source}/{(slot - _EPOCH) // _MICROSECOND}/{node_id}".encode()).hexdigest()[:32]


def jitter_share(job_id: UUID, slot: datetime) -> float:
    """A number in [0, 1) that a slot of a schedule always has: its part of the jitter."""
    digest = hashlib.sha256(f"{job_id}/{(slot - _EPOCH) // _MICROSECOND}/jitter".encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48


def first_id_at(moment: datetime) -> UUID:
    """No execution of a slot at or after this moment has a smaller id; one of an earlier millisecond always has."""
    return UUID(int=_bounded_milliseconds(moment) << 80)


def last_id_at(moment: datetime) -> UUID:
    """Every execution of a slot at this moment, or in its millisecond, has a smaller id; later ones have not."""
    return UUID(int=min(_bounded_milliseconds(moment) + 1, _LAST_MILLISECOND) << 80)


def _timed_id(since: int, name: str, attempt: int = 0) -> UUID:
    digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) & _DIGEST
    # Version 8 and the RFC 9562 variant stand between.
    number = _milliseconds(since) << 80 | 8 << 76 | min(attempt, _LAST_ATTEMPT) << 64 | 2 << 62 | digest
    return parse_uuid(number.to_bytes(16))


def _milliseconds(microseconds: int) -> int:
    return microseconds // 1000 & _LAST_MILLISECOND


def _bounded_milliseconds(moment: datetime) -> int:
    """The milliseconds that an id begins with; a moment before 1970 is the first of them, as no slot lies there."""
    return max(0, (moment - _EPOCH) // _MICROSECOND // 1000)
