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
from app.config import FILE_SUFFIX, Settings
from app.embedded.child_process import Child, Command, Output
from app.embedded.console_link import LinkRefused, console_link, console_url
from app.embedded.data_folder import (
    TOKEN_NAME,
    DataFolderLock,
    remove_api_url_file,
    remove_url_file,
    stored_admin_token,
    write_api_url_file,
    write_url_file,
)
from app.embedded.errors import CannotListen
from app.embedded.postgres import EmbeddedPostgres
from app.embedded.server import EmbeddedServer
from app.embedded.supervisor import Supervisor
from app.embedded.valkey import EmbeddedValkey

# How long the API of a Carillon that was just killed may keep its port.
PREDECESSOR_SECONDS = 2.0
POLL_SECONDS = 0.1
ANSWER_SECONDS = 2.0
HTTP_OK = 200
# What the children may call in addition to CARILLON_HTTP_ALLOW: on one's own machine targets are on loopback.
LOOPBACK = "127.0.0.0/8,::1,localhost"
LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, not bound
REMEDIES = {
    errno.EADDRINUSE: "another program listens there; stop it, or set CARILLON_PORT to another port",
    errno.EACCES: "ports below 1024 need root; set CARILLON_PORT to another port",
    errno.EADDRNOTAVAIL: "this machine does not have that address; set CARILLON_HOST to another",
}


async def run_stack(settings: Settings, environ: Mapping[str, str], output: Output) -> None:
    """Run everything until a signal asks to stop."""
    with Stack(settings, environ, output, carillon_program()) as stack:
        await Supervisor(output).run(stack.bring_up)


def carillon_program() -> tuple[str, ...]:
    """Return the command that runs ``carillon``: the console script if it exists, so that ``ps`` shows its name."""
    script = Path(sys.executable).with_name("carillon")
    return (str(script),) if script.exists() else (sys.executable, "-m", "app.cli")


class Stack:
    """The servers and processes of one Carillon on this machine."""

    def __init__(
        self, settings: Settings, environ: Mapping[str, str], output: Output, program: tuple[str, ...]
    ) -> None:
        """Decide which servers are embedded; nothing is started yet. ``program`` is the command ``carillon``."""
        self._settings = settings
        self._environ = environ
        self._output = output
        self._program = program
        self._data_dir = Path(settings.data_dir).expanduser().resolve()
        self._postgres = None if settings.database_url else EmbeddedPostgres(self._data_dir / "postgres")
        self._valkey = None if settings.redis_url else EmbeddedValkey(self._data_dir / "valkey")
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        """Begin a block at whose end the resources are released."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release the data folder and the sockets; all processes must have exited."""
        self._resources.close()

    async def bring_up(self, supervisor: Supervisor) -> None:
        """Start the servers, migrate, start the API and the worker; return when the API is ready."""
        port = await asyncio.to_thread(listenable_port, self._settings.host, self._settings.port)
        await self._start_servers(supervisor)
        env = child_environment(self._settings, self._environ, self._child_env(port))
        await supervisor.run_to_end(self._carillon("migrate", env))
        supervisor.keep_running(self._carillon("api", env), self._carillon("worker", env))
        await supervisor.wait_for("the API", lambda: missing_for_ready(self._settings.host, port))
        self._resources.callback(remove_api_url_file, self._data_dir)
        write_api_url_file(self._data_dir, base_url(LOOPBACK_OF.get(self._settings.host, self._settings.host), port))
        token = env["CARILLON_ADMIN_TOKEN"]
        self._print_instructions(base_url(self._settings.host, port), token)
        self._output.print_line(f"Console: {await asyncio.to_thread(self._console_link, port, token)}")

    async def _start_servers(self, supervisor: Supervisor) -> None:
        servers = [server for server in (self._postgres, self._valkey) if server is not None]
        if not servers:
            return
        self._resources.enter_context(DataFolderLock(self._data_dir))
        self._output.print_line(f"Starting {' and '.join(server.name for server in servers)} in {self._data_dir}")
        for server in servers:
            self._resources.callback(server.close)
            await _run_uninterrupted(server.prepare)
        supervisor.keep_running(*map(_server_child, servers))
        for server in servers:
            await supervisor.wait_for(server.name, partial(_missing_for_server, server))
        if self._postgres is not None:
            self._resources.callback(remove_url_file, self._data_dir)
            write_url_file(self._data_dir, self._postgres.url)

    def _carillon(self, name: str, env: dict[str, str]) -> Child:
        return Child(name=name, command=Command(argv=(*self._program, name), env=env))

    def _child_env(self, port: int) -> "ChildEnv":
        return ChildEnv(
            port=port,
            admin_token=self._settings.admin_token or stored_admin_token(self._data_dir),
            database_url=self._postgres.url if self._postgres else "",
            redis_url=self._valkey.url if self._valkey else "",
            is_terminal=self._output.is_terminal,
        )

    def _console_link(self, port: int, token: str) -> str:
        """Return a link that logs in once within ten minutes, or one without a code if the API gives none."""
        url = base_url(self._settings.host, port)
        try:
            return console_link(url, token, base_url(LOOPBACK_OF.get(self._settings.host, self._settings.host), port))
        except LinkRefused:
            return console_url(url)

    def _print_instructions(self, url: str, token: str) -> None:
        """Print that Carillon is ready, and what to do next.

        The token is printed only to a terminal: a file or a log collector may be read by other people.
        """
        file = self._data_dir / TOKEN_NAME
        if self._settings.admin_token:
            argument, place = "$CARILLON_ADMIN_TOKEN", "from the environment, CARILLON_ADMIN_TOKEN"
        elif self._output.is_terminal:
            argument, place = token, f"{token}  (kept in {file})"
        else:
            argument, place = f"$(cat {shlex.quote(str(file))})", f"kept in {file}"
        self._output.print_line(f"Carillon is ready at {url}", "bold green")
        self._output.print_line(f"  admin token  {place}")
        self._output.print_line(f'  try          curl -H "Authorization: Bearer {argument}" {url}/api/v1/schedules/')
        self._output.print_line(f"  docs         {url}/schema")
        self._output.print_line("  stop         Ctrl-C")


