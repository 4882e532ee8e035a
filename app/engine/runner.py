"""Running an execution under its timeout, where it can be called off and handed back."""

import asyncio
from uuid import UUID

import msgspec
import structlog

from app.actions.catalog import Catalog
from app.actions.context import ActionContext
from app.actions.http import HttpCaller
from app.domain.errors import NoTriggerError, UnavailableError
from app.domain.events import event_data
from app.domain.executions import Execution, ExecutionStatus, NodeResult, Outcome
from app.domain.identities import idempotency_key
from app.engine.dispatch import EVENT_TYPE, Dispatched, dispatch_event
from app.engine.lease import WorkerLease
from app.engine.walk import Walk
from app.persistence import users, workflows
from app.persistence.database import Database

OUTAGE_PAUSE_SECONDS = 1.0
DROP_SECONDS = 5.0

log = structlog.get_logger(__name__)


class _Running(msgspec.Struct):
    """A run in this process: its token, and the task to drop when it is no longer ours."""

    token: int
    task: asyncio.Task[NodeResult | None]
    called_off: bool = False


class Runner:
    """Runs executions and knows which ones it is running."""

    def __init__(self, database: Database, catalog: Catalog, http: HttpCaller, lease: WorkerLease) -> None:
        """Run with these actions, under this lease."""
        self._database = database
        self._catalog = catalog
        self._http = http
        self._lease = lease
        self._running: dict[UUID, _Running] = {}

    def running(self) -> dict[UUID, int]:
        """The executions under way here, with their tokens."""
        return {execution_id: run.token for execution_id, run in self._running.items() if not run.called_off}

    def call_off(self, execution_id: UUID) -> None:
        """Drop a run that is no longer ours; its outcome is someone else's to write."""
        run = self._running.get(execution_id)
        if run is not None and not run.called_off:
            run.called_off = True
            run.task.cancel()
            log.info("run_called_off", execution=str(execution_id))

    async def run(self, execution: Execution) -> Outcome | None:
        """Run to the end; None if it was called off meanwhile."""
        worker_id = self._lease.worker_id
        try:
            dispatched = await self._dispatch_patiently(execution)
        except NoTriggerError as error:
            return outcome_of(execution, ExecutionStatus.FAILED, error.detail)

        def context_for(node_id: str) -> ActionContext:
            return self._context(execution, dispatched, node_id, worker_id)

        walk = Walk(dispatched, self._catalog, context_for)
        run = _Running(execution.token, asyncio.create_task(walk.run()))
        self._running[execution.id] = run
        try:
            outcome = await _watched(execution, run.task)
        finally:
            del self._running[execution.id]
        if run.called_off:
            return None
        return msgspec.structs.replace(outcome, node_results=tuple(walk.results))

    async def _dispatch_patiently(self, execution: Execution) -> Dispatched:
        """An outage of Postgres right after the claim is waited out: the execution is ours and nobody else's."""
        while True:
            try:
                return await self._dispatch(execution)
            except UnavailableError:
                await asyncio.sleep(OUTAGE_PAUSE_SECONDS)

    async def _dispatch(self, execution: Execution) -> Dispatched:
        async with self._database.transaction() as connection:
            user = await users.get(connection, execution.user_profile_id)
            workflow = await workflows.get(connection, execution.workflow_id)
        return dispatch_event(
            EVENT_TYPE,
            event_data(execution),
            users.to_actor(user) if user else None,
            workflows.to_workflow(workflow) if workflow else None,
            execution.trigger_node_id,
        )

    def _context(self, execution: Execution, dispatched: Dispatched, node_id: str, worker_id: UUID) -> ActionContext:
        slot = execution.scheduled_for
        return ActionContext(
            execution_id=execution.id,
            scheduled_job_id=execution.scheduled_job_id,
            slot=slot,
            attempt=execution.retry_attempt + 1,
            event=dispatched.event_data,
            idempotency_key=idempotency_key(execution.scheduled_job_id, slot, node_id),
            http=self._http,
            # A lease that was lost and begun anew does not hold for what was claimed under the old one.
            lease_holds=lambda: self._lease.holds() and self._lease.worker_id == worker_id,
        )


async def _watched(execution: Execution, task: asyncio.Task[NodeResult | None]) -> Outcome:
    """Wait for a walk as long as its timeout allows, then drop it."""
    try:
        await asyncio.wait({task}, timeout=execution.timeout_seconds)
        if not task.done():
            task.cancel()
            # An action that ignores this is left to itself: its time is over.
            await asyncio.wait({task}, timeout=DROP_SECONDS)
            if not task.done() or task.cancelled():
                late = f"The run took longer than timeout_seconds ({execution.timeout_seconds} s)."
                return outcome_of(execution, ExecutionStatus.TIMED_OUT, late)
    finally:
        task.cancel()
    if task.cancelled():
        return outcome_of(execution, ExecutionStatus.CANCELLED, "The run was dropped.")
    failure = task.result()
    if failure is None:
        return outcome_of(execution, ExecutionStatus.SUCCESS)
    return outcome_of(execution, ExecutionStatus.FAILED, f"Node '{failure.node_id}': {failure.error}")


def outcome_of(execution: Execution, status: ExecutionStatus, error: str = "") -> Outcome:
    """How an execution that this worker holds ended."""
    return Outcome(
        execution_id=execution.id,
        scheduled_job_id=execution.scheduled_job_id,
        token=execution.token,
        status=status,
        error=error,
    )
