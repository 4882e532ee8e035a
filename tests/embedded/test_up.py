"""``carillon up`` as a process of its own, with real servers and a stand-in for the other commands of Carillon."""

import asyncio
import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest
import redis

from tests.embedded.processes import Running, descendants, is_gone, running, wait_for

READY = "Carillon is ready at http://127.0.0.1:"
ELSEWHERE = {"CARILLON_DATABASE_URL": "postgresql://elsewhere/x", "CARILLON_REDIS_URL": "redis://elsewhere"}
VALKEY_ONLY = {"CARILLON_DATABASE_URL": "postgresql://elsewhere/x"}
STOP_SECONDS = 10.0

Up = Callable[..., AbstractContextManager[Running]]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Where the stand-ins leave their notes."""
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


@pytest.fixture
def up(notes: Path, folder: Path, plain_environment: dict[str, str]) -> Up:
    """Start ``carillon up`` on a data folder of the test, with these settings."""
    numbers = iter(range(100))

    def start(output: int | None = None, **settings: str) -> AbstractContextManager[Running]:
        env = {"CARILLON_DATA_DIR": str(folder), "CARILLON_PORT": "0", **plain_environment, **settings}
        return running(notes.parent / f"up-{next(numbers)}.log", "fake_up.py", notes, env=env, output=output)

    return start


def _environment(notes: Path, name: str) -> dict[str, str]:
    note = notes / f"{name}.env"
    wait_for(note.exists, f"the start of {name}")
    found: dict[str, str] = json.loads(note.read_text())
    return found


def _pid(carillon: Running, name: str) -> int:
    """The pid that the last life of a stand-in printed."""
    carillon.line(f"{name} runs as pid")
    return int(re.findall(rf"{name} runs as pid (\d+)", carillon.output)[-1])


def _socket_folder(notes: Path) -> Path:
    return Path(parse_qs(urlsplit(_environment(notes, "api")["CARILLON_DATABASE_URL"]).query)["host"][0])


def _answers(host: Path) -> bool:
    async def ask() -> bool:
        connection = await asyncpg.connect(user="carillon", database="carillon", host=str(host), timeout=2)
        await connection.close()
        return True

    try:
        return asyncio.run(ask())
    except (OSError, asyncpg.PostgresError):
        return False


def _pings(url: str) -> bool:
    with redis.Redis.from_url(url) as client:
        return bool(client.ping())


@pytest.mark.usefixtures("set_up_folder")
def test_everything_comes_up_restarts_and_stops(up: Up, notes: Path) -> None:
    """Servers, migration, API and worker run; killed ones are started again in their places; a stop leaves nothing."""
    with up() as carillon:
        url = carillon.line(READY).split()[-1]
        env = _environment(notes, "api")
        assert url == f"http://{env['CARILLON_HOST']}:{env['CARILLON_PORT']}"
        assert _pings(env["CARILLON_REDIS_URL"])
        _kill_worker_and_see_it_again(carillon)
        _kill_postgres_and_see_it_again(carillon, notes)
        family, sockets = descendants(carillon.pid), _socket_folder(notes)
        asked = time.monotonic()
        carillon.process.send_signal(signal.SIGINT)
        assert 0 == carillon.ends()
        assert time.monotonic() - asked < STOP_SECONDS
        assert (set(), False) == ({pid for pid in family if not is_gone(pid)}, sockets.exists())
    assert 1 == carillon.output.count("Carillon is ready at")


def _kill_worker_and_see_it_again(carillon: Running) -> None:
    worker = _pid(carillon, "worker")
    os.kill(worker, signal.SIGKILL)
    said = carillon.line("worker exited with signal 9; started again (pid ")
    again = int(said.split("(pid ")[1].rstrip(")\n"))
    assert wait_for(lambda: _pid(carillon, "worker") == again, "the new worker")


def _kill_postgres_and_see_it_again(carillon: Running, notes: Path) -> None:
    """On the same socket, so that the API and the worker find it by themselves."""
    pid_file = Path(_data_dir(carillon), "postgres/postmaster.pid")
    os.kill(int(pid_file.read_text().splitlines()[0]), signal.SIGKILL)
    carillon.line("postgres exited with signal 9; started again")
    wait_for(lambda: _answers(_socket_folder(notes)), "postgres")


def _data_dir(carillon: Running) -> str:
    return carillon.line("Starting postgres and valkey in ").split(" in ")[1].strip()


@pytest.mark.usefixtures("set_up_folder")
def test_a_killed_up_takes_all_with_it_and_starts_again(up: Up, notes: Path) -> None:
    """After kill -9 every child ends, and the next ``up`` on the same folder and port comes up with the same token."""
    with up() as carillon:
        port = carillon.line(READY).strip().rsplit(":", 1)[1]
        token = _environment(notes, "api")["CARILLON_ADMIN_TOKEN"]
        family = descendants(carillon.pid)
        os.kill(carillon.pid, signal.SIGKILL)
        carillon.ends()
        with up(CARILLON_PORT=port) as again:
            assert f"{READY}{port}\n" == again.line(READY)
            file = Path(again.line("admin token").partition("kept in ")[2].strip())
            assert (token, 0o600) == (file.read_text().strip(), file.stat().st_mode & 0o777)
            assert token not in again.output
    wait_for(lambda: all(map(is_gone, family)), "the first family's end")


def test_the_admin_token_is_printed_to_a_terminal_only(up: Up, notes: Path, folder: Path) -> None:
    """On a terminal it is there to be copied; a file or a pipe gets the place where it is kept."""
    leader, follower = os.openpty()
    with up(**VALKEY_ONLY) as carillon:
        carillon.line("stop         Ctrl-C")
        token = _environment(notes, "api")["CARILLON_ADMIN_TOKEN"]
        assert str(folder / "admin-token") in carillon.line("admin token")
    assert token not in carillon.output
    shown = b""
    with up(output=follower, **VALKEY_ONLY):
        while b"Ctrl-C" not in shown:
            shown += os.read(leader, 65536)
    os.close(leader)
    os.close(follower)
    assert token.encode() in shown


def test_a_second_up_on_the_folder_is_refused(up: Up) -> None:
    """It says which process holds the folder, in one line, and leaves the first alone."""
    with up(**VALKEY_ONLY) as first:
        first.line(READY)
        with up(**VALKEY_ONLY) as second:
            assert 1 == second.ends()
        assert f"is in use by another Carillon (pid {first.pid})" in second.output
        assert (1, None) == (len(second.output.splitlines()), first.process.poll())


def test_a_taken_port_is_said(up: Up, folder: Path) -> None:
    """The line names the address and the setting, and nothing has been started."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with up(CARILLON_PORT=str(port)) as carillon:
            assert 1 == carillon.ends()
            assert f"Cannot listen on 127.0.0.1:{port}" in carillon.output
            assert "CARILLON_PORT" in carillon.output
    assert not (folder / "carillon.lock").exists()


