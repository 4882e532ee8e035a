"""Limits: how large values may be, how much an owner may have, and how the places of a worker are shared."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from app.domain.errors import FieldError, QuotaExceededError

# The fields that are bounded by ``Caps.payload_bytes``.
PAYLOADS = ("trigger_payload", "payload")
# The URLs that one ping of the sitemap calls.
MOST_SITEMAP_URLS = 20


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """The largest values that new and changed objects may have. Stored values are not checked again."""

    max_retries: int = 1_000
    timeout_seconds: int = 30 * 86_400
    # The size as JSON.
    payload_bytes: int = 65_536

    def errors(self, values: Mapping[str, Any]) -> list[FieldError]:
        """Return an error for each of these values that is too large."""
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
    """What is bounded for each owner, a user or a team."""

    SCHEDULES = "schedules"
    WORKFLOWS = "workflows"
    WEBHOOKS = "webhooks"
    NOTIFICATIONS = "notifications"
    PARKED_RUNS = "parked_runs"
    # A further run waits until one has ended.
    RUNS_AT_ONCE = "runs_at_once"
    # Calls of HTTP actions; a further call waits.
    CALLS_PER_SECOND = "calls_per_second"
    # The history of older runs is deleted.
    HISTORY_DAYS = "history_days"


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """What each owner, admins included, may have; 0 is no limit."""

    schedules: int = 0
    workflows: int = 0
    webhooks: int = 0
    notifications: int = 0
    parked_runs: int = 0
    runs_at_once: int = 0
    calls_per_second: int = 0
    history_days: int = 0

    def limit_of(self, quota: Quota) -> int:
        """Return how many of a kind an owner may have; 0 is no limit."""
        limit: int = getattr(self, quota)
        return limit


QuotaNumber = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


class OwnQuotas(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The quotas that an admin has set for one owner; those left out are those of the settings, 0 is no limit."""

    schedules: QuotaNumber | None = None
    workflows: QuotaNumber | None = None
    webhooks: QuotaNumber | None = None
    notifications: QuotaNumber | None = None
    parked_runs: QuotaNumber | None = None
    runs_at_once: QuotaNumber | None = None
    calls_per_second: QuotaNumber | None = None
    history_days: QuotaNumber | None = None

    @property
    def given(self) -> dict[str, int]:
        """Return those that are set."""
        return {quota: value for quota in Quota if (value := getattr(self, quota)) is not None}


class OwnerQuotas(msgspec.Struct, frozen=True):
    """The quotas of all owners: those of the settings, and those that admins have set for single owners."""

    general: Quotas = Quotas()
    own: Mapping[int, OwnQuotas] = msgspec.field(default_factory=dict)

    def limit_of(self, quota: Quota, owner_id: int) -> int:
        """Return how many of a kind an owner may have; 0 is no limit."""
        value: int | None = getattr(self.own[owner_id], quota) if owner_id in self.own else None
        return self.general.limit_of(quota) if value is None else value

    def history_days(self) -> dict[int, int]:
        """Return the owners whose history is kept for a shorter time than that of all others, with the days."""
        kept = self.general.history_days
        days = {owner_id: own.history_days or 0 for owner_id, own in self.own.items()}
        return {owner_id: number for owner_id, number in days.items() if number and (not kept or number < kept)}


NO_QUOTAS = OwnerQuotas()


def has_room(limit: int, used: int, added: int = 1) -> bool:
    """Return whether ``added`` more objects fit below a limit; 0 is no limit."""
    return not limit or used + added <= limit


def require_room(quota: Quota, limit: int, used: int, added: int = 1) -> None:
    """Raise ``QuotaExceededError`` if ``added`` more objects do not fit below a limit; 0 is no limit."""
    if not has_room(limit, used, added):
        kind = quota.replace("_", " ")
        message = f"The owner may have {limit} {kind} and has {used}. Free some, or ask for a higher quota."
        raise QuotaExceededError(message, limit, used)


class PlaceUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The places of a worker: how many there are, are used and are reserved, and how many owners want some."""

    total: int
    used: int
    reserved: int
    owners: int


def may_take_place(usage: PlaceUsage, held: int) -> bool:
    """Return whether a run of an owner who holds ``held`` places may take a free one, a reserved one included.

    Up to its equal share an owner may take reserved places. The last tenth is for owners who hold next to nothing, so
    that a second owner with many runs does not use it up.
    """
    free, last = usage.total - usage.used, min_reserved(usage.total)
    if free > usage.reserved:
        return True
    if free > last:
        return held < equal_share(usage.total, usage.owners)
    return free > 0 and held < max(1, last // 4)


def min_reserved(total: int) -> int:
    """Return how many places are always reserved for owners who hold few: a tenth, unless there is only one place."""
    return max(1, total // 10) if total > 1 else 0


def equal_share(total: int, owners: int) -> int:
    """Return how many places each owner has if they are shared equally."""
    return max(1, total // max(1, owners))


def next_reserved(total: int, owners: int, reserved: int, *, were_short: bool) -> int:
    """Return how many places to reserve from now on, given how many were reserved until now.

    Doubled while other owners found no place, up to what leaves the largest owner its equal share; halved otherwise.
    Places that stay reserved without need are throughput that the only busy owner lacks.
    """
    least, most = min_reserved(total), total - equal_share(total, owners)
    adjusted = reserved * 2 if were_short else reserved // 2
    return min(max(adjusted, least), max(most, least))
