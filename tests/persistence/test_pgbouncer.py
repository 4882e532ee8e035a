"""A whole Carillon behind a real PgBouncer that pools by session."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from app.embedded.accounts import UNPRIVILEGED, postgres_install
from app.persistence.connection_pool import driver_of
from app.persistence.database import SERVER_SETTINGS, Database
from tests.support.api_server import serving
from tests.support.carillon import settings_on, until, working
from tests.support.debian_packages import PackageMissingError, libraries_of, unpacked
from tests.support.skip_reports import leave_untested

PACKAGE = "pgbouncer"
LIBRARIES = ("libevent", "libc-ares")
PORT = 6432
# It cuts each connection to Postgres after a second of use by a client that has left.
CONFIGURATION = """
[databases]
carillon = host={host} dbname={database} user=carillon
[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {folder}
auth_type = any
admin_users = carillon
pool_mode = session
default_pool_size = 80
server_lifetime = 1
server_idle_timeout = 1
"""


class PgBouncer:
    """A pooler on a socket, in front of one database."""

    def __init__(self, program: str, libraries: str, database_url: str) -> None:
        """Write the configuration."""
        self._program = program
        self._environ = {"LD_LIBRARY_PATH": libraries} if libraries else {}
        # Short, as the path of a socket may have a hundred characters.
        self.folder = Path(tempfile.mkdtemp(prefix="pb-"))
        self.folder.chmod(0o777)
        self._socket = self.folder / f".s.PGSQL.{PORT}"
        parts = urlsplit(database_url)
        text = CONFIGURATION.format(
            host=parse_qs(parts.query)["host"][0], database=parts.path.strip("/"), port=PORT, folder=self.folder
        )
        (self.folder / "pgbouncer.ini").write_text(text)

    @property
    def url(self) -> str:
        """The address for Carillon."""
        return f"postgresql://carillon@/carillon?host={self.folder}&port={PORT}"

    async def start(self) -> None:
        """Run it, not as root, which it refuses, and wait until it takes connections."""
        self._run()

        async def listens() -> bool:
            with suppress(OSError):
                _, writer = await asyncio.open_unix_connection(self._socket)
                writer.close()
                return True
            return False

        await until(listens)

    def _run(self) -> None:
        self._process = subprocess.Popen(
            [self._program, str(self.folder / "pgbouncer.ini")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._environ,
            user=UNPRIVILEGED.uid,
            group=UNPRIVILEGED.gid,
        )

    def kill(self) -> None:
        """End it without a word."""
        self._process.kill()
        self._process.wait()
        self._socket.unlink(missing_ok=True)

    def shows(self, what: str) -> list[list[str]]:
        """Ask its console, and return the fields of each line."""
        login = ("-h", str(self.folder), "-p", str(PORT), "-U", "carillon", "pgbouncer")
        command = [str(postgres_install().program("psql")), *login]
        done = subprocess.run([*command, "-XAtc", f"SHOW {what}"], capture_output=True, text=True, check=True)
        return [line.split("|") for line in done.stdout.splitlines()]


@pytest.fixture(scope="session")
def program(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The program, and where its libraries are."""
    installed = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if installed:
        yield installed, ""
        return
    cache = getattr(pytestconfig, "cache", None)
    folder = cache.mkdir(PACKAGE) if cache else tmp_path_factory.mktemp(PACKAGE)
    try:
        files = unpacked(folder, [PACKAGE, *libraries_of(PACKAGE, LIBRARIES)])
    except PackageMissingError as error:
        leave_untested(f"PgBouncer: {error}")
    # A copy that its account can reach.
    copy = Path(tempfile.mkdtemp(prefix="pb-")) / "files"
    shutil.copytree(files, copy)
    copy.parent.chmod(0o755)
    libraries = {str(path.parent) for path in copy.glob("usr/lib/**/*.so.*")}
    yield str(copy / "usr" / "sbin" / "pgbouncer"), ":".join(libraries)
    shutil.rmtree(copy.parent)


@pytest.fixture
async def pooler(program: tuple[str, str], database_url: str) -> AsyncIterator[PgBouncer]:
    """PgBouncer in front of the test's database."""
    made = PgBouncer(*program, database_url)
    await made.start()
    yield made
    made.kill()
    shutil.rmtree(made.folder, ignore_errors=True)


async def test_pooling_by_session_works(pooler: PgBouncer, redis_url: str, tmp_path: Path) -> None:
    """Schedules fire through it, each connection keeps its settings, and a restart of the pooler is survived."""
    settings = settings_on(pooler.url, redis_url, tmp_path)
    async with serving(settings) as carillon, working(settings):
        schedule = await carillon.schedule(interval_seconds=1)
        before = len(await carillon.until_succeeded(schedule, 2))
        assert ["session"] == [row[-1] for row in pooler.shows("POOLS") if row[0] == "carillon"]
        assert len(pooler.shows("CLIENTS")) > 2
        pooler.kill()
        await pooler.start()
        ended = await carillon.until_succeeded(schedule, before + 3)
        assert len(ended) == len({run["scheduled_for"] for run in ended})
    database = Database(settings.database_url, pool_size=1)
    for _ in range(3):
        async with database.reading() as connection:
            shown = await driver_of(connection).fetch("SELECT name, setting FROM pg_settings")
            assert SERVER_SETTINGS.items() <= dict(shown).items()
    await database.close()
