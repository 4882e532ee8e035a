"""``carillon user`` and ``carillon token``."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

from cyclopts import Parameter
from rich.console import Console

from app.cli.stores import settings_with_database
from app.domain.access import Actor, Role
from app.observability.logs import set_up_logging
from app.persistence.database import Database
from app.persistence.users import BUILT_IN_ADMIN
from app.services.inputs import TokenInput, UserInput
from app.services.users import UserService
from app.services.validation import checked

T = TypeVar("T")

# Whoever may read the database's address may do everything.
OPERATOR = Actor(0, BUILT_IN_ADMIN, Role.ADMIN)


def create_user(name: str, *, admin: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Create a user."""
    wanted = checked({"username": name, "role": Role.ADMIN if admin else Role.MEMBER}, UserInput)
    made = _call(lambda service: service.create(OPERATOR, wanted))
    Console().print(f"Created user {made.username} (id {made.id}, {made.role}).", markup=False)


def create_token(user: str, *, name: str = "cli") -> None:
    """Create a token for a user. It is shown this once."""
    wanted = checked({"name": name}, TokenInput)
    made = _call(lambda service: service.create_token_for(OPERATOR, user, wanted))
    Console(stderr=True).print(f"Token {made.id} ({made.name}) of {user}; it is not shown again:", markup=False)
    # Alone on stdout, so that a script can take it.
    print(made.token)  # noqa: T201


def _call(action: Callable[[UserService], Awaitable[T]]) -> T:
    """One use case, on a connection of its own."""
    # What happened is said by the command itself.
    set_up_logging("auto", "warning")

    async def call() -> T:
        database = Database(settings_with_database().database_url, pool_size=1)
        try:
            return await action(UserService(database, admin_token=""))
        finally:
            await database.close()

    return asyncio.run(call())
