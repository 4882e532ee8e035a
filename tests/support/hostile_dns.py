"""A name server on loopback that answers as the test says, or never."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

A, AAAA = 1, 28
NO_SUCH_NAME = 3

# What a name leads to when it is asked for; None is never answered.
Zone = dict[str, Callable[[], list[str]] | list[str] | None]


class HostileDns(asyncio.DatagramProtocol):
    """Answers queries for A and AAAA from a zone, without a time to live; an unknown name does not exist."""

    def __init__(self, zone: Zone) -> None:
        self.zone = zone
        self.asked: set[str] = set()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for answers."""
        self._transport = transport

    @property
    def server(self) -> str:
        """Its address and port, as c-ares expects them."""
        return f"127.0.0.1:{self._transport.get_extra_info('sockname')[1]}"

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        """Answer a query, unless the zone says that the name is never answered."""
        name, kind, end = _question(data)
        self.asked.add(name)
        known = self.zone.get(name, [])
        if known is None:
            return
        answers = [packed for address in (known() if callable(known) else known) if (packed := _record(address, kind))]
        code = 0 if name in self.zone else NO_SUCH_NAME
        head = data[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, len(answers), 0, 0)
        self._transport.sendto(head + data[12:end] + b"".join(answers), address)


@asynccontextmanager
async def hostile_dns(zone: Zone) -> AsyncIterator[HostileDns]:
    """Run a name server until the block ends."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(lambda: HostileDns(zone), ("127.0.0.1", 0))
    try:
        yield server
    finally:
        transport.close()


def _question(data: bytes) -> tuple[str, int, int]:
    """Return the name and the record type of a query, and where its question ends."""
    labels, at = [], 12
    while data[at]:
        labels.append(data[at + 1 : at + 1 + data[at]].decode())
        at += 1 + data[at]
    return ".".join(labels).lower(), struct.unpack("!H", data[at + 1 : at + 3])[0], at + 5


def _record(address: str, kind: int) -> bytes:
    """Return an answer if the address is of the requested type, else nothing; its name points at the question's."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if kind != (AAAA if family == socket.AF_INET6 else A):
        return b""
    packed = socket.inet_pton(family, address)
    return b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 0, len(packed)) + packed
