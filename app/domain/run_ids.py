"""Deterministic ids: the same schedule, slot and attempt always give the same execution id.

The id is the primary key of an execution, so a slot that is claimed twice, by two workers or after a lost reply, is
refused by the database. It begins with the time of the slot, so it also gives the order and the partition of a row.
"""

import hashlib
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from urllib.parse import quote
from uuid import UUID

from asyncpg.pgproto import pgproto

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DIGEST_MASK = 2**62 - 1
_LAST_ATTEMPT = 2**12 - 1
_LAST_MILLISECOND = 2**48 - 1


def parse_uuid(value: str | bytes) -> UUID:
    """Return a UUID from its text or its 16 bytes. Raise ``ValueError`` if it is neither.

    asyncpg's class is a subclass of the standard one and is parsed faster, which counts at every tick.
    """
    parsed: UUID = pgproto.UUID(value)
    return parsed


def execution_id(source: UUID | str, slot: datetime, attempt: int) -> UUID:
    """Return the id of the execution of a slot: the same schedule or entity, slot and attempt give the same id.

    It is a UUID of version 8 that begins with the slot's milliseconds and the attempt, so that ids sort by time.
    """
    microseconds = _microseconds(slot)
    return _timed_id(microseconds, f"{source}/{microseconds}/{attempt}", attempt)


def manual_execution_id(job_id: UUID, slot: datetime, nonce: str) -> UUID:
    """Return the id of a manual run. The nonce tells two requests in one microsecond apart."""
    return _timed_id(_microseconds(slot), f"{job_id}/manual/{nonce}")


def backfill_execution_id(operation: UUID, slot: datetime, now: datetime, attempt: int) -> UUID:
    """Return the id of a run of a backfill. It begins with the time at which it was made, not with its past slot."""
    return _timed_id(_microseconds(now), f"{operation}/backfill/{_microseconds(slot)}/{attempt}", attempt)


def audit_event_id(moment: datetime, name: str) -> UUID:
    """Return the id of an event of the audit log: the same moment and name give the same id."""
    microseconds = _microseconds(moment)
    return _timed_id(microseconds, f"audit/{microseconds}/{name}")


def operation_id(moment: datetime, name: str) -> UUID:
    """Return the id of an operation on many schedules."""
    microseconds = _microseconds(moment)
    return _timed_id(microseconds, f"operation/{microseconds}/{name}")


def slot_of(execution: UUID) -> datetime:
    """Return the slot of an execution, to the millisecond, from the beginning of its id."""
    return _EPOCH + timedelta(milliseconds=execution.int >> 80)


def idempotency_key(source: str, slot: datetime, node_id: str) -> str:
    """Return the key that an HTTP target sees: the same for all attempts at one node of one slot."""
    return hashlib.sha256(f"{source}/{_microseconds(slot)}/{node_id}".encode()).hexdigest()[:32]


def message_id(execution: UUID, node_id: str, attempt: int) -> str:
    """Return the name of one attempt at one node of one execution, by which a target tells calls apart."""
    return f"{execution}.{_quoted(node_id)}.{attempt}"


@lru_cache(maxsize=4096)
def _quoted(node_id: str) -> str:
    return quote(node_id, safe="")


def jitter_share(job_id: UUID, slot: datetime) -> float:
    """Return the share of the jitter that a slot gets, in [0, 1): always the same for one schedule and slot."""
    digest = hashlib.sha256(f"{job_id}/{_microseconds(slot)}/jitter".encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48


def first_id_at(moment: datetime) -> UUID:
    """Return the lower bound of ids at or after a moment: ids of earlier milliseconds are smaller, others are not."""
    return UUID(int=_bounded_milliseconds(moment) << 80)


def last_id_at(moment: datetime) -> UUID:
    """Return the upper bound of ids up to a moment: ids of its millisecond are smaller, later ones are not."""
    return UUID(int=min(_bounded_milliseconds(moment) + 1, _LAST_MILLISECOND) << 80)


def _timed_id(microseconds: int, name: str, attempt: int = 0) -> UUID:
    """Return a UUID of version 8: 48 bits of milliseconds, 12 bits of the attempt, 62 bits of a hash of the name."""
    digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) & _DIGEST_MASK
    # The 8 is the version and the 2 the variant of RFC 9562.
    number = _milliseconds(microseconds) << 80 | 8 << 76 | min(attempt, _LAST_ATTEMPT) << 64 | 2 << 62 | digest
    return parse_uuid(number.to_bytes(16))


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def _milliseconds(microseconds: int) -> int:
    return microseconds // 1000 & _LAST_MILLISECOND


def _bounded_milliseconds(moment: datetime) -> int:
    """Return the milliseconds that an id begins with. No slot lies before 1970, so earlier moments count as 0."""
    return max(0, _microseconds(moment) // 1000)
