"""The ``carillon`` command. It may use every other package; nothing imports it.

- ``main``: the list of subcommands, and how errors are printed.
- ``processes``: ``up``, ``api``, ``worker`` and ``migrate``, the processes of a deployment.
- ``apply``: ``apply`` and ``export``, workflows and schedules as files.
- ``imports``: ``import``, schedules of other tools as files for ``apply``.
- ``admin``: ``breaker``, ``plugins``, ``user`` and ``token``.
- ``operators``: the database connection and the rights of ``apply`` and ``admin``.
"""

from app.cli.main import main

__all__ = ["main"]
