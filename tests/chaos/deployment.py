"""A deployment to be broken: two APIs, three workers, Postgres and Valkey, each pair with a proxy in between."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import asyncpg
from redis.asyncio import Redis

from app.embedded import EmbeddedPostgres, EmbeddedValkey
from tests.chaos.members import Member
from tests.chaos.proxy import Proxy, to_port, to_unix
from tests.chaos.target import Target
from tests.releases.release import CURRENT, Release
from tests.support.carillon import ADMIN_TOKEN, until
from tests.support.postgres_pair import Replica, kill, wait_for_replica

APIS, WORKERS = 2, 3
# What a Postgres that is just down, or not the primary, lets the driver raise.
AWAY = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)


class Deployment:
    """All of it, in a folder of its own that is gone afterwards."""

    def __init__(
        self,
        *,
        release: Release = CURRENT,
        target: Target | None = None,
        apis: int = APIS,
        workers: int = WORKERS,
        settings: Mapping[str, str],
    ) -> None:
        """Of this release to begin with, with these settings for every process."""
        # Short, as the path of a socket may have a hundred characters.
        self.folder = Path(tempfile.mkdtemp(prefix="cc-"))
        self._settings = settings
        self._release = release
        self._kinds = [*["api"] * apis, *["worker"] * workers]
        self._made = 0
        self.postgres = EmbeddedPostgres(self.folder / "pg")
        self.valkey = EmbeddedValkey(self.folder / "vk")
        self.target = target or Target()
        self.proxies: dict[str, Proxy] = {}
        self.apis: list[Member] = []
        self.workers: list[Member] = []
        # Of the APIs that clients are sent to.
        self.urls: list[str] = []
        self.target_port = 0
        self._restarting = asyncio.Lock()
        # Former primaries of Postgres, and replicas that could not follow.
        self._other_servers: list[EmbeddedPostgres] = []

    async def __aenter__(self) -> Self:
        await self._start_stores()
        await self.migrate(self._release)
        await self.target.__aenter__()
        proxy = self.proxies["worker-target"] = Proxy(to_port(lambda: self.target.port))
        self.target_port = await proxy.listen_tcp()
        for kind in self._kinds:
            await self.add(kind, self._release)
        for member in self.members:
            await until(member.is_ready)
        self.urls += [member.url for member in self.apis]
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(member.end() for member in self.members))
        for proxy in self.proxies.values():
            await proxy.close()
        await self.target.__aexit__()
        await self._stop_stores()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _start_stores(self) -> None:
        self.postgres.start()
        self.valkey.start()

    async def _stop_stores(self) -> None:
        self.valkey.stop()
        for server in (self.postgres, *self._other_servers):
            server.stop()

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
            timeout=60,
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
        client: Redis = Redis.from_url(self.valkey.url, socket_timeout=60)
        return client

    async def sql_patiently(self, statement: str) -> None:
        """The same, however long Postgres is away or read-only."""

        async def done() -> bool:
            try:
                await self.sql(statement)
            except AWAY:
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

    async def fail_over_postgres(self) -> None:
        """Copy Postgres to a replica that every commit waits for, kill the primary, and promote the replica."""
        async with self._restarting:
            primary = self.postgres
            replica = Replica(self.folder / f"pg{len(self._other_servers) + 1}", primary)
            self._other_servers.append(replica)
            await replica.follow()
            try:
                await wait_for_replica(primary)
            except BaseException:
                # Because of another fault: commits would wait for ever.
                await self.sql_patiently("ALTER SYSTEM RESET synchronous_standby_names")
                await self.sql_patiently("SELECT pg_reload_conf()")
                raise
            await kill(primary)
            self._other_servers[-1], self.postgres = primary, replica
            await replica.promote()

    async def migrate(self, release: Release) -> None:
        """Bring the schema to what a release needs, as its Job does."""
        code, said = await release.run("migrate", settings={"CARILLON_DATABASE_URL": self.postgres.url})
        assert 0 == code, said

    async def add(self, kind: str, release: Release) -> Member:
        """One more process, of any release; nobody is sent to it yet."""
        name = f"{kind}{self._made}"
        self._made += 1
        settings = {
            "CARILLON_ADMIN_TOKEN": ADMIN_TOKEN,
            "CARILLON_HTTP_ALLOW": "127.0.0.0/8",
            "CARILLON_RATE_LIMIT_PER_MINUTE": "0",
            "CARILLON_LOG_FORMAT": "json",
            **await self._stores(name),
            **self._settings,
        }
        member = Member(name, kind, release, settings, self.folder / f"{name}.log")
        (self.apis if kind == "api" else self.workers).append(member)
        member.start()
        return member

    async def _stores(self, name: str) -> dict[str, str]:
        """Where a process finds Postgres and Valkey: behind proxies of its own."""
        sockets = self.folder / name
        sockets.mkdir()
        postgres = Proxy(to_unix(lambda: self.postgres.socket_folder / ".s.PGSQL.5432"))
        valkey = Proxy(to_unix(lambda: self.valkey.socket_folder / "valkey.sock"))
        self.proxies[f"{name}-postgres"] = await postgres.listen_unix(sockets / ".s.PGSQL.5432")
        self.proxies[f"{name}-valkey"] = await valkey.listen_unix(sockets / "v")
        return {
            "CARILLON_DATABASE_URL": f"postgresql://carillon@/carillon?host={quote(str(sockets))}",
            "CARILLON_REDIS_URL": f"unix://{quote(str(sockets / 'v'))}",
        }
