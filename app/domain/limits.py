"""Limits: how many objects a user may have, how large single values may be, and how a worker's places are shared."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from app.domain.errors import FieldError, QuotaExceededError


def min_reserved(total: int) -> int:
    """The places that are always kept for owners who hold few: a tenth, where there is more than one place."""
    return max(1, total // 10) if total > 1 else 0


def next_reserved(total: int, owners: int, kept: int, *, were_short: bool) -> int:
    """The places to keep from now on, given those kept until now.

    Doubled while others found no place, up to what leaves the greediest owner its equal share; halved when they did.
    """
    least, most = min_reserved(total), total - equal_share(total, owners)
    wanted = kept * 2 if were_short else kept // 2
    return min(max(wanted, least), max(most, least))


def equal_share(total: int, owners: int) -> int:
    """What each of so many owners would have."""
    return max(1, total // max(1, owners))


class PlaceUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's places: how many there are, are used and are kept for others, and how many owners want some."""

    total: int
    used: int
    reserved: int
    owners: int


def may_take_place(usage: PlaceUsage, held: int) -> bool:
    """Whether a run of an owner who holds so many places may take a free one, the kept ones included.

    Up to its equal share an owner takes what is kept for others. The last tenth is for those who hold next to nothing,
    so that a second greedy owner does not use it up.
    """
    free, last = usage.total - usage.used, min_reserved(usage.total)
    if free > usage.reserved:
        return True
    if free > last:
        return held < equal_share(usage.total, usage.owners)
    return free > 0 and held < max(1, last // 4)


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


class Quota(StrEnum):
    """What is counted for each user."""

    SCHEDULES = "schedules"
    WORKFLOWS = "workflows"
    WEBHOOKS = "webhooks"
    NOTIFICATIONS = "notifications"
    PARKED_RUNS = "parked_runs"


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """The limits for each user, admins included; 0 is no limit."""

    schedules: int = 0
    workflows: int = 0
    webhooks: int = 0
    notifications: int = 0
    parked_runs: int = 0

    def limit_of(self, quota: Quota) -> int:
        """Return how many of a kind a user may have; 0 is no limit."""
        limit: int = getattr(self, quota)
        return limit


def has_room(limit: int, used: int, wanted: int = 1) -> bool:
    """Return whether so many more fit below a limit; 0 is no limit."""
    return not limit or used + wanted <= limit


def require_room(quota: Quota, limit: int, used: int, wanted: int = 1) -> None:
    """Refuse so many more objects if they do not fit below a limit; 0 is no limit."""
    if not has_room(limit, used, wanted):
        what = quota.replace("_", " ")
        raise QuotaExceededError(f"This user may have {limit} {what} and has {used}.", limit, used)
