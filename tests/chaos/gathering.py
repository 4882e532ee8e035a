"""Reading what a run has left behind."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import msgspec

from tests.chaos.deployment import Deployment
from tests.chaos.evidence import Evidence, ExecutionRow, Fault, LedgerRow, Request, ScheduleRow


async def gather(
    deployment: Deployment,
    requests: Sequence[Request],
    faults: Sequence[Fault],
    *,
    began: datetime,
    calm: datetime,
    ours: str,
    bounds: Mapping[str, int] = MappingProxyType({}),
) -> Evidence:
    """Read everything as of one moment, and what arrived after that moment last; nothing of ``ours``, by its name."""
    ended = datetime.now(UTC)
    async with deployment.snapshot() as read:
        schedules = await read("SELECT * FROM scheduled_jobs WHERE name !~ $1", ours)
        ids = [row["id"] for row in schedules]
        executions = await read("SELECT * FROM workflow_executions WHERE scheduled_job_id = ANY($1)", ids)
        ledger = await read("SELECT * FROM ledger_entries WHERE scheduled_job_id = ANY($1)", ids)
    return Evidence(
        requests=list(requests),
        arrivals=list(deployment.target.arrivals),
        executions=[_as(ExecutionRow, row) for row in executions],
        ledger=[_as(LedgerRow, row) for row in ledger],
        schedules=[_schedule(row) for row in schedules],
        faults=list(faults),
        bounds=dict(bounds),
        crowds=list(deployment.target.crowds),
        began=began,
        calm=calm,
        ended=ended,
    )


def _schedule(row: Any) -> ScheduleRow:
    fields = {name: row[name] for name in ScheduleRow.__struct_fields__}
    return ScheduleRow(**fields | {"trigger_payload": msgspec.json.decode(row["trigger_payload"])})


def _as(kind: Any, row: Any) -> Any:
    return kind(**{name: row[name] for name in kind.__struct_fields__})
