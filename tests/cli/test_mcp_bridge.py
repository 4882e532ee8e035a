"""``carillon mcp``: messages over standard input and output (`app.cli.mcp_bridge`)."""

import asyncio
import json

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
