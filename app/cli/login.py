"""``carillon login``, ``logout``, ``context`` and ``whoami``."""

import getpass
import os
import sys
from typing import Annotated, Any
from urllib.parse import urlsplit

from cyclopts import App, Parameter
from msgspec.structs import replace

from app.cli import names
from app.cli.options import PRINT, REACH, Print, Reach
from app.cli.output import Shape, columns, print_item, print_items, printable, say
from app.client.connection import Connection, Page
from app.client.contexts import Context, Contexts, Target, no_such_context, read_contexts, server_url, write_contexts
from app.client.errors import ClientError, Exit

CONTEXT = Shape("context", columns("current", "name", "server"), "name")
USER = Shape("user", columns("id", "username", "role", "server"))

ContextName = Annotated[str, Parameter(completer=names.contexts, help="The name of the context.")]


def login(
    url: Annotated[str, Parameter(help="The address of the server.")],
    /,
    *,
    token: Annotated[str, Parameter(help="A token. Otherwise you are asked for it.")] = "",
    token_stdin: Annotated[bool, Parameter(negative="", help="Read the token from standard input.")] = False,
    context: Annotated[str, Parameter(help="The name under which it is stored; by default the host.")] = "",
) -> None:
    """Store a server and a token as a context, and make it the current one."""
    server = server_url(url)
    secret = _token(token, from_stdin=token_stdin)
    with Connection(Target(url=server, token=secret, source="login")) as connection:
        user = connection.get("/me/")
    name = context or urlsplit(server).netloc
    stored = read_contexts(os.environ)
    contexts = {**stored.contexts, name: Context(server, secret)}
    path = write_contexts(os.environ, Contexts(name, contexts))
    say(f"Logged in to {server} as {printable(user['username'])} ({user['role']}); context {name} in {path}.")


def _token(token: str, *, from_stdin: bool) -> str:
    if token and from_stdin:
        raise ClientError("Give --token or --token-stdin, not both.", Exit.BAD_INPUT)
    if from_stdin:
        token = sys.stdin.readline()
    elif not token and sys.stdin.isatty():
        token = getpass.getpass("Token: ")
    if not token.strip():
        raise ClientError("No token is given.", Exit.BAD_INPUT, hint="Give --token T or --token-stdin.")
    return token.strip()


def logout(
    *, context: Annotated[str, Parameter(completer=names.contexts, help="By default the current one.")] = ""
) -> None:
    """Forget a context and its token. The token itself stays valid: `carillon token delete` ends it."""
    stored = read_contexts(os.environ)
    name = context or stored.current
    if not name:
        raise ClientError("You are not logged in.", Exit.NOT_FOUND)
    _forget(name, stored)


def _forget(name: str, stored: Contexts) -> None:
    if name not in stored.contexts:
        raise no_such_context(name, stored)
    rest = {other: one for other, one in stored.contexts.items() if other != name}
    write_contexts(os.environ, Contexts("" if stored.current == name else stored.current, rest))
    say(f"The context {name} is forgotten.")


context = App(name="context", help="List and choose the servers that you are logged in to.")


@context.command(name="list")
def list_contexts(*, options: Print = PRINT) -> None:
    """List the contexts, without their tokens."""
    stored = read_contexts(os.environ)
    items = [
        {"name": name, "server": one.server, "current": name == stored.current} for name, one in stored.contexts.items()
    ]
    print_items([Page(items, {})], options, CONTEXT)


@context.command
def use(name: ContextName, /) -> None:
    """Make a context the current one."""
    stored = read_contexts(os.environ)
    if name not in stored.contexts:
        raise no_such_context(name, stored)
    write_contexts(os.environ, replace(stored, current=name))
    say(f"The current context is {name} ({stored.contexts[name].server}).")


@context.command
def delete(name: ContextName, /) -> None:
    """Forget a context and its token."""
    _forget(name, read_contexts(os.environ))


def whoami(*, options: Print = PRINT) -> None:
    """Show which user you are, on which server, and what your token may do."""
    with options.connect() as connection:
        user: dict[str, Any] = connection.get("/me/")
        found = connection.target
        if options.form in {"table", "wide"}:
            user = {**user, **_token_terms(connection), "server": found.url, "from": found.source}
    print_item(user, options, USER)


def _token_terms(connection: Connection) -> dict[str, Any]:
    """Return what the token may do; nothing if it is not one of the user's tokens."""
    try:
        items = [item for page in connection.pages("/tokens/") for item in page.items]
    except ClientError:
        return {}
    # Older servers show a part of the token without its beginning.
    own: dict[str, Any] = next((item for item in items if f"{item['prefix']}_" in connection.target.token), {})
    return {name: own[name] for name in ("scopes", "restrict", "expires_at") if own.get(name)}


def request(
    method: Annotated[str, Parameter(help="GET, POST, PUT, PATCH or DELETE.")],
    path: Annotated[
        str, Parameter(help="A path below /api/v1, such as /schedules/, or a whole path such as /health/ready.")
    ],
    /,
    *,
    data: Annotated[
        str, Parameter(name=("--data", "-d"), allow_leading_hyphen=True, help="The body as JSON; - is standard input.")
    ] = "",
    header: Annotated[
        list[str] | None, Parameter(name=("--header", "-H"), negative=(), help="A header as Name: value.")
    ] = None,
    include: Annotated[
        bool, Parameter(name=("--include", "-i"), negative="", help="Print status and headers, too.")
    ] = False,
    options: Reach = REACH,
) -> int:
    """Send a request with your token, and print the answer as it is."""
    from app.client.connection import API
    from app.client.errors import exit_code_of

    body = (sys.stdin.buffer.read() if data == "-" else data.encode()) if data else None
    headers = dict(_header(text) for text in header or ())
    whole = path if path.startswith("/") else f"/{path}"
    is_outside = whole.startswith(("/api/", "/health/", "/metrics", "/schema", "/.well-known/"))
    with options.connect() as connection:
        answer = connection.raw(method.upper(), whole if is_outside else API + whole, body, None, headers)
    if include:
        lines = [f"HTTP/1.1 {answer.status}", *(f"{name}: {value}" for name, value in answer.headers.items())]
        sys.stdout.write("\n".join(lines) + "\n\n")
    sys.stdout.flush()
    sys.stdout.buffer.write(answer.body)
    if answer.body and not answer.body.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
    return Exit.DONE if answer.status < 400 else exit_code_of(answer.status)  # noqa: PLR2004


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise ClientError(f"--header {text}: expected Name: value.", Exit.BAD_INPUT)
    return name.strip(), value.strip()
