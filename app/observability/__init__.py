"""Logs, metrics, traces and health answers. Every other package may use it; it knows nothing of what it reports on.

It may import the pure ``app.domain`` and ``app.clock``.

- ``logs``: the format of log lines, redaction of user data, limits for repeated lines.
- ``metrics``: every Prometheus metric, by name.
- ``serving``: the small HTTP server of a worker for health and metrics.
- ``worker_group``: health and metrics of several worker processes, merged into one answer.
- ``tracing``: spans as the other packages see them.
- ``otlp``: spans by OpenTelemetry; the only module that imports it.
"""
