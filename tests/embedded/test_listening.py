"""The API's address, before it listens there and after.

Covers app.embedded.stack.
"""

import errno
import socket
from collections.abc import Iterator

import pytest

from app.embedded import CannotListen, stack
from app.embedded.stack import base_url, listenable_port, missing_for_ready


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A port on which someone listens, for good."""
    monkeypatch.setattr(stack, "PREDECESSOR_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_taken_port_is_named_with_the_remedy(taken: int) -> None:
    """The error names host, port and the setting to change."""
    with pytest.raises(CannotListen, match=rf"127\.0\.0\.1:{taken}: another program listens there.*CARILLON_PORT"):
        listenable_port("127.0.0.1", taken)


def test_a_port_that_becomes_free_is_waited_for(monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    """The API of a Carillon that was just killed may still be letting go."""
    attempts = []

    def bind(_host: str, port: int) -> int:
        attempts.append(port)
        if len(attempts) == 1:
            raise OSError(errno.EADDRINUSE, "in use")
        return port

    monkeypatch.setattr(stack, "PREDECESSOR_SECONDS", 30.0)
    monkeypatch.setattr(stack, "_try_to_bind", bind)
    assert taken == listenable_port("127.0.0.1", taken)
    assert [taken, taken] == attempts


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_port_zero_chooses_a_free_one(host: str) -> None:
    """The port is a real one, free to listen on."""
    port = listenable_port(host, 0)
    assert 0 < port == listenable_port(host, port)


@pytest.mark.parametrize("host", ["no such host", "192.0.2.1"])
def test_a_foreign_host_is_an_error_about_the_host(host: str) -> None:
    """An unknown name and an address of another machine both point at the setting."""
    with pytest.raises(CannotListen, match="set CARILLON_HOST to another"):
        listenable_port(host, 0)


def test_silence_is_not_ready() -> None:
    """A port where nobody answers is said to be missing."""
    free = listenable_port("127.0.0.1", 0)
    assert f"http://127.0.0.1:{free} does not answer" in str(missing_for_ready("127.0.0.1", free))


def test_an_address_of_six_gets_brackets() -> None:
    """IPv6 addresses are written as URLs want them."""
    assert ("http://[::1]:8000", "http://localhost:8000") == (base_url("::1", 8000), base_url("localhost", 8000))
