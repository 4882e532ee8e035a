"""``python -m tests.chaos.run --seconds 600 --seed 1``: break a deployment for so long, then account for every slot."""

import argparse
import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from tests.chaos.checker import check
from tests.chaos.clients import Clients, Kind
from tests.chaos.deployment import Deployment
from tests.chaos.evidence import Evidence
from tests.chaos.gathering import gather
from tests.chaos.nemesis import Nemesis
from tests.chaos.report import Report
from tests.support.carillon import until

LEASE_SECONDS = 3.0
RECONCILE_SECONDS = 1.0
# After the last fault everything fires again within this.
SETTLE_SECONDS = LEASE_SECONDS + RECONCILE_SECONDS + 5
# The schedules that the harness makes for itself.
OURS = "^(herd|poison-)"
# A calendar that half of the schedules name, and that is changed now and then.
CALENDAR = "past"
SETTINGS = {
    "CARILLON_LEASE_SECONDS": str(LEASE_SECONDS),
    "CARILLON_RECONCILE_SECONDS": str(RECONCILE_SECONDS),
    "CARILLON_DRAIN_SECONDS": "2",
}


class Outcome(msgspec.Struct):
    """What a chaos run came to."""

    report: Report
    evidence: Evidence
    herd_left: int
    poisoned: tuple[int, int]

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        wanted, found = self.poisoned
        return self.report.ok and not self.herd_left and wanted == found

    def lines(self) -> list[str]:
        """An account for people."""
        faults = sorted({fault.name for fault in self.evidence.faults})
        wanted, found = self.poisoned
        return [
            *self.report.lines(),
            f"faults: {len(self.evidence.faults)} of {len(faults)} kinds ({', '.join(faults)})",
            f"herd: {self.herd_left} ticks left undone",
            f"poisoned rows: {wanted}, put aside: {found}",
        ]


async def chaos(seconds: float, seed: int, *, clients: int = 6, herd: int = 2000, calm: float = 15.0) -> Outcome:
    """Break things for so long, let everything come to rest, and check."""
    async with Deployment(settings=SETTINGS) as deployment:
        kinds = (Kind(), Kind(values={"exclude_calendars": [CALENDAR]}))
        asking = Clients(deployment, seed, count=clients, pause_seconds=(0.3, 2.0), kinds=kinds, calendar=CALENDAR)
        await asking.prepare(3)
        await _odd_ones(asking)
        nemesis = Nemesis(deployment, seed, lease_seconds=LEASE_SECONDS, herd=herd)
        began, stopping = datetime.now(UTC), asyncio.Event()
        living = asyncio.create_task(asking.live(stopping))
        await asyncio.sleep(3)
        await nemesis.rage(seconds)
        calmed = datetime.now(UTC)
        await asyncio.sleep(calm / 3)
        stopping.set()
        await living
        await until(_at_rest(deployment), 120)
        await asyncio.sleep(calm * 2 / 3)
        await asking.learn_of_unsure_creations()
        outcome = await _account(deployment, asking, nemesis, began, calmed)
        await asking.close()
        return outcome


async def _odd_ones(asking: Clients) -> None:
    """What the nemesis needs: rows to be poisoned, and a mother for the herd."""
    flow = {"name": "nothing", "nodes": [{"id": "start", "type": "trigger_schedule"}]}
    _, workflow = await asking._send("POST", "/api/v1/workflows/", flow)
    assert workflow is not None
    for number in range(50):
        body = {"name": f"poison-{number}", "workflow_id": workflow["id"], "interval_seconds": 2}
        await asking._send("POST", "/api/v1/schedules/", body)
    mother = {"name": "herd-mother", "workflow_id": workflow["id"], "after": "1s", "max_retries": 5}
    _, made = await asking._send("POST", "/api/v1/schedules/", mother)
    assert made is not None
    # Never due itself.
    await asking._deployment.sql(
        "UPDATE scheduled_jobs SET status = 'paused', next_run_at = NULL, next_slot = NULL WHERE name = 'herd-mother'"
    )


def _at_rest(deployment: Deployment) -> Any:
    async def at_rest() -> bool:
        (row,) = await deployment.sql(
            "SELECT count(*) AS left FROM scheduled_jobs WHERE name = 'herd' AND status = 'active'"
        )
        return bool(row["left"] == 0)

    return at_rest


async def _account(
    deployment: Deployment, asking: Clients, nemesis: Nemesis, began: datetime, calmed: datetime
) -> Outcome:
    evidence = await gather(deployment, asking.requests, nemesis.faults, began=began, calm=calmed, ours=OURS)
    (herd,) = await deployment.sql(
        "SELECT count(*) AS left FROM scheduled_jobs WHERE name = 'herd' AND status <> 'done'"
    )
    (poison,) = await deployment.sql(
        "SELECT count(*) FILTER (WHERE status_reason <> '' OR next_attempt < 0) AS wanted, "
        "count(*) FILTER (WHERE status_reason = 'poisoned') AS found "
        "FROM scheduled_jobs WHERE name LIKE 'poison-%'"
    )
    report = check(evidence, settle_seconds=SETTLE_SECONDS)
    return Outcome(report, evidence, herd["left"], (poison["wanted"], poison["found"]))


def main() -> None:
    """Run, tell, and fail if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--herd", type=int, default=20_000)
    parser.add_argument("--evidence", type=Path, help="where to leave the evidence as JSON")
    wanted = parser.parse_args()
    outcome = asyncio.run(chaos(wanted.seconds, wanted.seed, herd=wanted.herd))
    if wanted.evidence:
        wanted.evidence.write_bytes(msgspec.json.encode(outcome.evidence))
    sys.stdout.write("\n".join(outcome.lines()) + "\n")
    sys.exit(0 if outcome.ok else 1)


if __name__ == "__main__":
    main()
