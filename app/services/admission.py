"""Whether new objects may be stored: whose workflow a schedule runs, and how many objects its owner has already."""

from collections.abc import Sequence

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor, require_owner, require_workflow_owner
from app.domain.caps import DEFAULT_CAPS, Caps
from app.domain.errors import CarillonError, QuotaExceededError
from app.domain.quotas import Quota, Quotas, require_room
from app.domain.schedules import ScheduledJob
from app.persistence import quotas, workflows


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How many objects a user may have, and how large their values may be."""

    quotas: Quotas = Quotas()
    caps: Caps = DEFAULT_CAPS


NO_QUOTAS = Limits()


class NewSchedule(msgspec.Struct, frozen=True):
    """A schedule that somebody wants to create, and the owner of its workflow, if the request names one."""

    actor: Actor
    job: ScheduledJob
    workflow_owner: int | None = None


async def require_quota(
    connection: AsyncConnection, limits: Limits, quota: Quota, user_id: int, wanted: int = 1
) -> None:
    """Refuse so many more objects of a user if they exceed the quota. To be called before any row is locked."""
    limit = limits.quotas.limit_of(quota)
    if limit:
        used = await quotas.lock_and_count(connection, quota, [user_id])
        require_room(quota, limit, used[user_id], wanted)


async def quota_refusal(
    connection: AsyncConnection, limits: Limits, quota: Quota, user_id: int, wanted: int
) -> QuotaExceededError | None:
    """Return the same as a value, for whoever has more to say."""
    try:
        await require_quota(connection, limits, quota, user_id, wanted)
    except QuotaExceededError as error:
        return error
    return None


async def refusals(
    connection: AsyncConnection, wanted: Sequence[NewSchedule], limits: Limits
) -> list[CarillonError | None]:
    """Return for each new schedule why it is refused, or None. The workflows stay until the transaction ends."""
    limit = limits.quotas.schedules
    users = {one.actor.user_id for one in wanted}
    used = await quotas.lock_and_count(connection, Quota.SCHEDULES, users) if limit else dict.fromkeys(users, 0)
    owners = await workflows.owners(connection, {one.job.workflow_id for one in wanted})
    found: list[CarillonError | None] = []
    for one in wanted:
        refused = _refusal(one, owners.get(one.job.workflow_id), limit, used[one.actor.user_id])
        found.append(refused)
        used[one.actor.user_id] += refused is None
    return found


def require_usable(actor: Actor, schedule_owner: int, workflow_owner: int | None, named: int | None) -> None:
    """Refuse a workflow that the actor may not see, or that is somebody else's and whose owner is not named."""
    require_owner(actor, workflow_owner, "workflow")
    if workflow_owner is not None:
        require_workflow_owner(schedule_owner, workflow_owner, named)


def _refusal(wanted: NewSchedule, workflow_owner: int | None, limit: int, used: int) -> CarillonError | None:
    try:
        require_usable(wanted.actor, wanted.job.user_profile_id, workflow_owner, wanted.workflow_owner)
        require_room(Quota.SCHEDULES, limit, used)
    except CarillonError as error:
        return error
    return None
