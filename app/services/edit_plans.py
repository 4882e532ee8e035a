"""Plans of edits: what a change of a schedule would do. Nothing of the schedule is changed."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID, uuid4

from app.domain.access import Actor
from app.domain.edit_plans import PLAN_LIFETIME, EditPlan, Horizon, change_digests, plan_edit
from app.domain.executions import count_repeats
from app.domain.limits import Caps
from app.domain.schedule_lifecycle import edited
from app.domain.schedules import ScheduledJob
from app.domain.upcoming import NO_SKIPS
from app.persistence import calendars, edit_plans, executions, skips
from app.persistence.database import Database
from app.persistence.edit_plans import StoredPlan
from app.services.inputs import PlanInput, given
from app.services.preconditions import tag_of_row
from app.services.schedules import fresh_schedule, require_workflow, stored_values
from app.services.views import PlanView, edit_plan_fields, row_fields


class EditPlanService:
    """Plans edits of schedules."""

    def __init__(self, database: Database, caps: Caps) -> None:
        """Refuse what an edit would be refused for."""
        self._database = database
        self._caps = caps
        # One thread: each takes processor time from the event loop.
        self._searches = ThreadPoolExecutor(1, thread_name_prefix="plans")

    async def plan(self, actor: Actor, job_id: UUID, request: PlanInput) -> PlanView:
        """Return what an edit would do, with an id by which the edit can demand that nothing has changed since."""
        fields = given(request)
        until = timedelta(days=fields.pop("days"))
        values, named = stored_values(fields), fields.get("workflow_owner")
        plan_id = uuid4()
        async with self._database.transaction() as connection:
            job = await fresh_schedule(connection, actor, job_id)
            if "workflow_id" in values or named is not None:
                await require_workflow(connection, actor, job_id, values.get("workflow_id"), named)
            active, now = await executions.active_and_now(connection, [job_id])
            runs = count_repeats(active.get(job_id, ()))
            tag = tag_of_row(row_fields(job, whole=True))
            stored = StoredPlan(tag, change_digests(job, values))
            stored_at = await edit_plans.add(connection, plan_id, job_id, actor.user_id, stored, PLAN_LIFETIME)
            # Inside of the transaction: the plan of an edit that is refused is not stored.
            ready = (await calendars.prepared(connection, {job_id: job}, {job_id: values}))[job_id]
            skipped = (await skips.slots_of(connection, [job])).get(job_id, NO_SKIPS)
            horizon = Horizon(now, now + until)
            plan = await self._searched(partial(_planned, (job, ready), values, runs, horizon, skipped, self._caps))
        return PlanView(plan_id=plan_id, expires_at=stored_at + PLAN_LIFETIME, **edit_plan_fields(plan))

    async def _searched(self, search: "partial[EditPlan]") -> EditPlan:
        """Run a search for slots in a thread, as it may take long and must not block the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._searches, search)


def _planned(
    before: tuple[ScheduledJob, ScheduledJob],
    values: dict[str, object],
    runs: int,
    horizon: Horizon,
    skipped: frozenset[datetime],
    caps: Caps,
) -> EditPlan:
    """Return the plan of an edit of a schedule, which comes as it is and with the calendars of after the edit."""
    job, ready = before
    after = edited(ready, values, runs, horizon.now, caps)
    return plan_edit(job, job if after is ready else after, runs, horizon, skipped)
