"""Stands in for the ``carillon`` command: a tiny migrate, api and worker that fail when a file tells them to.

Arguments: a folder for notes, then the command. A note ``NAME.env`` records the environment of the last start; a file
``NAME.broken`` makes the command fail.
"""

import http.server
import json
import os
import signal
import socket
import sys
from pathlib import Path


class Ready(http.server.BaseHTTPRequestHandler):
    """Answers every request with 200."""

    def do_GET(self) -> None:
        """Say yes."""
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Server(http.server.ThreadingHTTPServer):
    """Needs no name service."""

    def server_bind(self) -> None:
        """Bind without asking what the host is called."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)


def main(notes: Path, name: str) -> None:
    """Do what the command of this name does."""
    draft = notes / f"{name}.draft"
    draft.write_text(json.dumps(dict(os.environ)))
    draft.rename(notes / f"{name}.env")
    if (notes / f"{name}.broken").exists():
        sys.exit(f"{name} is broken")
    print(f"{name} runs as pid {os.getpid()}", flush=True)  # noqa: T201 - what is relayed
    if name == "api":
        Server((os.environ["CARILLON_HOST"], int(os.environ["CARILLON_PORT"])), Ready).serve_forever()
    if name == "worker":
        while True:
            signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
