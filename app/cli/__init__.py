"""The ``carillon`` command. It may use every other package; nothing imports it.

- ``main``: the list of subcommands, how errors are printed, and exit codes.
- ``options``: the options of many commands: the server, the form of the output, the length of a list.
- ``output``: tables, JSON, YAML, CSV and names; `--watch`.
- ``lookup``, ``names``: objects by what people type; names for the completion of the shell.
- ``fields``: fields of objects from options, files and an editor.
- ``interaction``: questions, progress, and waiting for runs and operations.
- ``schedules``, ``schedule_changes``, ``runs``: the verbs of ``schedule`` and ``run``, over HTTP.
- ``completion``: the script that completes commands, options and names in a shell.
- ``login``: ``login``, ``logout``, ``context``, ``whoami`` and ``request``.
- ``processes``: ``up``, ``api``, ``worker`` and ``migrate``, the processes of a deployment.
- ``apply``: ``apply`` and ``export``, workflows and schedules as files.
- ``imports``: ``import``, schedules of other tools as files for ``apply``.
- ``admin``: ``breaker``, ``plugins``, ``user`` and ``token``.
- ``operators``: the database connection and the rights of ``apply`` and ``admin``.
"""

from app.cli.main import main

__all__ = ["main"]
