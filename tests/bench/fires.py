"""How many fires a second, how late, and what each costs."""

import asyncio
from typing import Any

import msgspec

from tests.bench.stand import Stand

LEAD_SECONDS = 4.0


class Fires(msgspec.Struct):
    """What was measured over some seconds."""

    wanted_per_second: int
    per_second: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    cpu_seconds_per_1000: float
    wal_bytes_per_1000: float
    skipped: int


async def measure(stand: Stand, per_second: int, seconds: float, *, workers: int = 1, node: Any = None) -> Fires:
    """So many schedules of a second, and what a worker makes of them."""
    await stand.forget()
    workflow = await stand.workflow(node or {"id": "work", "type": "core.noop"})
    await stand.schedules(workflow, per_second, interval_seconds=1, begin=LEAD_SECONDS)
    async with stand.running("worker") as first:
        others = [stand.running("worker") for _ in range(workers - 1)]
        running = [first, *[await other.__aenter__() for other in others]]
        await asyncio.sleep(LEAD_SECONDS + 3)
        before = (await _runs(stand), sum(one.cpu_seconds() for one in running), await stand.wal_bytes())
        began = await stand.value("SELECT clock_timestamp()")
        await asyncio.sleep(seconds)
        after = (await _runs(stand), sum(one.cpu_seconds() for one in running), await stand.wal_bytes())
        ended = await stand.value("SELECT clock_timestamp()")
        late = await _lateness(stand, began, ended)
        for other in others:
            await other.__aexit__(None, None, None)
    fired = max(1, after[0] - before[0])
    elapsed = (ended - began).total_seconds()
    return Fires(
        wanted_per_second=per_second,
        per_second=fired / elapsed,
        p50_ms=late[0],
        p99_ms=late[1],
        max_ms=late[2],
        cpu_seconds_per_1000=(after[1] - before[1]) * 1000 / fired,
        wal_bytes_per_1000=(after[2] - before[2]) * 1000 / fired,
        skipped=await stand.value("SELECT coalesce(sum(slot_count), 0)::int FROM ledger_entries"),
    )


async def _runs(stand: Stand) -> int:
    """Accounted fires: claimed, run, settled, with the next one planned."""
    return int(await stand.value("SELECT coalesce(sum(run_count), 0)::bigint FROM scheduled_jobs"))


async def _lateness(stand: Stand, began: Any, ended: Any) -> tuple[float, float, float]:
    (row,) = await stand.sql(
        "SELECT percentile_cont(ARRAY[0.5, 0.99, 1.0]) WITHIN GROUP "
        "(ORDER BY extract(epoch FROM started_at - scheduled_for) * 1000) AS ms "
        "FROM workflow_executions WHERE started_at BETWEEN $1 AND $2",
        began,
        ended,
    )
    return tuple(row["ms"]) if row["ms"] else (0.0, 0.0, 0.0)
