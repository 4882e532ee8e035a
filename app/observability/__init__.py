"""Shows: logs, metrics and traces. It knows nothing of what it reports on."""
