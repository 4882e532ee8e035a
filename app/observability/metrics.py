"""Metrics for Prometheus. Their names are promised; no label grows with the number of schedules."""

from importlib.metadata import version

from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram, Info, generate_latest

CONTENT_TYPE = CONTENT_TYPE_LATEST
LATE_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0)
RUN_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)

# Of the API.
REQUESTS = Counter("carillon_http_requests_total", "Requests answered.", ["method", "route", "status"])
REQUEST_SECONDS = Histogram("carillon_http_request_seconds", "How long requests took.", ["method", "route"])
HTTP_REFUSED = Counter(
    "carillon_http_refused_total", "Connections refused or dropped by the limits of HTTP.", ["reason"]
)

# Of a worker.
ENDED = Counter("carillon_executions_ended_total", "Executions that have ended, by how.", ["status"])
LATENESS = Histogram("carillon_lateness_seconds", "From the slot to its run.", buckets=LATE_SECONDS)
RUN_SECONDS = Histogram("carillon_run_seconds", "How long runs took.", ["status"], buckets=RUN_BUCKETS)
IN_FLIGHT = Gauge("carillon_runs_in_flight", "Executions that this process runs now.")
RECONCILED = Counter("carillon_reconciled_total", "What the reconciler found and set going again.", ["kind"])
POLLED = Counter("carillon_polled_total", "Jobs of entities that were queued, or could not be.", ["outcome"])
QUARANTINED = Counter("carillon_quarantined_total", "Schedules and executions that could not be handled.")
MODE = Gauge("carillon_mode", "Where ticks come from: 1 the bell, 0 a sweep of Postgres while Redis is away.")

# Of every process.
MISSED = Counter("carillon_slots_missed_total", "Slots that did not fire, by why.", ["outcome"])
BELL_ERRORS = Counter("carillon_bell_errors_total", "Calls to Redis that failed.")
BELL_PROBLEM = Gauge("carillon_bell_problem", "1 for what is wrong with Redis now, by kind.", ["kind"])
SPANS_LOST = Counter("carillon_spans_lost_total", "Spans of traces that the collector did not take.")
CONNECTIONS = Gauge("carillon_database_connections", "Connections to Postgres.", ["state"])
BUILD = Info("carillon_build", "What is running.")
BUILD.info({"version": version("carillon")})

# Read from Postgres, and so the same in all API processes.
DUE = Gauge("carillon_due_ticks", "Ticks that are due and not claimed yet.")
OLDEST = Gauge("carillon_oldest_overdue_seconds", "How long the longest overdue tick has waited.")
SCHEDULES = Gauge("carillon_schedules", "Schedules by their state.", ["status"])
WORKERS = Gauge("carillon_workers", "Workers whose lease holds.")
BREAKERS = Gauge("carillon_breakers", "Circuit breakers by their state.", ["state"])


def exposition() -> bytes:
    """Everything, in Prometheus's text format."""
    return generate_latest()
