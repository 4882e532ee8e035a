"""Metrics and health of several worker processes, answered as one."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from app.observability.serving import Health

# What only grows: it is added up, and what an ended process had counted is still counted.
GROWING = {"counter", "histogram", "summary"}
# Of the gauges, these are shares of a whole.
SHARES = {
    *("carillon_runs_in_flight", "carillon_database_connections"),
    *("process_resident_memory_bytes", "process_virtual_memory_bytes", "process_open_fds"),
}
# And of these the worst counts. Of all others the greatest does; most are the same everywhere.
LEAST = {"carillon_mode", "process_start_time_seconds"}

Counted = dict[str, Metric]


def parsed(text: str) -> Counted:
    """What one process says, by the names of the metrics."""
    return {family.name: family for family in text_string_to_metric_families(text)}


def growing(counted: Counted) -> Counted:
    """What of it outlives the process."""
    return {name: family for name, family in counted.items() if family.type in GROWING}


def summed(all_counted: Iterable[Counted]) -> Counted:
    """One for all, each series by the rule of its metric."""
    families: Counted = {}
    series: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], list[float]]] = {}
    for counted in all_counted:
        for name, family in counted.items():
            families.setdefault(name, family)
            values = series.setdefault(name, {})
            for sample in family.samples:
                values.setdefault((sample.name, tuple(sample.labels.items())), []).append(sample.value)
    return {name: _family(family, series[name]) for name, family in families.items()}


def as_text(counted: Counted) -> bytes:
    """In Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given(counted))
    return generate_latest(registry)


def _family(like: Metric, values: dict[tuple[str, tuple[tuple[str, str], ...]], list[float]]) -> Metric:
    made = Metric(like.name, like.documentation, like.type)
    for (name, labels), found in values.items():
        made.add_sample(name, dict(labels), _one(like, found))
    return made


def _one(family: Metric, values: list[float]) -> float:
    if family.type in GROWING or family.name in SHARES:
        return sum(values)
    return min(values) if family.name in LEAST else max(values)


class _Given(Collector):
    def __init__(self, counted: Counted) -> None:
        self._counted = counted

    def collect(self) -> Iterator[Metric]:
        """All of it."""
        return iter(self._counted.values())


# Probes wait for five seconds.
ASK_SECONDS = 3.0
WORST_FIRST = ("unavailable", "degraded", "ok")
# The host means nothing: the socket is where the process is.
_URL = "http://worker"
SILENT = {"status": "unavailable", "detail": "This process does not answer."}


class WorkerGroupAnswers:
    """What the processes behind these sockets say together."""

    def __init__(self, sockets: Sequence[Path]) -> None:
        """Nobody has been heard yet."""
        self._sockets = sockets
        # The latest that each has said, and all that those who have ended had counted.
        self._counted: dict[Path, Counted] = {}
        self._past: Counted = {}

    def process_exited(self, socket: Path) -> None:
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
