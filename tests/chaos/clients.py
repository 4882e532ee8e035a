"""Clients that create, change, pause, resume, run and delete schedules, and remember what they were told."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any
from uuid import UUID

import httpx
import msgspec

from tests.chaos.deployment import Deployment
from tests.chaos.evidence import Ack, Request, Verb
from tests.support.carillon import ADMIN_TOKEN

PATIENCE_SECONDS = 8.0
CLIENT_ERRORS = range(400, 500)

Json = dict[str, Any]


class Kind(msgspec.Struct, frozen=True):
    """A sort of schedule: the folder of its address at the target, and what is asked for beside the usual."""

    folder: str = ""
    values: Json = {}
    # Of its call.
    config: Json = {}


USUAL: Json = {"max_retries": 50, "backoff_base_seconds": 1, "timeout_seconds": 4}


class Clients:
    """So many of them, each with schedules of its own, asking one API or the other."""

    def __init__(
        self,
        deployment: Deployment,
        seed: int,
        *,
        count: int,
        pause_seconds: tuple[float, float],
        kinds: Sequence[Kind] = (Kind(),),
        calendar: str | None = None,
        limits: Mapping[str, int] = MappingProxyType({}),
        intervenes: bool = False,
    ) -> None:
        """Nothing is asked yet. The kinds of schedules are made in turn; ``limits`` are created with these bounds.

        With ``intervenes`` they also skip slots and run past ones, which release 0.1.0 does not know. ``calendar`` is
        changed now and then: it has dates of the past only, so its schedules have all their slots.
        """
        self._calendar = calendar
        self.limits = limits
        self._intervenes = intervenes
        self._deployment = deployment
        self._random = random.Random(seed)
        self._count = count
        self._pause = pause_seconds
        self._kinds = itertools.cycle(kinds)
        self.requests: list[Request] = []
        # How often each API answered, and whatever was neither done nor refused.
        self.answers: Counter[str] = Counter()
        self.failures: list[str] = []
        self._unsure: set[str] = set()
        self._http = httpx.AsyncClient(
            trust_env=False,
            timeout=PATIENCE_SECONDS,
            headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    async def prepare(self, schedules_each: int) -> None:
        """Make the schedules that everybody begins with, while nothing is broken."""
        self._mine: list[dict[UUID, Json]] = [{} for _ in range(self._count)]
        if self._calendar is not None:
            await self._send("POST", "/api/v1/calendars/", {"name": self._calendar, "dates": ["2001-01-01"]})
        for name, bound in self.limits.items():
            await self._send("POST", "/api/v1/limits/", {"name": name, "max_concurrent": bound})
        for mine in self._mine:
            for _ in range(schedules_each):
                await self._create(mine)

    async def live(self, stopping: asyncio.Event) -> None:
        """Ask until told to stop."""
        await asyncio.gather(*(self._live_one(mine, stopping) for mine in self._mine))

    async def close(self) -> None:
        """Ask no more."""
        await self._http.aclose()

    async def get(self, path: str, **params: Any) -> Any:
        """Read something, from whichever API answers."""
        while True:
            with suppress(httpx.HTTPError):
                response = await self._http.get(f"{self._url()}{path}", params=params)
                if response.is_success:
                    return response.json()
            await asyncio.sleep(0.2)

    async def learn_of_unsure_creations(self) -> None:
        """Schedules whose creation was never answered, and which are there all the same."""
        known = {request.schedule_id for request in self.requests}
        for found in await self.every_schedule():
            if UUID(found["id"]) not in known and found["name"] in self._unsure:
                moment = datetime.fromisoformat(found["created_at"])
                self.requests.append(
                    Request(
                        schedule_id=UUID(found["id"]),
                        verb=Verb.CREATE,
                        asked=moment,
                        answered=moment,
                        ack=Ack.YES,
                        answer=found | {"status": "active"},
                    )
                )

    async def every_schedule(self) -> list[Json]:
        """All that there are."""
        found: list[Json] = []
        while True:
            page = await self.get("/api/v1/schedules/", limit=500, offset=len(found))
            found += page["items"]
            if not page["items"] or len(found) >= page["total"]:
                return found

    def _url(self) -> str:
        return self._random.choice(self._deployment.urls)

    async def _live_one(self, mine: dict[UUID, Json], stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), self._random.uniform(*self._pause))
                return
            if self._calendar is not None and self._random.random() < 0.1:
                dates = [f"{self._random.randint(1990, 2020)}-01-01"]
                await self._send("PATCH", f"/api/v1/calendars/{self._calendar}/", {"dates": dates})
            if not mine or self._random.random() < 0.1:
                await self._create(mine)
                continue
            schedule_id = self._random.choice(sorted(mine))
            await self._something(mine, schedule_id)

    async def _something(self, mine: dict[UUID, Json], schedule_id: UUID) -> None:
        path = f"/api/v1/schedules/{schedule_id}/"
        paused = mine[schedule_id].get("status") == "paused"
        verb = self._random.choice(
            (Verb.PATCH, Verb.PATCH, Verb.RUN, Verb.RESUME if paused else Verb.PAUSE, *([Verb.RESUME] * 3 * paused))
        )
        if self._random.random() < 0.08:
            await self._ask(schedule_id, Verb.DELETE, "DELETE", path)
            del mine[schedule_id]
            return
        if self._intervenes and self._random.random() < 0.15:
            await self._ask_beside(schedule_id, path)
            return
        if verb is Verb.PATCH:
            answer = await self._ask(schedule_id, verb, "PATCH", path, self._changes())
        else:
            answer = await self._ask(schedule_id, verb, "POST", f"{path}{verb}/")
        if answer is not None and verb is not Verb.RUN:
            mine[schedule_id] = answer

    async def _ask_beside(self, schedule_id: UUID, path: str) -> None:
        """Skip the next slot, or run past slots after all."""
        if self._random.random() < 0.5:
            await self._ask(schedule_id, Verb.SKIP, "POST", f"{path}skip/", {"next": 1})
            return
        now = datetime.now(UTC)
        span = {"from": (now - timedelta(seconds=20)).isoformat(), "to": (now - timedelta(seconds=1)).isoformat()}
        await self._ask(schedule_id, Verb.BACKFILL, "POST", f"{path}backfill/", {**span, "max_concurrent": 2})

    def _changes(self) -> Json:
        return self._random.choice(
            (
                {"name": f"n{self._random.randrange(10**9)}"},
                {"interval_seconds": self._random.randint(1, 5)},
                {"trigger_payload": {"x": self._random.randrange(10**9)}},
                {"max_retries": self._random.randint(50, 60)},
            )
        )

    async def _create(self, mine: dict[UUID, Json]) -> None:
        name, kind = f"c{self._random.randrange(10**12)}", next(self._kinds)
        address = "/".join(filter(None, (kind.folder, name)))
        nodes = [
            {"id": "start", "type": "trigger_schedule"},
            {
                "id": "call",
                "type": "core.http_request",
                "config": {"url": f"http://127.0.0.1:{self._deployment.target_port}/{address}", **kind.config},
            },
        ]
        flow = {"name": name, "nodes": nodes, "edges": [{"from": "start", "to": "call"}]}
        _, workflow = await self._send("POST", "/api/v1/workflows/", flow)
        if workflow is None:
            return
        body = {
            "name": name,
            "workflow_id": workflow["id"],
            "interval_seconds": self._random.randint(1, 5),
            **USUAL,
            **kind.values,
        }
        asked = datetime.now(UTC)
        ack, answer = await self._send("POST", "/api/v1/schedules/", body)
        if answer is None:
            if ack is Ack.UNKNOWN:
                self._unsure.add(name)
            return
        schedule_id = UUID(answer["id"])
        mine[schedule_id] = answer
        self._note(schedule_id, Verb.CREATE, asked, ack, body, answer)

    async def _ask(self, schedule_id: UUID, verb: Verb, method: str, path: str, body: Json | None = None) -> Any:
        asked = datetime.now(UTC)
        ack, answer = await self._send(method, path, body)
        self._note(schedule_id, verb, asked, ack, body or {}, answer)
        return answer

    async def _send(
        self, method: str, path: str, body: Json | None = None, token: str = ADMIN_TOKEN
    ) -> tuple[Ack, Json | None]:
        url = self._url()
        bearer = {"Authorization": f"Bearer {token}"}
        try:
            response = await self._http.request(method, f"{url}{path}", json=body, headers=bearer)
        except httpx.HTTPError as error:
            self.failures.append(f"{method} {url}{path}: {error!r}")
            return Ack.UNKNOWN, None
        self.answers[url] += 1
        if response.is_success:
            return Ack.YES, response.json() if response.content else None
        if response.status_code in CLIENT_ERRORS:
            return Ack.NO, None
        self.failures.append(f"{method} {url}{path}: {response.status_code} {response.text}")
        return Ack.UNKNOWN, None

    def _note(self, schedule_id: UUID, verb: Verb, asked: datetime, ack: Ack, body: Json, answer: Json | None) -> None:
        self.requests.append(
            Request(
                schedule_id=schedule_id,
                verb=verb,
                asked=asked,
                answered=datetime.now(UTC),
                ack=ack,
                body=body,
                answer=answer,
            )
        )
