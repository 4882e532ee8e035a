"""Deleting what no file declares any more, within a transaction."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor
from app.domain.declarations import Key, Kind, Step
from app.persistence import executions, schedules, workflows
from app.services.declarations.files import BadFileError, Place
from app.services.declarations.inventory import Inventory

MOST_NAMES = 10


async def prune(
    connection: AsyncConnection, actor: Actor, steps: Iterable[Step], there: Inventory, places: Mapping[str, Place]
) -> list[UUID]:
    """Delete these, with their history; the executions to call off. ``places`` says where a namespace is named."""
    doomed = [step.key for step in steps]
    flows = {there.workflow_ids[key]: key for key in doomed if key.kind is Kind.WORKFLOW}
    job_ids = [there.schedule_ids[key] for key in doomed if key.kind is Kind.SCHEDULE]
    for workflow_id in sorted(flows):
        await workflows.lock_to_delete(connection, workflow_id)
    await _require_unused(connection, flows, set(job_ids), places)
    deleted = await schedules.lock_visible(connection, actor, job_ids)
    running = await executions.active_ids(connection, deleted)
    await schedules.remove(connection, deleted)
    for workflow_id in sorted(flows):
        await workflows.remove(connection, workflow_id)
    return running


async def _require_unused(
    connection: AsyncConnection, flows: Mapping[int, Key], doomed: set[UUID], places: Mapping[str, Place]
) -> None:
    """No schedule that stays runs one of these: it would go with its workflow."""
    users: dict[int, list[str]] = defaultdict(list)
    for job in await schedules.of_workflows(connection, flows):
        if job.id not in doomed:
            users[job.workflow_id].append(f"'{job.name}'")
    problems = [
        places[flows[workflow_id].namespace].problem("namespace", _still_used(flows[workflow_id].name, names))
        for workflow_id, names in users.items()
    ]
    if problems:
        raise BadFileError(*problems)


def _still_used(workflow: str, names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    listed = ", ".join(names[:MOST_NAMES])
    return f"The workflow '{workflow}' is no longer declared, but schedules that stay run it: {listed}{more}."
