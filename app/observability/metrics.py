"""Metrics for Prometheus. No label grows with the number of schedules."""

from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, generate_latest, start_http_server

CONTENT_TYPE = CONTENT_TYPE_LATEST

REQUESTS = Counter("carillon_http_requests_total", "Requests answered by the API.", ["method", "status"])
RECONCILED = Counter("carillon_reconciled_total", "What the reconciler found and set going again.", ["kind"])
POLLED = Counter("carillon_polled_total", "Jobs of entities that were queued, or could not be.", ["outcome"])
QUARANTINED = Counter("carillon_quarantined_total", "Schedules and executions that could not be handled.")
MODE = Gauge("carillon_mode", "Where ticks come from: 1 the bell, 0 a sweep of Postgres while Redis is away.")


def exposition() -> bytes:
    """Everything, in Prometheus's text format."""
    return generate_latest()


def serve(host: str, port: int) -> None:
    """Answer Prometheus in a thread of its own, for a process that has no API."""
    start_http_server(port, host)
