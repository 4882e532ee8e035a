"""``python -m tests.chaos.failover --rounds 5``: stores fail over during upgrades under load; every slot is checked.

Postgres has a replica that every commit waits for, and both are in the URL; Redis has a replica and a Sentinel. In each
round all processes are replaced by those of another release, as Kubernetes does it. Meanwhile the primary of Postgres
is killed and its replica promoted, then the master of Redis is killed.
"""

import argparse
import asyncio
import itertools
import sys
import tempfile
from collections.abc import Awaitable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tests.chaos.checker import check
from tests.chaos.clients import Clients
from tests.chaos.deployment import Deployment
from tests.chaos.evidence import Fault
from tests.chaos.gathering import gather
from tests.chaos.members import Member
from tests.chaos.report import Report
from tests.chaos.run import OURS, SETTINGS
from tests.releases.release import CURRENT, Release, install_next
from tests.support.carillon import until
from tests.support.postgres_pair import PostgresPair, wait_for_replica
from tests.support.redis_servers import Switchable

# Between two faults, so that the load is back on its way.
PAUSE_SECONDS = 2.0
PATIENCE_SECONDS = 120.0
UNSETTLED = (
    "SELECT 1 FROM scheduled_jobs WHERE status = 'active' AND next_run_at <= $1 UNION ALL "
    "SELECT 1 FROM workflow_executions WHERE finished_at IS NULL AND coalesce(started_at, scheduled_for) <= $1"
)


class FailingOver(Deployment):
    """A deployment on stores that have a second server each."""

    def __init__(self) -> None:
        """One API and one worker; twice as many while they are replaced."""
        super().__init__(apis=1, workers=1, settings=SETTINGS)
        self.pair = PostgresPair()
        self.switchable = Switchable(self.folder)

    async def _start_stores(self) -> None:
        self.pair.__enter__()
        self.postgres = self.pair.primary
        await self.pair.add_replica()
        await wait_for_replica(self.pair.primary)
        await self.switchable.__aenter__()

    async def _stop_stores(self) -> None:
        await self.switchable.__aexit__()
        self.pair.__exit__()

    async def fail_over_postgres(self) -> None:
        """Kill the primary and promote the replica."""
        await self.pair.fail_over()
        self.postgres = self.pair.primary

    async def mend(self) -> None:
        """Give both stores a second server again."""
        await self.pair.add_replica()
        await wait_for_replica(self.pair.primary)
        await self.switchable.revive()

    async def roll_to(self, release: Release) -> None:
        """Replace every process by one of this release, all at once: the new one is ready before the old one stops."""
        apis = [self._replace("api", self.apis, old, release) for old in list(self.apis)]
        workers = [self._replace("worker", self.workers, old, release) for old in list(self.workers)]
        await asyncio.gather(*apis, *workers)

    async def _replace(self, kind: str, members: list[Member], old: Member, release: Release) -> None:
        new = await self.add(kind, release)
        await until(new.is_ready, PATIENCE_SECONDS)
        if kind == "api":
            self.urls.append(new.url)
            self.urls.remove(old.url)
        members.remove(old)
        await old.end(PATIENCE_SECONDS)

    async def _stores(self, name: str) -> dict[str, str]:  # noqa: ARG002 - all have the same
        return {"CARILLON_DATABASE_URL": self.pair.url, "CARILLON_REDIS_URL": self.switchable.url}


async def fail_over(following: Release, rounds: int = 1) -> Report:
    """Upgrade, roll back and so on while both stores fail over, let everything come to rest, and check."""
    async with FailingOver() as deployment:
        await deployment.migrate(following)
        asking = Clients(deployment, 1, count=3, pause_seconds=(0.3, 1.0))
        await asking.prepare(4)
        began, stopping, faults = datetime.now(UTC), asyncio.Event(), list[Fault]()
        living = asyncio.create_task(asking.live(stopping))
        for number, release in zip(range(rounds), itertools.cycle((following, CURRENT)), strict=False):
            if number:
                await deployment.mend()
            rolling = asyncio.create_task(deployment.roll_to(release))
            await asyncio.sleep(PAUSE_SECONDS)
            faults.append(await _timed("postgres fails over", deployment.fail_over_postgres()))
            await asyncio.sleep(PAUSE_SECONDS)
            faults.append(await _timed("sentinel switch", deployment.switchable.switch()))
            await rolling
        calm = datetime.now(UTC)
        await asyncio.sleep(PAUSE_SECONDS)
        stopping.set()
        await living
        await until(partial(_is_settled, deployment, calm), PATIENCE_SECONDS)
        await asking.learn_of_unsure_creations()
        evidence = await gather(deployment, asking.requests, faults, began=began, calm=calm, ours=OURS)
        await asking.close()
        return check(evidence, settle_seconds=(evidence.ended - calm).total_seconds())


async def _is_settled(deployment: Deployment, moment: datetime) -> bool:
    """Whether all that was due at a moment has come to its end."""
    return not await deployment.sql(UNSETTLED, moment)


async def _timed(name: str, act: Awaitable[None]) -> Fault:
    began = datetime.now(UTC)
    await act
    return Fault(name, began, datetime.now(UTC))


def main() -> None:
    """Run, tell, and fail if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="carillon-releases-") as folder:
        report = asyncio.run(fail_over(install_next(Path(folder) / "next"), rounds))
    sys.stdout.write("\n".join(report.lines()) + "\n")
    sys.exit(0 if report.ok else 1)


if __name__ == "__main__":
    main()
