"""The event that a trigger node receives when a schedule fires."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from app.domain.executions import Execution


class Event(Mapping[str, Any]):
    """What the workflow is told about the run: whose it is, which repeat, for which slot, with which payload.

    It is put together when it is first looked at: most actions never do.
    """

    def __init__(self, execution: Execution) -> None:
        """Nothing is put together yet."""
        self._execution = execution
        self._data: dict[str, Any] | None = None

    def __getitem__(self, name: str) -> Any:
        """One of its values."""
        return self._whole[name]

    def __iter__(self) -> Iterator[str]:
        """Their names."""
        return iter(self._whole)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._whole)

    @property
    def _whole(self) -> dict[str, Any]:
        if self._data is None:
            self._data = _event_data(self._execution)
        return self._data


def _event_data(execution: Execution) -> dict[str, Any]:
    times = {
        "payload": execution.payload,
        "scheduled_for": rfc3339(execution.scheduled_for),
        "fired_at": rfc3339(execution.fired_at),
    }
    if execution.entity is not None:
        entity = execution.entity
        return {"entity_type": entity.type, "entity_id": entity.id, "entity_name": entity.work.name, **times}
    return {
        "scheduled_job_id": str(execution.scheduled_job_id),
        "scheduled_job_name": execution.job_name,
        "repeat_number": execution.repeat_number,
        **times,
    }


def template_variables(execution: Execution, event: Mapping[str, Any]) -> dict[str, Any]:
    """What templates can name: the event, the schedule, the slot and the execution."""
    return {
        "trigger": dict(event),
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
