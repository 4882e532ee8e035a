"""HTTP fires to a sink of this machine, in a process of its own."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.bench.fires import Fires, measure
from tests.bench.stand import Stand

SINK = """
import asyncio, sys
class Sink(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.seen = transport, b""
    def data_received(self, data):
        self.seen += data
        while b"\\r\\n\\r\\n" in self.seen:
            head, rest = self.seen.split(b"\\r\\n\\r\\n", 1)
            length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\\r\\n")
                           if line.startswith(b"content-length")), 0)
            if len(rest) < length:
                return
            self.seen = rest[length:]
            self.transport.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
async def main():
    server = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
import uvloop
uvloop.run(main())
"""


@asynccontextmanager
async def http_sink() -> AsyncIterator[str]:
    """Run the sink for the length of the block, and yield its URL."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SINK, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}/hook"
    finally:
        process.kill()
        await process.wait()


def calling(url: str) -> dict[str, Any]:
    """Return a node that calls the sink."""
    return {"id": "work", "type": "core.http_request", "config": {"url": url}}


async def http_fires(stand: Stand, per_second: int, seconds: float) -> Fires:
    """So many calls a second, each accounted for."""
    async with http_sink() as url:
        return await measure(stand, per_second, seconds, node=calling(url))
