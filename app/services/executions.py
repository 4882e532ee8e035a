"""Executions: start one by hand, read and cancel them, and complete one by a callback."""

import hmac
from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import UUID

from app import clock
from app.actions.secrets import Redactor, SecretStore
from app.config import TRACE_ID
from app.domain.access import Actor, require_granted
from app.domain.audit import AuditAction, ObjectType, Subject
from app.domain.audited_changes import schedule_subject
from app.domain.errors import ConflictError, NotFoundError, UnauthenticatedError, WrongStateError
from app.domain.executions import ACTIVE, ANY_TOKEN, ActiveRun, ExecutionStatus, Outcome, PendingRun
from app.domain.overlap import Arrival, Begin, Queue, Refuse, overlap
from app.domain.revisions import Author
from app.domain.schedules import IfRunning
from app.domain.workflows import bound_output
from app.engine import lease_bounds
from app.engine.manual_runs import manual_run
from app.engine.node_resources import secret_proof, token_hash
from app.engine.ringing import Ringer
from app.observability.tracing import trace_id_of
from app.persistence import audit, execution_queries, executions, parked_runs, schedules, secrets
from app.persistence.database import Connection, Database
from app.persistence.execution_queries import ListedExecution, StoredExecution
from app.persistence.execution_rows import EntityRunSettled, NewExecution, Settled
from app.persistence.pagination import Part
from app.persistence.parked_runs import Callback, Completion, ShownSecret
from app.persistence.settle import cancel_runs, settle_locked
from app.services.admission import require_owned, schedule_is_within, workflow_is_within
from app.services.inputs import CompletionInput, RunInput
from app.services.listing import read_views, visible
from app.services.schedules import author_of, fresh_schedule
from app.services.views import AcceptedView, ExecutionDetail, ExecutionPage, ExecutionView, execution_fields, node_view


class ManualRunService:
    """Starts runs by hand, which leave the cadence and the counters of their schedules alone."""

    def __init__(self, database: Database, ringer: Ringer) -> None:
        """Ring for each new run after its commit."""
        self._database = database
        self._ringer = ringer

    async def again(self, actor: Actor, execution_id: UUID, request: RunInput) -> ExecutionView:
        """Start a run of the same schedule with the payload of an earlier one."""
        async with self._database.reading() as connection:
            earlier = await _owned(connection, actor, execution_id)
        if earlier.scheduled_job_id is None:
            raise WrongStateError("Only runs of schedules can be started again: this one belongs to an entity.")
        return await self.run(actor, earlier.scheduled_job_id, request, earlier)

    async def run(
        self, actor: Actor, job_id: UUID, request: RunInput, earlier: StoredExecution | None = None
    ) -> ExecutionView:
        """Start a run now, if ``if_running`` of the request or the schedule allows it.

        It has the payload of the schedule, or of an ``earlier`` run.
        """
        async with self._database.transaction() as connection:
            job = await fresh_schedule(connection, actor, job_id)
            policy = request.if_running or job.if_running
            if type(policy) is not IfRunning:
                raise ConflictError(
                    f"This release does not know if_running '{policy}'. Name `if_running` in the request."
                )
            stopped: list[Settled] = []
            active, _ = await executions.active_and_now(connection, [job_id])
            decision = overlap(policy, Arrival.MANUAL, active.get(job_id, ()), job.max_queued)
            # Read without a lock: whether the run is refused is decided below, once its schedule is locked.
            if not isinstance(decision, Refuse) and decision.cancels:
                reason = f"Cancelled by a manual run of {actor.username}."
                # A run that begins meanwhile is found when the new one is added.
                stopped = await cancel_runs(connection, [job_id], reason)
            new = await _add(connection, job_id, policy, None if earlier is None else earlier.payload, author_of(actor))
            details = {"execution_id": str(new.id)}
            if earlier is not None:
                details["again"] = str(earlier.id)
            await audit.record(connection, actor, AuditAction.SCHEDULE_RUN, schedule_subject(job), details=details)
            row = await execution_queries.get(connection, new.id)
        if row is None:
            raise AssertionError("an execution is not visible in the transaction that wrote it")
        await self._ringer.call_off([settled.execution_id for settled in stopped])
        await self._ringer.ticks([settled.job for settled in stopped[-1:]])
        if not new.queued:
            await self._ringer.executions([PendingRun(new.id, new.token, new.due_at)])
        return ExecutionView(**execution_fields(row))


