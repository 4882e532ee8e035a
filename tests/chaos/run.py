"""``python -m tests.chaos.run --seconds 600 --seed 1``: break a deployment for so long, then account for every slot."""

import argparse
import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from tests.chaos.checker import check
from tests.chaos.clients import Clients, Kind
from tests.chaos.deployment import Deployment
from tests.chaos.evidence import Ack, Evidence
from tests.chaos.gathering import gather
from tests.chaos.nemesis import Nemesis
from tests.chaos.report import Report
from tests.support.carillon import until

LEASE_SECONDS = 3.0
RECONCILE_SECONDS = 1.0
# After the last fault everything fires again within this.
SETTLE_SECONDS = LEASE_SECONDS + RECONCILE_SECONDS + 5
# The schedules that the harness makes for itself.
OURS = "^(herd|poison-|leased-|minutely)"
# A calendar that half of the schedules name, and that is changed now and then.
CALENDAR = "past"
# Limits that a part of the schedules and of the calls share.
RUNS, CALLS = "runs", "calls"
LIMITS = {RUNS: 2, CALLS: 2}
KINDS = (
    Kind(),
    Kind(values={"exclude_calendars": [CALENDAR]}),
    Kind(values={"limit": RUNS}),
    Kind(folder=CALLS, config={"limit": CALLS}),
)
# The lease of an agent: room for a schedule that ends by itself and for one that only the end of the lease stops.
ENDING, ENDLESS = 10, 1000
EVERY_MINUTE = f"FREQ=DAILY;BYHOUR={','.join(map(str, range(24)))};BYMINUTE={','.join(map(str, range(60)))}"
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
    # What does not fit the lease of the agent and the rule of every minute.
    misfits: list[str] = []

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        wanted, found = self.poisoned
        return self.report.ok and not self.herd_left and wanted == found and not self.misfits

    def lines(self) -> list[str]:
        """An account for people."""
        faults = sorted({fault.name for fault in self.evidence.faults})
        wanted, found = self.poisoned
        return [
            *self.report.lines(),
            f"faults: {len(self.evidence.faults)} of {len(faults)} kinds ({', '.join(faults)})",
            f"herd: {self.herd_left} ticks left undone",
            f"poisoned rows: {wanted}, put aside: {found}",
            *self.misfits,
        ]


async def chaos(seconds: float, seed: int, *, clients: int = 6, herd: int = 2000, calm: float = 15.0) -> Outcome:
    """Break things for so long, let everything come to rest, and check."""
    async with Deployment(settings=SETTINGS) as deployment:
        asking = Clients(
            deployment,
            seed,
            count=clients,
            pause_seconds=(0.3, 2.0),
            kinds=KINDS,
            calendar=CALENDAR,
            limits=LIMITS,
            intervenes=True,
        )
        await asking.prepare(4)
        await _odd_ones(asking)
        expires_at = datetime.now(UTC) + timedelta(seconds=seconds / 2 + 3)
        await _leased_and_minutely(asking, expires_at)
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
        outcome.misfits = [
            *await _lease_misfits(deployment, expires_at),
            *await _minute_misfits(deployment, outcome.evidence.ended),
        ]
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


async def _leased_and_minutely(asking: Clients, expires_at: datetime) -> None:
    """Schedules that nobody changes: two under the lease of an agent, and one by a rule."""
    nothing = {"name": "idle", "nodes": [{"id": "start", "type": "trigger_schedule"}]}
    _, workflow = await asking._send("POST", "/api/v1/workflows/", nothing)
    assert workflow is not None
    terms = {"agent": "chaos", "expires_at": expires_at.isoformat(), "max_runs": ENDING + ENDLESS}
    _, lease = await asking._send("POST", "/api/v1/leases/", terms)
    assert lease is not None
    base = {"workflow_id": workflow["id"], "interval_seconds": 1}
    for repeats in (ENDING, ENDLESS, 1):
        body = {**base, "name": f"leased-{repeats}", "total_repeats": repeats}
        ack, _ = await asking._send("POST", "/api/v1/schedules/", body, token=lease["token"])
        assert (ack is Ack.YES) == (repeats > 1), f"{repeats}: {ack}"
    rule = {"name": "minutely", "workflow_id": workflow["id"], "rrule": EVERY_MINUTE, "catch_up": "run_all"}
    ack, _ = await asking._send("POST", "/api/v1/schedules/", rule)
    assert ack is Ack.YES


async def _lease_misfits(deployment: Deployment, expires_at: datetime) -> list[str]:
    """Say where a schedule of the lease ran too often or too late."""
    rows = await deployment.sql(
        "SELECT j.name, j.status, e.runs, e.latest FROM scheduled_jobs AS j, LATERAL ("
        "SELECT count(*) FILTER (WHERE retry_attempt = 0 AND started_at IS NOT NULL) AS runs, "
        # One that was handed back began before the time of its latest start.
        "max(CASE WHEN token > 2 THEN created_at ELSE started_at END) AS latest "
        "FROM workflow_executions WHERE scheduled_job_id = j.id) AS e "
        "WHERE j.name LIKE 'leased-%' ORDER BY j.name"
    )
    allowed = {f"leased-{repeats}": repeats for repeats in (ENDING, ENDLESS)}
    misfits = [] if [*allowed] == [row["name"] for row in rows] else [f"schedules of the lease: {rows}"]
    for row in rows:
        if row["runs"] > allowed.get(row["name"], 0):
            misfits.append(f"{row['name']} ran {row['runs']} times")
        if row["latest"] is None or row["latest"] > expires_at:
            misfits.append(f"{row['name']} last ran at {row['latest']}, its lease ended at {expires_at}")
        if row["status"] == "active":
            misfits.append(f"{row['name']} is active after the end of its lease")
    return misfits


async def _minute_misfits(deployment: Deployment, ended: datetime) -> list[str]:
    """Say which minutes have no outcome, or several."""
    (job,) = await deployment.sql("SELECT id, created_at FROM scheduled_jobs WHERE name = 'minutely'")
    slots = await deployment.sql(
        "SELECT scheduled_for AS first, scheduled_for AS last FROM workflow_executions "
        "WHERE scheduled_job_id = $1 AND retry_attempt = 0 AND unrun_outcome IS NULL UNION ALL "
        "SELECT first_slot, last_slot FROM ledger_entries WHERE scheduled_job_id = $1",
        job["id"],
    )
    minute = job["created_at"].replace(second=0, microsecond=0) + timedelta(minutes=1)
    misfits = []
    while minute < ended - timedelta(seconds=SETTLE_SECONDS):
        outcomes = sum(row["first"] <= minute <= row["last"] for row in slots)
        if outcomes != 1:
            misfits.append(f"the minute {minute.isoformat()} has {outcomes} outcomes")
        minute += timedelta(minutes=1)
    return misfits


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
    evidence = await gather(
        deployment, asking.requests, nemesis.faults, began=began, calm=calmed, ours=OURS, bounds=LIMITS
    )
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
