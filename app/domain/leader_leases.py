"""The Lease by which one of several operators leads: who holds it, and when another one may take it."""

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

# As other controllers have them. A leader that cannot renew stops before another one may begin.
LEASE_SECONDS = 15
RENEW_WITHIN_SECONDS = 10.0
RETRY_SECONDS = 2.0

Json = dict[str, Any]


class Turn(StrEnum):
    """What a process does about the Lease."""

    ACQUIRE = "acquire"
    RENEW = "renew"
    WAIT = "wait"


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """The Lease as it was last read, and when this process first saw it so, by a clock that never jumps."""

    holder: str
    renewed_at: str
    seconds: float
    seen_at: float


def held_of(lease: Json, before: Held | None, moment: float) -> Held:
    """Return the state of a Lease. What is unchanged was seen earlier: clocks of other machines are not compared."""
    spec = lease.get("spec") or {}
    held = Held(
        holder=spec.get("holderIdentity") or "",
        renewed_at=spec.get("renewTime") or "",
        seconds=float(spec.get("leaseDurationSeconds") or LEASE_SECONDS),
        seen_at=moment,
    )
    if before is not None and (before.holder, before.renewed_at) == (held.holder, held.renewed_at):
        return msgspec.structs.replace(held, seen_at=before.seen_at)
    return held


def turn_of(held: Held | None, identity: str, moment: float) -> Turn:
    """Return what to do: a Lease that nobody holds, or that was not renewed for its duration, can be acquired."""
    if held is None or not held.holder:
        return Turn.ACQUIRE
    if held.holder == identity:
        return Turn.RENEW
    return Turn.ACQUIRE if moment - held.seen_at >= held.seconds else Turn.WAIT


def lease_spec(before: Json, identity: str, now: datetime) -> Json:
    """Return the spec of a Lease that this process acquires or renews."""
    time = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    is_same = before.get("holderIdentity") == identity
    transitions = int(before.get("leaseTransitions") or 0)
    return {
        **before,
        "holderIdentity": identity,
        "leaseDurationSeconds": LEASE_SECONDS,
        "acquireTime": before.get("acquireTime") if is_same else time,
        "renewTime": time,
        "leaseTransitions": transitions if is_same or not before else transitions + 1,
    }


def released_spec(before: Json, now: datetime) -> Json:
    """Return the spec of a Lease that its holder gives back, so that another process need not wait."""
    return {
        **before,
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
