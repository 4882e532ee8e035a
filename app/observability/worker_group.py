"""Metrics and health of several worker processes, merged into the answers of one.

The parent of ``carillon worker --processes N`` asks each process on its unix socket and merges what they answer.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from multidict import CIMultiDict
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from app.http1.connections import send_once
from app.http1.requests import build_request
from app.http1.response import ExchangeError
from app.observability.serving import Health

# Types that only grow. They are summed, and what an exited process had counted stays in the sum.
CUMULATIVE_TYPES = {"counter", "histogram", "summary"}
# Gauges that are summed, since each process has a part of the total.
SUMMED_GAUGES = {
    *("carillon_runs_in_flight", "carillon_database_connections", "carillon_database_connections_limit"),
    *("process_resident_memory_bytes", "process_virtual_memory_bytes", "process_open_fds"),
}
# Gauges of which the smallest value is shown. Of all others the largest is; most are the same in every process.
SMALLEST_GAUGES = {"carillon_mode", "carillon_postgres_up", "carillon_redis_up", "process_start_time_seconds"}

# Shorter than the timeout of the probes, five seconds.
ANSWER_SECONDS = 3.0
MOST_ANSWER_BYTES = 16 * 1024 * 1024
WORST_FIRST = ("unavailable", "degraded", "ok")
NO_ANSWER = {"status": "unavailable", "detail": "This process does not answer."}
# The host has no meaning: the connection goes to the unix socket.
_BASE_URL = "http://worker"

# The metrics of one process, by name.
Metrics = dict[str, Metric]
# The name of a sample and its labels.
Series = tuple[str, tuple[tuple[str, str], ...]]


class WorkerGroupAnswers:
    """The merged answers of the worker processes behind these sockets."""

    def __init__(self, sockets: Sequence[Path]) -> None:
        """Name the sockets; nothing is asked yet."""
        self._sockets = sockets
        # The last metrics of each process, and the sum of what exited processes had counted.
        self._latest: dict[Path, Metrics] = {}
        self._exited: Metrics = {}

    def process_exited(self, socket: Path) -> None:
        """Keep the counters of the process that has exited, and free the socket for its successor."""
        self._exited = merge_metrics((self._exited, cumulative_only(self._latest.pop(socket, {}))))
        socket.unlink(missing_ok=True)

    async def live(self) -> bool:
        """Return False if a process is stuck: it accepts connections and does not answer.

        One that is not there is no reason to restart the group, because the parent restarts it.
        """
        return not any(isinstance(answer, TimeoutError) for answer in await self._ask_all("/health/live"))

    async def ready(self) -> Health:
        """Return the worst status of all processes, with the answer of each."""
        answers = [_readiness(answer) for answer in await self._ask_all("/health/ready")]
        worst = next(status for status in WORST_FIRST if any(answer.get("status") == status for answer in answers))
        return Health(worst != WORST_FIRST[0], msgspec.json.encode({"status": worst, "processes": answers}))

    async def metrics(self) -> bytes:
        """Return the merged metrics. Of a process that does not answer only what it had counted is left."""
        answers = await self._ask_all("/metrics")
        for socket, answer in zip(self._sockets, answers, strict=True):
            if isinstance(answer, bytes):
                self._latest[socket] = parse_metrics(answer.decode())
            else:
                self._latest[socket] = cumulative_only(self._latest.get(socket, {}))
        return render_metrics(merge_metrics((*self._latest.values(), self._exited)))

    async def _ask_all(self, path: str) -> list[bytes | Exception]:
        return await asyncio.gather(*(_ask(socket, path) for socket in self._sockets))


async def _ask(socket: Path, path: str) -> bytes | Exception:
    request = build_request("GET", _BASE_URL + path, CIMultiDict(Connection="close"), b"")
    try:
        answer = await send_once(
            request, [str(socket)], tls=None, most_body_bytes=MOST_ANSWER_BYTES, seconds=ANSWER_SECONDS
        )
    except (ExchangeError, OSError) as error:
        return error
    return answer.body


def _readiness(answer: bytes | Exception) -> dict[str, str]:
    return NO_ANSWER if isinstance(answer, Exception) else msgspec.json.decode(answer, type=dict[str, str])


def parse_metrics(text: str) -> Metrics:
    """Return the metrics of a text in Prometheus's format, by name."""
    return {family.name: family for family in text_string_to_metric_families(text)}


def render_metrics(metrics: Metrics) -> bytes:
    """Return metrics as a text in Prometheus's format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_FixedCollector(metrics))
    return generate_latest(registry)


def cumulative_only(metrics: Metrics) -> Metrics:
    """Return the metrics that still count after their process has exited."""
    return {name: family for name, family in metrics.items() if family.type in CUMULATIVE_TYPES}


def merge_metrics(metrics_of_processes: Iterable[Metrics]) -> Metrics:
    """Merge the metrics of several processes: each series becomes one, by the rule of its metric."""
    families: Metrics = {}
    series: dict[str, dict[Series, list[float]]] = {}
    for metrics in metrics_of_processes:
        for name, family in metrics.items():
            families.setdefault(name, family)
            values = series.setdefault(name, {})
            for sample in family.samples:
                values.setdefault((sample.name, tuple(sample.labels.items())), []).append(sample.value)
    return {name: _merged_family(family, series[name]) for name, family in families.items()}


def _merged_family(family: Metric, values_of_series: dict[Series, list[float]]) -> Metric:
    merged = Metric(family.name, family.documentation, family.type)
    for (name, labels), values in values_of_series.items():
        merged.add_sample(name, dict(labels), _merged_value(family, values))
    return merged


def _merged_value(family: Metric, values: list[float]) -> float:
    if family.type in CUMULATIVE_TYPES or family.name in SUMMED_GAUGES:
        return sum(values)
    return min(values) if family.name in SMALLEST_GAUGES else max(values)


class _FixedCollector(Collector):
    """Hands metrics that exist already to a registry."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Return all metrics."""
        return iter(self._metrics.values())
