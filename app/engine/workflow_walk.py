"""The walk through a workflow: find the trigger node of an event, then run node by node in the order of the graph."""

import asyncio
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import structlog
from msgspec.structs import replace

from app import clock
from app.actions.catalog import ActionFailedError, Awaiting, Blocked, Catalog, Done, Result, Skipped, Sleeping, Waiting
from app.actions.context import ActionContext, LeaseLostError
from app.domain.access import NOBODY, Actor
from app.domain.errors import NoTriggerError
from app.domain.executions import Entity, ExecutionStatus, NodeResult
from app.domain.workflows import TRIGGER_TYPE, Edge, Node, Order, Workflow, bound_output, resolve_trigger
from app.engine.spans import in_node
from app.observability.logs import log_fields
from app.observability.tracing import current

EVENT_TYPE = "schedule"


class Dispatched(msgspec.Struct, frozen=True, gc=False):
    """A workflow and the trigger that it is to run from."""

    workflow: Workflow
    trigger: Node
    event_data: Mapping[str, Any]
    # The actor whose rights its actions have: see ``app.domain.access.lesser_rights``.
    user: Actor

    @property
    def graph(self) -> dict[str, Any]:
        """Return the graph that a parked run goes on with, although the workflow may be edited meanwhile."""
        flow = self.workflow
        graph: dict[str, Any] = msgspec.to_builtins(
            {"name": flow.name, "nodes": flow.nodes, "edges": flow.edges, "trigger": self.trigger.id}
        )
        return graph

    @property
    def order(self) -> Order:
        """Return the nodes that the trigger reaches, and which waits for which."""
        return self.workflow.order_from(self.trigger.id)


def dispatch_event(
    event_type: str,
    event_data: Mapping[str, Any],
    user: Actor | None,
    workflow: Workflow | None,
    trigger_node_id: str | None,
) -> Dispatched:
    """Find the trigger that an event starts. Raise ``NoTriggerError`` with the reason if nothing can start."""
    if event_type != EVENT_TYPE:
        raise NoTriggerError(f"There is no trigger for events of type '{event_type}'.")
    if user is None:
        raise NoTriggerError("The user who owns the schedule no longer exists.")
    if workflow is None:
        raise NoTriggerError("The workflow no longer exists.")
    if not workflow.active:
        raise NoTriggerError(f"The workflow '{workflow.name}' is not active.")
    _require_rights(user)
    return Dispatched(workflow, resolve_trigger(workflow, trigger_node_id, event_data), event_data, user)


def dispatch_again(
    graph: Mapping[str, Any], event_data: Mapping[str, Any], user: Actor | None, workflow: Workflow | None
) -> Dispatched:
    """Continue a parked run with the graph that it began with. The owner is that of the workflow as it is now."""
    if user is None or workflow is None:
        raise NoTriggerError("The workflow, or the user who owns the schedule, no longer exists.")
    _require_rights(user)
    stored = {"name": graph["name"], "nodes": graph["nodes"], "edges": graph["edges"]}
    original = msgspec.convert({**msgspec.to_builtins(workflow), **stored, "active": True}, Workflow)
    return Dispatched(original, original.node(graph["trigger"]), event_data, user)


def _require_rights(user: Actor) -> None:
    """Refuse to run a workflow whose owner has not allowed, or no longer allows, the schedule's owner to use it.

    Its calls would be signed for the workflow's owner, with a payload that the schedule's owner chooses.
    """
    if user == NOBODY:
        raise NoTriggerError(
            "The owner of the schedule may not use this workflow: it belongs to another user, or to a team in which "
            "the owner of the schedule cannot write. Choose another workflow, or delete the schedule."
        )


def dispatch_entity(entity: Entity, event_data: Mapping[str, Any], user: Actor | None) -> Dispatched:
    """Return the action of an entity as a workflow of one node."""
    if user is None:
        raise NoTriggerError("The user who owns the entity no longer exists.")
    trigger = Node("start", TRIGGER_TYPE)
    work = Node("work", entity.work.action, entity.work.config)
    workflow = Workflow(
        id=0,
        user_profile_id=user.user_id,
        name=entity.work.name,
        active=True,
        nodes=(trigger, work),
        edges=(Edge(trigger.id, work.id),),
    )
    return Dispatched(workflow, trigger, event_data, user)


# The text of an exception may be of any length; this much is stored.
ERROR_CHARACTERS = 2000
# The results of nodes after which the walk goes on with others.
_OPEN_STATUSES = frozenset({ExecutionStatus.RUNNING, ExecutionStatus.PENDING})
_GOOD_STATUSES = _OPEN_STATUSES | {ExecutionStatus.SUCCESS}
# Other processes give permits too, and do not tell a run that is running.
ASK_AGAIN_SECONDS = 1.0
# The results of nodes that are kept when an execution continues. Nodes with another result run again.
_KEPT_STATUSES = frozenset({ExecutionStatus.SUCCESS, ExecutionStatus.FAILED, ExecutionStatus.RUNNING})

