"""A forecast of a large fleet: how long it takes, and how much memory. ``python -m tests.bench.forecast 1000000``."""

import asyncio
import sys
import time
from datetime import UTC, datetime

import msgspec

from app.domain.recurrence import cron_times
from tests.bench.stand import Stand
from tests.bench.web import free_port, ready_caller

# Shares of the fleet: intervals with phases of their own, and expressions that many have in common.
INTERVALS = {3600.0: 0.3, 300.0: 0.1, 86_400.0: 0.2}
EXPRESSIONS = [f"{minute} {hour} * * *" for hour in range(24) for minute in (0, 5, 15, 30, 45)]
EXPRESSIONS += [f"{minute} * * * *" for minute in range(60)]
REPEATS = 3


class Measured(msgspec.Struct, kw_only=True):
    """What a forecast of a day in buckets of five minutes took."""

    schedules: int
    by: str | None
    seconds: float
    # Of the API alone, and of Postgres.
    cpu_seconds: float
    postgres_cpu_seconds: float
    megabytes: float
    fires: int


async def fill(stand: Stand, count: int) -> None:
    """Create so many schedules, on one workflow."""
    workflow = await stand.workflow({"id": "work", "type": "core.noop"})
    for interval, share in INTERVALS.items():
        await stand.schedules(workflow, int(count * share), interval_seconds=interval, begin=60.0)
    rest = count - sum(int(count * share) for share in INTERVALS.values())
    now = datetime.now(UTC)
    slots = [cron_times(expression, "UTC", None, ()).next(now) for expression in EXPRESSIONS]
    await stand.schedules(workflow, rest, interval_seconds=7.0, begin=60.0)
    await stand.sql(
        "UPDATE scheduled_jobs AS j SET interval_seconds = NULL, cron = e.cron, cadence_slot = e.slot, "
        "next_slot = e.slot, next_run_at = e.slot FROM unnest($1::text[], $2::timestamptz[]) WITH ORDINALITY "
        "AS e(cron, slot, number) WHERE j.interval_seconds = 7 AND e.number - 1 = abs(hashtext(j.id::text)) % $3",
        EXPRESSIONS,
        slots,
        len(EXPRESSIONS),
    )
    await stand.put_in_order()


async def measure(count: int) -> list[Measured]:
    """Fill a database and forecast it, several times for each way to tell it apart."""
    found = []
    async with Stand() as stand:
        await fill(stand, count)
        port = free_port()
        async with stand.running("api", CARILLON_PORT=str(port)) as api:
            caller = await ready_caller(port)
            for by in (None, "workflow", "owner", "host", "schedule"):
                for _ in range(REPEATS):
                    before, used, began = api.megabytes(), api.cpu_seconds(), time.monotonic()
                    by_postgres = stand.postgres_cpu_seconds()
                    told = await caller.call("POST", "/api/v1/forecast/", {"by": by})
                    seconds = time.monotonic() - began
                    fires = sum(bucket["fires"] for bucket in told["buckets"])
                    used, more = api.cpu_seconds() - used, api.megabytes() - before
                    by_postgres = stand.postgres_cpu_seconds() - by_postgres
                    found.append(
                        Measured(
                            schedules=count,
                            by=by,
                            seconds=round(seconds, 2),
                            cpu_seconds=round(used, 2),
                            postgres_cpu_seconds=round(by_postgres, 2),
                            megabytes=round(more),
                            fires=fires,
                        )
                    )
    return found


def main() -> None:
    """Print what was measured."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    for measured in asyncio.run(measure(count)):
        print(msgspec.json.encode(measured).decode())  # noqa: T201 - what was asked for


if __name__ == "__main__":
    main()
