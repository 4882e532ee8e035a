"""The address of the API: whether it is free, and whether it answers."""

import errno
import os
import socket
import time
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPException

from app.clock import monotonic
from app.embedded.errors import CannotListen

# The API of a Carillon that was killed a moment ago may not be quite gone.
PREDECESSOR_SECONDS = 2.0
POLL_SECONDS = 0.1
ANSWER_SECONDS = 2.0
HTTP_OK = 200
LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, not bound
REMEDIES = {
    errno.EADDRINUSE: "another program listens there; stop it, or set CARILLON_PORT to another port",
    errno.EACCES: "ports below 1024 need root; set CARILLON_PORT to another port",
    errno.EADDRNOTAVAIL: "this machine has no such address; set CARILLON_HOST to another",
}


def listenable_port(host: str, port: int) -> int:
    """The port, once it is certain that it can be listened on; a free one for port 0."""
    deadline = monotonic() + PREDECESSOR_SECONDS
    while True:
        try:
            return _try_to_bind(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or monotonic() > deadline:
                raise CannotListen(f"Cannot listen on {host}:{port}: {_remedy(error)}") from error
        time.sleep(POLL_SECONDS)


def base_url(host: str, port: int) -> str:
    """The API's address for people and clients."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def missing_for_ready(host: str, port: int) -> str | None:
    """What the API says is missing; None when it is ready."""
    connection = HTTPConnection(LOOPBACK_OF.get(host, host), port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/health/ready")
        answer = connection.getresponse()
        said = answer.read().decode(errors="replace")
    except (OSError, HTTPException) as error:
        return f"{base_url(host, port)} does not answer ({error})"
    finally:
        connection.close()
    return None if answer.status == HTTP_OK else f"/health/ready answers {answer.status}: {said}"


def _try_to_bind(host: str, port: int) -> int:
    """Bind every address that the host stands for, as the server will, all on one port."""
    with ExitStack() as bound:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            listener = bound.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((address[0], port, *address[2:]))
            port = listener.getsockname()[1]
    return port


def _remedy(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the name is unknown; set CARILLON_HOST to another"
    return REMEDIES.get(error.errno or 0, os.strerror(error.errno or 0))
