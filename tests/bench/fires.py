"""How many fires a second, how late, and what each costs."""

import asyncio
from typing import Any

import msgspec

from tests.bench.stand import Running, Stand

LEAD_SECONDS = 4.0


class Fires(msgspec.Struct):
    """What was measured over some seconds."""

    wanted_per_second: int
    workers: int
    per_second: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    cpu_seconds_per_1000: float
    postgres_cpu_seconds_per_1000: float
    wal_bytes_per_1000: float
    skipped: int

    @property
    def keeps_up(self) -> bool:
        """Whether everything that was wanted fired, on time enough that nothing was passed over."""
        return not self.skipped and self.per_second > 0.97 * self.wanted_per_second


async def saturation(
    stand: Stand, seconds: float, *, start: int = 2000, step: float = 1.2, node: Any = None
) -> list[Fires]:
    """Faster and faster until it no longer keeps up, and half a step back: the best is what it can do."""
    tried: list[Fires] = []
    rate = float(start)
    while not tried or tried[-1].keeps_up:
        tried.append(await measure(stand, int(rate), seconds, node=node))
        rate *= step
    tried.append(await measure(stand, int(rate / step / (1 + (step - 1) / 2)), seconds, node=node))
    return tried


async def measure(stand: Stand, per_second: int, seconds: float, *, workers: int = 1, node: Any = None) -> Fires:
    """So many schedules of a second, and what a worker makes of them."""
    await stand.forget()
    workflow = await stand.workflow(node or {"id": "work", "type": "core.noop"})
    await stand.schedules(workflow, per_second, interval_seconds=1, begin=LEAD_SECONDS)
    async with stand.running("worker") as first:
        others = [stand.running("worker") for _ in range(workers - 1)]
        running = [first, *[await other.__aenter__() for other in others]]
        await asyncio.sleep(LEAD_SECONDS + 3)
        before = await _readings(stand, running)
        began = await stand.value("SELECT clock_timestamp()")
        await asyncio.sleep(seconds)
        after = await _readings(stand, running)
        ended = await stand.value("SELECT clock_timestamp()")
        late = await _lateness(stand, began, ended)
        twice = await stand.value(_TWICE)
        assert not twice, f"{twice} slots fired twice"
        for other in others:
            await other.__aexit__(None, None, None)
    fired = max(1, after[0] - before[0])
    elapsed = (ended - began).total_seconds()
    return Fires(
        wanted_per_second=per_second,
        workers=workers,
        per_second=fired / elapsed,
        p50_ms=late[0],
        p99_ms=late[1],
        max_ms=late[2],
        cpu_seconds_per_1000=(after[1] - before[1]) * 1000 / fired,
        postgres_cpu_seconds_per_1000=(after[3] - before[3]) * 1000 / fired,
        wal_bytes_per_1000=(after[2] - before[2]) * 1000 / fired,
        skipped=await stand.value("SELECT coalesce(sum(slot_count), 0)::int FROM ledger_entries"),
    )


_TWICE = (
    "SELECT count(*) FROM (SELECT FROM workflow_executions "
    "GROUP BY scheduled_job_id, scheduled_for, retry_attempt HAVING count(*) > 1) AS doubled"
)


async def _readings(stand: Stand, running: list[Running]) -> tuple[int, float, int, float]:
    """Return the fires so far, the CPU seconds of workers, the bytes of WAL, and the CPU seconds of Postgres."""
    cpu = sum(one.cpu_seconds() for one in running)
    return await _runs(stand), cpu, await stand.wal_bytes(), stand.postgres_cpu_seconds()


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
