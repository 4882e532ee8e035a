"""The endpoint of agents, used by the SDK's own client, with and without a handshake (`app.api.mcp`)."""

import pytest

from tests.support.carillon import ADMIN_TOKEN, Carillon

REASON = "the MCP SDK is not installed"
Client = pytest.importorskip("mcp.client.client", reason=REASON).Client
streamable_http_client = pytest.importorskip("mcp.client.streamable_http", reason=REASON).streamable_http_client
httpx2 = pytest.importorskip("httpx2", reason=REASON)


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
async def test_the_client_of_the_sdk(standing: Carillon, mode: str) -> None:
    """It connects, lists tools, calls one, reads a resource and gets a prompt."""
    metadata = (await standing.raw("GET", "/.well-known/oauth-protected-resource/mcp")).json()
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    async with httpx2.AsyncClient(headers=headers, trust_env=False) as http:
        transport = streamable_http_client(metadata["resource"], http_client=http)
        async with Client(transport, mode=mode) as client:
            tools = await client.list_tools()
            assert "lease_status" in {tool.name for tool in tools.tools}
            answer = await client.call_tool("lease_status", {})
            assert not answer.is_error
            guide = await client.read_resource("carillon://guides/specs")
            assert "cron" in guide.contents[0].text
            prompt = await client.get_prompt("plan_a_schedule", {"wish": "daily"})
            assert prompt.messages
