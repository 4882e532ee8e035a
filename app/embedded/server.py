"""The life of one embedded server: prepare its folder, run it, wait until it answers, stop it."""

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

# Recovery after kill -9 is part of this; so is waiting for a dying predecessor.
READY_SECONDS = 60.0
POLL_SECONDS = 0.02
LAST_WORDS_BYTES = 2000
# Nothing of our environment reaches the servers: no PG* variable that changes them, and no secret.
SERVER_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TZ": "UTC"}


class EmbeddedServer(ABC):
    """A real server on a unix socket of its own, with its data in one folder."""

    name: ClassVar[str]
    stop_steps: ClassVar[tuple[StopStep, ...]]
    # Parts of log lines that tell an operator nothing.
    muted: ClassVar[tuple[str, ...]] = ()

    def __init__(self, data_dir: Path) -> None:
        """Name the data folder; nothing is touched before ``start`` or ``prepare``."""
        self.data_dir = data_dir.resolve()
        self._sockets: SocketDir | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients reach it, once it is prepared."""

    @abstractmethod
    def command(self) -> Command:
        """What runs it in the foreground, once it is prepared."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether it answers at this moment."""

    @abstractmethod
    def _prepare_data(self) -> None:
        """Make the data folder fit for the server."""

    def prepare(self) -> None:
        """Make folders and data ready. A second call keeps the socket's path, so that clients find it again."""
        self._prepare_data()
        if self._sockets is None:
            self._sockets = SocketDir(self.account)

    @property
    def account(self) -> Account | None:
        """Who runs the server; None is ourselves."""
        return server_account(self.data_dir)

    @property
    def socket_folder(self) -> Path:
        """The folder of its socket."""
        if self._sockets is None:
            raise ServerNotStarted(f"{self.name} has not been started")
        return self._sockets.path

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The server's process, running or ended."""
        if self._process is None:
            raise ServerNotStarted(f"{self.name} has not been started")
        return self._process

    def start(self) -> None:
        """Run the server and return when it answers. From the main thread: it dies with the thread that starts it."""
        self.prepare()
        self._process = self._spawn()
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server, gently if it lets us, and remove its socket."""
        if self._process is not None:
            self._end(self._process)
        self.close()

    def close(self) -> None:
        """Remove the socket's folder and the log; the server must have ended."""
        if self._sockets is not None:
            self._sockets.remove()
            self._sockets = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def __enter__(self) -> Self:
        """Run it for the length of a block."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.stop()

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = self.command()
        # Nameless: a name in a folder of the server's account could be led elsewhere by that account.
        self._log = self._log or tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the server
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
                raise ServerDidNotStart(f"{self.name} ended while it started: {self._last_words()}")
            if monotonic() > deadline:
                raise ServerDidNotStart(f"{self.name} did not answer in {READY_SECONDS:.0f} s: {self._last_words()}")
            time.sleep(POLL_SECONDS)

    def _last_words(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0)
        return self._log.read()[-LAST_WORDS_BYTES:].decode(errors="replace").strip()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        for step in self.stop_steps:
            process.send_signal(step.signal)
            try:
                process.wait(step.seconds)
            except subprocess.TimeoutExpired:
                continue
            return
