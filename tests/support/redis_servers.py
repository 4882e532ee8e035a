"""Valkey servers on ports of loopback: one with a replica and a Sentinel, or the nodes of a cluster."""

import asyncio
import signal
import ssl
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

from redis.asyncio import Redis
from redis.exceptions import RedisError

from app.embedded.accounts import valkey_install
from tests.support.carillon import until
from tests.support.watched_process import free_port

MASTER = "mymaster"
PASSWORD, SENTINEL_PASSWORD = "of-the-servers", "of-the-sentinels"
# Nothing is stored, and a replica is not kept waiting.
QUICK = {"save": '""', "appendonly": "no", "repl-diskless-sync-delay": "0"}
LAST_SLOT = 16_383


class RedisServer:
    """One process with its own folder and port."""

    def __init__(self, folder: Path, *arguments: str, **options: str) -> None:
        """Give options of the configuration file, with _ for -."""
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(dir=folder))
        self._arguments = arguments
        self._options: Mapping[str, str] = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self._folder),
            **QUICK,
        } | {name.replace("_", "-"): value for name, value in options.items()}

    @property
    def url(self) -> str:
        """The address for redis-py."""
        login = f":{self._options['requirepass']}@" if "requirepass" in self._options else ""
        return f"redis://{login}127.0.0.1:{self.port}/0"

    def client(self) -> Redis:
        """Return a client of this server."""
        client: Redis = Redis.from_url(self.url, socket_timeout=30)
        return client

    async def __aenter__(self) -> Self:
        self._start()
        await until(self._answers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def kill(self) -> None:
        """End the process without a word."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(self._process.wait)

    def _start(self) -> None:
        # A Sentinel and a node of a cluster write to their files.
        file = self._folder / "server.conf"
        file.write_text("".join(f"{name} {value}\n" for name, value in self._options.items()))
        command = [str(valkey_install().program("valkey-server")), str(file), *self._arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    async def ask(self, *words: Any) -> Any:
        """Send one command."""
        async with self.client() as client:
            return await client.execute_command(*words)  # type: ignore[no-untyped-call]  # redis-py leaves it untyped

    async def _answers(self) -> bool:
        with suppress(RedisError, OSError):
            return await self.ask("PING") in {True, b"PONG"}
        return False


class Switchable:
    """A master with a replica, and the Sentinel that makes the replica the master when the master is gone."""

    def __init__(self, folder: Path) -> None:
        """Start nothing yet."""
        passwords = {"requirepass": PASSWORD, "masterauth": PASSWORD}
        self.servers = [RedisServer(folder, **passwords) for _ in range(2)]
        self._folder = folder

    async def __aenter__(self) -> Self:
        for server in self.servers:
            await server.__aenter__()
        master, replica = self.servers
        await replica.ask("REPLICAOF", "127.0.0.1", master.port)
        await until(lambda: is_synced(replica))
        # At once: a Sentinel looks for replicas every ten seconds only.
        lines = (
            f"monitor {MASTER} 127.0.0.1 {master.port} 1",
            f"auth-pass {MASTER} {PASSWORD}",
            f"down-after-milliseconds {MASTER} 1000",
            f"failover-timeout {MASTER} 3000",
        )
        options = {"sentinel": "\nsentinel ".join(lines), "requirepass": SENTINEL_PASSWORD}
        self._sentinel = RedisServer(self._folder, "--sentinel", **options)
        await self._sentinel.__aenter__()
        await until(self._knows_the_replica)
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in (self._sentinel, *self.servers):
            await server.__aexit__()

    @property
    def url(self) -> str:
        """The address that a deployment is given; the first of the Sentinels is gone."""
        hosts = f"127.0.0.1:1,127.0.0.1:{self._sentinel.port}"
        return f"redis+sentinel://:{PASSWORD}@{hosts}/{MASTER}/0?sentinel_password={SENTINEL_PASSWORD}"

    async def master(self) -> RedisServer:
        """Return the server that the Sentinel says is the master."""
        _, port = await self._sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
        return next(server for server in self.servers if server.port == int(port))

    async def switch(self) -> None:
        """Kill the master, and wait until the replica is the master."""
        before = await self.master()
        await before.kill()

        async def is_other() -> bool:
            now = await self.master()
            return now is not before and (await now.ask("ROLE"))[0] == b"master"

        # A Sentinel on a machine that stalled does nothing for half a minute.
        await until(is_other, seconds=120)

    async def revive(self) -> None:
        """Start the server that is gone again, empty; the Sentinel makes it a replica."""
        master = await self.master()
        (gone,) = (server for server in self.servers if server is not master)
        await gone.__aenter__()
        await until(lambda: is_synced(gone))
        await until(self._knows_the_replica)

    async def _knows_the_replica(self) -> bool:
        async with self._sentinel.client() as client:
            replicas = await client.sentinel_slaves(MASTER)  # type: ignore[no-untyped-call]  # the same
        return any(replica["flags"] == "slave" and replica["master-link-status"] == "ok" for replica in replicas)


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[tuple[RedisServer, RedisServer]]:
    """Run a cluster of two nodes: the first owns all hash slots, the second is its replica."""
    bus_ports = free_port(), free_port()
    async with _node(folder, bus_ports[0]) as owner, _node(folder, bus_ports[1]) as replica:
        await owner.ask("CLUSTER", "ADDSLOTSRANGE", 0, LAST_SLOT)
        await replica.ask("CLUSTER", "MEET", "127.0.0.1", owner.port, bus_ports[0])

        async def have_met() -> bool:
            info = [await node.ask("CLUSTER", "INFO") for node in (owner, replica)]
            return all(b"cluster_known_nodes:2" in text and b"cluster_state:ok" in text for text in info)

        await until(have_met)
        await replica.ask("CLUSTER", "REPLICATE", await owner.ask("CLUSTER", "MYID"))
        await until(lambda: is_synced(replica))
        yield owner, replica


@asynccontextmanager
async def tls_cluster(folder: Path, certificate: tuple[Path, Path]) -> AsyncIterator[int]:
    """Run a cluster of one node behind TLS, and yield its port: the server is built without TLS, so a proxy has it."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    proxy = await asyncio.start_server(lambda *streams: _forward(node.port, *streams), "127.0.0.1", 0, ssl=context)
    port = proxy.sockets[0].getsockname()[1]
    async with proxy, _node(folder, free_port(), cluster_announce_port=str(port), requirepass=PASSWORD) as node:
        await node.ask("CLUSTER", "ADDSLOTSRANGE", 0, LAST_SLOT)

        async def is_ok() -> bool:
            return b"cluster_state:ok" in await node.ask("CLUSTER", "INFO")

        await until(is_ok)
        yield port


async def _forward(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.gather(_pump(reader, server_writer), _pump(server_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()


def _node(folder: Path, bus_port: int, **others: str) -> RedisServer:
    options = {"cluster_enabled": "yes", "cluster_replica_no_failover": "yes", "cluster_node_timeout": "2000"}
    return RedisServer(folder, **options, **others, cluster_port=str(bus_port))


async def is_synced(replica: RedisServer) -> bool:
    """Return whether a server is a replica that has everything."""
    role, *rest = await replica.ask("ROLE")
    return bool(role == b"slave" and rest[2] == b"connected")
