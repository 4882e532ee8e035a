"""What hostile clients do. A scenario is one function with ``@scenario``: it attacks, and says what it sent and saw.

EntityConflict each scenario good clients ask, and the processes' memory is watched: see ``tests.attack.measuring``.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tests.attack.target import CRON_TOKEN, HOSTILE_ADDRESS, Target
from tests.support.carillon import ADMIN_TOKEN, until
from tests.support.raw_http import RawConnection, raw_connection, status_of

MIB = 1024 * 1024
# What the kernel buffers and the server reads and drops before a connection is cut.
CUT_OFF_BYTES = 16 * MIB
POST = f"POST /api/v1/schedules/ HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n".encode()


class Scale(msgspec.Struct, frozen=True):
    """How hard to attack."""

    seconds: float
    connections: int
    url_megabytes: int


FULL = Scale(seconds=20, connections=500, url_megabytes=100)
SHORT = Scale(seconds=3, connections=50, url_megabytes=20)


class Told(msgspec.Struct):
    """What a scenario has sent, and which promises it saw broken."""

    sent: str
    broken: list[str] = []


Scenario = Callable[[Target, Scale], Awaitable[Told]]
SCENARIOS: dict[str, Scenario] = {}
# Those that would break the promises of the others if they ran beside them.
ALONE: dict[str, Scenario] = {}


def scenario(name: str) -> Callable[[Scenario], Scenario]:
    """Add a scenario to the table."""

    def add(function: Scenario) -> Scenario:
        SCENARIOS[name] = function
        return function

    return add


def alone(name: str) -> Callable[[Scenario], Scenario]:
    """Add a scenario that nothing else may run beside."""

    def add(function: Scenario) -> Scenario:
        ALONE[name] = function
        return function

    return add


def hostile(target: Target) -> Any:
    """A connection of an attacker."""
    return raw_connection(target.url, HOSTILE_ADDRESS)


async def for_seconds(seconds: float, attack: Callable[[], Awaitable[None]], at_once: int) -> None:
    """Attack again and again, so many at once, for so long."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds

    async def again() -> None:
        while loop.time() < deadline:
            await attack()

    await asyncio.gather(*(again() for _ in range(at_once)))


async def flood(one: RawConnection, piece: bytes, most_bytes: int) -> int:
    """Send a piece again and again until the server closes the connection; how many bytes it took."""
    sent = 0
    while sent < most_bytes and await one.send(piece):
        sent += len(piece)
    return sent


@scenario("nothing")
async def nothing(_target: Target, scale: Scale) -> Told:
    """What this machine gives good clients when nobody attacks."""
    await asyncio.sleep(scale.seconds / 2)
    return Told("nothing: to compare with")


@scenario("endless headers")
async def endless_headers(target: Target, scale: Scale) -> Told:
    """Two connections send headers that never end; each is cut off."""
    taken: list[int] = []

    async def attack() -> None:
        async with hostile(target) as one:
            await one.send(b"GET / HTTP/1.1\r\nHost: x\r\n")
            taken.append(await flood(one, b"X-Header: " + b"a" * 8000 + b"\r\n", CUT_OFF_BYTES))

    await for_seconds(scale.seconds, attack, at_once=2)
    broken = [f"{size / MIB:.0f} MiB of headers were taken" for size in taken if size >= CUT_OFF_BYTES]
    return Told(f"2 connections, cut off {len(taken)} times after {max(taken) / MIB:.1f} MiB at most", broken)


@scenario("huge URL")
async def huge_url(target: Target, scale: Scale) -> Told:
    """Requests whose path has a hundred megabytes, one after another."""
    sent: list[int] = []
    statuses: Counter[int] = Counter()

    async def attack() -> None:
        async with hostile(target) as one:
            await one.send(b"GET /")
            sent.append(await flood(one, b"a" * 65536, scale.url_megabytes * MIB))
            statuses[status_of(await one.until_closed())] += 1

    await for_seconds(scale.seconds, attack, at_once=1)
    broken = [f"{size / MIB:.0f} MiB of a URL were taken" for size in sent if size >= CUT_OFF_BYTES]
    broken += [f"answers {sorted(statuses)}"] if set(statuses) - {0, 431} else []
    words = f"{len(sent)} URLs of {scale.url_megabytes} MiB, cut off after {max(sent) / MIB:.1f} MiB at most"
    return Told(f"{words}, {statuses[431]} with 431", broken)


