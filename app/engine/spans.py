"""Ticks, runs and nodes as spans of a trace. Nothing here is called unless traces are configured.

A tick that fires begins a trace whose id is that of the execution. So a run that is handed back or waits for a callback
goes on in the same trace on any worker, and the id of an execution is enough to find its trace.
"""

from collections.abc import Awaitable
from datetime import datetime

from app.domain.executions import FAILURES, Execution, NodeResult, Outcome
from app.domain.trigger_event import rfc3339
from app.domain.workflows import Node
from app.observability.tracing import Attributes, Kind, Span, Tracer, current, current_context
from app.persistence.execution_rows import Claimed


async def in_tick(tracer: Tracer, claimed: Claimed, work: Awaitable[None], began: datetime | None = None) -> None:
    """Do the rest of a claimed tick in a span that links to the last request that changed its schedule."""
    run = claimed.execution
    attributes: Attributes = {
        "carillon.schedule": str(claimed.job.id),
        "carillon.schedule.name": claimed.job.name,
        "carillon.outcome": "not_fired" if run is None else "fired",
        **({} if run is None else _of_run(run)),
    }
    # A request to the cron endpoint that fires the tick is a link too.
    links = (claimed.job.trace_context, current_context())
    trace_id = None if run is None else run.id
    with tracer.span("tick", Kind.CONSUMER, attributes, trace_id=trace_id, links=links, began=began):
        await work


async def in_run(tracer: Tracer, execution: Execution, work: Awaitable[None], claimed: Claimed | None) -> None:
    """Run an execution in a span: below its tick, below the request that asked for it, or on its own."""
    tick = None if claimed is None else current()
    parent = execution.trace_context
    if tick is not None:
        span = tick.child("run", Kind.INTERNAL, _of_run(execution))
    elif parent is not None:
        span = tracer.span("run", Kind.CONSUMER, _of_run(execution), parent=parent)
    else:
        span = tracer.span("run", Kind.CONSUMER, _of_run(execution), trace_id=execution.id, links=(current_context(),))
    with span:
        await work


def note_outcome(outcome: Outcome | None) -> None:
    """Note how the current run ended; None means that it was called off or parked."""
    span = current()
    if span is not None:
        span.note({"carillon.outcome": "left" if outcome is None else outcome.status})
        if outcome is not None and outcome.status in FAILURES:
            span.fail(outcome.status)


async def in_node(run: Span, node: Node, work: Awaitable[NodeResult]) -> NodeResult:
    """Run one node of a workflow in a span below that of its run."""
    with run.child(node.type, Kind.INTERNAL, {"carillon.node": node.id}) as span:
        result = await work
        span.note({"carillon.outcome": result.status})
        if result.status in FAILURES:
            span.fail(result.status)
        return result


def _of_run(execution: Execution) -> Attributes:
    return {
        "carillon.schedule": None if execution.scheduled_job_id is None else str(execution.scheduled_job_id),
        "carillon.entity": None if execution.entity is None else execution.source,
        "carillon.execution": str(execution.id),
        "carillon.slot": rfc3339(execution.scheduled_for),
        "carillon.attempt": execution.retry_attempt + 1,
        "carillon.trigger": execution.trigger,
    }
