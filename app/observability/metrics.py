"""All Prometheus metrics. Their names are a promise to operators; no label grows with the number of schedules."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from itertools import accumulate
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

CONTENT_TYPE = CONTENT_TYPE_LATEST
LATE_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0)
RUN_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)


class OptionalGauge(Gauge):
    """A gauge without labels that is exported only while it has a value.

    A process that never sets it would export 0, and a value that could not be read again would stay for ever; an alert
    could not tell either from the truth.
    """

    _has_value = False

    def set(self, value: float) -> None:
        """Export this value."""
        self._has_value = True
        # A function that was set before is stored on the instance, and would go on.
        self.__dict__.pop("_child_samples", None)
        super().set(value)

    def set_function(self, f: Callable[[], float]) -> None:
        """Export what the function returns at each scrape."""
        self._has_value = True
        super().set_function(f)

    def unset(self) -> None:
        """Export nothing until the next value."""
        self._has_value = False

    def collect(self) -> Iterable[Any]:
        """Return the value, if there is one."""
        return super().collect() if self._has_value else []


class PlainHistogram:
    """A histogram that is observed from one thread only, thousands of times a second, for a tenth of the usual cost."""

    def __init__(self, name: str, documentation: str, bounds: Sequence[float], label: str = "") -> None:
        """Export it under this name, with the upper bounds of its buckets; with a label, by the label's values."""
        self.name, self.label = name, label
        self._documentation = documentation
        self._bounds = (*bounds, math.inf)
        # By the value of the label: the number in each bucket, and the sum.
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}
        if not label:
            self._begin("")
        REGISTRY.register(self)

    def observe(self, value: float, label: str = "") -> None:
        """Count a value."""
        if label not in self._counts:
            self._begin(label)
        self._counts[label][bisect_left(self._bounds, value)] += 1
        self._sums[label] += value

    def describe(self) -> Iterable[Metric]:
        """Return its name and type."""
        return [HistogramMetricFamily(self.name, self._documentation)]

    def collect(self) -> Iterable[Metric]:
        """Return the numbers of all buckets, as Prometheus has them: each with those below it."""
        family = HistogramMetricFamily(self.name, self._documentation, labels=[self.label] if self.label else [])
        for label, counts in self._counts.items():
            buckets = zip(map(floatToGoString, self._bounds), accumulate(counts), strict=True)
            family.add_metric([label] if self.label else [], list(buckets), self._sums[label])
        return [family]

    def _begin(self, label: str) -> None:
        self._counts[label] = [0] * len(self._bounds)
        self._sums[label] = 0.0


# Of the API.
REQUESTS = Counter("carillon_http_requests_total", "HTTP requests answered.", ["method", "route", "status"])
REQUEST_SECONDS = Histogram("carillon_http_request_seconds", "Duration of HTTP requests.", ["method", "route"])
HTTP_REFUSED = Counter(
    "carillon_http_refused_total", "HTTP connections refused or closed because a limit was exceeded.", ["reason"]
)

# Of a worker.
ENDED = Counter("carillon_executions_ended_total", "Executions that ended, by final status.", ["status"])
LATENESS = PlainHistogram("carillon_lateness_seconds", "Delay from the slot to the start of its run.", LATE_SECONDS)
RUN_SECONDS = PlainHistogram("carillon_run_seconds", "Duration of runs.", RUN_BUCKETS, "status")
IN_FLIGHT = OptionalGauge("carillon_runs_in_flight", "Executions that this process is running.")
RECONCILED = Counter("carillon_reconciled_total", "Objects that the reconciler found and repaired, by kind.", ["kind"])
POLLED = Counter("carillon_polled_total", "Jobs of entities that were queued or could not be, by outcome.", ["outcome"])
QUARANTINED = Counter("carillon_quarantined_total", "Schedules and executions quarantined after repeated errors.")
MODE = OptionalGauge(
    "carillon_mode", "Source of ticks: 1 wake-ups from Redis, 0 polling Postgres while Redis is unavailable."
)

# Of an operator.
OPERATOR_LEADER = OptionalGauge("carillon_operator_leader", "Whether this operator holds the Lease: 1 or 0.")
OPERATOR_OBJECTS = Gauge("carillon_operator_objects", "Kubernetes objects, by kind and readiness.", ["kind", "ready"])
OPERATOR_PASSES = Counter("carillon_operator_passes_total", "Passes over a namespace, by outcome.", ["outcome"])

# Of every process.
MISSED = Counter("carillon_slots_missed_total", "Slots that did not fire, by reason.", ["outcome"])
COMMITS_LOST = Counter(
    "carillon_commits_lost_total", "Schedules whose row is older than what this process had seen committed."
)
BELL_ERRORS = Counter("carillon_bell_errors_total", "Redis calls that failed.")
BELL_PROBLEM = Gauge("carillon_bell_problem", "Current problem with Redis: 1 for the kind that applies.", ["kind"])
SPANS_LOST = Counter("carillon_spans_lost_total", "Trace spans that the collector did not accept.")
CONNECTIONS = Gauge("carillon_database_connections", "Connections to Postgres, by state.", ["state"])
CONNECTIONS_LIMIT = OptionalGauge("carillon_database_connections_limit", "Connections that this process may open.")
POSTGRES_UP = OptionalGauge("carillon_postgres_up", "Whether this process reaches Postgres: 1 or 0.")
REDIS_UP = OptionalGauge("carillon_redis_up", "Whether this process reaches Redis: 1 or 0.")
BUILD = Info("carillon_build", "Version of Carillon that is running.")
BUILD.info({"version": version("carillon")})

# Read from Postgres, so all API processes report the same value. Without Postgres there is none.
DUE = OptionalGauge("carillon_due_ticks", "Ticks and pending runs that are due and not claimed yet.")
OLDEST = OptionalGauge("carillon_oldest_overdue_seconds", "Age of the oldest due tick that is not claimed yet.")
SCHEDULES = Gauge("carillon_schedules", "Schedules, by status.", ["status"])
WORKERS = OptionalGauge("carillon_workers", "Workers with a valid lease.")
BREAKERS = Gauge("carillon_breakers", "Circuit breakers, by state.", ["state"])


def exposition() -> bytes:
    """Return all metrics of this process in Prometheus's text format."""
    return generate_latest()
