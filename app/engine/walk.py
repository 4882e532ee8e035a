"""Walking a workflow: nodes in graph order, branches side by side, the first failure ends it."""

import asyncio
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import structlog

from app import clock
from app.actions.catalog import ActionFailedError, Awaiting, Blocked, Catalog, Result, Skipped
from app.actions.context import ActionContext, LeaseLostError
from app.domain.executions import ExecutionStatus, NodeResult
from app.domain.workflows import Node, Order
from app.engine.dispatch import Dispatched
from app.engine.naming import names

# Enough to see what went wrong; an exception's text may be anything.
ERROR_CHARACTERS = 2000
# What a node did earlier and what stays so when an execution goes on; all else is done anew.
_STANDING = frozenset({ExecutionStatus.SUCCESS, ExecutionStatus.FAILED, ExecutionStatus.RUNNING})

log = structlog.get_logger(__name__)


class Walk:
    """One walk through one workflow. ``results`` grows while it goes on, and can be read when it was cut short."""

    def __init__(
        self,
        dispatched: Dispatched,
        catalog: Catalog,
        context_for: Callable[[str], ActionContext],
        variables: Callable[[], Mapping[str, Any]],
        earlier: Iterable[NodeResult] = (),
    ) -> None:
        """Nothing runs until ``run``; ``context_for`` makes the context of a node, templates see the variables.

        What has been done earlier is not done again, and what is awaited still is.
        """
        self._dispatched = dispatched
        self._catalog = catalog
        self._context_for = context_for
        self._earlier = {result.node_id: result for result in earlier}
        self._outputs: dict[str, Any] = {}
        self._variables = variables
        self.results: list[NodeResult] = []

    @property
    def is_awaiting(self) -> bool:
        """Whether a callback has to come before it goes on."""
        return any(result.status is ExecutionStatus.RUNNING for result in self.results)

    @property
    def known_results(self) -> list[NodeResult]:
        """What was done now, and what is known from earlier of nodes that this walk did not come to."""
        done = {result.node_id for result in self.results}
        return [*self.results, *(result for node_id, result in self._earlier.items() if node_id not in done)]

    @property
    def is_instant(self) -> bool:
        """Whether it ends without ever waiting."""
        order = self._dispatched.workflow.order_from(self._dispatched.trigger.id)
        return all(self._catalog.is_instant(self._dispatched.workflow.node(one).type) for one in order.waiting)

    async def run(self) -> NodeResult | None:
        """Run what the trigger reaches; the first node that did not succeed, or None if all did, or are awaited."""
        workflow = self._dispatched.workflow
        order = workflow.order_from(self._dispatched.trigger.id)
        waiting = dict(order.waiting)
        ready = list(order.first)
        going: set[asyncio.Task[NodeResult]] = set()
        try:
            while ready or going:
                if not going and (len(ready) == 1 or self.is_instant):
                    # Nothing is beside it, or nothing would wait: it needs no task of its own.
                    ended = [await self._result_of(workflow.node(ready.pop()))]
                else:
                    going |= {asyncio.create_task(self._result_of(workflow.node(node_id))) for node_id in ready}
                    done, going = await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
                    ended = [task.result() for task in done]
                    ready = []
                for result in ended:
                    if result.status is ExecutionStatus.SUCCESS:
                        ready += _let_go(order, result.node_id, waiting)
                    elif result.status is not ExecutionStatus.RUNNING:
                        return result
            return None
        finally:
            await _drop(going)

    async def _result_of(self, node: Node) -> NodeResult:
        """What was done earlier, or is done now."""
        earlier = self._earlier.get(node.id)
        if earlier is None or earlier.status not in _STANDING:
            return await self._run_node(node)
        if earlier.status is ExecutionStatus.SUCCESS:
            self._outputs[node.id] = {"output": earlier.output}
        self.results.append(earlier)
        return earlier

    async def _run_node(self, node: Node) -> NodeResult:
        """Whatever an action does, there is a result to store."""
        result = NodeResult(
            node_id=node.id,
            type=node.type,
            status=ExecutionStatus.CANCELLED,
            started_at=clock.now(),
            finished_at=clock.now(),
        )
        context = self._context_for(node.id)
        try:
            answer = await self._catalog.run(node, context, self._named)
            result = self._answered(result, answer)
        except (ActionFailedError, LeaseLostError) as error:
            result = _failed(result, str(error) or type(error).__name__)
        except Exception as error:  # noqa: BLE001 - whatever an action raises, others go on
            # With its traceback, but without the secrets that the action was shown.
            log.error(  # noqa: TRY400
                "action_crashed",
                node=node.id,
                type=node.type,
                exception=context.hidden(traceback.format_exc()),
                **names(context.scheduled_job_id, context.execution_id),
            )
            result = _failed(result, f"{type(error).__name__}: {error}")
        finally:
            result = msgspec.structs.replace(
                result,
                finished_at=clock.now(),
                output=context.hidden(result.output),
                error=context.hidden(result.error),
            )
            self.results.append(result)
        return result

    def _named(self) -> dict[str, Any]:
        """What templates can name now."""
        return {**self._variables(), "nodes": self._outputs}

    def _answered(self, result: NodeResult, answer: Result) -> NodeResult:
        """What an action answered, kept for the nodes after it."""
        if isinstance(answer, Skipped):
            return msgspec.structs.replace(result, status=ExecutionStatus.SKIPPED, error=_kept(answer.reason))
        if isinstance(answer, Awaiting):
            return msgspec.structs.replace(result, status=ExecutionStatus.RUNNING, output=answer.output)
        if isinstance(answer, Blocked):
            return msgspec.structs.replace(result, status=ExecutionStatus.BLOCKED, error=_kept(answer.reason))
        self._outputs[result.node_id] = {"output": answer.output}
        return msgspec.structs.replace(result, status=ExecutionStatus.SUCCESS, output=answer.output)


def _failed(result: NodeResult, error: str) -> NodeResult:
    return msgspec.structs.replace(result, status=ExecutionStatus.FAILED, error=_kept(error))


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
