"""The runner: run an execution under its timeout, park it while it waits, and drop it when it is called off."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import structlog

from app import clock
from app.actions.catalog import Catalog
from app.actions.context import (
    ActionContext,
    CallLimitPort,
    NoLimit,
    NoPorts,
    NoTokens,
    PluginSchedulesPort,
    Ports,
    TokenPort,
)
from app.actions.http_client import HttpCaller, Sender
from app.actions.secrets import RunSecrets
from app.domain.access import Actor, OwnerKind
from app.domain.call_tokens import CallOrigin
from app.domain.errors import NoTriggerError, QuotaExceededError, UnavailableError
from app.domain.executions import FIRST_TOKEN, Execution, ExecutionStatus, NodeResult, Outcome, PendingRun
from app.domain.limits import Quota
from app.domain.permits import PermitHolder, QuotaUse
from app.domain.run_ids import message_id
from app.domain.secrets import Secret
from app.domain.trigger_event import Event, template_variables
from app.domain.workflows import Node
from app.engine.call_tokens import TokenMinter
from app.engine.concurrency import ParkedRuns
from app.engine.leases import WorkerLease
from app.engine.limit_gate import CallLimit, LimitGate
from app.engine.node_resources import CallbackIssuer, SecretFinder
from app.engine.workflow_walk import (
    EVENT_TYPE,
    Dispatched,
    Progress,
    Walk,
    dispatch_again,
    dispatch_entity,
    dispatch_event,
)
from app.micro_batcher import MicroBatcher
from app.persistence import execution_queries, parked_runs
from app.persistence.database import Database
from app.persistence.parked_runs import Answered, Parked
from app.persistence.permits import Call, Entry
from app.persistence.row_cache import Ids, RowVersions, Subject, SubjectCache

OUTAGE_PAUSE_SECONDS = 1.0
# Each run that is parked takes a connection; more at once would leave none for the batches of all other ticks.
PARKS_AT_ONCE = 5
# How long a run that has timed out may take to react to its cancellation.
DROP_SECONDS = 5.0

# The results of an action that mean that it has done its work. In a run that was handed back, an earlier start of it
# may have done it unnoticed; then the action has nothing left to do.
_DONE = frozenset({ExecutionStatus.SUCCESS})
_DONE_BEFORE = frozenset({ExecutionStatus.SUCCESS, ExecutionStatus.SKIPPED})

T = TypeVar("T")

log = structlog.get_logger(__name__)


class _Running(msgspec.Struct):
    """A run in this process: its token, and the task to cancel when another worker takes over."""

    token: int
    walk: Walk
    # None for a run that never waits: it ends before anything could cancel it.
    task: asyncio.Task[NodeResult | None] | None = None
    called_off: bool = False


class Actions(msgspec.Struct, frozen=True, kw_only=True):
    """What runs can use: the actions, and the services that actions call."""

    catalog: Catalog
    http: HttpCaller
    secrets: SecretFinder
    callbacks: CallbackIssuer
    # None if CARILLON_PUBLIC_URL is not set.
    tokens: TokenMinter | None = None
    limits: LimitGate
    ports_for: Callable[[Actor], Ports]
    plugin_for: Callable[[str], PluginSchedulesPort]


class Runner:
    """Runs executions, and knows which ones run in this process."""

    def __init__(self, database: Database, actions: Actions, lease: WorkerLease) -> None:
        """Run with these actions, under this lease."""
        self._parked = ParkedRuns(database, actions.limits.quotas)
        self._parks = asyncio.Semaphore(PARKS_AT_ONCE)
        self._database = database
        self._actions = actions
        self._lease = lease
        self.limits = actions.limits
        # The names of the actions that publish.
        self.publishing = actions.catalog.publishing
        self._running: dict[UUID, _Running] = {}
        self._known_subjects = database.history.watch(SubjectCache())
        self._plugin_port = cache(actions.plugin_for)
        self._subjects = MicroBatcher("dispatch", self._read_subjects, shared=(UnavailableError,))

    def running(self) -> dict[UUID, int]:
        """Return the executions that run here, with their tokens."""
        return {execution_id: run.token for execution_id, run in self._running.items() if not run.called_off}

    def call_off(self, execution_id: UUID) -> None:
        """Cancel a run that this worker no longer holds. No outcome of it is written here."""
        run = self._running.get(execution_id)
        if run is not None and run.task is not None and not run.called_off:
            run.called_off = True
            run.task.cancel()
            log.info("run_called_off", execution=str(execution_id))

    async def run(self, execution: Execution, sight: RowVersions | None = None) -> Outcome | PendingRun | None:
        """Run to the end and return the outcome, or until it has to sleep: then return when to start it again.

        None if the run was called off meanwhile, or waits for a callback.
        """
        try:
            dispatched = await self._dispatch(execution, sight)
        except NoTriggerError as error:
            return outcome_of(execution, ExecutionStatus.FAILED, error.detail)
        earlier = Progress()
        if execution.token != FIRST_TOKEN:
            earlier = await _retry_during_outage(partial(self._read_progress, execution, dispatched))
        if execution.seconds_left is not None and execution.seconds_left <= 0:
            # Its time ran out while it was parked: run no more nodes.
            return self._with_results(_timed_out(execution), earlier.results)
        while True:
            run, outcome = await self._walk(execution, dispatched, earlier)
            if run.called_off:
                return None
            if outcome.status is not ExecutionStatus.SUCCESS or not run.walk.is_parked:
                return self._with_results(outcome, run.walk.known_results)
            try:
                parked = await _retry_during_outage(partial(self._park, execution, dispatched, run.walk))
            except QuotaExceededError as error:
                failure = outcome_of(execution, ExecutionStatus.FAILED, f"The run has to wait: {error.detail}")
                return self._with_results(failure, run.walk.known_results)
            if not isinstance(parked, Answered):
                return parked
            # The callback came before the run was parked: go on at once with what it reported.
            reported = (run.walk.known_results, parked.results)
            await _retry_during_outage(partial(self._leave_answered, execution, dispatched, *reported))
            earlier = Progress(parked.results, run.walk.asleep)

    def _with_results(self, outcome: Outcome, results: Sequence[NodeResult]) -> Outcome:
        """Return an outcome with the results of the nodes, and whether one of them published."""
        ended = tuple(map(_no_longer_waiting, results))
        publishes = bool(self.publishing) and self._has_published(outcome, ended)
        return msgspec.structs.replace(outcome, node_results=ended, publishes=publishes)

    def _has_published(self, outcome: Outcome, results: Sequence[NodeResult]) -> bool:
        done = _DONE if outcome.token == FIRST_TOKEN else _DONE_BEFORE
        return any(result.type in self.publishing and result.status in done for result in results)

    async def _walk(self, execution: Execution, dispatched: Dispatched, earlier: Progress) -> tuple[_Running, Outcome]:
        worker_id = self._lease.worker_id
        secrets = self._secrets_of(dispatched)
        if earlier.results:
            # Callbacks may have sent back secrets that the run was shown before it was parked: hide them again.
            await secrets.foresee()
            earlier = Progress([_without_secrets(result, secrets) for result in earlier.results], earlier.asleep)

        def context_for(node_id: str) -> ActionContext:
            return self._context(execution, dispatched, node_id, worker_id, secrets)

        def variables() -> dict[str, Any]:
            return template_variables(execution, dispatched.event_data)

        walk = Walk(dispatched, self._actions.catalog, context_for, variables, earlier)
        if walk.is_instant:
            return _Running(execution.token, walk), _outcome(execution, await walk.run())
        task = asyncio.create_task(walk.run())
        run = self._running[execution.id] = _Running(execution.token, walk, task)
        try:
            return run, await _within_timeout(execution, task)
        finally:
            del self._running[execution.id]

    def _secrets_of(self, dispatched: Dispatched) -> RunSecrets:
        named = partial(self._actions.catalog.secrets_named_by, dispatched.workflow.nodes)
        return RunSecrets(partial(self._find_secrets, dispatched), dispatched.user.username, named)

    async def _find_secrets(self, dispatched: Dispatched, names: frozenset[str]) -> Mapping[str, Secret]:
        user, owner_id = dispatched.user, dispatched.workflow.user_profile_id
        return await _retry_during_outage(lambda: self._actions.secrets.find(user, owner_id, names))

    async def _read_progress(self, execution: Execution, dispatched: Dispatched) -> Progress:
        """Read what the run did before it was parked or handed back, and what callbacks have reported since.

        A node whose wake time has not come, by the database's clock, still sleeps: a callback woke the run first.
        """
        async with self._database.transaction("read_earlier_nodes") as connection:
            stored = await execution_queries.parked_results(connection, execution.id)
            results = await parked_runs.with_callbacks(connection, execution.id, stored)
        await self._leave_answered(execution, dispatched, stored, results)
        return Progress(results, _still_asleep(execution))

    def _is_limited(self, execution: Execution, dispatched: Dispatched) -> bool:
        """Return whether a call of the run may need a permit."""
        catalog = self._actions.catalog
        is_limited = catalog.takes_limit if self._call_quota(execution) else catalog.names_limit
        return any(map(is_limited, dispatched.workflow.nodes))

    def _call_quota(self, execution: Execution) -> tuple[QuotaUse, ...]:
        """Return the quota of calls of the run's owner, if there is one."""
        owner_id = execution.user_profile_id
        has_quota = self.limits.quotas.current.limit_of(Quota.CALLS_PER_SECOND, owner_id)
        return (QuotaUse(owner_id, Quota.CALLS_PER_SECOND),) if has_quota else ()

    async def _leave_answered(
        self,
        execution: Execution,
        dispatched: Dispatched,
        before: Sequence[NodeResult],
        after: Sequence[NodeResult],
    ) -> None:
        """Return the permits of calls whose callbacks have come."""
        if not self._is_limited(execution, dispatched):
            return
        awaited = {result.node_id for result in before if result.status is ExecutionStatus.RUNNING}
        answered = [result for result in after if result.status is not ExecutionStatus.RUNNING]
        calls = [Call(execution.id, one.node_id, execution.token) for one in answered if one.node_id in awaited]
        if calls:
            await self.limits.leave(calls)

    async def _park(self, execution: Execution, dispatched: Dispatched, walk: Walk) -> Answered | PendingRun | None:
        await self._parked.require_room(execution.user_profile_id)
        now = clock.monotonic()
        parked = Parked(
            execution_id=execution.id,
            token=execution.token,
            results=walk.known_results,
            asleep={node_id: max(0.0, wakes - now) for node_id, wakes in walk.asleep.items()},
            graph=dispatched.graph,
            waiting=frozenset(walk.waiting),
            # A call that waits has permits also if its quota has gone since.
            is_limited=bool(walk.waiting) or self._is_limited(execution, dispatched),
        )
        async with self._parks, self._database.transaction("park") as connection:
            return await parked_runs.park(connection, parked)

    async def _dispatch(self, execution: Execution, sight: RowVersions | None) -> Dispatched:
        if execution.problem:
            raise NoTriggerError(execution.problem)
        ids = (execution.user_profile_id, execution.workflow_id)
        subject = self._known_subjects.recall(ids, sight) if sight else None
        if subject is None:
            subject = await _retry_during_outage(lambda: self._subjects.ask(ids))
        user, workflow = subject
        if execution.entity is not None:
            return dispatch_entity(execution.entity, Event(execution), user)
        if execution.graph is not None:
            return dispatch_again(execution.graph, Event(execution), user, workflow)
        return dispatch_event(EVENT_TYPE, Event(execution), user, workflow, execution.trigger_node_id)

    async def _read_subjects(self, ids: Sequence[Ids]) -> list[Subject]:
        """Read the users and workflows of all runs that ask at the same time, in one query."""
        async with self._database.reading("read_run_subjects") as connection:
            return await self._known_subjects.read(connection, ids)

    def _context(
        self, execution: Execution, dispatched: Dispatched, node_id: str, worker_id: UUID, secrets: RunSecrets
    ) -> ActionContext:
        slot = execution.scheduled_for
        node = dispatched.workflow.node(node_id)
        catalog, action = self._actions.catalog, node.type
        is_owners = catalog.scope_of(action) == "owner"
        return ActionContext(
            execution_id=execution.id,
            scheduled_job_id=execution.scheduled_job_id,
            entity=f"{execution.entity.type}/{execution.entity.id}" if execution.entity else None,
            slot=slot,
            attempt=execution.retry_attempt + 1,
            event=dispatched.event_data,
            source=execution.source,
            node_id=node_id,
            acts_for_admin=dispatched.user.sees_all,
            caller=self._actions.http,
            sender=_sender(dispatched),
            ports=self._actions.ports_for(dispatched.user) if is_owners else NoPorts(),
            plugin=self._plugin_port(catalog.origin_of(action)),
            callback=self._actions.callbacks.of_node(execution.id, node_id, secrets),
            tokens=self._tokens_of(execution, dispatched, node_id),
            limit=self._limit_of(execution, dispatched, node),
            secrets=secrets,
            # A run that was claimed under a lease that is lost must stop, although the worker has a new lease by now.
            lease_holds=lambda: self._lease.holds() and self._lease.worker_id == worker_id,
        )

    def _limit_of(self, execution: Execution, dispatched: Dispatched, node: Node) -> CallLimitPort:
        catalog = self._actions.catalog
        quota = self._call_quota(execution) if catalog.takes_limit(node) else ()
        if not quota and not catalog.names_limit(node):
            return NO_LIMIT
        return CallLimit(self.limits, _entry(execution, node.id, quota), dispatched.workflow.user_profile_id)

    def _tokens_of(self, execution: Execution, dispatched: Dispatched, node_id: str) -> TokenPort:
        if self._actions.tokens is None:
            return NO_TOKENS
        return self._actions.tokens.of_node(partial(_origin, execution, dispatched, node_id))


