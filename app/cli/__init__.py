"""Speaks to operators: the ``carillon`` command."""

from app.cli.main import main

__all__ = ["main"]