def _server_child(server: EmbeddedServer) -> Child:
    return Child(name=server.name, command=server.command(), stop_steps=server.stop_steps, muted=server.muted)


def _missing_for_server(server: EmbeddedServer) -> str | None:
    return None if server.is_ready() else "no answer yet"


async def _run_uninterrupted(work: Callable[[], None]) -> None:
    """Run the work in a thread and wait for its end even when cancelled: a thread cannot be stopped half-way."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(task)
    finally:
        await asyncio.wait({task})


class ChildEnv(msgspec.Struct, frozen=True, kw_only=True):
    """What ``carillon up`` decides for its children. An empty URL leaves the one of the environment unchanged."""

    port: int
    admin_token: str
    database_url: str = ""
    redis_url: str = ""
    is_terminal: bool = False


def child_environment(settings: Settings, environ: Mapping[str, str], child_env: ChildEnv) -> dict[str, str]:
    """Return the environment of the children: the operator's, with what is needed to run on one machine."""
    fixed = {
        "CARILLON_HOST": settings.host,
        "CARILLON_PORT": str(child_env.port),
        "CARILLON_ADMIN_TOKEN": child_env.admin_token,
        "CARILLON_DATABASE_URL": child_env.database_url,
        "CARILLON_REDIS_URL": child_env.redis_url,
        "CARILLON_HTTP_ALLOW": ",".join((*settings.allowed_hosts, LOOPBACK)),
        "CARILLON_LOG_FORMAT": "console" if settings.log_format == "auto" else settings.log_format,
        "PYTHONUNBUFFERED": "1",
    }
    # All processes are on this machine, so that the address of the API is known: calls can carry tokens of this issuer.
    address = base_url(LOOPBACK_OF.get(settings.host, settings.host), child_env.port)
    defaults = {
        "CARILLON_RATE_LIMIT_PER_MINUTE": "0",
        "CARILLON_DRAIN_SECONDS": "3",
        "CARILLON_PUBLIC_URL": address,
    }
    if child_env.is_terminal:
        # The children write to a pipe, but a person reads it on a terminal.
        defaults["FORCE_COLOR"] = "1"
    decided = _without_blanks(fixed)
    # A value that was read from a file and is handed on as a variable must not be given twice.
    files = {name + FILE_SUFFIX for name in decided}
    return defaults | {name: value for name, value in _without_blanks(environ).items() if name not in files} | decided


def _without_blanks(environ: Mapping[str, str]) -> dict[str, str]:
    """Leave out blank variables: they mean the default, as in ``app.config``."""
    return {name: value for name, value in environ.items() if value.strip()}


def listenable_port(host: str, port: int) -> int:
    """Return the port after checking that the API can listen on it; for port 0 a free one."""
    deadline = monotonic() + PREDECESSOR_SECONDS
    while True:
        try:
            return _try_to_bind(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or monotonic() > deadline:
                raise CannotListen(f"Cannot listen on {host}:{port}: {_remedy(error)}") from error
        time.sleep(POLL_SECONDS)


def _try_to_bind(host: str, port: int) -> int:
    """Bind every address of the host, as the API will, all on the same port; return the port."""
    with ExitStack() as listeners:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            listener = listeners.enter_context(socket.socket(family, kind, protocol))
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


def base_url(host: str, port: int) -> str:
    """Return the URL of the API, for people and clients."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def missing_for_ready(host: str, port: int) -> str | None:
    """Return what ``/health/ready`` of the API reports as missing; None if the API is ready."""
    connection = HTTPConnection(LOOPBACK_OF.get(host, host), port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/health/ready")
        response = connection.getresponse()
        body = response.read().decode(errors="replace")
    except (OSError, HTTPException) as error:
        return f"{base_url(host, port)} does not answer ({error})"
    finally:
        connection.close()
    return None if response.status == HTTP_OK else f"/health/ready answers {response.status}: {body}"
