"""Whether new schedules may be stored: whose workflow each of them runs."""

from collections.abc import Sequence

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor, require_owner, require_workflow_owner
from app.domain.errors import CarillonError
from app.domain.schedules import ScheduledJob
from app.persistence import workflows


class NewSchedule(msgspec.Struct, frozen=True):
    """A schedule that somebody wants to create, and the owner of its workflow, if the request names one."""

    actor: Actor
    job: ScheduledJob
    workflow_owner: int | None = None


async def refusals(connection: AsyncConnection, wanted: Sequence[NewSchedule]) -> list[CarillonError | None]:
    """Return for each new schedule why it is refused, or None. The workflows stay until the transaction ends."""
    owners = await workflows.owners(connection, {one.job.workflow_id for one in wanted})
    return [_refusal(one, owners.get(one.job.workflow_id)) for one in wanted]


def _refusal(wanted: NewSchedule, workflow_owner: int | None) -> CarillonError | None:
    try:
        require_usable(wanted.actor, wanted.job.user_profile_id, workflow_owner, wanted.workflow_owner)
    except CarillonError as error:
        return error
    return None


def require_usable(actor: Actor, schedule_owner: int, workflow_owner: int | None, named: int | None) -> None:
    """Refuse a workflow that the actor may not see, or that is somebody else's and whose owner is not named."""
    require_owner(actor, workflow_owner, "workflow")
    if workflow_owner is not None:
        require_workflow_owner(schedule_owner, workflow_owner, named)
