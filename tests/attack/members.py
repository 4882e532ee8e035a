"""What a member does to the others with a token of their own: floods, poison, targets that never answer."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from aiohttp import web
from redis.asyncio import Redis

from tests.attack.scenarios import ALONE, FULL, SCENARIOS, Scale, Told, alone, scenario
from tests.attack.target import Target
from tests.support.carillon import ADMIN_TOKEN, Carillon, http_node, until
from tests.support.http_sink import Sink
from tests.support.redis_refusals import REFUSALS, healed

# Those of clients without a token, and what follows here.
__all__ = ["ALONE", "SCENARIOS"]

# The other owner's schedule fires this late at p99, whatever the member does; judged on a quiet machine.
P99_SECONDS = 1.0
# Until a sick Redis is noticed, and what is due has been found in Postgres.
SICK_REDIS_SECONDS = 2.5
BATCH = 1000


class Silent(Sink):
    """Never answers the flood, and answers all others; knows how late each of those was."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = self.hold
        self.held = 0
        self.late: list[float] = []

    async def hold(self, request: web.Request) -> web.StreamResponse:
        """Keep the calls of the flood."""
        if request.path == "/flood":
            self.held += 1
            await asyncio.Event().wait()
        slot = datetime.fromisoformat(request.headers["X-Carillon-Slot"])
        self.late.append((datetime.now(UTC) - slot).total_seconds())
        return web.Response()


def as_admin(target: Target) -> Carillon:
    """The admin's client."""
    return Carillon(target.client, None, ADMIN_TOKEN)  # type: ignore[arg-type]  # no settings are asked for


async def member_of(target: Target) -> Carillon:
    """A new member's client."""
    return await as_admin(target).member(f"m{uuid4().hex[:8]}")


async def many(member: Carillon, node: dict[str, Any], count: int) -> list[str]:
    """So many schedules of a second with this node."""
    workflow = await member.workflow(node)
    one = {"name": "f", "workflow_id": workflow["id"], "interval_seconds": 1, "timeout_seconds": 600}
    made: list[str] = []
    for start in range(0, count, BATCH):
        body = {"schedules": [one] * min(BATCH, count - start)}
        answer = await member.call("POST", "/schedules/batch/", 201, json=body)
        made += [item["id"] for item in answer["items"]]
    return made


async def forget(member: Carillon, ids: list[str]) -> None:
    """Delete the schedules, and with them what they run."""
    for start in range(0, len(ids), BATCH):
        body = {"schedule_ids": ids[start : start + BATCH]}
        await member.call("POST", "/schedules/batch-delete/", 204, json=body)


async def _beside(target: Target, scale: Scale, node: dict[str, Any], count: int, silent: Silent) -> list[str]:
    """One member has so many schedules with this node, another a schedule of a second; what was broken."""
    greedy, modest = await member_of(target), await member_of(target)
    flood = await many(greedy, node, count)
    (other,) = await many(modest, http_node(f"{silent.url}/other"), 1)
    try:
        await until(_calls(silent, int(scale.seconds)), seconds=60 + scale.seconds * 3)
        late = sorted(silent.late)
        p99 = late[int(len(late) * 0.99) - 1]
        outcomes = (await modest.call("GET", f"/schedules/{other}/ledger/", params={"limit": 500}))["items"]
        lost = [one["outcome"] for one in outcomes if one["outcome"] != "fired"]
        broken = [f"another's schedule was {p99:.2f} s late at p99"] if scale is FULL and p99 >= P99_SECONDS else []
        return [*broken, *([f"another's slots were {sorted(set(lost))}"] if scale is FULL and lost else [])]
    finally:
        await forget(greedy, flood)
        await forget(modest, [other])


@scenario("a member's flood of calls")
async def flood_of_calls(target: Target, scale: Scale) -> Told:
    """More schedules of a second than a worker has places, each with a call that is never answered."""
    count = 1200 if scale is FULL else 100
    async with Silent() as silent:
        broken = await _beside(target, scale, http_node(f"{silent.url}/flood"), count, silent)
        late = sorted(silent.late)
        words = f"{count} schedules, {silent.held} calls held; another's late by {late[-1]:.2f} s at most"
    return Told(words, broken)


@scenario("a member's flood of waits")
async def flood_of_waits(target: Target, scale: Scale) -> Told:
    """A thousand schedules that wait for ten minutes."""
    count = 1000 if scale is FULL else 50
    wait = {"id": "work", "type": "core.delay", "config": {"seconds": 600}}
    async with Silent() as silent:
        broken = await _beside(target, scale, wait, count, silent)
        late = sorted(silent.late)
    return Told(f"{count} schedules of core.delay; another's late by {late[-1]:.2f} s at most", broken)


def _calls(silent: Silent, count: int) -> Callable[[], Awaitable[bool]]:
    async def enough() -> bool:
        return len(silent.late) >= count

    return enough


@alone("Redis refuses writes")
async def redis_refuses_writes(target: Target, scale: Scale) -> Told:
    """It answers reads and takes no write, in each of four ways: schedules fire from Postgres, at once."""
    member = await member_of(target)
    worst: dict[str, float] = {}
    async with Silent() as silent, Redis.from_url(target.stand.valkey.url) as redis:
        made = await many(member, http_node(f"{silent.url}/other"), 20)
        for kind, refuse in REFUSALS.items():
            await until(_calls(silent, 20))
            silent.late.clear()
            await refuse(redis)
            try:
                await until(_calls(silent, int(20 * scale.seconds / 4)), seconds=60 + scale.seconds)
            finally:
                await healed(redis)
            worst[kind] = max(silent.late)
            await until(target.worker_is_well)
            silent.late.clear()
        await forget(member, made)
    words = ", ".join(f"{kind} {seconds:.2f} s" for kind, seconds in worst.items())
    slow = [kind for kind, seconds in worst.items() if seconds >= SICK_REDIS_SECONDS]
    return Told(f"20 schedules of a second; late at most: {words}", [f"late while {slow}"] if slow else [])


@scenario("a poison pill")
async def poison_pill(target: Target, scale: Scale) -> Told:
    """Thousands of references to one large value in a body: blocked, and the worker lives."""
    member = await member_of(target)
    pill = http_node("http://127.0.0.1:9/", json=["{{ trigger.payload.s }}"] * 5000)
    count = 10 if scale is FULL else 2
    payload = {"s": "x" * 60_000}
    workflow = await member.workflow(pill)
    made = [await member.schedule(workflow, trigger_payload=payload, max_retries=1000) for _ in range(count)]
    for schedule in made:
        await member.call("POST", f"/schedules/{schedule['id']}/run/", 202)

    async def all_ended() -> list[str] | None:
        runs = [run for schedule in made for run in await member.runs(schedule)]
        ended = [run["status"] for run in runs if run["finished_at"]]
        return ended if len(ended) >= count else None

    ended = await until(all_ended, seconds=120)
    await forget(member, [schedule["id"] for schedule in made])
    broken = [f"runs ended as {sorted(set(ended))}"] if set(ended) != {"blocked"} else []
    return Told(f"{count} runs of 5,000 references to 60 kB, all blocked", broken)
