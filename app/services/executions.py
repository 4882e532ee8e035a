"""Executions: requested by hand, read, cancelled, and completed by callbacks."""

import hmac
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Row

from app import clock
from app.actions.secrets import Redactor, SecretStore
from app.domain.access import Actor, require_owner
from app.domain.errors import ConflictError, NotFoundError, UnauthenticatedError, WrongStateError
from app.domain.executions import ACTIVE, ActiveRun, ExecutionStatus, Outcome, PendingRun, Trigger
from app.domain.identities import manual_execution_id
from app.domain.overlap import Arrival, Begin, Queue, Refuse, overlap, runs_alone
from app.domain.schedules import IfRunning, ScheduledJob
from app.domain.workflows import bound_output
from app.engine.ringing import Ringer
from app.engine.run_resources import secret_proof, token_hash
from app.observability.tracing import current_context
from app.persistence import execution_queries, executions, parking, schedules, secrets
from app.persistence.database import Connection, Database
from app.persistence.execution_rows import EntityRunSettled, NewExecution, RunResult, Settled
from app.persistence.pagination import Part
from app.persistence.parking import Callback, Completion, ShownSecret
from app.persistence.settle import settle, settle_locked
from app.services.inputs import CompletionInput, RunInput
from app.services.listing import read_shown
from app.services.schedules import owned_schedule
from app.services.views import AcceptedView, ExecutionDetail, ExecutionPage, ExecutionView, execution_fields, node_view


class ManualRunService:
    """Starts runs beside the cadence and the counters."""

    def __init__(self, database: Database, ringer: Ringer) -> None:
        """Ring after the commit."""
        self._database = database
        self._ringer = ringer

    async def run(self, actor: Actor, job_id: UUID, wanted: RunInput) -> ExecutionView:
        """A run now, as far as ``if_running`` allows it."""
        async with self._database.transaction() as connection:
            job = await owned_schedule(connection, actor, job_id)
            policy = wanted.if_running or job.if_running
            stopped: list[Settled] = []
            active, _ = await executions.active_and_now(connection, [job_id])
            decision = overlap(policy, Arrival.MANUAL, active.get(job_id, ()), job.max_queued)
            # Read without a lock: whether the run is refused is decided below, once its schedule is locked.
            if not isinstance(decision, Refuse) and decision.cancels:
                stopped = await _make_room(connection, job_id, actor)
            new = await _add(connection, job_id, policy)
            row = await execution_queries.get(connection, new.id)
        if row is None:
            raise AssertionError("an execution vanished in its own transaction")
        await self._ringer.call_off([one.execution_id for one in stopped])
        await self._ringer.ticks([one.job for one in stopped[-1:]])
        if not new.queued:
            await self._ringer.executions([PendingRun(new.id, new.token, new.due_at)])
        return ExecutionView(**execution_fields(row))


async def _make_room(connection: Connection, job_id: UUID, actor: Actor) -> list[Settled]:
    """Cancel what is under way; whatever starts meanwhile is met by the policy itself."""
    reason = f"Cancelled by a manual run of {actor.username}."
    outcomes = [
        Outcome(
            execution_id=execution_id,
            scheduled_job_id=job_id,
            token=token,
            status=ExecutionStatus.CANCELLED,
            error=reason,
        )
        for execution_id, token in await executions.active_tokens(connection, job_id)
    ]
    results = await settle_locked(connection, outcomes) if outcomes else []
    return [result for result in results if isinstance(result, Settled)]


async def _add(connection: Connection, job_id: UUID, policy: IfRunning) -> NewExecution:
    job = (await schedules.lock(connection, [job_id])).get(job_id)
    if job is None:
        raise NotFoundError("There is no such schedule.")
    active, now = await executions.active_and_now(connection, [job_id])
    start = _start(policy, active.get(job_id, ()), job.max_queued)
    if start.cancels:
        raise ConflictError("Another run started in the same moment; ask again.")
    new = _manual_run(job, now, policy, start)
    await executions.add(connection, [new])
    await schedules.touch(connection, job_id)
    return new


def _start(policy: IfRunning, active: tuple[ActiveRun, ...], max_queued: int) -> Begin | Queue:
    """Return how a manual run starts beside the active ones; refuse it where ``if_running`` does."""
    decision = overlap(policy, Arrival.MANUAL, active, max_queued)
    if isinstance(decision, Refuse):
        raise ConflictError(f"The run was not started: {decision.reason}, and if_running is '{policy}'.")
    return decision


def _manual_run(job: ScheduledJob, now: datetime, policy: IfRunning, start: Begin | Queue) -> NewExecution:
    return NewExecution(
        id=manual_execution_id(job.id, now, uuid4().hex),
        user_profile_id=job.user_profile_id,
        scheduled_job_id=job.id,
        workflow_id=job.workflow_id,
        trigger=Trigger.MANUAL,
        status=ExecutionStatus.PENDING,
        exclusive=runs_alone(policy),
        queued=isinstance(start, Queue),
        repeat_number=job.current_repeat,
        retry_attempt=0,
        scheduled_for=now,
        payload=job.trigger_payload,
        timeout_seconds=job.timeout_seconds,
        created_at=now,
        due_at=now,
        trace_context=current_context(),
    )


# In the place of what a callback said, where nobody can tell whether it holds a secret.
UNREADABLE = "Left out: a secret of this execution is not known to the API, or was changed since."


