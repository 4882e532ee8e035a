"""Postgres and Valkey, each on its own.

Covers app.embedded.errors, app.embedded.postgres, app.embedded.server, app.embedded.valkey.
"""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest
import redis

from app.embedded import DataFolderUnusable, EmbeddedPostgres, EmbeddedValkey, ServerDidNotStart, ServerNotStarted
from app.embedded.accounts import UNPRIVILEGED, server_account
from tests.embedded.processes import is_gone, user_of, wait_for


def _fetch(server: EmbeddedPostgres, *statements: str) -> object:
    """The value of the last statement."""

    async def fetch() -> object:
        connection = await asyncpg.connect(user="carillon", database="carillon", host=str(server.socket_folder))
        try:
            return [await connection.fetchval(statement) for statement in statements][-1]
        finally:
            await connection.close()

    return asyncio.run(fetch())


def _ask(server: EmbeddedValkey, *command: str) -> object:
    with redis.Redis.from_url(server.url) as client:
        return client.execute_command(*command)


@contextmanager
def _postgres(folder: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(folder / "postgres", durable=False) as server:
        yield server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A running Postgres that tests only look at."""
    folder = tmp_path_factory.mktemp("shared")
    with _postgres(folder) as server:
        yield server
    shutil.rmtree(folder)


def test_postgres_answers_on_its_socket_only(shared: EmbeddedPostgres) -> None:
    """The superuser and database ``carillon`` exist, and nothing listens on TCP."""
    assert f"postgresql+asyncpg://carillon@/carillon?host={shared.socket_folder}" == shared.url
    assert "carillon/carillon/on/" == _fetch(
        shared,
        "SELECT current_user || '/' || current_database() || '/' || current_setting('is_superuser') || '/'"
        " || current_setting('listen_addresses')",
    )


def test_servers_run_without_root(shared: EmbeddedPostgres) -> None:
    """Root's servers run as nobody; an ordinary user's run as that user."""
    assert (os.geteuid() or UNPRIVILEGED.uid) == user_of(shared.process.pid)


def test_sockets_are_private(shared: EmbeddedPostgres) -> None:
    """Only the server's account, and root, can reach the socket: whoever can is trusted."""
    assert 0o700 == shared.socket_folder.stat().st_mode & 0o777


def test_not_durable_means_no_fsync(shared: EmbeddedPostgres) -> None:
    """For tests nothing waits for the disk; otherwise it does."""
    assert "off" == _fetch(shared, "SHOW fsync")
    assert not any("fsync" in part for part in _prepared_command(EmbeddedPostgres(shared.data_dir)))


def _prepared_command(server: EmbeddedPostgres) -> tuple[str, ...]:
    server.prepare()
    try:
        return server.command().argv
    finally:
        server.close()


def test_postgres_data_survives_stop_and_kill(set_up_folder: Path) -> None:
    """A row is there after a stop, and after kill -9 on the same socket, although strangers may not enter the path."""
    with EmbeddedPostgres(set_up_folder / "postgres") as server:
        _fetch(server, "CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (1)")
    with EmbeddedPostgres(set_up_folder / "postgres") as server:
        _fetch(server, "INSERT INTO kept VALUES (2)")
        before = server.url
        server.process.kill()
        server.process.wait()
        server.start()
        assert (before, 2) == (server.url, _fetch(server, "SELECT count(*) FROM kept"))


def test_stop_ends_the_server_and_removes_the_socket(folder: Path) -> None:
    """Neither process nor folder is left, and a second stop does nothing."""
    server = EmbeddedValkey(folder / "valkey")
    server.start()
    pid, sockets = server.process.pid, server.socket_folder
    server.stop()
    server.stop()
    assert (True, False) == (is_gone(pid), sockets.exists())


def test_valkey_data_survives_stop_and_kill(folder: Path) -> None:
    """A key is there after a stop, and after kill -9 on the same socket."""
    with EmbeddedValkey(folder / "valkey") as server:
        _ask(server, "SET", "kept", "1")
    with EmbeddedValkey(folder / "valkey") as server:
        before = server.url
        _ask(server, "APPEND", "kept", "2")
        server.process.kill()
        server.process.wait()
        server.start()
        assert (before, b"12") == (server.url, _ask(server, "GET", "kept"))


def test_valkey_loads_a_log_that_was_cut_off(folder: Path) -> None:
    """Half an entry at the log's end, as after a crash, loses only that entry."""
    with EmbeddedValkey(folder / "valkey") as server:
        _ask(server, "SET", "kept", "1")
    (log,) = (folder / "valkey/appendonlydir").glob("*.incr.aof")
    with log.open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$4\r\nke")
    with EmbeddedValkey(folder / "valkey") as server:
        assert b"1" == _ask(server, "GET", "kept")


def test_a_strangers_pid_does_not_block_the_start(set_up_folder: Path) -> None:
    """A pid file from before a reboot may name a process that is none of ours."""
    pid_file = set_up_folder / "postgres/postmaster.pid"
    account = os.geteuid() or UNPRIVILEGED.uid
    with subprocess.Popen(["sleep", "60"], cwd="/", user=account) as stranger:
        pid_file.write_text(f"{stranger.pid}\n{set_up_folder}\n1\n5432\n\n\n\n\n")
        try:
            with _postgres(set_up_folder) as server:
                assert str(server.process.pid) == pid_file.read_text().splitlines()[0]
        finally:
            stranger.kill()


def test_a_dying_predecessor_is_waited_for(folder: Path) -> None:
    """A server whose folder is still held starts as soon as the other lets go."""
    with EmbeddedValkey(folder / "valkey") as first:
        second = EmbeddedValkey(folder / "valkey")
        second.prepare()
        waiting = subprocess.Popen(second.command().launcher_argv(), cwd=second.data_dir, stdout=subprocess.DEVNULL)
        try:
            wait_for(lambda: _waits_for(second.data_dir, waiting.pid), "the launcher to wait")
            assert not second.is_ready()
            first.process.terminate()
            wait_for(second.is_ready, "the second server")
        finally:
            waiting.terminate()
            waiting.wait()
            second.close()


def _waits_for(folder: Path, pid: int) -> bool:
    """Whether the launcher has opened the folder to lock it, and has not become the server."""
    opened = [file.resolve() for file in Path(f"/proc/{pid}/fd").iterdir()]
    return folder in opened and b"launch.py" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_an_interrupted_first_start_leaves_no_half_a_cluster(folder: Path) -> None:
    """What a killed set-up left behind is removed, and the set-up begins again."""
    leftover = folder / "postgres.new-killed"
    leftover.mkdir()
    (leftover / "PG_VERSION").write_text("18\n")
    with _postgres(folder) as server:
        assert 1 == _fetch(server, "SELECT 1")
    assert ["postgres"] == [entry.name for entry in folder.iterdir()]


def test_strange_files_are_not_touched(folder: Path) -> None:
    """A folder with other files is refused by name."""
    precious = folder / "postgres/thesis.txt"
    precious.parent.mkdir()
    precious.write_text("precious")
    with pytest.raises(DataFolderUnusable, match="contains files that are not Postgres data"):
        EmbeddedPostgres(folder / "postgres").start()
    assert "precious" == precious.read_text()


def test_a_failed_start_quotes_the_server(folder: Path) -> None:
    """The error carries the server's own last words, and nothing is left running."""
    server = EmbeddedPostgres(folder / "postgres")
    server.data_dir.mkdir()
    (server.data_dir / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(ServerDidNotStart, match=r"postgres exited while starting: .* configuration file"):
        server.start()
    assert server.process.poll() is not None


def test_what_only_a_started_server_knows(folder: Path) -> None:
    """Asking for the URL or the process too early is a typed error."""
    server = EmbeddedValkey(folder / "valkey")
    with pytest.raises(ServerNotStarted):
        _ = server.url
    with pytest.raises(ServerNotStarted):
        server.process.send_signal(signal.SIGTERM)


def test_root_serves_a_users_data_as_that_user(folder: Path) -> None:
    """As root the folder's owner runs the server, so that the data stays theirs; others run theirs as themselves."""
    if os.geteuid() == 0:
        os.chown(folder, 1234, 1235)
    account = server_account(folder)
    assert ((1234, 1235) if os.geteuid() == 0 else None) == (account and (account.uid, account.gid))
