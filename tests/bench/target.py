"""HTTP fires to a sink of this machine, in a process of its own."""

import asyncio
import sys

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


async def http_fires(stand: Stand, per_second: int, seconds: float) -> Fires:
    """So many calls a second, each accounted for."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SINK, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        node = {"id": "work", "type": "core.http_request", "config": {"url": f"http://127.0.0.1:{port}/hook"}}
        return await measure(stand, per_second, seconds, node=node)
    finally:
        process.kill()
        await process.wait()