def test_servers_of_ones_own_are_used(up: Up, notes: Path, folder: Path) -> None:
    """With both URLs nothing embedded is started or locked, and a given token is not printed."""
    with up(**ELSEWHERE, CARILLON_ADMIN_TOKEN="of-my-own") as carillon:
        carillon.line(READY)
        carillon.line("Ctrl-C")
        env = _environment(notes, "worker")
        assert ELSEWHERE == {name: env[name] for name in ELSEWHERE}
        carillon.process.send_signal(signal.SIGHUP)
        assert 0 == carillon.ends()
    assert "of-my-own" not in carillon.output
    assert not (folder / "carillon.lock").exists()


def test_each_server_is_replaceable_alone(up: Up, notes: Path, folder: Path) -> None:
    """With a database elsewhere only Valkey is embedded."""
    with up(**VALKEY_ONLY) as carillon:
        assert f"Starting valkey in {folder}\n" == carillon.line("Starting")
        carillon.line(READY)
        assert _pings(_environment(notes, "worker")["CARILLON_REDIS_URL"])


def test_a_failed_migration_is_said(up: Up, notes: Path) -> None:
    """What the migration printed is relayed, and the last line says what failed; the API is not started."""
    (notes / "migrate.broken").touch()
    with up(**ELSEWHERE) as carillon:
        assert 1 == carillon.ends()
    assert "migrate  | migrate is broken" == carillon.output.splitlines()[0]
    assert carillon.output.splitlines()[-1].startswith("carillon up: migrate exited with code 1")
    assert not (notes / "api.env").exists()


def test_a_signal_during_the_start_is_heeded(up: Up, folder: Path) -> None:
    """A stop in the middle of the first set-up ends cleanly, and leaves no half a database."""
    with up() as carillon:
        carillon.line("Starting postgres")
        carillon.process.send_signal(signal.SIGTERM)
        assert 0 == carillon.ends()
    assert "Carillon is ready" not in carillon.output
    assert {"carillon.lock", "postgres"} >= {entry.name for entry in folder.iterdir()}


def test_a_wrong_setting_is_one_red_line(up: Up) -> None:
    """No traceback: the setting's name and what is wrong with it."""
    with up(CARILLON_PORT="http") as carillon:
        assert 1 == carillon.ends()
    assert 1 == len(carillon.output.splitlines())
    assert carillon.output.startswith("carillon up: CARILLON_PORT must be a whole number")


def test_a_closed_pipe_is_survived(up: Up, notes: Path) -> None:
    """When the reader of the output has gone, as with ``| head -1``, the work goes on in silence and ends well."""
    reading, writing = os.pipe()
    with up(**ELSEWHERE, output=writing) as carillon:
        os.close(writing)
        with os.fdopen(reading) as output:
            assert output.readline()
        wait_for((notes / "worker.env").exists, "the worker")
        carillon.process.send_signal(signal.SIGTERM)
        assert 0 == carillon.ends()
