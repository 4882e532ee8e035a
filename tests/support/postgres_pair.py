"""A Postgres with a streaming replica that can be promoted, both from the wheel."""

import asyncio
import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import asyncpg

from app.embedded import EmbeddedPostgres
from app.embedded.accounts import private_folder
from app.embedded.postgres import DATABASE, HERE, ROLE, SETTINGS
from tests.support.carillon import until

# Nothing waits for the disk: processes are killed here, not machines.
QUICK = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}


async def sql(server: EmbeddedPostgres, statement: str) -> Any:
    """Run one statement on a server, and return the first value of its answer."""
    connection = await asyncpg.connect(
        host=str(server.socket_folder),
        user=ROLE,
        database=DATABASE,
        timeout=60,
        server_settings={"default_transaction_read_only": "off"},
    )
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def change(server: EmbeddedPostgres, setting: str) -> None:
    """Change a setting of a server: what follows ALTER SYSTEM."""
    await sql(server, f"ALTER SYSTEM {setting}")
    await sql(server, "SELECT pg_reload_conf()")


async def wait_for_replica(primary: EmbeddedPostgres) -> None:
    """Let every commit wait until the replica has it."""
    await change(primary, "SET synchronous_standby_names = '*'")

    async def is_synchronous() -> bool:
        return bool(await sql(primary, "SELECT max(sync_state) FROM pg_stat_replication") == "sync")

    await until(is_synchronous)


async def kill(server: EmbeddedPostgres) -> None:
    """End all processes of a server without a word, as a machine that loses power does."""
    for process in (server.process.pid, *_children(server.process.pid)):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    await asyncio.to_thread(server.process.wait)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Primary(EmbeddedPostgres):
    """A Postgres whose commits wait for its replicas as its settings say."""

    def __init__(self, folder: Path) -> None:
        """Name the data folder."""
        super().__init__(folder, durable=False)
        self._settings = SETTINGS | QUICK


class Replica(Primary):
    """A Postgres that begins as a copy of another one, and receives its changes until it is promoted."""

    def __init__(self, folder: Path, primary: EmbeddedPostgres) -> None:
        """Copy this primary at the start."""
        super().__init__(folder)
        self._primary = primary

    async def follow(self) -> None:
        """Copy the primary and start, as ``start`` does, while other tasks go on."""
        await asyncio.to_thread(self.prepare)
        # By this thread: the server dies with the one that starts it.
        self._process = self._spawn()
        await asyncio.to_thread(self._wait_until_ready)

    async def promote(self) -> None:
        """Take writes, and wait for no replica of its own."""
        await until(self._is_promoted)
        await change(self, "RESET ALL")

    async def _is_promoted(self) -> bool:
        # What it still receives may conflict with a query.
        with suppress(asyncpg.PostgresError):
            if not await sql(self, "SELECT pg_is_in_recovery()"):
                return True
            await sql(self, "SELECT pg_promote(wait => false)")
        return False

    def _create_cluster(self) -> None:
        private_folder(self.data_dir, self.account)
        source = ("--host", str(self._primary.socket_folder), "--username", ROLE)
        copy = ("--pgdata", HERE, "--write-recovery-conf", "--checkpoint", "fast", "--no-sync")
        self._run_setup(self._run_in(self.data_dir, "pg_basebackup", *source, *copy))


class PostgresPair:
    """A primary and its replica, under one URL with both hosts."""

    def __init__(self) -> None:
        """Start nothing yet. The folder is short, as the path of a socket may have a hundred characters."""
        self.folder = Path(tempfile.mkdtemp(prefix="pp-"))
        # The servers of this account must be able to enter it.
        self.folder.chmod(0o755)
        self._servers: list[Primary] = [Primary(self.folder / "pg0")]
        self.primary = self._servers[0]
        self.replica: Replica | None = None
        # Links to the folders of sockets: one of them leads to another server after each failover.
        self._addresses = [self.folder / "a0", self.folder / "a1"]

    def __enter__(self) -> Self:
        self.primary.start()
        self._addresses[0].symlink_to(self.primary.socket_folder)
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            # At once: nobody needs the data again.
            server.process.send_signal(signal.SIGQUIT)
            server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self) -> str:
        """The address that a deployment is given: two hosts, of which the one that takes writes is used."""
        hosts = ",".join(quote(str(address)) for address in self._addresses)
        return f"postgresql://{ROLE}@/{DATABASE}?host={hosts}&target_session_attrs=read-write"

    async def add_replica(self) -> None:
        """Copy the primary, and let the copy follow it, at the address that does not lead to the primary."""
        self.replica = Replica(self.folder / f"pg{len(self._servers)}", self.primary)
        self._servers.append(self.replica)
        await self.replica.follow()
        self._lead_to(self.replica)

    def _lead_to(self, replica: Replica) -> None:
        self._addresses[1].unlink(missing_ok=True)
        self._addresses[1].symlink_to(replica.socket_folder)

    async def cut_replica_off(self) -> None:
        """Let the replica receive nothing more: what is committed from now on is lost with the primary."""
        assert self.replica is not None
        await change(self.replica, "SET primary_conninfo = ''")

        async def is_alone() -> bool:
            return bool(await sql(self.primary, "SELECT count(*) FROM pg_stat_replication") == 0)

        await until(is_alone)

    async def fail_over(self) -> None:
        """Kill the primary and promote the replica."""
        assert self.replica is not None
        await kill(self.primary)
        await self.replica.promote()
        self.primary, self.replica = self.replica, None
        self._addresses.reverse()
