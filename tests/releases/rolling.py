"""``python -m tests.releases.rolling --rounds 5``: upgrade a busy deployment and roll it back, again and again.

As Kubernetes does it with the chart: the Job migrates; then both Deployments replace one process at a time. A new one
is started and ready before an old one is told to stop; nobody waits for the old one's end.
"""

import argparse
import asyncio
import re
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec

from tests.chaos.checker import check
from tests.chaos.clients import Clients
from tests.chaos.deployment import Deployment
from tests.chaos.evidence import Arrival
from tests.chaos.gathering import gather
from tests.chaos.members import Member
from tests.chaos.report import Report
from tests.releases.load import KINDS, ONE_SHOTS, MixedTarget, Visitors, once_each
from tests.releases.release import Release, install_next, install_previous
from tests.support.carillon import until

# Leases as long as they are by default: nobody dies here, and a machine that stalls takes nothing from a worker.
SETTINGS = {"CARILLON_LEASE_SECONDS": "30", "CARILLON_RECONCILE_SECONDS": "1", "CARILLON_DRAIN_SECONDS": "3"}
# Between an API's removal from the Service and the word to stop.
PRE_STOP_SECONDS = 1.0
# After which a process that was told to stop would be killed.
GRACE_SECONDS = 60.0
PATIENCE_SECONDS = 180.0
# What each of two processes must have done side by side before one of them goes.
SHARE = 3
# How an orderly process ends: by itself, or by the signal that it has obeyed.
ORDERLY = {0, -signal.SIGTERM}
ENDED_WELL = re.compile(r'^carillon_executions_ended_total\{status="success"\} ([0-9.]+)$', re.MULTILINE)
RUNNING_YOUNG = (
    "SELECT 1 FROM workflow_executions AS e JOIN workers AS w ON w.id = e.worker_id JOIN scheduled_jobs AS j "
    "ON j.id = e.scheduled_job_id WHERE e.status = 'running' AND j.name LIKE 'long-%' "
    "AND e.started_at > clock_timestamp() - interval '3 seconds' AND w.name LIKE '%/' || $1::text"
)
UNSETTLED = (
    "SELECT name FROM scheduled_jobs WHERE status = 'active' AND (next_run_at <= $1 OR name ~ $2) UNION ALL "
    "SELECT status FROM workflow_executions WHERE finished_at IS NULL AND coalesce(started_at, scheduled_for) <= $1"
)
OF_ONE_SHOTS = (
    "SELECT j.id AS schedule, j.name, j.status, e.id AS execution, e.status AS outcome, e.retry_attempt, e.token "
    "FROM scheduled_jobs AS j JOIN workflow_executions AS e ON e.scheduled_job_id = j.id WHERE j.name ~ $1"
)


