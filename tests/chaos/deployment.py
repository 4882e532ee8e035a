"""A deployment to be broken: two APIs, three workers, Postgres and Valkey, each pair with a proxy in between."""

import asyncio
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import asyncpg
import httpx
from redis.asyncio import Redis

from app.embedded import EmbeddedPostgres, EmbeddedValkey
from app.persistence.migrations import migrate_now
from tests.carillon import ADMIN_TOKEN, until
from tests.chaos.proxy import Proxy, to_port, to_unix
from tests.chaos.target import Target

PROGRAM = Path(sys.executable).with_name("carillon")
APIS, WORKERS = 2, 3
RESTART_SECONDS = 0.3


class Member:
    """A process of the deployment. It is started again whenever it dies, unless it is held down."""

    def __init__(self, name: str, command: str, environment: Mapping[str, str], log: Path) -> None:
        """Not started yet."""
        self.name = name
        self._command = command
        self._environment = dict(environment)
        self._log = log
        self.process: asyncio.subprocess.Process | None = None
        self.extra: dict[str, str] = {}
        self._held_down = False
        self._keeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Run, and be kept running."""
        self._keeper = asyncio.create_task(self._keep())

    async def end(self) -> None:
        """Run no more."""
        self._held_down = True
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        if self._keeper is not None:
            with_patience = asyncio.wait({self._keeper}, timeout=15)
            _, late = await with_patience
            if late:
                self.send(signal.SIGKILL)
                await self._keeper

    def send(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    async def restart(self, number: int = signal.SIGTERM) -> None:
        """End it by a signal, and wait until there is a new one."""
        before = self.process
        self.send(number)
        await until(self._is_other_than(before))

    def _is_other_than(self, before: Any) -> Any:
        async def other() -> bool:
            return self.process is not before and self.process is not None

        return other

    async def _keep(self) -> None:
        while not self._held_down:
            with self._log.open("ab") as log:
                self.process = await asyncio.create_subprocess_exec(
                    PROGRAM, self._command, env=self._environment | self.extra, stdout=log, stderr=log
                )
            await self.process.wait()
            await asyncio.sleep(RESTART_SECONDS)


class Deployment:
    """All of it, in a folder of its own that is gone afterwards."""

    def __init__(self, **settings: str) -> None:
        """With these settings for every process."""
        # Short, as the path of a socket may have a hundred characters.
        self.folder = Path(tempfile.mkdtemp(prefix="cc-"))
        self._settings = settings
        self.postgres = EmbeddedPostgres(self.folder / "pg")
        self.valkey = EmbeddedValkey(self.folder / "vk")
        self.target = Target()
        self.proxies: dict[str, Proxy] = {}
        self.apis: list[Member] = []
        self.workers: list[Member] = []
        self.urls: list[str] = []
        self.target_port = 0
        self._restarting = asyncio.Lock()

    async def __aenter__(self) -> Self:
        self.postgres.start()
        self.valkey.start()
        await asyncio.to_thread(migrate_now, self.postgres.url)
        await self.target.__aenter__()
        proxy = self.proxies["worker-target"] = Proxy(to_port(lambda: self.target.port))
        self.target_port = await proxy.listen_tcp()
        for kind, count, members in (("api", APIS, self.apis), ("worker", WORKERS, self.workers)):
            for number in range(count):
                members.append(await self._member(kind, number))
        for member in self.members:
            member.start()
        for url in self.urls:
            await until(_answers(url))
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(member.end() for member in self.members))
        for proxy in self.proxies.values():
            await proxy.close()
        await self.target.__aexit__()
        self.valkey.stop()
        self.postgres.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def members(self) -> list[Member]:
        """Every process that is Carillon's own."""
        return [*self.apis, *self.workers]

    async def sql(self, statement: str, *values: Any) -> list[Any]:
        """Ask Postgres directly, behind everybody's back."""
        connection = await asyncpg.connect(
            host=str(self.postgres.socket_folder),
            user="carillon",
            database="carillon",
            timeout=10,
            server_settings={"default_transaction_read_only": "off"},
        )
        try:
            found: list[Any] = await connection.fetch(statement, *values)
            return found
        finally:
            await connection.close()

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Callable[..., Awaitable[list[Any]]]]:
        """Ask Postgres several things as of one moment."""
        connection = await asyncpg.connect(host=str(self.postgres.socket_folder), user="carillon", database="carillon")
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                yield connection.fetch
        finally:
            await connection.close()

    def redis(self) -> Redis:
        """Valkey directly."""
        client: Redis = Redis.from_url(self.valkey.url, socket_timeout=5)
        return client

    async def sql_patiently(self, statement: str) -> None:
        """The same, however long Postgres is away or read-only."""

        async def done() -> bool:
            try:
                await self.sql(statement)
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
                return False
            return True

        await until(done)

    async def restart_server(
        self,
        server: EmbeddedPostgres | EmbeddedValkey,
        number: int,
        away_seconds: float = 0,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        """End a server by a signal and start it again on the same socket; one at a time."""
        async with self._restarting:
            server.process.send_signal(number)
            await asyncio.to_thread(server.process.wait, 20)
            between()
            await asyncio.sleep(away_seconds)
            # A server that dies with its thread must be started by the one that lives as long as all this.
            server._process = server._spawn()
            await asyncio.to_thread(server._wait_until_ready)

    async def _member(self, kind: str, number: int) -> Member:
        name = f"{kind}{number}"
        sockets = self.folder / name
        sockets.mkdir()
        postgres = self.postgres.socket_folder / ".s.PGSQL.5432"
        valkey = self.valkey.socket_folder / "valkey.sock"
        self.proxies[f"{name}-postgres"] = await Proxy(to_unix(postgres)).listen_unix(sockets / ".s.PGSQL.5432")
        self.proxies[f"{name}-valkey"] = await Proxy(to_unix(valkey)).listen_unix(sockets / "v")
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CARILLON_")},
            "CARILLON_DATABASE_URL": f"postgresql://carillon@/carillon?host={quote(str(sockets))}",
            "CARILLON_REDIS_URL": f"unix://{quote(str(sockets / 'v'))}",
            "CARILLON_ADMIN_TOKEN": ADMIN_TOKEN,
            "CARILLON_HTTP_ALLOW": "127.0.0.0/8",
            "CARILLON_RATE_LIMIT_PER_MINUTE": "0",
            "CARILLON_LOG_FORMAT": "json",
            **self._settings,
        }
        if kind == "api":
            environment["CARILLON_PORT"] = str(_free_port())
            self.urls.append(f"http://127.0.0.1:{environment['CARILLON_PORT']}")
        return Member(name, kind, environment, self.folder / f"{name}.log")


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def _answers(url: str) -> Any:
    async def answers() -> bool:
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
                return (await client.get(f"{url}/health/ready")).status_code == 200
        except httpx.HTTPError:
            return False

    return answers
