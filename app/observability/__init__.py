"""Shows: logs and metrics. It knows nothing of what it reports on."""
