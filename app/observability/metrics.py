"""Metrics for Prometheus. No label grows with the number of schedules."""

from prometheus_client import CONTENT_TYPE_LATEST, Counter, generate_latest

CONTENT_TYPE = CONTENT_TYPE_LATEST

REQUESTS = Counter("carillon_http_requests_total", "Requests answered by the API.", ["method", "status"])


def exposition() -> bytes:
    """Everything, in Prometheus's text format."""
    return generate_latest()
