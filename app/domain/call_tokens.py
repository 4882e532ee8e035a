"""The tokens that calls carry: their claims, and which key signs them at which time."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import msgspec

ALGORITHM = "RS256"
LIFETIME = timedelta(minutes=5)
ROTATION = timedelta(days=90)
# A new key is published for so long before it signs, so that verifiers with a cached list know it in time.
PUBLISHED_BEFORE = timedelta(days=1)
# The same for a rotation that must not wait: longer than Carillon's own processes cache keys.
SHORTEST_PUBLISHED_BEFORE = timedelta(seconds=15)
# A retired key is published until its last token has expired for verifiers whose clocks are five minutes slow.
PUBLISHED_AFTER = LIFETIME + timedelta(minutes=5)


class KeyTerm(msgspec.Struct, frozen=True, kw_only=True):
    """The time in which a key signs; the newest key has no end yet."""

    kid: str
    activates_at: datetime
    retires_at: datetime | None = None

    def signs_at(self, now: datetime) -> bool:
        """Return whether the key may sign now."""
        return self.activates_at <= now and (self.retires_at is None or now < self.retires_at)

    def is_published_at(self, now: datetime) -> bool:
        """Return whether verifiers must know the key: before, while and shortly after it signs."""
        return self.retires_at is None or now < self.retires_at + PUBLISHED_AFTER


Term = TypeVar("Term", bound=KeyTerm)


def signing_key(keys: Iterable[Term], now: datetime) -> Term | None:
    """Return the key that signs now, or None if there is none."""
    return max((key for key in keys if key.signs_at(now)), key=lambda key: key.activates_at, default=None)


def newest_key(keys: Iterable[Term]) -> Term | None:
    """Return the key that has no successor yet, or None if there is no key."""
    return next((key for key in keys if key.retires_at is None), None)


def successor_activates_at(keys: Sequence[KeyTerm], now: datetime) -> datetime | None:
    """Return when the successor of the newest key is to activate if it is time to create one, else None."""
    newest = newest_key(keys)
    if newest is None or now < newest.activates_at + ROTATION - PUBLISHED_BEFORE:
        return None
    return max(newest.activates_at + ROTATION, now + PUBLISHED_BEFORE)


class CallOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The run that makes a call, as the call's token names it."""

    # A schedule, or the type and id of an entity.
    scheduled_job_id: UUID | None
    entity: str | None
    schedule_name: str
    # None for an entity.
    workflow_id: int | None
    execution_id: UUID
    # Names execution, node and attempt.
    message_id: str
    # The owner of the workflow, who decides what is sent and where to.
    owner_id: int

    @property
    def subject(self) -> str:
        """Return what fires the run: ``schedule:ID`` or ``entity:TYPE/ID``."""
        return f"schedule:{self.scheduled_job_id}" if self.entity is None else f"entity:{self.entity}"


def claims_of(origin: CallOrigin, owner: str, issuer: str, audience: str, now: datetime) -> dict[str, Any]:
    """Return the claims of a token for one call; ``owner`` is the owner's username."""
    issued_at = int(now.timestamp())
    claims = {
        "iss": issuer,
        "sub": origin.subject,
        "aud": audience,
        "iat": issued_at,
        "exp": issued_at + int(LIFETIME.total_seconds()),
        "jti": origin.message_id,
        "owner": owner,
        "owner_id": origin.owner_id,
        "execution_id": str(origin.execution_id),
        "schedule_name": origin.schedule_name,
    }
    return claims if origin.workflow_id is None else {**claims, "workflow_id": origin.workflow_id}
