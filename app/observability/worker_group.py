"""What several processes have counted, as if it had been one."""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

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
