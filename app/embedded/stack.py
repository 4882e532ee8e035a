"""``carillon up``: embedded servers where no URL names others, the migrations, the API and the worker."""

import asyncio
import shlex
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Self

from app.config import Settings
from app.embedded.admin_token import TOKEN_NAME, kept_admin_token
from app.embedded.child import Child
from app.embedded.command import Command
from app.embedded.data_folder import DataFolderLock
from app.embedded.listening import base_url, listenable_port, missing_for_ready
from app.embedded.noticeboard import post_database_url, remove_database_url
from app.embedded.output import Output
from app.embedded.postgres import EmbeddedPostgres
from app.embedded.server import EmbeddedServer
from app.embedded.supervisor import Supervisor
from app.embedded.surroundings import Surroundings, carillon_program, child_environment
from app.embedded.valkey import EmbeddedValkey


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
            self._held.callback(remove_database_url, self._data_dir)
            post_database_url(self._data_dir, self._postgres.url)

    def _carillon(self, name: str, env: dict[str, str]) -> Child:
        return Child(name=name, command=Command(argv=(*self._program, name), env=env))

    def _surroundings(self, port: int) -> Surroundings:
        return Surroundings(
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
