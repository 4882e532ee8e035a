"""``carillon user`` and ``carillon token``."""

from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from app.cli.operators import OPERATOR, on_database
from app.domain.access import Role
from app.persistence.database import Database
from app.services.inputs import TokenInput, UserInput
from app.services.users import UserService
from app.services.validation import checked


def create_user(name: str, *, admin: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Create a user."""
    wanted = checked({"username": name, "role": Role.ADMIN if admin else Role.MEMBER}, UserInput)
    made = on_database(lambda database: _service(database).create(OPERATOR, wanted))
    Console().print(f"Created user {made.username} (id {made.id}, {made.role}).", markup=False)


def create_token(user: str, *, name: str = "cli") -> None:
    """Create a token for a user. It is shown this once."""
    wanted = checked({"name": name}, TokenInput)
    made = on_database(lambda database: _service(database).create_token_for(OPERATOR, user, wanted))
    Console(stderr=True).print(f"Token {made.id} ({made.name}) of {user}; it is not shown again:", markup=False)
    # Alone on stdout, so that a script can take it.
    print(made.token)  # noqa: T201


def _service(database: Database) -> UserService:
    return UserService(database, admin_token="")
