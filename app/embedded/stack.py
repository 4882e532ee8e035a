"""``carillon up``: embedded servers where no URL names others, the migrations, the API and the worker."""

import asyncio
import errno
import os
import shlex
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Self

import msgspec

from app.clock import monotonic
from app.config import Settings
from app.embedded.child_process import Child, Command, Output
from app.embedded.data_folder import TOKEN_NAME, DataFolderLock, kept_admin_token, remove_url_file, write_url_file
from app.embedded.errors import CannotListen
from app.embedded.postgres import EmbeddedPostgres
from app.embedded.server import EmbeddedServer
from app.embedded.supervisor import Supervisor
from app.embedded.valkey import EmbeddedValkey

# The API of a Carillon that was killed a moment ago may not be quite gone.
PREDECESSOR_SECONDS = 2.0
POLL_SECONDS = 0.1
ANSWER_SECONDS = 2.0
HTTP_OK = 200
LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, not bound
REMEDIES = {
    errno.EADDRINUSE: "another program listens there; stop it, or set CARILLON_PORT to another port",
    errno.EACCES: "ports below 1024 need root; set CARILLON_PORT to another port",
    errno.EADDRNOTAVAIL: "this machine has no such address; set CARILLON_HOST to another",
}


def listenable_port(host: str, port: int) -> int:
    """The port, once it is certain that it can be listened on; a free one for port 0."""
    deadline = monotonic() + PREDECESSOR_SECONDS
    while True:
        try:
            return _try_to_bind(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or monotonic() > deadline:
                raise CannotListen(f"Cannot listen on {host}:{port}: {_remedy(error)}") from error
        time.sleep(POLL_SECONDS)


def base_url(host: str, port: int) -> str:
    """The API's address for people and clients."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def missing_for_ready(host: str, port: int) -> str | None:
    """What the API says is missing; None when it is ready."""
    connection = HTTPConnection(LOOPBACK_OF.get(host, host), port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/health/ready")
        answer = connection.getresponse()
        said = answer.read().decode(errors="replace")
    except (OSError, HTTPException) as error:
        return f"{base_url(host, port)} does not answer ({error})"
    finally:
        connection.close()
    return None if answer.status == HTTP_OK else f"/health/ready answers {answer.status}: {said}"


def _try_to_bind(host: str, port: int) -> int:
    """Bind every address that the host stands for, as the server will, all on one port."""
    with ExitStack() as bound:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            listener = bound.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((address[0], port, *address[2:]))
            port = listener.getsockname()[1]
    return port


def _remedy(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the name is unknown; set CARILLON_HOST to another"
    return REMEDIES.get(error.errno or 0, os.strerror(error.errno or 0))


LOOPBACK = "127.0.0.0/8,::1,localhost"


class ChildEnv(msgspec.Struct, frozen=True, kw_only=True):
    """What ``carillon up`` found or chose for its children. An empty URL leaves the environment's own in place."""

    port: int
    admin_token: str
    database_url: str = ""
    redis_url: str = ""
    is_terminal: bool = False


def child_environment(settings: Settings, environ: Mapping[str, str], chosen: ChildEnv) -> dict[str, str]:
    """The environment with what a Carillon on one's own machine needs; what the operator set stays."""
    fixed = {
        "CARILLON_HOST": settings.host,
        "CARILLON_PORT": str(chosen.port),
        "CARILLON_ADMIN_TOKEN": chosen.admin_token,
        "CARILLON_DATABASE_URL": chosen.database_url,
        "CARILLON_REDIS_URL": chosen.redis_url,
        "CARILLON_HTTP_ALLOW": ",".join((*settings.allowed_hosts, LOOPBACK)),
        "CARILLON_LOG_FORMAT": "console" if settings.log_format == "auto" else settings.log_format,
        "PYTHONUNBUFFERED": "1",
    }
    defaults = {"CARILLON_RATE_LIMIT_PER_MINUTE": "0", "CARILLON_DRAIN_SECONDS": "3"}
    if chosen.is_terminal:
        # Their output is a pipe to us, yet a person reads it.
        defaults["FORCE_COLOR"] = "1"
    return defaults | _not_blank(environ) | _not_blank(fixed)


def carillon_program() -> tuple[str, ...]:
    """What runs ``carillon``; the console script if there is one, so that ``ps`` shows just that."""
    script = Path(sys.executable).with_name("carillon")
    return (str(script),) if script.exists() else (sys.executable, "-m", "app.cli")


def _not_blank(environ: Mapping[str, str]) -> dict[str, str]:
    """A blank setting means the default, here as in the settings."""
    return {name: value for name, value in environ.items() if value.strip()}


async def run_stack(settings: Settings, environ: Mapping[str, str], output: Output) -> None:
    """Run everything until a signal asks to stop."""
    with Stack(settings, environ, output, carillon_program()) as stack:
        await Supervisor(output).run(stack.bring_up)


class Stack:
    """All of one Carillon, on this machine."""

    def __init__(
        self, settings: Settings, environ: Mapping[str, str], output: Output, program: tuple[str, ...]
    ) -> None:
        """Decide what belongs to it; nothing is touched yet. The program is what runs ``carillon``."""
        self._settings = settings
        self._environ = environ
        self._output = output
        self._program = program
        self._data_dir = Path(settings.data_dir).expanduser().resolve()
        self._postgres = None if settings.database_url else EmbeddedPostgres(self._data_dir / "postgres")
        self._valkey = None if settings.redis_url else EmbeddedValkey(self._data_dir / "valkey")
        self._held = ExitStack()

    def __enter__(self) -> Self:
        """Nothing is held yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the data folder and the sockets, when all processes have ended."""
        self._held.close()

    async def bring_up(self, supervisor: Supervisor) -> None:
        """Start one thing after the other; return when requests are answered."""
        port = await asyncio.to_thread(listenable_port, self._settings.host, self._settings.port)
        await self._start_servers(supervisor)
        env = child_environment(self._settings, self._environ, self._surroundings(port))
        await supervisor.complete(self._carillon("migrate", env))
        supervisor.keep_running(self._carillon("api", env), self._carillon("worker", env))
        await supervisor.until("the API", lambda: missing_for_ready(self._settings.host, port))
        self._announce(base_url(self._settings.host, port), env["CARILLON_ADMIN_TOKEN"])

    async def _start_servers(self, supervisor: Supervisor) -> None:
        servers = [server for server in (self._postgres, self._valkey) if server is not None]
        if not servers:
            return
        self._held.enter_context(DataFolderLock(self._data_dir))
        self._output.say(f"Starting {' and '.join(server.name for server in servers)} in {self._data_dir}")
        for server in servers:
            self._held.callback(server.close)
            await _to_its_end(server.prepare)
        supervisor.keep_running(*map(_server_child, servers))
        for server in servers:
            await supervisor.until(server.name, partial(_missing_answer, server))
        if self._postgres is not None:
            self._held.callback(remove_url_file, self._data_dir)
            write_url_file(self._data_dir, self._postgres.url)

    def _carillon(self, name: str, env: dict[str, str]) -> Child:
        return Child(name=name, command=Command(argv=(*self._program, name), env=env))

    def _surroundings(self, port: int) -> ChildEnv:
        return ChildEnv(
            port=port,
            admin_token=self._settings.admin_token or kept_admin_token(self._data_dir),
            database_url=self._postgres.url if self._postgres else "",
            redis_url=self._valkey.url if self._valkey else "",
            is_terminal=self._output.is_terminal,
        )

    def _announce(self, url: str, token: str) -> None:
        """Say that it is ready and what to do next.

        The token is printed to a terminal only: what goes to a file or a log collector is read by others too.
        """
        file = self._data_dir / TOKEN_NAME
        if self._settings.admin_token:
            shown, words = "$CARILLON_ADMIN_TOKEN", "from the environment, CARILLON_ADMIN_TOKEN"
        elif self._output.is_terminal:
            shown, words = token, f"{token}  (kept in {file})"
        else:
            shown, words = f"$(cat {shlex.quote(str(file))})", f"kept in {file}"
        self._output.say(f"Carillon is ready at {url}", "bold green")
        self._output.say(f"  admin token  {words}")
        self._output.say(f'  try          curl -H "Authorization: Bearer {shown}" {url}/api/v1/schedules/')
        self._output.say(f"  docs         {url}/schema")
        self._output.say("  stop         Ctrl-C")


async def _to_its_end(work: Callable[[], None]) -> None:
    """Run it in a thread; when cancelled, wait for it all the same: half a set-up cannot be left running."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(task)
    finally:
        await asyncio.wait({task})


def _missing_answer(server: EmbeddedServer) -> str | None:
    return None if server.is_ready() else "no answer yet"


def _server_child(server: EmbeddedServer) -> Child:
    return Child(name=server.name, command=server.command(), stop_steps=server.stop_steps, muted=server.muted)
