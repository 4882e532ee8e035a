"""What Prometheus is told, by the API and by a worker.

Covers app.observability.metrics, app.persistence.gauges.
"""

import asyncio
import socket
import subprocess
import sys
from typing import Any

import httpx
import msgspec
import pytest
from litestar.testing import AsyncTestClient
from prometheus_client import REGISTRY, Histogram

from app.config import Settings
from app.observability.metrics import PlainHistogram
from app.persistence.database import Database
from app.wiring import wire_api
from app.worker import run_worker
from tests.support.carillon import Carillon, make_due, until


def samples(text: str) -> dict[str, float]:
    """Each series with its value."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_the_api_tells_of_requests_and_of_what_stands_in_postgres(carillon: Carillon, database: Database) -> None:
    """Requests by the template of their route; schedules by their state."""
    schedule = await carillon.schedule()
    await carillon.get(schedule)
    await make_due(database, schedule)
    other = await carillon.schedule()
    await carillon.call("POST", f"/schedules/{other['id']}/pause/")
    found = samples((await carillon.raw("GET", "/metrics")).text)
    route = 'method="GET",route="/api/v1/schedules/{schedule_id}"'
    assert found[f'carillon_http_requests_total{{{route},status="200"}}'] >= 1
    assert not [name for name in found if schedule["id"] in name]
    assert 'carillon_schedules{status="paused"}' in found
    assert 'carillon_database_connections{state="idle"}' in found
    assert "carillon_due_ticks" in found
    assert (1, 1) == (found["carillon_postgres_up"], found["carillon_redis_up"])
    assert found["carillon_database_connections_limit"] >= 2


async def test_a_worker_tells_of_its_runs_and_whether_it_can_work(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """On a port of its own, with its health."""
    schedule = await carillon.schedule(interval_seconds=1)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    stopping = asyncio.Event()
    worker = asyncio.create_task(run_worker(msgspec.structs.replace(settings, metrics_port=port), stopping))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:

        async def has_run() -> bool:
            runs = await carillon.runs(schedule)
            if not any(run["status"] == "success" for run in runs):
                return False
            # The counters follow the commit that shows the status.
            counted = samples((await client.get("/metrics")).text)
            return bool(counted.get('carillon_executions_ended_total{status="success"}'))

        await until(has_run)
        assert [200, 200] == [(await client.get(f"/health/{probe}")).status_code for probe in ("live", "ready")]
        found = samples((await client.get("/metrics")).text)
    stopping.set()
    await worker
    assert found['carillon_executions_ended_total{status="success"}'] >= 1
    assert found["carillon_lateness_seconds_count"] >= 1
    assert found['carillon_run_seconds_count{status="success"}'] >= 1
    assert "carillon_runs_in_flight" in found
    # Counters begin at 0, or Prometheus would not see their first increase.
    assert 'carillon_slots_missed_total{outcome="skipped_guard"}' in found
    assert 'carillon_executions_ended_total{status="lost"}' in found
    assert (1, 1) == (found["carillon_postgres_up"], found["carillon_redis_up"])


@pytest.mark.parametrize("module", ["app.worker", "app.wiring"])
def test_a_process_exports_no_gauge_that_it_has_not_set(module: str) -> None:
    """A worker knows no number of workers, and an API that has read nothing yet reports no zero."""
    program = f"import {module}; from app.observability.metrics import exposition; print(exposition().decode())"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    found = {name for name in samples(said) if name.startswith("carillon_")}
    never_set = {"due_ticks", "oldest_overdue_seconds", "workers", "mode", "runs_in_flight", "postgres_up", "redis_up"}
    assert found
    assert set() == found & {f"carillon_{name}" for name in never_set}


async def test_what_cannot_be_read_vanishes(settings: Settings, carillon: Carillon) -> None:
    """Without Postgres nothing that is read from it stands still; what is known of the outage is exported."""
    await carillon.schedule()
    assert "carillon_due_ticks" in samples((await carillon.raw("GET", "/metrics")).text)
    # An API that cannot reach Postgres, in the same process: the gauges are shared.
    away = msgspec.structs.replace(settings, database_url="postgresql+asyncpg://carillon@127.0.0.1:1/x")
    async with AsyncTestClient(wire_api(away)) as client:
        found = samples((await client.get("/metrics")).text)
    read = ("carillon_due_ticks", "carillon_oldest_overdue_seconds", "carillon_workers", "carillon_schedules")
    assert [] == [name for name in found if name.startswith((*read, "carillon_breakers"))]
    assert (0, 1) == (found["carillon_postgres_up"], found["carillon_redis_up"])


def test_a_plain_histogram_says_what_an_ordinary_one_would() -> None:
    """Bounds included, with and without a label; but for the time at which it was created."""
    bounds = (0.5, 1.0)
    values = {"good": (0.1, 0.5, 0.75, 1.0, 7.0), "bad": (2.0,)}
    ordinary = Histogram("trial_seconds", "Trial.", ["kind"], buckets=bounds)
    for kind, seconds in values.items():
        for value in seconds:
            ordinary.labels(kind).observe(value)
    REGISTRY.unregister(ordinary)
    plain = PlainHistogram("trial_seconds", "Trial.", bounds, "kind")
    for kind, seconds in values.items():
        for value in seconds:
            plain.observe(value, kind)
    REGISTRY.unregister(plain)

    def series(metric: Any) -> list[tuple[str, tuple[tuple[str, str], ...], float]]:
        collected = [sample for family in metric.collect() for sample in family.samples]
        return sorted(
            (one.name, tuple(sorted(one.labels.items())), one.value)
            for one in collected
            if not one.name.endswith("_created")
        )

    assert series(ordinary) == series(plain)
    unlabelled = PlainHistogram("trial_seconds", "Trial.", bounds)
    REGISTRY.unregister(unlabelled)
    assert {0.0} == {value for _, _, value in series(unlabelled)}
