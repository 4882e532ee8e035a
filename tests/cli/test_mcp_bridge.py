"""``carillon mcp``: messages over standard input and output (`app.cli.mcp_bridge`)."""

import asyncio
import io
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

from app.cli.mcp_bridge import Bridge
from tests.support.carillon import ADMIN_TOKEN, Carillon, Json


async def answers(standing: Carillon, token: str, *messages: Json) -> list[Json]:
    """Return what a bridge with a token answers to messages."""
    metadata = (await standing.raw("GET", "/.well-known/oauth-protected-resource/mcp")).json()
    bridge = Bridge(metadata["resource"].removesuffix("/mcp"), token)

    def ask() -> list[Json]:
        return [json.loads(one) for message in messages for one in bridge.answer(json.dumps(message))]

    return await asyncio.to_thread(ask)


async def test_messages_are_passed_on(standing: Carillon) -> None:
    """With the version of the handshake; a notification has no answer, and a refusal is an error with the same id."""
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    tools = {"jsonrpc": "2.0", "id": "b", "method": "tools/list"}
    first, second = await answers(standing, ADMIN_TOKEN, hello, ready, tools)
    assert (1, "2025-06-18") == (first["id"], first["result"]["protocolVersion"])
    assert ("b", 17) == (second["id"], len(second["result"]["tools"]))
    (refused,) = await answers(standing, "wrong", tools)
    assert ("b", True) == (refused["id"], "401" in refused["error"]["message"])


def test_a_server_that_is_away_is_said() -> None:
    """Not by a traceback."""
    (line,) = Bridge("http://127.0.0.1:9", "t").answer('{"jsonrpc": "2.0", "id": 5, "method": "ping"}')
    assert "cannot be reached" in json.loads(line)["error"]["message"]


class Page(BaseHTTPRequestHandler):
    """A proxy that has lost its server."""

    def do_POST(self) -> None:
        """Answer with a page that is neither JSON nor UTF-8."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(502)
        self.end_headers()
        self.wfile.write(b"<html>\xff Bad Gateway</html>")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_page_of_a_proxy_is_no_end() -> None:
    """It is an error with the id of the message, and is not quoted; bytes that are no text are answered, too."""
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        answers = io.StringIO()
        bridge = Bridge(f"http://127.0.0.1:{server.server_address[1]}", "t")
        bridge.run([b'{"jsonrpc": "2.0", "id": 7, "method": "\xff"}\n', b"\xff\n", b"\n"], answers)
        server.shutdown()
    (line,) = answers.getvalue().splitlines()
    error = "The server's answer is not that of a Carillon. (502)"
    assert (7, error) == (json.loads(line)["id"], json.loads(line)["error"]["message"])
