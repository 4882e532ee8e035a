"""Walking a workflow: nodes in graph order, branches side by side, the first failure ends it."""

import asyncio
from collections.abc import Callable
from graphlib import TopologicalSorter

import msgspec
import structlog

from app import clock
from app.actions.catalog import ActionFailedError, Catalog
from app.actions.context import ActionContext, LeaseLostError
from app.domain.executions import ExecutionStatus, NodeResult
from app.domain.workflows import Node, run_order
from app.engine.dispatch import Dispatched

# Enough to see what went wrong; an exception's text may be anything.
ERROR_CHARACTERS = 2000

log = structlog.get_logger(__name__)


class Walk:
    """One walk through one workflow. ``results`` grows while it goes on, and can be read when it was cut short."""

    def __init__(self, dispatched: Dispatched, catalog: Catalog, context_for: Callable[[str], ActionContext]) -> None:
        """Nothing runs until ``run``; ``context_for`` makes the context of a node."""
        self._dispatched = dispatched
        self._catalog = catalog
        self._context_for = context_for
        self.results: list[NodeResult] = []

    async def run(self) -> NodeResult | None:
        """Run what the trigger reaches; the first failure, or None if all went well."""
        workflow, trigger = self._dispatched.workflow, self._dispatched.trigger
        order = TopologicalSorter(run_order(workflow, trigger.id))
        order.prepare()
        going: dict[asyncio.Task[NodeResult], str] = {}
        try:
            while order.is_active():
                for node_id in order.get_ready():
                    going[asyncio.create_task(self._run_node(workflow.node(node_id)))] = node_id
                done, _ = await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    order.done(going.pop(task))
                    if task.result().status is not ExecutionStatus.SUCCESS:
                        return task.result()
            return None
        finally:
            await _drop(going)

    async def _run_node(self, node: Node) -> NodeResult:
        """Whatever an action does, there is a result to store."""
        result = NodeResult(
            node_id=node.id,
            type=node.type,
            status=ExecutionStatus.CANCELLED,
            started_at=clock.now(),
            finished_at=clock.now(),
        )
        try:
            output = await self._catalog.run(node, self._context_for(node.id))
            result = msgspec.structs.replace(result, status=ExecutionStatus.SUCCESS, output=output)
        except (ActionFailedError, LeaseLostError) as error:
            result = _failed(result, str(error) or type(error).__name__)
        except Exception as error:
            log.exception("action_crashed", node=node.id, type=node.type)
            result = _failed(result, f"{type(error).__name__}: {error}")
        finally:
            result = msgspec.structs.replace(result, finished_at=clock.now())
            self.results.append(result)
        return result


def _failed(result: NodeResult, error: str) -> NodeResult:
    kept = error.replace("\x00", "\ufffd")[:ERROR_CHARACTERS]
    return msgspec.structs.replace(result, status=ExecutionStatus.FAILED, error=kept)


async def _drop(going: dict[asyncio.Task[NodeResult], str]) -> None:
    for task in going:
        task.cancel()
    if going:
        await asyncio.wait(going)
