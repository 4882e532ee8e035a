"""Bounds on HTTP connections: how many there may be, and how long each may take."""

import asyncio
from typing import Protocol

import msgspec

from app.api.client_addresses import TrustedProxies, counted_as

TICK_SECONDS = 1.0


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a client may cost before it has proven anything."""

    # The request line and all headers.
    head_bytes: int = 32 * 1024
    head_seconds: int = 10
    body_seconds: int = 30
    # Longer than most clients and proxies keep an idle connection: whoever uses one shall not find it just closed.
    idle_seconds: int = 75
    # How long an answer may wait for its reader.
    answer_seconds: int = 30
    connections: int = 4096
    connections_per_address: int = 512


class Connection(Protocol):
    """A connection that the register looks at once a second."""

    def check(self, tick: int) -> None:
        """Close it if it has taken too long."""


class ConnectionRegister:
    """All open connections of one process, counted by address, and one timer for all of them.

    Time is counted in ticks of at least a second: while the process itself stalls, no client's time passes. One timer
    for all costs less than starting and cancelling one for each request.
    """

    def __init__(self, limits: HttpLimits, proxies: TrustedProxies) -> None:
        """Start empty."""
        self.limits = limits
        self.tick = 0
        self._proxies = proxies
        self._open: dict[Connection, str] = {}
        self._by_address: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: Connection, address: str) -> bool:
        """Register a connection from this address; False if there are too many already."""
        key = "" if self._proxies.trusts(address) else counted_as(address)
        count = self._by_address.get(key, 0)
        if len(self._open) >= self.limits.connections or (key and count >= self.limits.connections_per_address):
            return False
        self._open[connection] = key
        self._by_address[key] = count + 1
        self._start_timer()
        return True

    def remove(self, connection: Connection) -> None:
        """Forget a connection that was closed; one that was never registered is ignored."""
        key = self._open.pop(connection, None)
        if key is None:
            return
        self._by_address[key] -= 1
        if not self._by_address[key]:
            del self._by_address[key]

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._on_tick)

    def _on_tick(self) -> None:
        self._timer = None
        self.tick += 1
        if self._open:
            self._start_timer()
        for connection in list(self._open):
            connection.check(self.tick)
