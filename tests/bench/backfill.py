"""A backfill of the largest size: how long it takes to plan and to start. ``python -m tests.bench.backfill``."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from app.domain.backfills import MOST_SLOTS
from tests.bench.stand import Running, Stand
from tests.bench.web import Caller, free_port, ready_caller

SPECS: tuple[dict[str, Any], ...] = ({"interval_seconds": 60}, {"cron": "* * * * *", "timezone": "Europe/Berlin"})
_ROWS = (
    "SELECT (SELECT count(*) FROM backfilled_slots) + (SELECT count(*) FROM active_executions) "
    "+ (SELECT count(*) FROM operation_items)"
)


class Measured(msgspec.Struct):
    """What one call took: of the API alone the processor time and the memory, and the rows that it has written."""

    call: str
    spec: str
    slots: int
    seconds: float
    cpu_seconds: float
    megabytes: float
    rows: int


async def measure() -> list[Measured]:
    """Try out and start a backfill of a schedule of each kind."""
    found = []
    async with Stand() as stand:
        workflow = await stand.workflow({"id": "work", "type": "core.noop"})
        port = free_port()
        async with stand.running("api", CARILLON_PORT=str(port)) as api:
            caller = await ready_caller(port)
            for spec in SPECS:
                body = {"name": "s", "workflow_id": workflow, **spec}
                schedule = await caller.call("POST", "/api/v1/schedules/", body)
                path = f"/api/v1/schedules/{schedule['id']}/backfill/"
                name = next(iter(spec))
                found += [
                    await _call(stand, api, caller, path, dry_run=dry_run, spec=name) for dry_run in (True, False)
                ]
    return found


async def _call(stand: Stand, api: Running, caller: Caller, path: str, *, dry_run: bool, spec: str) -> Measured:
    end = datetime.now(UTC).replace(second=30, microsecond=0) - timedelta(minutes=2)
    span = {"from": (end - timedelta(minutes=MOST_SLOTS)).isoformat(), "to": end.isoformat()}
    rows, memory, used, began = await stand.value(_ROWS), api.megabytes(), api.cpu_seconds(), time.monotonic()
    told = await caller.call("POST", path, {**span, "dry_run": dry_run})
    return Measured(
        call="dry run" if dry_run else "start",
        spec=spec,
        slots=told["count"] if dry_run else told["total"],
        seconds=round(time.monotonic() - began, 2),
        cpu_seconds=round(api.cpu_seconds() - used, 2),
        megabytes=round(api.megabytes() - memory),
        rows=await stand.value(_ROWS) - rows,
    )


def main() -> None:
    """Print what was measured."""
    for measured in asyncio.run(measure()):
        print(msgspec.json.encode(measured).decode())  # noqa: T201 - what was asked for


if __name__ == "__main__":
    main()
