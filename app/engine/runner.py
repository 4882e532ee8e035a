"""The runner: run an execution under its timeout, park it while it waits, and drop it when it is called off."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import structlog

from app import clock
from app.actions.catalog import Begin, Catalog, NodeFacts
from app.actions.context import (
    ActionContext,
    CallLimitPort,
    NoLimit,
    NoPorts,
    NoTokens,
    PlainContext,
    PluginSchedulesPort,
    Ports,
    TokenPort,
)
from app.actions.http_client import HttpCaller, Sender
from app.actions.secrets import RunSecrets
from app.cache import BoundedCache
from app.domain.access import NOBODY, Actor, OwnerKind
from app.domain.call_tokens import CallOrigin
from app.domain.errors import NoTriggerError, QuotaExceededError, UnavailableError
from app.domain.executions import FIRST_TOKEN, Execution, ExecutionStatus, NodeResult, Outcome, PendingRun
from app.domain.limits import Quota
from app.domain.permits import PermitHolder, QuotaUse
from app.domain.run_ids import message_id
from app.domain.schedules import ScheduledJob
from app.domain.secrets import Secret
from app.domain.ticks import Fire
from app.domain.trigger_event import Event, template_variables
from app.domain.workflows import Node, Workflow, bound_output
from app.engine.call_tokens import TokenMinter
from app.engine.concurrency import ParkedRuns
from app.engine.leases import WorkerLease
from app.engine.limit_gate import CallLimit, LimitGate
from app.engine.node_resources import CallbackIssuer, SecretFinder
from app.engine.workflow_walk import (
    EVENT_TYPE,
    NO_PROGRESS,
    Dispatched,
    Progress,
    Walk,
    dispatch_again,
    dispatch_entity,
    dispatch_event,
    storable,
)
from app.micro_batcher import MicroBatcher, resolve
from app.observability.tracing import current
from app.persistence import execution_queries, parked_runs
from app.persistence.database import Database
from app.persistence.execution_rows import RunAhead, first_run
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

MOST_PLAIN_NODES = 1000

T = TypeVar("T")

log = structlog.get_logger(__name__)


# What a run leads to: how it ended, or when to start it again after it was parked. None if it was called off meanwhile,
# or waits for a callback; an error is a defect.
RunEnd = Outcome | PendingRun | None | BaseException


class Run:
    """A run in a task of its own. ``on_end`` is called once, when it has ended or was given up."""

    __slots__ = ("_on_end", "called_off", "execution", "stop", "task", "timed_out", "timer", "walk")

    def __init__(self, execution: Execution, on_end: Callable[[RunEnd], None]) -> None:
        self.execution = execution
        self._on_end: Callable[[RunEnd], None] | None = on_end
        self.task: asyncio.Task[Outcome | PendingRun | None] | None = None
        # Ends a run that has no task.
        self.stop: Callable[[], None] | None = None
        # The walk that is under way, or the last one.
        self.walk: Walk | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.timed_out = False
        self.called_off = False

    def end(self, result: RunEnd) -> None:
        """Report the result, unless one was reported before."""
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(result)

    def ended(self, task: "asyncio.Task[Outcome | PendingRun | None]") -> None:
        """Report what the task led to."""
        if task.cancelled():
            self.end(asyncio.CancelledError())
        else:
            self.end(task.exception() or task.result())

    def cancel(self) -> None:
        """Cancel the task. An action that ignores its cancellation is not waited for any longer than a moment."""
        if self.task is not None:
            self.task.cancel()
        elif self.stop is not None:
            self.stop()


class _PlainNode(msgspec.Struct, frozen=True):
    """The only node of a workflow, which can run without a task: what begins it, and its configuration."""

    node: Node
    begin: Begin
    config: msgspec.Struct


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
        # The runs whose nodes run now.
        self._running: dict[UUID, Run] = {}
        # By the workflow, which is kept so that its id stays taken, and the trigger node that a schedule names.
        self._plain_nodes: BoundedCache[tuple[int, str | None], tuple[Workflow, _PlainNode | None]] = BoundedCache(
            MOST_PLAIN_NODES
        )
        self._known_subjects = database.history.watch(SubjectCache())
        self._plugin_port = cache(actions.plugin_for)
        self._subjects = MicroBatcher("dispatch", self._read_subjects, shared=(UnavailableError,))

    def running(self) -> dict[UUID, int]:
        """Return the executions that run here, with their tokens."""
        return {run.execution.id: run.execution.token for run in self._running.values() if not run.called_off}

    def call_off(self, execution_id: UUID) -> None:
        """Cancel a run that this worker no longer holds. No outcome of it is written here."""
        run = self._running.get(execution_id)
        if run is not None and not run.called_off:
            run.called_off = True
            run.cancel()
            log.info("run_called_off", execution=str(execution_id))

    def start(self, execution: Execution, on_end: Callable[[RunEnd], None], versions: RowVersions | None = None) -> Run:
        """Begin to run to the end, or until the run has to sleep. Then call ``on_end``."""
        run = Run(execution, on_end)
        if versions is not None and self._begin_plainly(run, versions):
            return run
        run.task = asyncio.create_task(self._run(run, versions))
        run.task.add_done_callback(run.ended)
        return run

    async def run(self, execution: Execution, versions: RowVersions | None = None) -> Outcome | PendingRun | None:
        """Run to the end and return the outcome, or until it has to sleep: then return when to start it again.

        None if the run was called off meanwhile, or waits for a callback.
        """
        ended: asyncio.Future[Outcome | PendingRun | None] = asyncio.get_running_loop().create_future()
        run = self.start(execution, partial(resolve, ended), versions)
        try:
            return await ended
        except asyncio.CancelledError:
            run.cancel()
            raise

    def _begin_plainly(self, run: Run, versions: RowVersions) -> bool:
        """Begin a run of one plain node without a task, if it can be; return whether it has begun."""
        execution = run.execution
        subject = self._known_subjects.recall((execution.user_profile_id, execution.workflow_id), versions)
        if subject is None or current() is not None or execution.token != FIRST_TOKEN or execution.problem:
            return False
        user, workflow = subject
        if user is None or workflow is None or user == NOBODY or self._call_quota(execution):
            return False
        plan = self._plain_node(workflow, execution.trigger_node_id)
        if plan is None or not self._lease.holds():
            return False
        context = PlainContext(
            execution_id=execution.id,
            scheduled_job_id=execution.scheduled_job_id,
            slot=execution.scheduled_for,
            attempt=execution.retry_attempt + 1,
            event=Event(execution),
            source=execution.source,
            node_id=plan.node.id,
            caller=self._actions.http,
            sender=_sender(user, workflow),
        )
        started_at = clock.now()
        cancel = plan.begin(plan.config, context, partial(self._end_plainly, run, plan.node, started_at))
        if cancel is None:
            return False
        run.stop = partial(self._stop_plainly, run, plan.node, started_at, cancel)
        self._running[execution.id] = run
        run.timer = asyncio.get_running_loop().call_later(_time_left(execution), self._time_out, run)
        return True

    def _end_plainly(self, run: Run, node: Node, started_at: datetime, result: Any) -> None:
        """Report how the node of a run without a task has ended: with an output, or with an error."""
        self._forget(run)
        is_error = isinstance(result, Exception)
        status = ExecutionStatus.FAILED if is_error else ExecutionStatus.SUCCESS
        try:
            error = storable(str(result) or type(result).__name__) if is_error else ""
            node_result = _plain_result(node, status, started_at, None if is_error else result, error)
            outcome = _outcome(run.execution, node_result if is_error else None)
            end: RunEnd = self._with_results(outcome, [node_result])
        except Exception as defect:  # noqa: BLE001 - it ends the run, and not the connection that called back
            end = defect
        run.end(end)

    def _stop_plainly(self, run: Run, node: Node, started_at: datetime, cancel: Callable[[], None]) -> None:
        """Cancel the work of a run without a task, and report that it was called off or has timed out."""
        cancel()
        self._forget(run)
        results = [_plain_result(node, ExecutionStatus.CANCELLED, started_at)]
        run.end(None if run.called_off else self._with_results(_timed_out(run.execution), results))

    def _plain_node(self, workflow: Workflow, trigger_node_id: str | None) -> "_PlainNode | None":
        """Return the only node that a trigger starts, if it can run without a task. It is looked up once."""
        key = (id(workflow), trigger_node_id)
        cached = self._plain_nodes.get(key)
        if cached is None:
            cached = (workflow, self._find_plain_node(workflow, trigger_node_id))
            self._plain_nodes.keep(key, cached)
        return cached[1]

    def _find_plain_node(self, workflow: Workflow, trigger_node_id: str | None) -> "_PlainNode | None":
        triggers = (node for node in workflow.nodes if node.is_trigger and trigger_node_id in {None, node.id})
        trigger = next(triggers, None)
        # Whether a trigger with filters starts depends on the event.
        if trigger is None or trigger.config or not workflow.active:
            return None
        waiting = workflow.order_from(trigger.id).waiting
        node = workflow.node(next(iter(waiting))) if len(waiting) == 1 else None
        begin = None if node is None else self._actions.catalog.begin_of(node)
        return None if node is None or begin is None else _PlainNode(node, *begin)

    def run_ahead(self, job: ScheduledJob, fire: Fire, now: datetime) -> RunAhead | None:
        """Run what a tick fires before it is claimed, if that changes nothing whatever becomes of the claim; else None.

        Only by a workflow and a user that are cached: the claim compares their versions.
        """
        known = self._known_subjects.latest((job.user_profile_id, job.workflow_id))
        if known is None:
            return None
        (user, workflow), versions = known
        if not self._actions.catalog.are_pure(workflow.types):
            return None
        execution = first_run(job, fire, now)
        try:
            dispatched = dispatch_event(EVENT_TYPE, Event(execution), user, workflow, execution.trigger_node_id)
        except NoTriggerError:
            return None
        run = Run(execution, _ignore)
        outcome = _finished(self._walk(run, dispatched, NO_PROGRESS))
        if run.walk is None or outcome is None or outcome.status is not ExecutionStatus.SUCCESS:
            return None
        return RunAhead(execution, self._with_results(outcome, run.walk.results), versions)

    async def _run(self, run: Run, versions: RowVersions | None) -> Outcome | PendingRun | None:
        execution = run.execution
        try:
            subject = self._known_subjects.recall((execution.user_profile_id, execution.workflow_id), versions)
            dispatched = self._dispatched(execution, subject or await self._read_subject(execution))
        except NoTriggerError as error:
            return outcome_of(execution, ExecutionStatus.FAILED, error.detail)
        earlier = NO_PROGRESS
        if execution.token != FIRST_TOKEN:
            earlier = await _retry_during_outage(partial(self._read_progress, execution, dispatched))
        if execution.seconds_left is not None and execution.seconds_left <= 0:
            # Its time ran out while it was parked: run no more nodes.
            return self._with_results(_timed_out(execution), earlier.results)
        while True:
            outcome = await self._walk(run, dispatched, earlier)
            walk = run.walk
            if run.called_off or walk is None:
                return None
            if outcome.status is not ExecutionStatus.SUCCESS or not walk.is_parked:
                return self._with_results(outcome, walk.known_results)
            try:
                parked = await _retry_during_outage(partial(self._park, execution, dispatched, walk))
            except QuotaExceededError as error:
                failure = outcome_of(execution, ExecutionStatus.FAILED, f"The run has to wait: {error.detail}")
                return self._with_results(failure, walk.known_results)
            if not isinstance(parked, Answered):
                return parked
            # The callback came before the run was parked: go on at once with what it reported.
            reported = (walk.known_results, parked.results)
            await _retry_during_outage(partial(self._leave_answered, execution, dispatched, *reported))
            earlier = Progress(parked.results, walk.asleep)

    def _with_results(self, outcome: Outcome, results: Sequence[NodeResult]) -> Outcome:
        """Return an outcome with the results of the nodes, and whether one of them published."""
        ended = tuple(map(_no_longer_waiting, results))
        publishes = bool(self.publishing) and self._has_published(outcome, ended)
        return msgspec.structs.replace(outcome, node_results=ended, publishes=publishes)

    def _has_published(self, outcome: Outcome, results: Sequence[NodeResult]) -> bool:
        done = _DONE if outcome.token == FIRST_TOKEN else _DONE_BEFORE
        return any(result.type in self.publishing and result.status in done for result in results)

    async def _walk(self, run: Run, dispatched: Dispatched, earlier: Progress) -> Outcome:
        """Run the nodes under the timeout of the run. Return how that ended."""
        execution, worker_id = run.execution, self._lease.worker_id
        secrets = self._secrets_of(dispatched)
        if earlier.results:
            # Callbacks may have sent back secrets that the run was shown before it was parked: hide them again.
            await secrets.foresee()
            earlier = Progress([_without_secrets(result, secrets) for result in earlier.results], earlier.asleep)

        def context_for(node_id: str) -> ActionContext:
            return self._context(execution, dispatched, node_id, worker_id, secrets)

        def variables() -> dict[str, Any]:
            return template_variables(execution, dispatched.event_data)

        run.walk = walk = Walk(dispatched, self._actions.catalog, context_for, variables, earlier)
        if walk.is_instant:
            return _outcome(execution, await walk.run())
        self._running[execution.id] = run
        run.timer = asyncio.get_running_loop().call_later(_time_left(execution), self._time_out, run)
        try:
            return _outcome(execution, await walk.run())
        except asyncio.CancelledError:
            if run.called_off:
                return outcome_of(execution, ExecutionStatus.CANCELLED, "The run was dropped.")
            if not run.timed_out:
                raise
            return _timed_out(execution)
        finally:
            self._forget(run)

    def _time_out(self, run: Run) -> None:
        """Cancel a run, and give it up if it does not react."""
        run.timed_out = True
        run.cancel()
        if run.task is None:
            return
        run.timer = asyncio.get_running_loop().call_later(DROP_SECONDS, self._give_up, run)

    def _give_up(self, run: Run) -> None:
        """Report that a run timed out although an action of it still runs: it has ignored its cancellation."""
        self._forget(run)
        results = [] if run.walk is None else run.walk.known_results
        run.end(None if run.called_off else self._with_results(_timed_out(run.execution), results))

    def _forget(self, run: Run) -> None:
        # Both refer to the run.
        run.stop = None
        if run.timer is not None:
            run.timer.cancel()
            run.timer = None
        if self._running.get(run.execution.id) is run:
            del self._running[run.execution.id]

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

    def _dispatched(self, execution: Execution, subject: Subject) -> Dispatched:
        """Return what an execution runs; raise ``NoTriggerError`` with the reason if it can run nothing."""
        if execution.problem:
            raise NoTriggerError(execution.problem)
        user, workflow = subject
        if execution.entity is not None:
            return dispatch_entity(execution.entity, Event(execution), user)
        if execution.graph is not None:
            return dispatch_again(execution.graph, Event(execution), user, workflow)
        return dispatch_event(EVENT_TYPE, Event(execution), user, workflow, execution.trigger_node_id)

    async def _read_subject(self, execution: Execution) -> Subject:
        """Read the user and the workflow of a run."""
        ids = (execution.user_profile_id, execution.workflow_id)
        return await _retry_during_outage(lambda: self._subjects.ask(ids))

    async def _read_subjects(self, ids: Sequence[Ids]) -> list[Subject]:
        """Read the users and workflows of all runs that ask at the same time, in one query."""
        async with self._database.reading("read_run_subjects") as connection:
            return await self._known_subjects.read(connection, ids)

    def _context(
        self, execution: Execution, dispatched: Dispatched, node_id: str, worker_id: UUID, secrets: RunSecrets
    ) -> ActionContext:
        slot = execution.scheduled_for
        node = dispatched.workflow.node(node_id)
        facts = self._actions.catalog.facts_of(node)
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
            sender=_sender(dispatched.user, dispatched.workflow),
            ports=self._actions.ports_for(dispatched.user) if facts.is_owners else NO_PORTS,
            plugin=self._plugin_port(facts.origin),
            callback=self._actions.callbacks.of_node(execution.id, node_id, secrets),
            tokens=self._tokens_of(execution, dispatched, node_id),
            limit=self._limit_of(execution, dispatched, node, facts),
            secrets=secrets,
            # A run that was claimed under a lease that is lost must stop, although the worker has a new lease by now.
            lease_holds=lambda: self._lease.holds() and self._lease.worker_id == worker_id,
        )

    def _limit_of(self, execution: Execution, dispatched: Dispatched, node: Node, facts: NodeFacts) -> CallLimitPort:
        quota = self._call_quota(execution) if facts.takes_limit else ()
        if not quota and not facts.names_limit:
            return NO_LIMIT
        return CallLimit(self.limits, _entry(execution, node.id, quota), dispatched.workflow.user_profile_id)

    def _tokens_of(self, execution: Execution, dispatched: Dispatched, node_id: str) -> TokenPort:
        if self._actions.tokens is None:
            return NO_TOKENS
        return self._actions.tokens.of_node(partial(_origin, execution, dispatched, node_id))


def _plain_result(
    node: Node, status: ExecutionStatus, started_at: datetime, output: Any = None, error: str = ""
) -> NodeResult:
    return NodeResult(
        node_id=node.id,
        type=node.type,
        status=status,
        output=bound_output(output),
        error=error,
        started_at=started_at,
        finished_at=clock.now(),
    )


def _finished(work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of a coroutine that does not wait; None if it does, which then ends."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    return None


def _ignore(_result: RunEnd) -> None:
    """Ignore how a run ended: its caller knows."""


NO_PORTS = NoPorts()
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


def _sender(user: Actor, workflow: Workflow) -> Sender:
    """Return whose key signs the calls of a run: that of the workflow's owner, who decides what is sent."""
    author_id = workflow.user_profile_id
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


def _timed_out(execution: Execution) -> Outcome:
    message = f"The run took longer than timeout_seconds ({execution.timeout_seconds} s)."
    return outcome_of(execution, ExecutionStatus.TIMED_OUT, message)


def _outcome(execution: Execution, ended_by: NodeResult | None) -> Outcome:
    """Return the outcome of a walk: success, or the status and error of the node that ended it early."""
    if ended_by is None:
        return outcome_of(execution, ExecutionStatus.SUCCESS)
    return outcome_of(execution, ended_by.status, f"Node '{ended_by.node_id}': {ended_by.error}")


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
