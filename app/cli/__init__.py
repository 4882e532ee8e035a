"""The ``carillon`` command. It may use every other package; nothing imports it.

- ``main``: the list of subcommands, how errors are printed, and exit codes.
- ``options``: the options of many commands: the server, the form of the output, the length of a list.
- ``output``: tables, JSON, YAML, CSV and names; `--watch`.
- ``lookup``, ``names``: objects by what people type; names for the completion of the shell.
- ``fields``: fields of objects from options, files and an editor.
- ``interaction``: questions, progress, and waiting for runs and operations.
- ``schedules``, ``schedule_changes``, ``runs``: the verbs of ``schedule`` and ``run``, over HTTP.
- ``plans``: plans of changes as text.
- ``completion``: the script that completes commands, options and names in a shell.
- ``workflows``, ``load``: the verbs of ``workflow`` and ``load``.
- ``resources``: the nouns whose verbs are those of the API, such as ``notification`` and ``team``.
- ``constraints``, ``leases``: ``calendar`` and ``limit``; ``lease``, the rights of agents.
- ``accounts``: ``user`` and ``token``, over HTTP or on the database.
- ``doctor``, ``top``: whether a server is well, and what it does.
- ``login``: ``login``, ``logout``, ``context``, ``whoami`` and ``request``.
- ``reference``: writes docs/cli.md from the commands.
- ``processes``: ``up``, ``api``, ``worker`` and ``migrate``, the processes of a deployment.
- ``apply``, ``apply_database``: ``apply``, ``plan`` and ``export``, workflows and schedules as files.
- ``imports``: ``import``, schedules of other tools as files for ``apply``.
- ``admin``: ``plugins`` and ``keys``, and users and tokens on the database.
- ``operators``: the database connection and the rights of ``apply_database`` and ``admin``.
"""

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command of the command line, and exit with its code; Ctrl-C while it starts is no traceback."""
    try:
        from app.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run()
