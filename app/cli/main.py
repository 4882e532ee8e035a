"""The commands. What they do lives elsewhere; a problem is one clear line, not a traceback."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Annotated, Any, NoReturn

import uvicorn
import uvloop
from cyclopts import App, Parameter
from rich.console import Console
from rich.text import Text

from app.cli.up import up
from app.config import Settings, SettingsError, load_settings
from app.domain.access import Actor, Role
from app.domain.errors import CarillonError
from app.observability.logs import set_up_logging
from app.persistence.database import Database
from app.persistence.migrations import migrate as migrate_database
from app.persistence.users import BUILT_IN_ADMIN
from app.services.inputs import TokenInput, UserInput
from app.services.users import UserService
from app.worker import run_until_signalled

GRACE_SECONDS = 5

app = App(name="carillon", help="Recurring workflows over HTTP. Postgres decides, Redis rings the bell.")
user = App(name="user", help="Users.")
token = App(name="token", help="Tokens.")
app.command(user)
app.command(token)
app.command(up)


@app.command
def api() -> None:
    """Serve the HTTP API."""
    settings = load_settings()
    uvicorn.run(
        "app.asgi:application",
        factory=True,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http="httptools",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


@app.command
def worker() -> None:
    """Fire schedules until stopped."""
    settings = load_settings()
    set_up_logging(settings.log_format, settings.log_level)
    uvloop.run(run_until_signalled(settings))


@app.command
def migrate() -> None:
    """Bring the database's schema up to date."""
    asyncio.run(migrate_database(_settings_with_database().database_url))
    Console().print("The database is up to date.")


@user.command(name="create")
def create_user(name: str, *, admin: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Create a user."""
    role = Role.ADMIN if admin else Role.MEMBER
    made = _call(lambda service, operator: service.create(operator, UserInput(username=name, role=role)))
    Console().print(f"Created user {made.username} (id {made.id}, {made.role}).", highlight=False)


@token.command(name="create")
def create_token(user: str, *, name: str = "cli") -> None:
    """Create a token for a user. It is shown this once."""
    made = _call(lambda service, operator: service.create_token_for(operator, user, TokenInput(name=name)))
    Console(stderr=True).print(f"Token {made.id} ({made.name}) of {user}; it is not shown again:")
    # Alone on stdout, so that a script can take it.
    print(made.token)  # noqa: T201


def main() -> None:
    """Run a command; what is refused is said in one line."""
    try:
        app()
    except (SettingsError, CarillonError) as error:
        _fail(str(error))


def _call(action: Any) -> Any:
    """One use case on the database, on behalf of whoever may run this command."""

    async def call() -> Any:
        settings = _settings_with_database()
        database = Database(settings.database_url, pool_size=1)
        try:
            return await action(UserService(database, ""), Actor(0, BUILT_IN_ADMIN, Role.ADMIN))
        finally:
            await database.close()

    work: Coroutine[Any, Any, Any] = call()
    return asyncio.run(work)


def _settings_with_database() -> Settings:
    settings = load_settings()
    if not settings.database_url:
        raise SettingsError("CARILLON_DATABASE_URL is not set")
    return settings


def _fail(words: str) -> NoReturn:
    Console(stderr=True).print(Text(f"carillon: {words}", style="red"), soft_wrap=True)
    sys.exit(1)
