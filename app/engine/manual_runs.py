"""Runs that a request asks for: they leave the cadence and the counters of their schedules alone."""

from datetime import datetime
from typing import Any
from uuid import uuid4

from app.domain.executions import ExecutionStatus, Trigger
from app.domain.overlap import Begin, Queue, runs_alone
from app.domain.run_ids import manual_execution_id
from app.domain.schedules import IfRunning, ScheduledJob
from app.observability.tracing import current_context
from app.persistence.execution_rows import NewExecution


def manual_run(
    job: ScheduledJob, now: datetime, policy: IfRunning, start: Begin | Queue, payload: dict[str, Any] | None = None
) -> NewExecution:
    """Return a run of a locked schedule that starts now, or waits behind the active ones.

    Its payload is that of the schedule unless another one is given.
    """
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
        payload=job.trigger_payload if payload is None else payload,
        timeout_seconds=job.timeout_seconds,
        created_at=now,
        due_at=now,
        trace_context=current_context(),
    )
