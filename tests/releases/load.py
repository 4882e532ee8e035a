"""What a deployment is busy with while it is upgraded, beside the clients of the fault suite."""

import asyncio
import itertools
from collections import Counter
from contextlib import suppress
from typing import Any
from uuid import UUID

from aiohttp import web

from tests.chaos.clients import Clients, Json, Kind
from tests.chaos.deployment import Deployment
from tests.chaos.evidence import Ack, Arrival
from tests.chaos.target import Target

SLOW_SECONDS = 1.1
# Longer than a worker that is told to stop gives it.
LONG_SECONDS = 8
PAUSE_SECONDS = 0.4
# So often that every worker has some that have just begun.
LONG_PAUSE_SECONDS = 0.3
# The schedules that are accounted for here, by their names.
ONE_SHOTS = "^(once|long)-"

# Nothing here times out because a machine stalls.
EVERY_SECOND = {"interval_seconds": 1, "timeout_seconds": 60}
KINDS = (
    Kind("", EVERY_SECOND),
    Kind("flaky", EVERY_SECOND),
    Kind("slow", EVERY_SECOND | {"if_running": "skip"}),
    Kind("slow", EVERY_SECOND | {"if_running": "queue", "max_queued": 1}),
    Kind("slow", EVERY_SECOND | {"if_running": "cancel"}),
    Kind("slow", EVERY_SECOND | {"if_running": "allow"}),
)


class MixedTarget(Target):
    """Answers by the folder of an address: at once, slowly, or badly to the first attempt of every third slot."""

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        folder = request.path.split("/")[1]
        arrival = self.arrivals[-1]
        if folder == "flaky" and arrival.attempt == 1 and arrival.slot.second % 3 == 0:
            return web.Response(status=500)
        if folder == "slow":
            await asyncio.sleep(SLOW_SECONDS)
        return web.Response()


class Visitors:
    """They read what there is, and make one-shots: quick ones, and long ones that outlast their worker."""

    def __init__(self, deployment: Deployment, asking: Clients) -> None:
        """Nothing is asked yet."""
        self._deployment = deployment
        self._asking = asking
        self.made: dict[UUID, str] = {}
        self.refused: list[str] = []

    async def live(self, stopping: asyncio.Event) -> None:
        """Ask until told to stop."""
        quick = await self._workflow("once", 0)
        for number in itertools.count():
            await self._make(f"once-{number}", quick)
            await self._read()
            if await _is_set_within(PAUSE_SECONDS, stopping):
                return

    async def begin_long_ones(self, stopping: asyncio.Event) -> None:
        """One after another until told to stop."""
        long = await self._workflow("long", LONG_SECONDS)
        for number in itertools.count():
            await self._make(f"long-{number}", long)
            if await _is_set_within(LONG_PAUSE_SECONDS, stopping):
                return

    async def _workflow(self, name: str, seconds: float) -> int:
        url = f"http://127.0.0.1:{self._deployment.target_port}/{name}"
        nodes = [
            {"id": "start", "type": "trigger_schedule"},
            {"id": "wait", "type": "core.delay", "config": {"seconds": seconds}},
            {"id": "call", "type": "core.http_request", "config": {"url": url}},
        ]
        edges = [{"from": "start", "to": "wait"}, {"from": "wait", "to": "call"}]
        made = await self._ask("POST", "/api/v1/workflows/", {"name": name, "nodes": nodes, "edges": edges})
        assert made is not None, self._asking.failures
        workflow_id: int = made["id"]
        return workflow_id

    async def _make(self, name: str, workflow_id: int) -> None:
        body = {"name": name, "workflow_id": workflow_id, "after": "1s", "timeout_seconds": 120}
        made = await self._ask("POST", "/api/v1/schedules/", body)
        if made is not None:
            self.made[UUID(made["id"])] = name

    async def _read(self) -> None:
        """The lists, and all that is known of a one-shot."""
        one = f"/api/v1/schedules/{next(iter(self.made))}/"
        parts = ("", "runs/", "ledger/", "history/", "explain/")
        for path in ("/api/v1/schedules/", "/api/v1/executions/", *(one + part for part in parts)):
            await self._ask("GET", path)

    async def _ask(self, method: str, path: str, body: Json | None = None) -> Json | None:
        """Nothing that is asked here may be refused, either."""
        ack, answer = await self._asking._send(method, path, body)
        if ack is Ack.NO:
            self.refused.append(f"{method} {path} was refused")
        return answer


async def _is_set_within(seconds: float, event: asyncio.Event) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


def once_each(made: dict[UUID, str], rows: list[Any], arrivals: list[Arrival]) -> list[str]:
    """What is wrong with the one-shots: each is done, by one execution of one attempt, which called once.

    One that its worker handed over may have called just before, and once more from where it went on.
    """
    calls = Counter(arrival.execution_id for arrival in arrivals)
    executions = Counter(row["schedule"] for row in rows)
    return [
        *(f"{name} has {executions[made_id]} executions" for made_id, name in made.items() if executions[made_id] != 1),
        *(f"{row['name']} is {row['status']}, its run {row['outcome']}" for row in rows if _unfinished(row)),
        *(
            f"{row['name']} called {calls[row['execution']]} times, with token {row['token']}"
            for row in rows
            # The end changes hands, too.
            if not 1 <= calls[row["execution"]] < row["token"]
        ),
    ]


def _unfinished(row: Any) -> bool:
    return (row["status"], row["outcome"], row["retry_attempt"]) != ("done", "success", 0)
