"""A name server on loopback that answers as it is told, or not at all."""

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
        """Remember what to answer by."""
        self._transport = transport

    @property
    def server(self) -> str:
        """Where it listens, as c-ares writes it."""
        return f"127.0.0.1:{self._transport.get_extra_info('sockname')[1]}"

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        """Answer one query, or do not."""
        name, kind, end = _question(data)
        self.asked.add(name)
        known = self.zone.get(name, [])
        if known is None:
            return
        answers = [packed for one in (known() if callable(known) else known) if (packed := _record(one, kind))]
        code = 0 if name in self.zone else NO_SUCH_NAME
        head = data[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, len(answers), 0, 0)
        self._transport.sendto(head + data[12:end] + b"".join(answers), address)


@asynccontextmanager
async def hostile_dns(zone: Zone) -> AsyncIterator[HostileDns]:
    """A name server for as long as the block lasts."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(lambda: HostileDns(zone), ("127.0.0.1", 0))
    try:
        yield server
    finally:
        transport.close()


def _question(data: bytes) -> tuple[str, int, int]:
    """The name and the kind of record that a query asks for, and where the question ends."""
    labels, at = [], 12
    while data[at]:
        labels.append(data[at + 1 : at + 1 + data[at]].decode())
        at += 1 + data[at]
    return ".".join(labels).lower(), struct.unpack("!H", data[at + 1 : at + 3])[0], at + 5


def _record(address: str, kind: int) -> bytes:
    """One answer, if it is of the kind that was asked for; its name points at the question's."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if kind != (AAAA if family == socket.AF_INET6 else A):
        return b""
    packed = socket.inet_pton(family, address)
    return b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 0, len(packed)) + packed