class CallbackService:
    """Takes callbacks; the token is all that it asks for."""

    def __init__(self, database: Database, ringer: Ringer, environment: SecretStore) -> None:
        """Ring for what goes on by a callback; hide in it what its execution was shown."""
        self._environment = environment
        self._database = database
        self._ringer = ringer

    async def complete(self, execution_id: UUID, token: str, said: CompletionInput) -> AcceptedView:
        """The work is done, or has failed; the nodes after it run now."""
        async with self._database.transaction() as connection:
            callback = await _open_callback(connection, execution_id, token)
            completion = await self._without_secrets(connection, callback, token, said)
            pending = await parking.complete_callback(connection, execution_id, callback, completion)
        if pending is not None:
            await self._ringer.executions([pending])
        return AcceptedView(ok=True)

    async def _without_secrets(
        self, connection: Connection, callback: Callback, token: str, said: CompletionInput
    ) -> Completion:
        succeeded = said.status == "success"
        if not callback.shown:
            return Completion(succeeded, bound_output(said.output), said.error)
        values = await self._shown_values(connection, callback.shown, token)
        if values is None:
            return Completion(succeeded, None if said.output is None else UNREADABLE, UNREADABLE if said.error else "")
        hider = Redactor(values)
        return Completion(succeeded, bound_output(hider.hidden(said.output)), hider.hidden(said.error))

    async def _shown_values(
        self, connection: Connection, shown: tuple[ShownSecret, ...], token: str
    ) -> list[str] | None:
        """The values that the execution was shown; None if one of them is not known any more."""
        wanted = [(one.owner_id, one.name) for one in shown if one.owner_id is not None]
        stored = {(one.owner_id, one.name): one.value for one in await secrets.of_owners(connection, wanted)}
        values = []
        for one in shown:
            value = stored.get((one.owner_id, one.name)) if one.owner_id is not None else None
            lent = self._environment.find(one.name) if value is None else None
            value = lent.value if lent is not None else value
            if value is None or not hmac.compare_digest(one.proof, secret_proof(token, value)):
                return None
            values.append(value)
        return values

    async def heartbeat(self, execution_id: UUID, token: str) -> AcceptedView:
        """The work goes on. That shows life, and does not extend the deadline."""
        async with self._database.transaction() as connection:
            callback = await _open_callback(connection, execution_id, token)
            await parking.record_heartbeat(connection, callback)
        return AcceptedView(ok=True)


async def _open_callback(connection: Connection, execution_id: UUID, token: str) -> Callback:
    if await execution_queries.get(connection, execution_id) is None:
        raise NotFoundError("There is no such execution.")
    callback = await parking.find_callback(connection, execution_id, token_hash(token))
    if callback is None:
        raise UnauthenticatedError("This is not a callback token of this execution.")
    if not callback.is_open:
        raise ConflictError("The execution has ended, or the token is stale.")
    return callback


class ExecutionService:
    """Use cases about executions."""

    def __init__(self, database: Database, ringer: Ringer) -> None:
        """Ring for what a cancelled run makes room for."""
        self._database = database
        self._ringer = ringer

    async def list(self, actor: Actor, wanted: Mapping[str, Any], part: Part) -> ExecutionPage:
        """What the actor may see and what has the wanted values, newest first."""
        async with self._database.reading() as connection:
            found = await read_shown(partial(execution_queries.page, connection, actor, wanted), _view, part)
        return ExecutionPage(found.items, found.total, found.total_is_estimate, found.next_cursor)

    async def get(self, actor: Actor, execution_id: UUID) -> ExecutionDetail:
        """One execution, with what each of its nodes did."""
        async with self._database.transaction() as connection:
            row = await _owned(connection, actor, execution_id)
        now = clock.now()
        nodes = [node_view(result, now, row.graph) for result in execution_queries.results_of(row)]
        return ExecutionDetail(**execution_fields(row), payload=row.payload, nodes=nodes)

    async def cancel(self, actor: Actor, execution_id: UUID) -> ExecutionDetail:
        """End it here and now; whoever runs it drops the work."""
        async with self._database.transaction() as connection:
            row = await _owned(connection, actor, execution_id)
        if row.status not in ACTIVE:
            raise WrongStateError(f"Cannot cancel execution with status '{row.status}'.")
        outcome = Outcome(
            execution_id=execution_id,
            scheduled_job_id=row.scheduled_job_id,
            token=row.token,
            status=ExecutionStatus.CANCELLED,
            error=f"Cancelled by {actor.username}.",
        )
        (result,) = await settle(self._database, [RunResult(outcome)], wait=True)
        if not isinstance(result, Settled | EntityRunSettled):
            raise WrongStateError("The execution ended, or changed hands, before it could be cancelled.")
        await self._ringer.call_off([execution_id])
        await self._ringer.ticks([result.job] if isinstance(result, Settled) else [])
        await self._ringer.executions(result.pending)
        return await self.get(actor, execution_id)


def _view(row: Row[Any]) -> ExecutionView:
    return ExecutionView(**execution_fields(row))


async def _owned(connection: Connection, actor: Actor, execution_id: UUID) -> Row[Any]:
    row = await execution_queries.get(connection, execution_id)
    require_owner(actor, row.user_profile_id if row else None, "execution")
    if row is None:
        raise AssertionError("an execution that nobody owns was let through")
    return row
