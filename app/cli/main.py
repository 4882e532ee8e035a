"""The commands. Each is imported when it is called, so that none pays for the others; a problem is one clear line."""

import sys
from importlib.metadata import version
from typing import NoReturn

from cyclopts import App
from rich.console import Console
from rich.text import Text

from app.config import SettingsError
from app.domain.errors import CarillonError

app = App(
    name="carillon",
    help="Recurring workflows over HTTP. Postgres decides, Redis rings the bell.",
    version=lambda: version("carillon"),
)
user = App(name="user", help="Users.")
token = App(name="token", help="Tokens.")
app.command(user)
app.command(token)
app.command("app.cli.up:up")
app.command("app.cli.processes:api")
app.command("app.cli.processes:worker")
app.command("app.cli.processes:migrate")
app.command("app.cli.apply:apply")
app.command("app.cli.export:export")
app.command("app.cli.admin:breaker")
app.command("app.cli.plugins:plugins")
user.command("app.cli.users:create_user", name="create")
token.command("app.cli.users:create_token", name="create")


def main() -> None:
    """Run a command; what is refused is said in one line."""
    try:
        app()
    except (SettingsError, CarillonError) as error:
        _fail(str(error))


def _fail(words: str) -> NoReturn:
    Console(stderr=True).print(Text(f"carillon: {words}", style="red"), soft_wrap=True)
    sys.exit(1)
