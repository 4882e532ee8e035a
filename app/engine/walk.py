"""The walk through a workflow: from the event to its trigger node, then node by node in graph order."""

import asyncio
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import structlog
from msgspec.structs import replace

from app import clock
from app.actions.catalog import ActionFailedError, Awaiting, Blocked, Catalog, Done, Result, Skipped, Sleeping
from app.actions.context import ActionContext, LeaseLostError
from app.domain.access import Actor
from app.domain.errors import NoTriggerError
from app.domain.executions import Entity, ExecutionStatus, NodeResult
from app.domain.workflows import TRIGGER_TYPE, Edge, Node, Order, Workflow, bounded, resolve_trigger
from app.engine.spans import in_node
from app.observability.logs import log_fields
from app.observability.tracing import current

EVENT_TYPE = "schedule"


class Dispatched(msgspec.Struct, frozen=True):
    """A workflow that is to run from one of its triggers."""

    workflow: Workflow
    trigger: Node
    event_data: Mapping[str, Any]
    # The actor whose rights its actions have: see ``app.domain.access.lesser``.
    user: Actor

    @property
    def graph(self) -> dict[str, Any]:
        """What a run that is put aside goes on with, whatever becomes of the workflow meanwhile."""
        flow = self.workflow
        graph: dict[str, Any] = msgspec.to_builtins(
            {"name": flow.name, "nodes": flow.nodes, "edges": flow.edges, "trigger": self.trigger.id}
        )
        return graph

    @property
    def order(self) -> Order:
        """The nodes that the trigger reaches, and which waits for which."""
        return self.workflow.order_from(self.trigger.id)


def dispatch_event(
    event_type: str,
    event_data: Mapping[str, Any],
    user: Actor | None,
    workflow: Workflow | None,
    trigger_node_id: str | None,
) -> Dispatched:
    """Find what an event starts; what stands in the way is a ``NoTriggerError`` that says so."""
    if event_type != EVENT_TYPE:
        raise NoTriggerError(f"There is no trigger for events of type '{event_type}'.")
    if user is None:
        raise NoTriggerError("The user who owns the schedule no longer exists.")
    if workflow is None:
        raise NoTriggerError("The workflow no longer exists.")
    if not workflow.active:
        raise NoTriggerError(f"The workflow '{workflow.name}' is not active.")
    return Dispatched(workflow, resolve_trigger(workflow, trigger_node_id, event_data), event_data, user)


def dispatch_again(
    graph: Mapping[str, Any], event_data: Mapping[str, Any], user: Actor | None, workflow: Workflow | None
) -> Dispatched:
    """A run that was put aside, with the graph that it began with; the workflow as it is now says whose it is."""
    if user is None or workflow is None:
        raise NoTriggerError("The workflow, or the user who owns the schedule, no longer exists.")
    kept = {"name": graph["name"], "nodes": graph["nodes"], "edges": graph["edges"]}
    began_with = msgspec.convert({**msgspec.to_builtins(workflow), **kept, "active": True}, Workflow)
    return Dispatched(began_with, began_with.node(graph["trigger"]), event_data, user)


def dispatch_entity(entity: Entity, event_data: Mapping[str, Any], user: Actor | None) -> Dispatched:
    """What an entity wants done, as a workflow of one node."""
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


# Enough to see what went wrong; an exception's text may be anything.
ERROR_CHARACTERS = 2000
# What a node did earlier and what stays so when an execution goes on; all else is done anew.
_STANDING = frozenset({ExecutionStatus.SUCCESS, ExecutionStatus.FAILED, ExecutionStatus.RUNNING})

log = structlog.get_logger(__name__)


class Earlier(msgspec.Struct, frozen=True):
    """What was done before a run was put aside or handed back, and which of its nodes still sleep until when.

    The times are those of this process's monotonic clock.
    """

    results: Sequence[NodeResult] = ()
    asleep: Mapping[str, float] = msgspec.field(default_factory=dict)


