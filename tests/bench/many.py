"""A million schedules: every filter, order and search, the overview and slots, for owners of much and of little."""

import time
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode
from uuid import UUID

import msgspec

from tests.bench.filling import LARGE_OWNER, SMALL_OWNER, fill, fill_runs
from tests.bench.stand import Stand
from tests.bench.web import Caller, free_port, ready_caller, request
from tests.support.carillon import ADMIN_TOKEN

LIMIT = 50
STRIPS, SLOTS = 50, 60


class Asked(msgspec.Struct):
    """How long one kind of request took, one at a time."""

    client: str
    path: str
    p50_ms: float
    p99_ms: float


def list_queries() -> list[Mapping[str, str]]:
    """Return the parameters of lists: each filter, each order, and combinations that no single index answers."""
    filters = {
        "status": ("active", "paused", "done", "dead"),
        "status_reason": ("manual", "invalid_spec"),
        "health": ("healthy", "late", "failing", "silent", "never_ran", "paused", "dead", "invalid", "done"),
        "owner_kind": ("user", "plugin"),
        "owner_id": (str(LARGE_OWNER), str(SMALL_OWNER)),
        "namespace": ("namespace-7", "none"),
        "label": ("env=prod", "app=app-17", "app=none"),
        "kind": ("interval", "cron", "once", "monthly"),
        "workflow_id": ("5", "1234"),
        "q": ("report", "app-17", "-777777", "nothing-like-it", "ba", "zz"),
        "sort": ("-created_at", "created_at", "name", "-name", "next_run_at", "-next_run_at"),
    }
    filters["sort"] += ("-last_attempt_at", "last_attempt_at")
    alone = [{name: value} for name, values in filters.items() for value in values]
    together = [
        {"status": "paused", "sort": "name"},
        {"status": "active", "sort": "next_run_at"},
        {"status": "dead", "sort": "-last_attempt_at"},
        {"label": "env=stage", "sort": "next_run_at"},
        {"label": "app=app-17", "sort": "-last_attempt_at"},
        {"label": "app=app-17", "status": "dead"},
        {"health": "failing", "label": "app=app-5"},
        {"health": "failing", "sort": "name"},
        {"health": "healthy", "sort": "name"},
        {"q": "report", "status": "paused"},
        {"q": "report", "sort": "name"},
        {"q": "report", "sort": "name", "status": "active"},
        {"q": "report", "kind": "once"},
        {"q": "sy", "sort": "name"},
        {"status_reason": "manual", "sort": "next_run_at"},
        {"q": "app-17", "sort": "next_run_at"},
        {"kind": "monthly", "sort": "name"},
        {"namespace": "namespace-7", "sort": "next_run_at"},
        {"workflow_id": "5", "sort": "name"},
        {"owner_id": str(LARGE_OWNER), "sort": "name"},
        {"owner_id": str(SMALL_OWNER), "sort": "next_run_at"},
    ]
    return [{}, *alone, *together]


async def measure_many(stand: Stand, count: int, seconds: float) -> list[Asked]:
    """Fill the tables, and ask for everything as an admin, as an owner of much and as an owner of little."""
    await fill(stand, count)
    strips = await fill_runs(stand, STRIPS, SLOTS)
    await stand.put_in_order()
    return await ask_many(stand, strips, seconds)


async def ask_many(stand: Stand, strips: Sequence[UUID], seconds: float) -> list[Asked]:
    """Ask for everything, each request again and again for some time."""
    port = free_port()
    asked: list[Asked] = []
    async with stand.running("api", CARILLON_PORT=str(port)):
        caller = await ready_caller(port)
        owners = {"large owner": LARGE_OWNER, "small owner": SMALL_OWNER}
        tokens = {"admin": ADMIN_TOKEN, **{name: await _token(caller, owner) for name, owner in owners.items()}}
        for client, token in tokens.items():
            paths = _paths(strips if client == "admin" else ())
            asked += [await _ask(caller, client, token, path, seconds) for path in paths]
            asked.append(await _ask_next_page(caller, client, token, seconds))
    return asked


def _paths(strips: Sequence[UUID]) -> list[str]:
    lists = [f"/api/v1/schedules/?{urlencode({'limit': LIMIT, **query})}" for query in list_queries()]
    searches = [f"/api/v1/search/?q={text}" for text in ("report", "app-17", "host-39", "-777777", "nothing-like-it")]
    ids = ",".join(map(str, strips))
    slots = [f"/api/v1/slots/?schedule_ids={ids}&last={SLOTS}"] if strips else []
    return [*lists, *searches, "/api/v1/overview/", *slots]


async def _ask(caller: Caller, client: str, token: str, path: str, seconds: float) -> Asked:
    asked = request("GET", path, token=token)
    first = time.monotonic()
    await caller.rate(lambda: asked, 0, at_once=1)
    # What takes long is asked a few times only.
    long = time.monotonic() - first
    answered = await caller.rate(lambda: asked, max(seconds, 3 * long), at_once=1)
    return Asked(client, path[:90], answered.p50_ms, answered.p99_ms)


async def _ask_next_page(caller: Caller, client: str, token: str, seconds: float) -> Asked:
    """Ask for a page in the middle of the default order, by its cursor."""
    page = await caller.call("GET", "/api/v1/schedules/?limit=500&fields=id", token=token)
    return await _ask(caller, client, token, f"/api/v1/schedules/?limit=50&cursor={page['next_cursor']}", seconds)


async def _token(caller: Caller, owner: int) -> str:
    made = await caller.call("POST", f"/api/v1/users/{owner}/tokens/", {"name": "bench"})
    return str(made["token"])


def lines(asked: Sequence[Asked], most: int = 40) -> list[str]:
    """Return the slowest requests and the slowest p99 of each client, for people."""
    slowest = sorted(asked, key=lambda one: one.p99_ms, reverse=True)[:most]
    return [f"{one.client:>14} p50 {one.p50_ms:8.1f} ms, p99 {one.p99_ms:8.1f} ms  {one.path}" for one in slowest]