@scenario("half requests")
async def half_requests(target: Target, scale: Scale) -> Told:
    """Many connections send half a head and wait."""
    return await _all_ended(target, scale, b"GET /api/v1/me/ HTTP/1.1\r\nHost: x\r\n", "half a head")


@scenario("slow bodies")
async def slow_bodies(target: Target, scale: Scale) -> Told:
    """Many connections promise a body, and send a byte of it."""
    return await _all_ended(target, scale, POST + b"Content-Length: 1000\r\n\r\n{", "a byte of a body")


async def _all_ended(target: Target, scale: Scale, start: bytes, what: str) -> Told:
    """All connections that begin so must be ended by the server, with 408."""
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def attack() -> int:
        async with hostile(target) as one:
            await one.send(start)
            return status_of(await one.until_closed())

    statuses = Counter(await asyncio.gather(*(attack() for _ in range(scale.connections))))
    broken = [f"{count} ended with {status}" for status, count in statuses.items() if status != 408]
    seconds = loop.time() - began
    return Told(f"{scale.connections} connections with {what}, all ended with 408 after {seconds:.0f} s", broken)


@scenario("slow readers")
async def slow_readers(target: Target, scale: Scale) -> Told:
    """Many connections ask for much and read nothing; all are dropped."""
    asked = b"GET /schema/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    connections = scale.connections // 5

    async def attack() -> None:
        async with hostile(target) as one:
            one.stop_reading()

            async def is_dropped() -> bool:
                # Until it is more than the kernel keeps for a connection, and then until nobody listens any more.
                return not await one.send(asked)

            await until(is_dropped, seconds=120)

    dropped = await asyncio.gather(*(attack() for _ in range(connections)), return_exceptions=True)
    kept = sum(isinstance(one, TimeoutError) for one in dropped)
    broken = [f"{kept} connections were not dropped"] if kept else []
    return Told(f"{connections} connections that read none of their answers, all dropped", broken)


@scenario("garbage tokens")
async def garbage_tokens(target: Target, scale: Scale) -> Told:
    """A flood of made-up tokens: refused, and Redis does not fill up with them."""
    statuses = await _guess(target, scale, "/api/v1/me/", lambda: f"carillon_{secrets.token_hex(8)}_made-up")
    keys = await target.redis_keys("carillon:limit:*")
    broken = _not_limited(statuses)
    # The attacker's address, and the tokens of good clients.
    broken += [f"{keys} counters in Redis"] if keys > 10 else []
    return Told(f"{statuses.total()} requests, {statuses[401]} answered 401 and {statuses[429]} 429", broken)


@scenario("guesses at the cron token")
async def cron_guesses(target: Target, scale: Scale) -> Told:
    """A flood of guesses; the right token still works from the same address."""
    statuses = await _guess(target, scale, "/api/cron/run", lambda: secrets.token_hex(8))
    right = await _ask(target, "/api/cron/run", CRON_TOKEN)
    broken = _not_limited(statuses)
    broken += [f"the right token got {right}"] if right not in {200, 202} else []
    return Told(f"{statuses.total()} guesses, {statuses[401]} answered 401 and {statuses[429]} 429", broken)


async def _guess(target: Target, scale: Scale, path: str, token: Callable[[], str]) -> Counter[int]:
    """Ask with made-up tokens from several connections; how often each status was the answer."""
    statuses: Counter[int] = Counter()
    # More than an address is allowed in a minute.
    seconds = max(scale.seconds, 3)

    async def attack() -> None:
        async with hostile(target) as one:
            for _ in range(50):
                await one.send(_request(path, token()))
                statuses[(await one.answer())[0]] += 1

    await for_seconds(seconds, attack, at_once=10)
    return statuses


def _not_limited(statuses: Counter[int]) -> list[str]:
    """A wrong token gets 401, and 429 once there were too many of them; some of the latter there must be."""
    return [f"answers {sorted(statuses)}"] if set(statuses) - {401, 429} or not statuses[429] else []


async def _ask(target: Target, path: str, token: str) -> int:
    async with hostile(target) as one:
        await one.send(_request(path, token))
        status: int = (await one.answer())[0]
        return status


def _request(path: str, token: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
