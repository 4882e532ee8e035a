"""The ``carillon`` command: its subcommands, imported when they are called, and how errors are printed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import NoReturn

from cyclopts import App
from rich.console import Console
from rich.text import Text

from app.config import SettingsError
from app.domain.errors import CarillonError, UnavailableError

app = App(
    name="carillon",
    help="Recurring workflows over HTTP. Postgres decides, Redis rings the bell.",
    version=lambda: version("carillon"),
)
user = App(name="user", help="Users.")
token = App(name="token", help="Tokens.")
app.command(user)
app.command(token)
app.command("app.cli.processes:up")
app.command("app.cli.processes:api")
app.command("app.cli.processes:worker")
app.command("app.cli.processes:migrate")
app.command("app.cli.apply:apply")
app.command("app.cli.apply:export")
app.command("app.cli.admin:breaker")
app.command("app.cli.admin:plugins")
user.command("app.cli.admin:create_user", name="create")
token.command("app.cli.admin:create_token", name="create")


def main() -> None:
    """Run a command; what is refused is said in one line."""
    try:
        app()
    except (SettingsError, CarillonError) as error:
        _fail(str(error))


def _fail(words: str) -> NoReturn:
    Console(stderr=True).print(Text(f"carillon: {words}", style="red"), soft_wrap=True)
    sys.exit(1)


BAD_INPUT = 2


@contextmanager
def bad_input() -> Iterator[None]:
    """What is refused within is said in one line."""
    try:
        yield
    except UnavailableError:
        raise
    except CarillonError as error:
        say_problems([f"carillon: {error}"])
        sys.exit(BAD_INPUT)


def say_problems(problems: list[str]) -> None:
    """One line each, beside the output."""
    console = Console(stderr=True)
    for problem in problems:
        console.print(Text(problem, style="red"), soft_wrap=True)
