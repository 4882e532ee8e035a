"""Operations on many schedules while others fire: how long a pause and its undo take, and what they do to fires."""

import asyncio
import time
from typing import Any

import msgspec

from tests.bench.fires import LEAD_SECONDS
from tests.bench.stand import Stand
from tests.bench.web import Caller, free_port, ready_caller

FAR_SECONDS = 7 * 86_400.0
LONGEST_SECONDS = 600.0


class BulkChange(msgspec.Struct):
    """How long an operation on so many schedules took, and the fires in that time."""

    schedules: int
    wanted_per_second: int
    pause_seconds: float
    undo_seconds: float
    fires_per_second: float
    late_p99_ms: float


async def measure_bulk(stand: Stand, count: int, per_second: int) -> BulkChange:
    """Pause so many schedules and undo it, while schedules of another workflow fire each second."""
    await stand.forget()
    busy = await stand.workflow({"id": "work", "type": "core.noop"})
    idle = await stand.workflow({"id": "work", "type": "core.noop"})
    await stand.schedules(idle, count, interval_seconds=FAR_SECONDS, begin=FAR_SECONDS)
    await stand.schedules(busy, per_second, interval_seconds=1, begin=LEAD_SECONDS)
    port = free_port()
    async with stand.running("worker"), stand.running("api", CARILLON_PORT=str(port)):
        caller = await ready_caller(port)
        await asyncio.sleep(LEAD_SECONDS + 3)
        began = await stand.value("SELECT clock_timestamp()")
        body = {"action": "pause", "filter": {"workflow_id": idle}, "expect_count": count}
        paused, operation = await _carried_out(caller, "/api/v1/schedules/bulk/", body, count)
        ended = await stand.value("SELECT clock_timestamp()")
        undone, _ = await _carried_out(caller, f"/api/v1/operations/{operation}/undo/", {}, count)
    (row,) = await stand.sql(_FIRED, busy, began, ended)
    elapsed = (ended - began).total_seconds()
    return BulkChange(count, per_second, paused, undone, row["fired"] / elapsed, float(row["late"] or 0))


_FIRED = (
    "SELECT count(*) AS fired, percentile_cont(0.99) WITHIN GROUP "
    "(ORDER BY extract(epoch FROM started_at - scheduled_for) * 1000) AS late "
    "FROM workflow_executions WHERE workflow_id = $1 AND started_at BETWEEN $2 AND $3"
)


async def _carried_out(caller: Caller, path: str, body: Any, count: int) -> tuple[float, str]:
    """Start an operation and wait for its end; return the seconds and its id."""
    began = time.monotonic()
    operation = await caller.call("POST", path, body)
    while operation["status"] == "running":
        assert time.monotonic() < began + LONGEST_SECONDS, operation
        await asyncio.sleep(0.2)
        operation = await caller.call("GET", f"/api/v1/operations/{operation['id']}/")
    assert ("done", count) == (operation["status"], operation["done"]), operation
    return time.monotonic() - began, operation["id"]
