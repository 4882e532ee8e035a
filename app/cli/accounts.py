"""``carillon user`` and ``carillon token``: over HTTP, or on the database if told so or if no server is known."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from app.cli.fields import moment_of
from app.cli.options import LIST, PRINT, List, Print, Reaching
from app.cli.output import Shape, columns, print_item, printable, say, show_list, write
from app.cli.resources import Resource, add_edit, add_get, add_list, find, noun
from app.client.connection import Connection, path_part
from app.client.contexts import find_explicit_target, local_target
from app.client.errors import ClientError, Exit

USER = Resource(
    path="/users/",
    shape=Shape("user", columns("id", "username", "role", "disabled", "created_at")),
    name_field="username",
    created_by="username",
    read_only=frozenset({"id", "username", "kind", "disabled_at", "created_at"}),
)
TOKEN = Shape(
    "token",
    columns("id", "name", "prefix", "scopes", "expires_at", "last_used_at", wide=("user_id", "kind", "restrict")),
)
OnDatabase = Annotated[
    bool, Parameter(name="--database", negative="", help="Write to the database itself, which needs no token.")
]
Scope = Literal["read", "operate", "write", "admin"]

user = noun("user", "Manage users.")
add_list(user, USER)
add_get(user, USER)
add_edit(user, USER)
token = noun("token", "Manage API tokens.")


def uses_database(options: Reaching, *, database: bool) -> bool:
    """Return whether a command opens the database: if it is told to, or if a database is known and no server.

    Without a token, a ``carillon up`` of the data folder is reached by its database.
    """
    if database:
        return True
    if find_explicit_target(options.asked, os.environ) is not None:
        return False
    from app.config import load_settings

    settings = load_settings()
    if settings.database_url:
        return True
    is_running = (Path(settings.data_dir).expanduser() / "database-url").exists()
    return is_running and local_target(options.asked, os.environ) is None


@user.command(name="create")
def create_user(
    name: Annotated[str, Parameter(help="The name of the user.")],
    /,
    *,
    admin: Annotated[bool, Parameter(negative="", help="Give the role admin instead of member.")] = False,
    database: OnDatabase = False,
    options: Print = PRINT,
) -> None:
    """Create a user."""
    if uses_database(options, database=database):
        from app.cli.admin import store_user

        made = store_user(name, admin=admin)
    else:
        with options.connect() as connection:
            body = {"username": name, "role": "admin" if admin else "member"}
            made = connection.call("POST", "/users/", body)
    if options.form == "table":
        write(f"Created user {printable(made['username'])} (id {made['id']}, {made['role']}).\n")
    else:
        print_item(made, options, USER.shape)


@user.command(name="delete")
def delete_user(
    name: Annotated[str, Parameter(help="The id or the name of the user.")],
    /,
    *,
    schedules: Annotated[
        Literal["pause", "delete", "transfer"] | None, Parameter(help="What happens to the user's schedules.")
    ] = None,
    to: Annotated[str, Parameter(help="The user who gets the schedules that are transferred.")] = "",
    options: Print = PRINT,
) -> None:
    """Delete a user."""
    with options.connect() as connection:
        path = find(connection, USER, name)
        heir = find(connection, USER, to).removeprefix(USER.path).strip("/") if to else None
        connection.call("DELETE", path, params={"schedules": schedules, "to": heir})
    say(f"Deleted user {printable(name)}.")


@token.command(name="create")
def create_token(
    owner: Annotated[str, Parameter(name="USER", help="The name of the user; by default yourself.")] = "",
    /,
    *,
    name: Annotated[str, Parameter(help="A name, to recognise the token in lists.")] = "cli",
    scope: Annotated[
        Scope | None, Parameter(help="What it may be used for; by default all that the role allows.")
    ] = None,
    expires: Annotated[
        str, Parameter(help="When it ends: a duration such as 90d, or a time such as 2036-01-01T00:00:00Z.")
    ] = "",
    database: OnDatabase = False,
    options: Print = PRINT,
) -> None:
    """Create an API token. It is shown only once."""
    if uses_database(options, database=database):
        from app.cli.admin import store_token

        if not owner:
            raise ClientError("On the database a token needs the name of its user.", Exit.BAD_INPUT)
        made = store_token(owner, name=name, scope=scope, expires=expires or None)
    else:
        body: dict[str, Any] = {"name": name, "expires_at": moment_of(expires) if expires else None}
        body |= {"scopes": [scope]} if scope else {}
        with options.connect() as connection:
            made = connection.call("POST", _tokens_of(connection, owner), body)
    if options.form == "table":
        say(f"Token {made['id']} ({printable(made['name'])}){f' of {owner}' if owner else ''}; it is shown only once:")
        # Alone on stdout, so that a script can read it.
        write(f"{made['token']}\n")
    else:
        print_item(made, options, TOKEN)


def _tokens_of(connection: Connection, owner: str) -> str:
    """Return the path of a user's tokens; those of oneself need no right of an admin."""
    if not owner or connection.get("/me/")["username"] == owner:
        return "/tokens/"
    return find(connection, USER, owner) + "tokens/"


@token.command(name="list")
def list_tokens(
    owner: Annotated[str, Parameter(name="USER", help="The name of the user; by default yourself.")] = "",
    /,
    *,
    options: List = LIST,
) -> None:
    """List tokens, without their text."""
    with options.connect() as connection:
        path = _tokens_of(connection, owner)
        show_list(lambda: connection.pages(path, {}, options.limit), options, TOKEN)


@token.command
def rotate(
    token_id: Annotated[int, Parameter(help="The id of the token.")],
    /,
    *,
    grace_seconds: Annotated[int, Parameter(help="For how long the old text works beside the new one.")] = 0,
    options: Print = PRINT,
) -> None:
    """Replace the text of a token. The new one is shown only once."""
    with options.connect() as connection:
        made = connection.call("POST", f"/tokens/{token_id}/rotate/", {"grace_seconds": grace_seconds})
    if options.form == "table":
        write(f"{made['token']}\n")
    else:
        print_item(made, options, TOKEN)


@token.command(name="delete")
def delete_token(*token_ids: Annotated[int, Parameter(help="The ids of tokens.")], options: Print = PRINT) -> None:
    """Delete tokens. They are refused at once."""
    with options.connect() as connection:
        for token_id in token_ids:
            connection.call("DELETE", f"/tokens/{path_part(token_id)}/")
            say(f"Deleted token {token_id}.")
