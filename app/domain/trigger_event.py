"""The event that a trigger node receives, the variables of templates, and the format of times."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec

from app.domain.executions import Execution


class Event(Mapping[str, Any]):
    """The event of a run: the schedule or entity, the repeat, the slot and the payload.

    It is built when it is first read, because most actions never read it.
    """

    def __init__(self, execution: Execution) -> None:
        """Take the execution; nothing is built yet."""
        self._execution = execution
        self._data: dict[str, Any] | None = None

    def __getitem__(self, name: str) -> Any:
        """Return a value by its name."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._values)

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._values)

    def encoded(self, attempt: int) -> bytes:
        """Return the event as JSON, with the id of the execution and the attempt."""
        execution, entity = self._execution, self._execution.entity
        if entity is not None:
            return _encode({**self._values, "execution_id": execution.id, "attempt": attempt})
        # The encoder writes ids and moments as ``_event_data`` does, without a text for each.
        return _encode(
            {
                "scheduled_job_id": execution.scheduled_job_id,
                "scheduled_job_name": execution.job_name,
                "repeat_number": execution.repeat_number,
                "payload": execution.payload,
                "scheduled_for": _in_utc(execution.scheduled_for),
                "fired_at": _in_utc(execution.fired_at),
                "execution_id": execution.id,
                "attempt": attempt,
            }
        )

    @property
    def _values(self) -> dict[str, Any]:
        if self._data is None:
            self._data = _event_data(self._execution)
        return self._data


class ScheduleEvent(msgspec.Struct, frozen=True):
    """The values of an event of a schedule, as templates see them below ``trigger``."""

    scheduled_job_id: UUID
    scheduled_job_name: str
    # Counted from 0.
    repeat_number: int
    payload: dict[str, Any]
    scheduled_for: Annotated[datetime, msgspec.Meta(tz=True)]
    fired_at: Annotated[datetime, msgspec.Meta(tz=True)]


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
    """Return the variables of templates: the event, the schedule, the slot and the execution."""
    return {
        "trigger": dict(event),
        "schedule": {"id": _text(execution.scheduled_job_id), "name": execution.job_name},
        "slot": event["scheduled_for"],
        "execution": {"id": str(execution.id), "attempt": execution.retry_attempt + 1},
    }


def _text(value: UUID | None) -> str | None:
    return None if value is None else str(value)


def rfc3339(moment: datetime) -> str:
    """Return a moment as the API writes it: RFC 3339 in UTC, with ``Z``."""
    # A third of what ``isoformat`` costs; several are written for each call.
    return _encode(_in_utc(moment))[1:-1].decode()


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo is UTC else moment.astimezone(UTC)


_encode = msgspec.json.Encoder().encode
