"""How many objects one user may have. A quota of 0 is none."""

from enum import StrEnum

import msgspec

from app.domain.errors import QuotaExceededError


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