async def _add(
    connection: Connection, job_id: UUID, policy: IfRunning, payload: dict[str, Any] | None, author: Author
) -> NewExecution:
    job = (await schedules.lock(connection, [job_id])).get(job_id)
    if job is None:
        raise NotFoundError("There is no such schedule.")
    active, now = await executions.active_and_now(connection, [job_id])
    start = _start(policy, active.get(job_id, ()), job.max_queued)
    if start.cancels:
        raise ConflictError("Another run of the schedule started at the same moment. Retry.")
    new = manual_run(job, now, policy, start, payload)
    await executions.add(connection, [new])
    await schedules.touch(connection, job_id)
    if job.lease_id is not None:
        await lease_bounds.debit_runs(connection, job, author, now)
    return new


def _start(policy: IfRunning, active: tuple[ActiveRun, ...], max_queued: int) -> Begin | Queue:
    """Return how a manual run starts beside the active ones; refuse it where ``if_running`` does."""
    decision = overlap(policy, Arrival.MANUAL, active, max_queued)
    if isinstance(decision, Refuse):
        raise ConflictError(
            f"The run was not started: {decision.reason}, and if_running is '{policy}'. "
            "Wait for that execution, or name another `if_running` in the request."
        )
    return decision


# Stored instead of a callback's texts if they cannot be searched for the secrets that its execution was given.
UNREADABLE = "Left out: a secret of this execution is not known to the API, or was changed since."


class CallbackService:
    """Takes callbacks, which are authorised by their token alone."""

    def __init__(self, database: Database, ringer: Ringer, environment: SecretStore) -> None:
        """Ring for executions that continue; redact the secrets that an execution was given."""
        self._environment = environment
        self._database = database
        self._ringer = ringer

    async def complete(self, execution_id: UUID, token: str, completion: CompletionInput) -> AcceptedView:
        """Store that the work of a node is done, or has failed, and let the execution continue."""
        async with self._database.transaction() as connection:
            callback = await _open_callback(connection, execution_id, token)
            redacted = await self._without_secrets(connection, callback, token, completion)
            pending = await parked_runs.complete_callback(connection, execution_id, callback, redacted)
        if pending is not None:
            await self._ringer.executions([pending])
        return AcceptedView(ok=True)

    async def _without_secrets(
        self, connection: Connection, callback: Callback, token: str, completion: CompletionInput
    ) -> Completion:
        succeeded, output, error = completion.status == "success", completion.output, completion.error
        if not callback.shown:
            return Completion(succeeded, bound_output(output), error)
        values = await self._shown_values(connection, callback.shown, token)
        if values is None:
            return Completion(succeeded, None if output is None else UNREADABLE, UNREADABLE if error else "")
        redactor = Redactor(values)
        return Completion(succeeded, bound_output(redactor.hidden(output)), redactor.hidden(error))

    async def _shown_values(
        self, connection: Connection, shown: tuple[ShownSecret, ...], token: str
    ) -> list[str] | None:
        """Return the values of the secrets that the execution was given; None if one was changed or deleted since."""
        owned = [(secret.owner_id, secret.name) for secret in shown if secret.owner_id is not None]
        rows = await secrets.of_owners(connection, owned)
        stored: dict[tuple[int | None, str], str | None] = {(row.owner_id, row.name): row.value for row in rows}
        values = []
        for secret in shown:
            value = stored.get((secret.owner_id, secret.name))
            lent = self._environment.find(secret.name) if value is None else None
            value = lent.value if lent is not None else value
            if value is None or not hmac.compare_digest(secret.proof, secret_proof(token, value)):
                return None
            values.append(value)
        return values

    async def heartbeat(self, execution_id: UUID, token: str) -> AcceptedView:
        """Note that the work of a node goes on. It does not extend the deadline."""
        async with self._database.transaction() as connection:
            callback = await _open_callback(connection, execution_id, token)
            await parked_runs.record_heartbeat(connection, callback)
        return AcceptedView(ok=True)


async def _open_callback(connection: Connection, execution_id: UUID, token: str) -> Callback:
    if await execution_queries.get(connection, execution_id) is None:
        raise NotFoundError("There is no such execution.")
    callback = await parked_runs.find_callback(connection, execution_id, token_hash(token))
    if callback is None:
        raise UnauthenticatedError("The token is not a callback token of this execution.")
    if not callback.is_open:
        raise ConflictError("The execution has ended, or the token is stale.")
    return callback


