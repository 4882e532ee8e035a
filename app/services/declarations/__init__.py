"""Workflows and schedules as files declare them: read, applied, and written again."""