class Outcome(msgspec.Struct):
    """What some upgrades came to."""

    report: Report
    # Whatever else is wrong: one-shots, requests, calls, processes.
    wrong: list[str]
    answers: int
    one_shots: int
    # Runs that went on in another process.
    handed_over: int

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong, and something was handed over."""
        return self.report.ok and not self.report.poisoned and not self.wrong and self.handed_over > 0

    def lines(self) -> list[str]:
        """An account for people."""
        return [
            *self.report.lines(),
            f"{self.one_shots} one-shots, {self.handed_over} runs handed over, {self.answers} answers of the API",
            f"otherwise wrong: {len(self.wrong)}",
            *(f"  {line}" for line in self.wrong),
        ]


class Rolling(Deployment):
    """A deployment whose processes are replaced by those of another release."""

    def __init__(self, release: Release, *, apis: int, workers: int) -> None:
        """Of this release to begin with."""
        super().__init__(release=release, target=MixedTarget(), apis=apis, workers=workers, settings=SETTINGS)
        self.asking = Clients(self, 1, count=4, pause_seconds=(0.2, 0.6), kinds=KINDS)
        self.gone: list[Member] = []
        self._going: list[asyncio.Task[None]] = []

    async def __aexit__(self, *error: object) -> None:
        await asyncio.gather(*self._going, return_exceptions=True)
        await self.asking.close()
        await super().__aexit__(*error)

    async def roll_to(self, release: Release) -> None:
        """Replace everything; the old ones may still be ending."""
        await asyncio.gather(self._replace("api", self.apis, release), self._replace("worker", self.workers, release))

    async def all_gone(self) -> None:
        """Wait for the end of whatever was told to stop."""
        await asyncio.gather(*self._going)

    async def _replace(self, kind: str, members: list[Member], release: Release) -> None:
        for old in list(members):
            new = await self.add(kind, release)
            await until(new.is_ready, PATIENCE_SECONDS)
            if kind == "api":
                self.urls.append(new.url)
            # Side by side for a while, each with its share.
            for member in (old, new):
                await until(self._works_on(kind, member), PATIENCE_SECONDS)
            if kind == "worker":
                await until(self._runs_a_young_one(old), PATIENCE_SECONDS)
            members.remove(old)
            self.gone.append(old)
            self._going.append(asyncio.create_task(self._retire(kind, old)))

    async def _retire(self, kind: str, old: Member) -> None:
        if kind == "api":
            self.urls.remove(old.url)
            await asyncio.sleep(PRE_STOP_SECONDS)
        await old.end(GRACE_SECONDS)

    def _works_on(self, kind: str, member: Member) -> Any:
        """Whether it has done more since this was asked first."""
        before: list[float] = []

        async def works_on() -> bool:
            before.append(await self._done_by(kind, member))
            return before[-1] >= before[0] + SHARE

        return works_on

    async def _done_by(self, kind: str, member: Member) -> float:
        """How many requests it has answered, or runs ended well."""
        if kind == "api":
            return self.asking.answers[member.url]
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            found = ENDED_WELL.search((await client.get(f"{member.url}/metrics")).text)
        return float(found[1]) if found else 0.0

    def _runs_a_young_one(self, member: Member) -> Any:
        """Whether it has begun a long run lately, which it will have to hand over."""

        async def running() -> Any:
            assert member.process is not None
            return await self.sql(RUNNING_YOUNG, str(member.process.pid))

        return running

    async def _stores(self, name: str) -> dict[str, str]:  # noqa: ARG002 - all have the same
        """Nothing comes between."""
        return {"CARILLON_DATABASE_URL": self.postgres.url, "CARILLON_REDIS_URL": self.valkey.url}


async def upgrade(previous: Release, following: Release, *, apis: int, workers: int, rounds: int = 1) -> Outcome:
    """Roll to the next release and back, so many times, under load; then account for every slot."""
    async with Rolling(previous, apis=apis, workers=workers) as deployment:
        asking, visitors = deployment.asking, Visitors(deployment, deployment.asking)
        await asking.prepare(3)
        began, rolled_out, stopping = datetime.now(UTC), asyncio.Event(), asyncio.Event()
        living = asyncio.gather(
            asking.live(stopping), visitors.live(stopping), visitors.begin_long_ones(rolled_out), return_exceptions=True
        )
        try:
            for _ in range(rounds):
                await deployment.migrate(following)
                await deployment.roll_to(following)
                # The schema stays.
                await deployment.roll_to(previous)
            rolled = datetime.now(UTC)
            rolled_out.set()
            await deployment.all_gone()
        finally:
            rolled_out.set()
            stopping.set()
            fell_ill = [error for error in await living if error]
        assert [] == fell_ill
        await until(_settled(deployment, rolled), PATIENCE_SECONDS)
        return await _account(deployment, visitors, began, rolled)


def _settled(deployment: Deployment, moment: datetime) -> Any:
    """Whether all that was due at a moment has come to its end, and so have all one-shots."""

    async def settled() -> bool:
        return not await deployment.sql(UNSETTLED, moment, ONE_SHOTS)

    return settled


async def _account(deployment: Rolling, visitors: Visitors, began: datetime, rolled: datetime) -> Outcome:
    """Nothing is excused: an upgrade is no fault."""
    asking = deployment.asking
    evidence = await gather(deployment, asking.requests, [], began=began, calm=rolled, ours=ONE_SHOTS)
    rows = await deployment.sql(OF_ONE_SHOTS, ONE_SHOTS)
    once = [arrival for arrival in evidence.arrivals if arrival.schedule_id in visitors.made]
    evidence.arrivals = [arrival for arrival in evidence.arrivals if arrival.schedule_id not in visitors.made]
    quick = [arrival for arrival in evidence.arrivals if not arrival.path.startswith("/slow/")]
    return Outcome(
        report=check(evidence, settle_seconds=(evidence.ended - rolled).total_seconds()),
        wrong=[
            *once_each(visitors.made, rows, once),
            *asking.failures,
            *visitors.refused,
            *_twice(quick),
            *_spent(evidence.arrivals),
            *await _deadlocks(deployment),
            *_disorderly(deployment.gone),
            *_ill([*deployment.gone, *deployment.members]),
        ],
        answers=asking.answers.total(),
        one_shots=len(visitors.made),
        # A run that is over has a token of 2 unless it changed hands before.
        handed_over=sum(row["token"] > 2 for row in rows),
    )


def _twice(arrivals: Sequence[Arrival]) -> list[str]:
    """Executions that called more than once, though they take so little time that none has to be handed over."""
    calls = Counter(arrival.execution_id for arrival in arrivals)
    return [f"execution {execution_id} called {times} times" for execution_id, times in calls.items() if times > 1]


def _spent(arrivals: Sequence[Arrival]) -> list[str]:
    """Attempts that the upgrade cost: the target is bad to flaky ones alone."""
    later = [arrival for arrival in arrivals if arrival.attempt > 1 and not arrival.path.startswith("/flaky/")]
    return [f"execution {arrival.execution_id} is attempt {arrival.attempt}" for arrival in later]


async def _deadlocks(deployment: Deployment) -> list[str]:
    (row,) = await deployment.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = 'carillon'")
    return [f"{row['deadlocks']} deadlocks"] if row["deadlocks"] else []


def _disorderly(members: Sequence[Member]) -> list[str]:
    ends = {member.name: member.process.returncode for member in members if member.process is not None}
    return [f"{name} ended with {code}" for name, code in ends.items() if code not in ORDERLY]


def _ill(members: Sequence[Member]) -> list[str]:
    restarted = [f"{member.name} was started {member.starts} times" for member in members if member.starts != 1]
    return [*restarted, *(f"{member.name} says {line}" for member in members for line in member.defects())]


def main() -> None:
    """Run, tell, and fail if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="carillon-releases-") as folder:
        releases = install_previous(Path(folder) / "previous"), install_next(Path(folder) / "next")
        outcome = asyncio.run(upgrade(*releases, apis=2, workers=3, rounds=wanted.rounds))
    sys.stdout.write("\n".join(outcome.lines()) + "\n")
    sys.exit(0 if outcome.ok else 1)


if __name__ == "__main__":
    main()