NO_TOKENS = NoTokens()
NO_LIMIT = NoLimit()


def _entry(execution: Execution, node_id: str, quota: tuple[QuotaUse, ...]) -> Entry:
    """Return a call of a run as one that needs permits; the call itself says of which limit."""
    return Entry(
        holder=PermitHolder(execution.id, node_id),
        source=execution.source,
        slot=execution.scheduled_for,
        token=execution.token,
        uses=quota,
    )


def _origin(execution: Execution, dispatched: Dispatched, node_id: str) -> CallOrigin:
    """Return what the tokens of a node say about its run."""
    entity = execution.entity
    return CallOrigin(
        scheduled_job_id=execution.scheduled_job_id,
        entity=f"{entity.type}/{entity.id}" if entity else None,
        schedule_name=execution.job_name,
        workflow_id=execution.workflow_id,
        execution_id=execution.id,
        message_id=message_id(execution.id, node_id, execution.retry_attempt + 1),
        owner_id=dispatched.workflow.user_profile_id,
    )


def _sender(dispatched: Dispatched) -> Sender:
    """Return whose key signs the calls of a run: that of the workflow's owner, who decides what is sent."""
    user, author_id = dispatched.user, dispatched.workflow.user_profile_id
    if author_id != user.user_id:
        return Sender(author_id)
    return Sender(author_id, is_operators=user.sees_all or user.kind is OwnerKind.PLUGIN)


