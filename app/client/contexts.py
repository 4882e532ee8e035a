"""Which server and which token a command uses, and the file that stores contexts.

The order: ``--server`` and ``--token``; CARILLON_URL and CARILLON_TOKEN; ``--context``; the current context; a
``carillon up`` that runs on the data folder. A token of a context goes to the server of that context only, and the
admin's token of a data folder only to the ``carillon up`` of that folder.
"""

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from app.client.errors import ClientError, Exit

PRIVATE_MODE = 0o600
OTHERS_MODE = 0o077
HOW_TO_CONNECT = (
    "Log in with `carillon login URL`, or set CARILLON_URL and CARILLON_TOKEN, or give --server and --token, "
    "or start `carillon up`."
)
# The addresses on which a server listens, and those by which it is reached on its own machine.
LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, not bound


class Context(msgspec.Struct, frozen=True):
    """A server and the token for it."""

    server: str
    token: str = ""


class Contexts(msgspec.Struct, frozen=True):
    """All contexts by name, and the name of the current one."""

    current: str = ""
    contexts: dict[str, Context] = {}


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests go, with which token, and where both were found."""

    url: str
    token: str
    source: str
    context: str = ""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about the server."""

    server: str = ""
    token: str = ""
    context: str = ""


def config_path(environ: Mapping[str, str]) -> Path:
    """Return the path of the file with the contexts."""
    base = environ.get("XDG_CONFIG_HOME", "").strip()
    folder = Path(base) if base else Path(environ.get("HOME") or "~").expanduser() / ".config"
    return folder / "carillon" / "config.toml"


def read_contexts(environ: Mapping[str, str]) -> Contexts:
    """Return the stored contexts; none if there is no file."""
    path = config_path(environ)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Contexts()
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"{path} cannot be read: {error}", Exit.BAD_INPUT) from None
    import tomllib

    try:
        return msgspec.convert(tomllib.loads(text), Contexts)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ClientError(f"{path} is not valid: {error}", Exit.BAD_INPUT, hint="Mend or delete the file.") from None


def is_readable_by_others(environ: Mapping[str, str]) -> bool:
    """Return whether other users of the machine can read the file with the tokens."""
    with suppress(OSError):
        return bool(config_path(environ).stat().st_mode & OTHERS_MODE)
    return False


def write_contexts(environ: Mapping[str, str], contexts: Contexts) -> Path:
    """Store the contexts in a file that only its owner can read, as a whole or not at all."""
    path = config_path(environ)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), PRIVATE_MODE)
            file.write(as_toml(contexts))
        Path(name).replace(path)
    except OSError as error:
        raise ClientError(f"{path} cannot be written: {error.strerror}") from None
    return path


def as_toml(contexts: Contexts) -> str:
    """Return the contexts as TOML."""
    lines = [f"current = {_quoted(contexts.current)}"]
    for name, context in contexts.contexts.items():
        lines += ["", f"[contexts.{_quoted(name)}]", f"server = {_quoted(context.server)}"]
        lines += [f"token = {_quoted(context.token)}"]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return a basic string of TOML, whose escapes are those of JSON but for DEL."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")


def server_url(text: str) -> str:
    """Return the address of a server in one form, or refuse it."""
    url = text.strip() if "://" in text else f"http://{text.strip()}"
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and not parts.username
        _ = parts.port
    except ValueError:
        is_valid = False
    if not is_valid or parts.query or parts.fragment or not url.isprintable() or " " in url:
        raise ClientError(
            f"'{text}' is not the address of a server.",
            Exit.BAD_INPUT,
            hint="Expected https://HOST or http://HOST:PORT.",
        )
    return url.rstrip("/")


def find_target(asked: Asked, environ: Mapping[str, str]) -> Target:
    """Return the server and the token of a command."""
    target = find_explicit_target(asked, environ) or local_target(asked, environ)
    if target is None:
        raise ClientError("No server is known.", Exit.BAD_INPUT, hint=HOW_TO_CONNECT)
    return target


def find_explicit_target(asked: Asked, environ: Mapping[str, str]) -> Target | None:
    """Return the server that options, the environment or a context name, or None if none of them does."""
    variable, token = environ.get("CARILLON_URL", "").strip(), environ.get("CARILLON_TOKEN", "").strip()
    if asked.server or variable:
        url = server_url(asked.server or variable)
        source = "--server" if asked.server else "CARILLON_URL"
        return Target(url=url, token=asked.token or token or _token_for(url, environ), source=source)
    stored = read_contexts(environ)
    name = asked.context or stored.current
    if not name:
        return None
    context = stored.contexts.get(name)
    if context is None:
        raise no_such_context(name, stored)
    url = server_url(context.server)
    return Target(url=url, token=asked.token or token or context.token, source=f"context {name}", context=name)


def no_such_context(name: str, stored: Contexts) -> ClientError:
    """Return the error for a context that is not stored."""
    known = ", ".join(stored.contexts) or "none"
    return ClientError(
        f"There is no context '{name}'.",
        Exit.NOT_FOUND,
        hint=f"Contexts: {known}. `carillon login URL --context {name}` stores one.",
    )


def _token_for(url: str, environ: Mapping[str, str]) -> str:
    """Return the token of a context for this very server; the current context comes first."""
    stored = read_contexts(environ)
    matching = {name: one.token for name, one in stored.contexts.items() if one.server.rstrip("/") == url}
    return matching.get(stored.current) or next(iter(matching.values()), "")


def local_target(asked: Asked, environ: Mapping[str, str]) -> Target | None:
    """Return the ``carillon up`` of the data folder with the admin's token, or None if no token of it is known."""
    from app.config import load_settings

    settings = load_settings(environ)
    folder = Path(settings.data_dir).expanduser()
    token = asked.token or environ.get("CARILLON_TOKEN", "").strip() or settings.admin_token
    token = token or _text_of(folder / "admin-token")
    if not token:
        return None
    host = LOOPBACK_OF.get(settings.host, settings.host)
    address = f"[{host}]" if ":" in host else host
    url = _text_of(folder / "api-url") or f"http://{address}:{settings.port}"
    return Target(url=url, token=token, source=f"`carillon up` on {settings.data_dir}")


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
