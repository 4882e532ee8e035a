"""A failover that loses commits: what had been acknowledged is done again, under the same keys, and is said.

Covers app.persistence.row_cache, app.engine.ticks.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from app.config import Settings
from app.persistence.migrations import migrate
from tests.support.api_server import serving
from tests.support.carillon import Carillon, engine_of, http_node, settings_on, until, working
from tests.support.http_sink import Sink
from tests.support.postgres_pair import PostgresPair

LOST = "carillon_commits_lost_total"


@pytest.fixture
def pair() -> Iterator[PostgresPair]:
    """A primary without a replica yet."""
    with PostgresPair() as started:
        yield started


def lost_commits() -> float:
    """How many the metric has counted."""
    return REGISTRY.get_sample_value(LOST) or 0.0


async def test_what_was_acknowledged_and_lost_is_done_again(
    pair: PostgresPair, redis_url: str, tmp_path: Path, sink: Sink
) -> None:
    """No slot is left out, calls that are repeated carry the key of the first ones, and log and metric say so."""
    await migrate(pair.primary.url)
    await pair.add_replica()
    before = lost_commits()
    settings = settings_on(pair.url, redis_url, tmp_path)
    with capture_logs() as events:
        async with serving(settings) as carillon, working(settings):
            workflow = await carillon.workflow(http_node(sink.url))
            values = {"interval_seconds": 1, "catch_up": "run_all", "if_running": "allow"}
            schedule = await carillon.schedule(workflow, **values)
            await carillon.until_succeeded(schedule, 1)
            await pair.cut_replica_off()
            # Acknowledged by the primary, and unknown to the replica.
            lost = len(await carillon.runs(schedule)) + 2
            await carillon.until_succeeded(schedule, lost)
            await pair.fail_over()
            await carillon.until_succeeded(schedule, lost + 2)

            async def none_is_queued() -> set[str]:
                # Slots that a slow machine has missed run one after another.
                outcomes = set((await carillon.outcomes(schedule, timedelta(seconds=1))).values())
                return set() if "queued" in outcomes else outcomes

            outcomes = await until(none_is_queued)
    assert {"fired"} == outcomes
    calls = Counter((call.headers["x-carillon-slot"], call.headers["idempotency-key"]) for call in sink.calls)
    assert len(calls) == len({slot for slot, _ in calls}), "a slot has two keys"
    assert sum(times > 1 for times in calls.values()) >= 2
    said = {event["event"]: event for event in events}
    assert {"server_history_changed", "commits_lost"} <= said.keys()
    assert [schedule["id"]] == said["commits_lost"]["schedules"]
    assert lost_commits() > before


async def test_a_message_that_is_ahead_of_its_row_is_reported(carillon: Carillon, settings: Settings) -> None:
    """Messages are sent after the commit, so the commit is lost. The row decides: nothing runs, nothing changes."""
    schedule = await carillon.schedule()
    before = lost_commits()
    async with engine_of(settings) as engine:
        with capture_logs() as events:
            await engine.execute_scheduled_job(UUID(schedule["id"]), 1000)
    assert [[schedule["id"]]] == [event["schedules"] for event in events if event["event"] == "commits_lost"]
    assert before + 1 == lost_commits()
    assert [] == await carillon.runs(schedule)
    assert schedule["next_run_at"] == (await carillon.get(schedule))["next_run_at"]
