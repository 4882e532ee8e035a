"""The switch to a second region of docs/operating.md: its pods wait on a standby, and go on when it is promoted."""

from datetime import timedelta
from pathlib import Path

from app.persistence.migrations import migrate
from tests.support.api_server import serving
from tests.support.carillon import Carillon, settings_on, until, working
from tests.support.postgres_pair import PostgresPair, sql, wait_for_replica


async def until_status(carillon: Carillon, status: int) -> str:
    """Wait until readiness is answered with this status, and return its detail."""

    async def answered() -> str | None:
        answer = await carillon.raw("GET", "/health/ready")
        return answer.text if answer.status_code == status else None

    return await until(answered)


async def test_pods_on_a_standby_wait_for_its_promotion(redis_url: str, tmp_path: Path) -> None:
    """Nothing fires there before; afterwards each slot has one outcome. The second region has a Redis of its own."""
    with PostgresPair() as pair:
        await migrate(pair.primary.url)
        await pair.add_replica()
        await wait_for_replica(pair.primary)
        assert pair.replica is not None
        first = settings_on(pair.primary.url, redis_url, tmp_path)
        second = settings_on(pair.replica.url, f"{redis_url}?db=1", tmp_path)
        async with serving(second) as there, working(second):
            async with serving(first) as here, working(first):
                schedule = await here.schedule(interval_seconds=1, catch_up="run_all", if_running="allow")
                await here.until_succeeded(schedule, 1)
                assert "read-only" in await until_status(there, 503)
                workers = await sql(pair.primary, "SELECT count(*) FROM workers")
            before = len(await there.runs(schedule))
            await pair.fail_over()
            await until_status(there, 200)
            await there.until_succeeded(schedule, before + 2)
            assert {"fired"} == set((await there.outcomes(schedule, timedelta(seconds=1))).values())
    assert 1 == workers