class ExecutionService:
    """Use cases about executions."""

    def __init__(self, database: Database, ringer: Ringer, trace_url: str = "") -> None:
        """Ring for the runs that can start once one is cancelled; ``trace_url`` is where traces are looked at."""
        self._database = database
        self._ringer = ringer
        self._trace_url = trace_url

    async def list(
        self, actor: Actor, filters: Mapping[str, Any], part: Part, team_id: int | None = None
    ) -> ExecutionPage:
        """Return a page of the executions that the actor may see and that match the filters, newest first."""
        async with self._database.reading() as connection:
            reach = await visible(connection, actor, team_id)
            page = await read_views(partial(execution_queries.page, connection, reach, filters), _view, part)
        return ExecutionPage(page.items, page.total, page.total_is_estimate, page.next_cursor)

    async def get(self, actor: Actor, execution_id: UUID) -> ExecutionDetail:
        """Return an execution with the results of its nodes."""
        async with self._database.transaction() as connection:
            row = await _owned(connection, actor, execution_id)
        now = clock.now()
        nodes = [node_view(result, now, row.graph) for result in execution_queries.results_of(row)]
        return ExecutionDetail(**execution_fields(row), payload=row.payload, nodes=nodes, trace_url=self._trace_of(row))

    def _trace_of(self, row: StoredExecution) -> str | None:
        """Return the address of a run's trace: that of the request that asked for it, or the one with its own id."""
        if not self._trace_url:
            return None
        requested = None if row.trace_context is None else trace_id_of(row.trace_context)
        return self._trace_url.replace(TRACE_ID, requested or row.id.hex)

    async def cancel(self, actor: Actor, execution_id: UUID) -> ExecutionDetail:
        """Cancel an execution at once; the worker that runs it drops the work when it notices."""
        async with self._database.transaction() as connection:
            row = await _owned(connection, actor, execution_id)
            if actor.grant is not None:
                job = None if row.scheduled_job_id is None else await schedules.get(connection, row.scheduled_job_id)
                require_granted(actor, None if job is None else job.lease_id)
        if row.status not in ACTIVE:
            raise WrongStateError(f"Cannot cancel execution with status '{row.status}'.")
        outcome = Outcome(
            execution_id=execution_id,
            scheduled_job_id=row.scheduled_job_id,
            token=ANY_TOKEN,
            status=ExecutionStatus.CANCELLED,
            error=f"Cancelled by {actor.username}.",
        )
        async with self._database.transaction("settle") as connection:
            (result,) = await settle_locked(connection, [outcome])
            if not isinstance(result, Settled | EntityRunSettled):
                raise WrongStateError("The execution ended before it could be cancelled.")
            subject = schedule_subject(result.job) if isinstance(result, Settled) else _entity_run(row)
            details = {"execution_id": str(execution_id)}
            await audit.record(connection, actor, AuditAction.EXECUTION_CANCELLED, subject, details=details)
            await lease_bounds.debit_writes(connection, author_of(actor))
        await self._ringer.call_off([execution_id])
        await self._ringer.ticks([result.job] if isinstance(result, Settled) else [])
        await self._ringer.executions(result.pending)
        return await self.get(actor, execution_id)


def _entity_run(row: StoredExecution) -> Subject:
    return Subject(ObjectType.EXECUTION, str(row.id), f"{row.entity_type} {row.entity_id}", row.user_profile_id)


def _view(row: ListedExecution) -> ExecutionView:
    return ExecutionView(**execution_fields(row))


async def _owned(connection: Connection, actor: Actor, execution_id: UUID) -> StoredExecution:
    row = await execution_queries.get(connection, execution_id)
    return require_owned(
        actor, row, "execution", is_within=row is not None and await _is_within(connection, actor, row)
    )


async def _is_within(connection: Connection, actor: Actor, row: StoredExecution) -> bool:
    """Return whether the restriction of the actor's token leaves the schedule of an execution, or else its workflow."""
    if row.scheduled_job_id is not None:
        return await schedule_is_within(connection, actor, row.scheduled_job_id)
    return row.workflow_id is not None and await workflow_is_within(connection, actor, row.workflow_id)