log = structlog.get_logger(__name__)


class Progress(msgspec.Struct, frozen=True):
    """What a run did before it was parked or handed back: the results, and the nodes that sleep, with their wake times.

    The times are those of this process's monotonic clock.
    """

    results: Sequence[NodeResult] = ()
    asleep: Mapping[str, float] = msgspec.field(default_factory=dict)


NO_PROGRESS = Progress()


class Walk:
    """One walk through one workflow. ``results`` grows while it runs, and can be read after it was cancelled."""

    def __init__(
        self,
        dispatched: Dispatched,
        catalog: Catalog,
        context_for: Callable[[str], ActionContext],
        variables: Callable[[], Mapping[str, Any]],
        earlier: Progress | None = None,
    ) -> None:
        """Prepare a walk; ``context_for`` makes the context of a node, ``variables`` what templates can name.

        Nodes that ended in ``earlier`` are not run again, and those that await a callback or sleep go on waiting.
        """
        earlier = earlier or NO_PROGRESS
        self._workflow = dispatched.workflow
        self._order = dispatched.order
        self._catalog = catalog
        self._context_for = context_for
        self._earlier = {result.node_id: result for result in earlier.results}
        self._still_asleep = earlier.asleep
        self._outputs: dict[str, Any] = {}
        self._variables = variables
        self.results: list[NodeResult] = []
        # The nodes that sleep now, each with its wake time by this process's monotonic clock.
        self.asleep: dict[str, float] = {}
        # The nodes that wait for a permit of a limit. They have no result: they run when they have the permit.
        self.waiting: set[str] = set()
        self._asks_again_at = 0.0

    @property
    def is_parked(self) -> bool:
        """Return whether the walk waits for a callback, for a time or for a limit."""
        return bool(self.waiting) or any(result.status is ExecutionStatus.RUNNING for result in self.results)

    @property
    def known_results(self) -> list[NodeResult]:
        """Return the results of this walk, and earlier results of nodes that it did not reach."""
        done = {result.node_id for result in self.results}
        return [*self.results, *(result for node_id, result in self._earlier.items() if node_id not in done)]

    @property
    def is_instant(self) -> bool:
        """Return whether no node of it ever waits."""
        return self._catalog.are_instant(self._order.types)

    async def run(self) -> NodeResult | None:
        """Run the nodes that the trigger reaches. Return the first that did not succeed.

        None means that all nodes succeeded, or that the walk waits for a callback, a time or a limit.
        """
        workflow, order = self._workflow, self._order
        if len(order.waiting) == 1 and not self._earlier:
            # What most workflows are: one node after the trigger.
            only = await self._result_of(workflow.node(order.first[0]))
            return None if only.status in _GOOD_STATUSES else only
        waiting = dict(order.waiting)
        ready = list(order.first)
        running: set[asyncio.Task[NodeResult]] = set()
        try:
            while ready or running:
                if not running and not self.asleep and (len(ready) == 1 or self.is_instant):
                    # Nothing runs beside it, or nothing ever waits: a task of its own would only cost time.
                    ended = [await self._result_of(workflow.node(ready.pop()))]
                else:
                    running |= {asyncio.create_task(self._result_of(workflow.node(node_id))) for node_id in ready}
                    done, running = await asyncio.wait(
                        running, timeout=self._until_next_wake(), return_when=asyncio.FIRST_COMPLETED
                    )
                    ended = [*(task.result() for task in done), *self._woken()]
                    ready = []
                for result in ended:
                    if result.status is ExecutionStatus.SUCCESS:
                        ready += _unblocked(order, result.node_id, waiting)
                    elif result.status not in _OPEN_STATUSES:
                        return result
                if self.waiting:
                    ready += self._asking_again(ended, is_working=bool(running))
            return None
        finally:
            await _cancel_all(running)

    def _asking_again(self, ended: Sequence[NodeResult], *, is_working: bool) -> list[str]:
        """Return the nodes that wait for a limit, if it is time to ask again: a node of the run may have left it."""
        has_ended = any(result.status is not ExecutionStatus.PENDING for result in ended)
        if not has_ended and not (is_working and clock.monotonic() >= self._asks_again_at):
            return []
        asking, self.waiting = sorted(self.waiting), set()
        return asking

    def _until_next_wake(self) -> float | None:
        """Return the seconds until the first sleeping node wakes up, or waiting nodes ask again for their permits.

        What follows these need not wait for other nodes.
        """
        times = [*self.asleep.values(), *([self._asks_again_at] if self.waiting else [])]
        return max(0.0, min(times) - clock.monotonic()) if times else None

    def _woken(self) -> list[NodeResult]:
        """Mark the sleeping nodes whose time has come as successful, and return their results."""
        now = clock.monotonic()
        woken = {node_id for node_id, wakes in self.asleep.items() if wakes <= now}
        for at, result in enumerate(self.results):
            if result.node_id in woken:
                self.results[at] = replace(result, status=ExecutionStatus.SUCCESS, finished_at=clock.now())
                self._outputs[result.node_id] = {"output": result.output}
                del self.asleep[result.node_id]
        return [result for result in self.results if result.node_id in woken]

    async def _result_of(self, node: Node) -> NodeResult:
        """Return the earlier result of a node, or run it."""
        earlier = self._earlier.get(node.id) if self._earlier else None
        if earlier is not None and node.id in self._still_asleep:
            self.asleep[node.id] = self._still_asleep[node.id]
            earlier = replace(earlier, status=ExecutionStatus.RUNNING)
        if earlier is None or earlier.status not in _KEPT_STATUSES:
            work, span = self._run_node(node), current()
            return await (work if span is None else in_node(span, node, work))
        if earlier.status is ExecutionStatus.SUCCESS:
            self._outputs[node.id] = {"output": earlier.output}
        self.results.append(earlier)
        return earlier

    async def _run_node(self, node: Node) -> NodeResult:
        """Run a node. Whatever its action does, even a crash or a cancellation, there is a result to store."""
        started_at = clock.now()
        context = self._context_for(node.id)
        status, output, error = ExecutionStatus.CANCELLED, None, ""
        try:
            answer = await self._catalog.run(node, context, self._template_names)
            status, output, error = _result_parts(answer)
            # Later nodes must not see the secrets either: what a target sends back could go on to other hosts.
            output = context.hidden(output)
            if status is ExecutionStatus.SUCCESS:
                self._outputs[node.id] = {"output": bound_output(output)}
            if isinstance(answer, Sleeping):
                self.asleep[node.id] = clock.monotonic() + answer.seconds
            if isinstance(answer, Waiting):
                self.waiting.add(node.id)
                self._asks_again_at = clock.monotonic() + ASK_AGAIN_SECONDS
        except (ActionFailedError, LeaseLostError) as failure:
            status, error = ExecutionStatus.FAILED, str(failure) or type(failure).__name__
        except Exception as failure:  # noqa: BLE001 - whatever an action raises, the worker goes on
            # With its traceback, but without the secrets that the action was shown.
            log.error(  # noqa: TRY400
                "action_crashed",
                node=node.id,
                type=node.type,
                exception=context.hidden(traceback.format_exc()),
                **log_fields(context.scheduled_job_id, context.execution_id),
            )
            status, error = ExecutionStatus.FAILED, f"{type(failure).__name__}: {failure}"
        finally:
            result = NodeResult(
                node_id=node.id,
                type=node.type,
                status=status,
                # Hide secrets before the text is cut: half a secret would not be recognised.
                output=bound_output(output),
                error=storable(context.hidden(error)) if error else "",
                started_at=started_at,
                finished_at=clock.now(),
            )
            if status is not ExecutionStatus.PENDING:
                self.results.append(result)
        return result

    def _template_names(self) -> dict[str, Any]:
        """Return what templates can name now: the variables, and the outputs of nodes that have ended."""
        return {**self._variables(), "nodes": self._outputs}


def _result_parts(answer: Result) -> tuple[ExecutionStatus, Any, str]:
    """Return the status, the output and the reason that an action's answer stands for."""
    match answer:
        case Skipped():
            return ExecutionStatus.SKIPPED, None, answer.reason
        case Awaiting() | Sleeping():
            return ExecutionStatus.RUNNING, answer.output, ""
        case Blocked():
            return ExecutionStatus.BLOCKED, None, answer.reason
        case Waiting():
            return ExecutionStatus.PENDING, None, ""
        case Done():
            return ExecutionStatus.SUCCESS, answer.output, ""


def storable(error: str) -> str:
    """Return an error as Postgres can store it: without NUL, and cut."""
    return error.replace("\x00", "\ufffd")[:ERROR_CHARACTERS]


def _unblocked(order: Order, node_id: str, waiting: dict[str, int]) -> list[str]:
    """Return the nodes that waited for this one and wait for nothing else."""
    for following in order.after.get(node_id, ()):
        waiting[following] -= 1
    return [following for following in order.after.get(node_id, ()) if not waiting[following]]


async def _cancel_all(tasks: set[asyncio.Task[NodeResult]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
