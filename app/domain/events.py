"""The event that a trigger node receives when a schedule fires."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from app.domain.executions import Execution


def event_data(execution: Execution) -> dict[str, Any]:
    """What the workflow is told about the run: whose it is, which repeat, for which slot, with which payload."""
    if execution.entity is not None:
        return {
            "entity_type": execution.entity.type,
            "entity_id": execution.entity.id,
            "entity_name": execution.entity.work.name,
            "payload": execution.payload,
            "scheduled_for": rfc3339(execution.scheduled_for),
            "fired_at": rfc3339(execution.fired_at),
        }
    return {
        "scheduled_job_id": str(execution.scheduled_job_id),
        "scheduled_job_name": execution.job_name,
        "repeat_number": execution.repeat_number,
        "payload": execution.payload,
        "scheduled_for": rfc3339(execution.scheduled_for),
        "fired_at": rfc3339(execution.fired_at),
    }


def template_variables(execution: Execution, event: Mapping[str, Any]) -> dict[str, Any]:
    """What templates can name: the event, the schedule, the slot and the execution."""
    return {
        "trigger": event,
        "schedule": {"id": _text(execution.scheduled_job_id), "name": execution.job_name},
        "slot": event["scheduled_for"],
        "execution": {"id": str(execution.id), "attempt": execution.retry_attempt + 1},
    }


def _text(value: UUID | None) -> str | None:
    return None if value is None else str(value)


def rfc3339(moment: datetime) -> str:
    """An instant as outsiders read it: UTC, with ``Z``."""
    utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return utc.isoformat()[:-6] + "Z"