class Walk:
    """One walk through one workflow. ``results`` grows while it goes on, and can be read when it was cut short."""

    def __init__(
        self,
        dispatched: Dispatched,
        catalog: Catalog,
        context_for: Callable[[str], ActionContext],
        variables: Callable[[], Mapping[str, Any]],
        earlier: "Earlier | None" = None,
    ) -> None:
        """Nothing runs until ``run``; ``context_for`` makes the context of a node, templates see the variables.

        What has been done earlier is not done again, and what is awaited or asleep still is.
        """
        earlier = earlier or Earlier()
        self._dispatched = dispatched
        self._catalog = catalog
        self._context_for = context_for
        self._earlier = {result.node_id: result for result in earlier.results}
        self._still_asleep = earlier.asleep
        self._outputs: dict[str, Any] = {}
        self._variables = variables
        self.results: list[NodeResult] = []
        # The nodes that sleep now, each with when it wakes up by this process's monotonic clock.
        self.asleep: dict[str, float] = {}

    @property
    def is_parked(self) -> bool:
        """Whether a callback or a time has to come before it goes on."""
        return any(result.status is ExecutionStatus.RUNNING for result in self.results)

    @property
    def known_results(self) -> list[NodeResult]:
        """What was done now, and what is known from earlier of nodes that this walk did not come to."""
        done = {result.node_id for result in self.results}
        return [*self.results, *(result for node_id, result in self._earlier.items() if node_id not in done)]

    @property
    def is_instant(self) -> bool:
        """Whether it ends without ever waiting."""
        return self._catalog.are_instant(self._dispatched.order.types)

    async def run(self) -> NodeResult | None:
        """Run what the trigger reaches; the first node that did not succeed, or None if all did, or are awaited."""
        workflow, order = self._dispatched.workflow, self._dispatched.order
        waiting = dict(order.waiting)
        ready = list(order.first)
        going: set[asyncio.Task[NodeResult]] = set()
        try:
            while ready or going:
                if not going and not self.asleep and (len(ready) == 1 or self.is_instant):
                    # Nothing is beside it, or nothing would wait: it needs no task of its own.
                    ended = [await self._result_of(workflow.node(ready.pop()))]
                else:
                    going |= {asyncio.create_task(self._result_of(workflow.node(node_id))) for node_id in ready}
                    done, going = await asyncio.wait(
                        going, timeout=self._until_next_wake(), return_when=asyncio.FIRST_COMPLETED
                    )
                    ended = [*(task.result() for task in done), *self._woken()]
                    ready = []
                for result in ended:
                    if result.status is ExecutionStatus.SUCCESS:
                        ready += _let_go(order, result.node_id, waiting)
                    elif result.status is not ExecutionStatus.RUNNING:
                        return result
            return None
        finally:
            await _drop(going)

    def _until_next_wake(self) -> float | None:
        """The seconds until the first sleeper wakes up: what follows it waits for nothing that goes on beside it."""
        return max(0.0, min(self.asleep.values()) - clock.monotonic()) if self.asleep else None

    def _woken(self) -> list[NodeResult]:
        """The sleepers whose time has come, as successes."""
        now = clock.monotonic()
        woken = {node_id for node_id, wakes in self.asleep.items() if wakes <= now}
        for at, result in enumerate(self.results):
            if result.node_id in woken:
                self.results[at] = replace(result, status=ExecutionStatus.SUCCESS, finished_at=clock.now())
                self._outputs[result.node_id] = {"output": result.output}
                del self.asleep[result.node_id]
        return [result for result in self.results if result.node_id in woken]

    async def _result_of(self, node: Node) -> NodeResult:
        """What was done earlier, or is done now."""
        earlier = self._earlier.get(node.id)
        if earlier is not None and node.id in self._still_asleep:
            self.asleep[node.id] = self._still_asleep[node.id]
            earlier = replace(earlier, status=ExecutionStatus.RUNNING)
        if earlier is None or earlier.status not in _STANDING:
            work, span = self._run_node(node), current()
            return await (work if span is None else in_node(span, node, work))
        if earlier.status is ExecutionStatus.SUCCESS:
            self._outputs[node.id] = {"output": earlier.output}
        self.results.append(earlier)
        return earlier

    async def _run_node(self, node: Node) -> NodeResult:
        """Whatever an action does, there is a result to store."""
        started_at = clock.now()
        context = self._context_for(node.id)
        status, output, error = ExecutionStatus.CANCELLED, None, ""
        try:
            answer = await self._catalog.run(node, context, self._named)
            status, output, error = _read(answer)
            # Later nodes get it without the secrets too: what a target sends back may not go on to other hosts.
            output = context.hidden(output)
            if status is ExecutionStatus.SUCCESS:
                self._outputs[node.id] = {"output": bounded(output)}
            if isinstance(answer, Sleeping):
                self.asleep[node.id] = clock.monotonic() + answer.seconds
        except (ActionFailedError, LeaseLostError) as failure:
            status, error = ExecutionStatus.FAILED, str(failure) or type(failure).__name__
        except Exception as failure:  # noqa: BLE001 - whatever an action raises, others go on
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
                # First hidden, then cut: half a secret would not be recognised.
                output=bounded(output),
                error=_kept(context.hidden(error)) if error else "",
                started_at=started_at,
                finished_at=clock.now(),
            )
            self.results.append(result)
        return result

    def _named(self) -> dict[str, Any]:
        """What templates can name now."""
        return {**self._variables(), "nodes": self._outputs}


def _read(answer: Result) -> tuple[ExecutionStatus, Any, str]:
    """What an action answered: how it ended, what it gave, and why it did not do more."""
    match answer:
        case Skipped():
            return ExecutionStatus.SKIPPED, None, answer.reason
        case Awaiting() | Sleeping():
            return ExecutionStatus.RUNNING, answer.output, ""
        case Blocked():
            return ExecutionStatus.BLOCKED, None, answer.reason
        case Done():
            return ExecutionStatus.SUCCESS, answer.output, ""


def _kept(words: str) -> str:
    return words.replace("\x00", "\ufffd")[:ERROR_CHARACTERS]


def _let_go(order: Order, node_id: str, waiting: dict[str, int]) -> list[str]:
    """The nodes that waited for this one alone."""
    for following in order.after.get(node_id, ()):
        waiting[following] -= 1
    return [following for following in order.after.get(node_id, ()) if not waiting[following]]


async def _drop(going: set[asyncio.Task[NodeResult]]) -> None:
    for task in going:
        task.cancel()
    if going:
        await asyncio.wait(going)
