"""What the embedded servers have in common: prepare the folders, start, wait until ready, stop."""

import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO, ClassVar, Self

from app.clock import monotonic
from app.embedded.accounts import Account, SocketDir, server_account
from app.embedded.child_process import Command, StopStep
from app.embedded.errors import ServerDidNotStart, ServerNotStarted

# Includes recovery after kill -9, and waiting until a server that is still stopping releases the folder.
READY_SECONDS = 60.0
POLL_SECONDS = 0.02
QUOTED_BYTES = 2000
# The servers get nothing of our environment: neither PG* variables, which would change them, nor secrets.
SERVER_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TZ": "UTC"}


class EmbeddedServer(ABC):
    """A server on a unix socket of its own, with its data in one folder."""

    name: ClassVar[str]
    stop_steps: ClassVar[tuple[StopStep, ...]]
    # Log lines that contain any of these are not shown by ``carillon up``: they are of no use to an operator.
    muted: ClassVar[tuple[str, ...]] = ()

    def __init__(self, data_dir: Path) -> None:
        """Name the data folder; nothing is created before ``prepare`` or ``start``."""
        self.data_dir = data_dir.resolve()
        self._socket_dir: SocketDir | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL for clients; known after ``prepare``."""

    @abstractmethod
    def command(self) -> Command:
        """Return the command that runs the server in the foreground; call ``prepare`` first."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Return whether the server answers requests now."""

    @abstractmethod
    def _prepare_data(self) -> None:
        """Create the data folder, or check and repair it, so that the server can start on it."""

    def prepare(self) -> None:
        """Create the data and the socket folder. A second call keeps the socket's path for the clients."""
        self._prepare_data()
        if self._socket_dir is None:
            self._socket_dir = SocketDir(self.account)

    @property
    def account(self) -> Account | None:
        """The account that runs the server; None means the current one."""
        return server_account(self.data_dir)

    @property
    def socket_folder(self) -> Path:
        """The folder of the server's socket."""
        if self._socket_dir is None:
            raise ServerNotStarted(f"{self.name} is not started: call start() first")
        return self._socket_dir.path

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of the server, running or exited."""
        if self._process is None:
            raise ServerNotStarted(f"{self.name} is not started: call start() first")
        return self._process

    def start(self) -> None:
        """Start the server and wait until it is ready. Only from the main thread: the server dies with its thread."""
        self.prepare()
        self._process = self._spawn()
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server, by harsher signals if needed, and remove its socket."""
        if self._process is not None:
            self._stop_process(self._process)
        self.close()

    def close(self) -> None:
        """Remove the socket folder and the log; the server must have exited."""
        if self._socket_dir is not None:
            self._socket_dir.remove()
            self._socket_dir = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def __enter__(self) -> Self:
        """Run the server for the duration of a block."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server."""
        self.stop()

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = self.command()
        # A file without a name: the server's account could replace a named one in its folder by a link to another file.
        self._log = self._log or tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the server runs
        return subprocess.Popen(  # noqa: S603 - our own command
            command.launcher_argv(),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            cwd=command.cwd,
            env=command.env,
            start_new_session=True,
        )

    def _wait_until_ready(self) -> None:
        deadline = monotonic() + READY_SECONDS
        while not self.is_ready():
            if self.process.poll() is not None:
                raise ServerDidNotStart(f"{self.name} exited while starting: {self._end_of_log()}")
            if monotonic() > deadline:
                raise ServerDidNotStart(f"{self.name} was not ready within {READY_SECONDS:.0f} s: {self._end_of_log()}")
            time.sleep(POLL_SECONDS)

    def _end_of_log(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0)
        return self._log.read()[-QUOTED_BYTES:].decode(errors="replace").strip()

    def _stop_process(self, process: subprocess.Popen[bytes]) -> None:
        for step in self.stop_steps:
            process.send_signal(step.signal)
            try:
                process.wait(step.seconds)
            except subprocess.TimeoutExpired:
                continue
            return
