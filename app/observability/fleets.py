"""Several processes that answer as one: each is asked on a socket of its own."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector

from app.observability.serving import Health
from app.observability.worker_group import Counted, as_text, growing, parsed, summed

# Probes wait for five seconds.
ASK_SECONDS = 3.0
WORST_FIRST = ("unavailable", "degraded", "ok")
# The host means nothing: the socket is where the process is.
_URL = "http://worker"
SILENT = {"status": "unavailable", "detail": "This process does not answer."}


class FleetAnswers:
    """What the processes behind these sockets say together."""

    def __init__(self, sockets: Sequence[Path]) -> None:
        """Nobody has been heard yet."""
        self._sockets = sockets
        # The latest that each has said, and all that those who have ended had counted.
        self._counted: dict[Path, Counted] = {}
        self._past: Counted = {}

    def ended(self, socket: Path) -> None:
        """The process there has ended, and another takes its place."""
        self._past = summed((self._past, growing(self._counted.pop(socket, {}))))
        socket.unlink(missing_ok=True)

    async def live(self) -> bool:
        """One that does not come up is started again by us; one that is up and stuck is not."""
        return not any(isinstance(found, TimeoutError) for found in await self._ask("/health/live"))

    async def ready(self) -> Health:
        """All of them have to be."""
        said = [_readiness(found) for found in await self._ask("/health/ready")]
        worst = next(status for status in WORST_FIRST if any(one.get("status") == status for one in said))
        told = {"status": worst, "processes": said}
        return Health(worst != WORST_FIRST[0], msgspec.json.encode(told))

    async def metrics(self) -> bytes:
        """Sums; one that is silent now has counted what it had when it was last heard."""
        answers = await self._ask("/metrics")
        for socket, answer in zip(self._sockets, answers, strict=True):
            if isinstance(answer, bytes):
                self._counted[socket] = parsed(answer.decode())
        return as_text(summed((*self._counted.values(), self._past)))

    async def _ask(self, path: str) -> list[bytes | Exception]:
        return await asyncio.gather(*(_answer(socket, path) for socket in self._sockets))


def _readiness(found: bytes | Exception) -> dict[str, str]:
    return SILENT if isinstance(found, Exception) else msgspec.json.decode(found, type=dict[str, str])


async def _answer(socket: Path, path: str) -> bytes | Exception:
    connector, limit = UnixConnector(str(socket)), ClientTimeout(total=ASK_SECONDS)
    try:
        async with ClientSession(connector=connector, timeout=limit) as client, client.get(_URL + path) as answer:
            return await answer.read()
    except (ClientError, OSError) as error:
        return error
