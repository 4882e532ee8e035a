"""The ``carillon`` command: its subcommands, which are imported when they are called, and how errors are printed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

from cyclopts import App
from rich.console import Console
from rich.text import Text

from app.config import SettingsError
from app.domain.errors import CarillonError, UnavailableError

FAILED = 1
BAD_INPUT = 2

app = App(
    name="carillon",
    help="Run workflows on a schedule, over HTTP. Postgres decides, Redis rings the bell.",
    version=lambda: version("carillon"),
)
user = App(name="user", help="Manage users.")
token = App(name="token", help="Manage API tokens.")
importing = App(
    name="import",
    help="Convert schedules of other tools into YAML that `carillon apply` reads.\n\n"
    "What has no counterpart is named on stderr, with its line. Exit codes: 0 done, 2 something was left out or the "
    "file cannot be read.",
)
keys = App(name="keys", help="Manage the keys that sign the tokens of calls.")
app.command(user)
app.command(token)
app.command(importing)
app.command(keys)
# The help is here because `carillon --help` does not import the commands; docstrings have the help on parameters.
app.command(
    "app.cli.processes:up",
    help="Run the API and a worker on this machine, with embedded Postgres and Valkey unless their URLs are set.",
)
app.command("app.cli.processes:api", help="Serve the HTTP API.")
app.command("app.cli.processes:worker", help="Run schedules until stopped by SIGINT or SIGTERM.")
app.command("app.cli.processes:migrate", help="Bring the database schema up to date.")
app.command(
    "app.cli.apply:apply",
    help="Create and change workflows and schedules as files declare them.\n\n"
    "Each file is applied as a whole or not at all. Paused schedules stay paused. Exit codes: 0 done, 1 the database "
    "is unavailable, 2 a file has errors.",
)
app.command(
    "app.cli.apply:export",
    help="Write workflows and schedules as YAML that `carillon apply` reads.\n\n"
    "Applying the result unchanged changes nothing.",
)
app.command(
    "app.cli.console_link:console",
    help="Print a link that opens the console and logs you in. It works once, within ten minutes.",
)
app.command("app.cli.mcp_bridge:mcp", help="Connect an agent's client to the server over standard input and output.")
app.command("app.cli.admin:breaker", help="Show or reset the circuit breaker of a workflow.")
app.command(
    "app.cli.admin:plugins", help="List the installed plugins and their errors. The exit code is 1 if there are errors."
)
importing.command("app.cli.imports:crontab", help="Convert a crontab.")
importing.command("app.cli.imports:cronjob", help="Convert Kubernetes CronJobs.")
importing.command("app.cli.imports:ductile", help="Convert the schedules of Ductile's plugins.")
keys.command("app.cli.admin:rotate_keys", name="rotate", help="Publish a new key, which signs a day later.")
user.command("app.cli.admin:create_user", name="create", help="Create a user.")
token.command(
    "app.cli.admin:create_token", name="create", help="Create an API token for a user. It is shown only once."
)


def main() -> None:
    """Run a command. Expected errors are printed as one line, without a traceback.

    The exit code is 1, or 2 for a wrong setting: another attempt would end in the same way.
    """
    try:
        app()
    except (SettingsError, CarillonError) as error:
        print_errors([f"carillon: {error}"])
        sys.exit(BAD_INPUT if isinstance(error, SettingsError) else FAILED)


@contextmanager
def exit_on_bad_input() -> Iterator[None]:
    """Print an error of the input and exit with code 2. If the database is unavailable, retrying helps: code 1."""
    try:
        yield
    except UnavailableError:
        raise
    except CarillonError as error:
        print_errors([f"carillon: {error}"])
        sys.exit(BAD_INPUT)


def print_errors(messages: list[str]) -> None:
    """Print one red line for each message on stderr."""
    console = Console(stderr=True)
    for message in messages:
        console.print(Text(message, style="red"), soft_wrap=True)