def _still_asleep(execution: Execution) -> dict[str, float]:
    """Return the nodes that still sleep, each with its wake time by this process's monotonic clock."""
    wakes = msgspec.convert((execution.graph or {}).get("asleep", {}), dict[str, datetime])
    if execution.resumed_at is None:
        return {}
    now, by_database = clock.monotonic(), execution.resumed_at
    return {node: now + (wake - by_database).total_seconds() for node, wake in wakes.items() if wake > by_database}


def _no_longer_waiting(result: NodeResult) -> NodeResult:
    """Return the result of a node in an execution that has ended: one that still waited counts as cancelled."""
    if result.status is not ExecutionStatus.RUNNING:
        return result
    return msgspec.structs.replace(result, status=ExecutionStatus.CANCELLED)


def _without_secrets(result: NodeResult, secrets: RunSecrets) -> NodeResult:
    return msgspec.structs.replace(result, output=secrets.hidden(result.output), error=secrets.hidden(result.error))


async def _retry_during_outage(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call until Postgres is back: this worker holds the execution, and no other would run it meanwhile."""
    while True:
        try:
            return await call()
        except UnavailableError:
            await asyncio.sleep(OUTAGE_PAUSE_SECONDS)


async def _within_timeout(execution: Execution, task: asyncio.Task[NodeResult | None]) -> Outcome:
    """Wait for a walk as long as its timeout allows, then cancel it. Return how it ended."""
    try:
        await _wait_for_end(task, _time_left(execution))
        if not task.done():
            task.cancel()
            # An action that ignores its cancellation is not waited for any longer.
            await _wait_for_end(task, DROP_SECONDS)
            if not task.done() or task.cancelled():
                return _timed_out(execution)
    finally:
        task.cancel()
    if task.cancelled():
        return outcome_of(execution, ExecutionStatus.CANCELLED, "The run was dropped.")
    return _outcome(execution, task.result())


def _timed_out(execution: Execution) -> Outcome:
    message = f"The run took longer than timeout_seconds ({execution.timeout_seconds} s)."
    return outcome_of(execution, ExecutionStatus.TIMED_OUT, message)


def _outcome(execution: Execution, ended_by: NodeResult | None) -> Outcome:
    """Return the outcome of a walk: success, or the status and error of the node that ended it early."""
    if ended_by is None:
        return outcome_of(execution, ExecutionStatus.SUCCESS)
    return outcome_of(execution, ended_by.status, f"Node '{ended_by.node_id}': {ended_by.error}")


async def _wait_for_end(task: asyncio.Task[NodeResult | None], seconds: float) -> None:
    """Wait until a task has ended in any way, at most ``seconds``. This costs a fraction of ``asyncio.wait``."""
    if task.done():
        return
    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def end(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    timer = loop.call_later(seconds, end)
    task.add_done_callback(end)
    try:
        await over
    finally:
        timer.cancel()
        task.remove_done_callback(end)


def _time_left(execution: Execution) -> float:
    """Return the seconds until the timeout; a run that was parked has used some of them before."""
    if execution.seconds_left is None:
        return execution.timeout_seconds
    return max(0.0, execution.seconds_left)


def outcome_of(execution: Execution, status: ExecutionStatus, error: str = "") -> Outcome:
    """Return the outcome of an execution that this worker holds."""
    return Outcome(
        execution_id=execution.id,
        scheduled_job_id=execution.scheduled_job_id,
        token=execution.token,
        status=status,
        error=error,
    )
