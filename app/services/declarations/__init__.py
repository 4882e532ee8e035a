"""Workflows and schedules in files: ``carillon apply`` reads and applies them, ``carillon export`` writes them."""
