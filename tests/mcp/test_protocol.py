"""The endpoint of agents: versions of the protocol, what protects it, and that no message breaks it.

Covers app.api.mcp, app.mcp.reading.
"""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.domain.access import Actor, Role
from app.mcp.protocol import HANDSHAKE_VERSIONS, MODERN_VERSIONS, RpcServer
from tests.mcp.agent_client import Agent
from tests.support.carillon import ADMIN_TOKEN, Carillon, Json

VERSIONS = ("2025-06-18", "2025-11-25", "2026-07-28")


@pytest.mark.parametrize("version", VERSIONS)
async def test_clients_of_each_version_are_served(standing: Carillon, version: str) -> None:
    """Older ones begin with a handshake, newer ones say everything with each request."""
    agent = Agent(standing, ADMIN_TOKEN, version)
    if version in MODERN_VERSIONS:
        about = await agent.request("server/discover")
        assert version in about["supportedVersions"]
        assert ("complete", 0, "private") == (about["resultType"], about["ttlMs"], about["cacheScope"])
    else:
        client = {"clientInfo": {"name": "scripted", "version": "1"}, "capabilities": {}}
        about = await agent.request("initialize", protocolVersion=version, **client)
        assert version == about["protocolVersion"]
        assert 202 == (await agent.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status_code
    assert {"tools", "resources", "prompts"} == set(about["capabilities"])
    assert "lease_status" in about["instructions"]
    names = {tool["name"] for tool in (await agent.request("tools/list"))["tools"]}
    assert {"explain_slot", "create_schedule", "stop_schedule", "list_schedules"} <= names
    (guide, _) = (await agent.request("resources/list"))["resources"]
    read = await agent.request("resources/read", uri=guide["uri"])
    assert "cron" in read["contents"][0]["text"]
    assert 3 == len((await agent.request("resources/templates/list"))["resourceTemplates"])
    prompt = await agent.request("prompts/get", name="plan_a_schedule", arguments={"wish": "every Monday"})
    assert "every Monday" in prompt["messages"][0]["content"]["text"]
    assert {} == {name: value for name, value in (await agent.request("ping")).items() if name != "resultType"}


async def test_the_endpoint_is_protected(standing: Carillon) -> None:
    """A missing token is told where to learn more; pages of other sites and other methods are refused."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    refused = await standing.raw("POST", "/mcp", json=message)
    assert 401 == refused.status_code
    link = refused.headers["www-authenticate"].partition('resource_metadata="')[2].rstrip('"')
    assert link.endswith("/.well-known/oauth-protected-resource/mcp")
    metadata = (await standing.raw("GET", link)).json()
    assert metadata["resource"].endswith("/mcp")
    assert ["read", "operate", "write"] == metadata["scopes_supported"]
    agent = Agent(standing, ADMIN_TOKEN)
    assert 403 == (await agent.post(message, Origin="https://evil.example")).status_code
    assert 200 == (await agent.post(message, Origin=metadata["resource"].removesuffix("/mcp"))).status_code
    for method in ("GET", "DELETE"):
        assert (
            405 == (await standing.raw(method, "/mcp", headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})).status_code
        )


BAD = {
    b"": 400,
    b"{": 400,
    b"\xff": 400,
    b"[" * 5000: 400,
    b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]': 400,
    b'"text"': 400,
    b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}': 400,
    b'{"jsonrpc": "2.0", "id": true, "method": "ping"}': 400,
    b'{"jsonrpc": "2.0", "id": null, "method": "ping"}': 400,
    b'{"jsonrpc": "2.0", "id": 1' + b"0" * 4000 + b', "method": "ping"}': 400,
    b'{"jsonrpc": "2.0", "id": 1, "method": 5}': 400,
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}': 400,
    b'{"jsonrpc": "2.0", "id": 1, "method": "no/such"}': 200,
    b'{"jsonrpc": "2.0", "id": 1, "result": {}}': 202,
    b'{"jsonrpc": "2.0", "method": "notifications/cancelled"}': 202,
    b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "no"}}': 200,
    b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "get_run", "arguments": 3}}': 200,
    b'{"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "carillon://runs/x"}}': 200,
    b'{"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": {"name": "plan_a_schedule"}}': 200,
    b'{"jsonrpc": "2.0", "id": "a\\u0000", "method": "ping"}': 400,
}


async def test_malformed_messages_are_answered(standing: Carillon) -> None:
    """With an error of JSON-RPC; unknown versions and headers that contradict the message are refused."""
    agent = Agent(standing, ADMIN_TOKEN)
    for body, status in BAD.items():
        response = await agent.post(body)
        assert status == response.status_code, (body[:80], response.text)
        assert status == 202 or "error" in response.json(), body[:80]
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    unsupported = await agent.post(message, **{"MCP-Protocol-Version": "2999-01-01"})
    assert (400, -32022) == (unsupported.status_code, unsupported.json()["error"]["code"])
    newest = {"MCP-Protocol-Version": "2026-07-28"}
    assert -32602 == (await agent.post(message, **newest)).json()["error"]["code"]
    meta = {f"io.modelcontextprotocol/{name}": value for name, value in (("protocolVersion", "2026-07-28"),)}
    meta["io.modelcontextprotocol/clientCapabilities"] = ""
    mismatch = await agent.post({**message, "params": {"_meta": meta}}, **newest, **{"Mcp-Method": "tools/list"})
    assert (400, -32020) == (mismatch.status_code, mismatch.json()["error"]["code"])


async def _echo(_caller: Any, params: Json) -> Json:
    return {"echo": params}


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "_meta", "x"])
METHODS = st.sampled_from(["ping", "initialize", "server/discover", "echo", "nothing", ""])
MESSAGES = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0") | JSON}, optional={"id": JSON, "method": METHODS | JSON, "params": JSON, "error": JSON}
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(
    body=st.binary(max_size=60) | (MESSAGES | st.dictionaries(KEYS, JSON) | JSON).map(_encoded),
    version=st.none()
    | st.sampled_from([*HANDSHAKE_VERSIONS, *MODERN_VERSIONS, "", "2999-01-01"])
    | st.text(max_size=10),
)
def test_no_message_breaks_it(body: bytes, version: str | None) -> None:
    """Whatever is sent, there is an answer below 500."""
    server = RpcServer({"echo": _echo}, lambda: {"serverInfo": {}})
    headers = {} if version is None else {"mcp-protocol-version": version, "mcp-method": "echo"}
    reply = asyncio.run(server.answer(Actor(1, "mia", Role.MEMBER), body, headers))
    assert reply.status in {200, 202, 400, 404}
    assert (reply.status == 202) == (reply.body is None)
    error = (reply.body or {}).get("error")
    assert error is None or error["code"] != -32603
