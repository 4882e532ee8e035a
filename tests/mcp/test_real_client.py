"""Agents by the SDK that most of them use, of both generations, over HTTP and over ``carillon mcp``.

Covers app.api.mcp, app.cli.mcp_bridge.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent, TextResourceContents

from app.mcp.tools import TOOLS
from tests.mcp.earlier_sdk import SdkMissingError, earlier_sdk
from tests.support.carillon import ADMIN_TOKEN, Carillon
from tests.support.command_line import PROGRAM
from tests.support.skip_reports import leave_untested

Mode = Literal["auto", "legacy", "2026-07-28"]
UNKNOWN_RUN = "01a1ee65-1646-8000-b60c-ecf863320146"


async def address_of(standing: Carillon) -> str:
    """Return the address of the endpoint of agents."""
    metadata = (await standing.raw("GET", "/.well-known/oauth-protected-resource/mcp")).json()
    return str(metadata["resource"])


def variables(address: str) -> dict[str, str]:
    """Return the environment of `carillon mcp`."""
    return {**os.environ, "CARILLON_URL": address.removesuffix("/mcp"), "CARILLON_TOKEN": ADMIN_TOKEN}


@asynccontextmanager
async def connected(address: str, place: str, mode: Mode) -> AsyncIterator[Client]:
    """Connect the SDK's client over HTTP or over standard input and output."""
    if place == "stdio":
        server = StdioServerParameters(command=str(PROGRAM), args=["mcp"], env=variables(address))
        async with Client(server, mode=mode) as client:
            yield client
        return
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {ADMIN_TOKEN}"}, trust_env=False) as http,
        Client(streamable_http_client(address, http_client=http), mode=mode) as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("place", "mode", "version"),
    [
        ("http", "auto", "2026-07-28"),
        ("http", "legacy", "2025-11-25"),
        ("http", "2026-07-28", "2026-07-28"),
        ("stdio", "auto", "2026-07-28"),
        ("stdio", "legacy", "2025-11-25"),
    ],
)
async def test_the_sdk_is_served(standing: Carillon, place: str, mode: Mode, version: str) -> None:
    """It connects, lists tools, calls one, is refused by another, reads a resource and gets a prompt."""
    async with connected(await address_of(standing), place, mode) as client:
        assert version == client.protocol_version
        assert {tool.name for tool in TOOLS} == {tool.name for tool in (await client.list_tools()).tools}
        status = await client.call_tool("lease_status", {})
        assert (False, True) == (status.is_error, bool(status.structured_content))
        refused = await client.call_tool("get_run", {"run_id": UNKNOWN_RUN})
        assert (True, "not_found") == (refused.is_error, (refused.structured_content or {})["code"])
        (guide,) = (await client.read_resource("carillon://guides/specs")).contents
        assert isinstance(guide, TextResourceContents)
        assert "cron" in guide.text
        (message,) = (await client.get_prompt("plan_a_schedule", {"wish": "every Monday"})).messages
        assert isinstance(message.content, TextContent)
        assert "every Monday" in message.content.text


@pytest.fixture(scope="session")
def earlier(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the earlier SDK."""
    cache = pytestconfig.cache
    try:
        return earlier_sdk(cache.mkdir("mcp-sdk") if cache else tmp_path_factory.mktemp("mcp-sdk"))
    except SdkMissingError as error:
        leave_untested(f"the earlier SDK of agents: {error}")


@pytest.mark.parametrize("place", ["http", "stdio"])
async def test_the_earlier_sdk_is_served(standing: Carillon, earlier: Path, place: str) -> None:
    """As the newer one, in a process of its own."""
    address = await address_of(standing)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(Path(__file__).with_name("earlier_sdk_client.py"))),
        address if place == "http" else str(PROGRAM),
        env={**variables(address), "PYTHONPATH": str(earlier)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate()
    assert 0 == process.returncode, error.decode()
    told = json.loads(out)
    assert ("2025-11-25", sorted(tool.name for tool in TOOLS)) == (told["version"], told["tools"])
    assert (False, True) == (told["status"][0], bool(told["status"][1]))
    assert [True, "not_found"] == told["refused"]
    assert ("cron" in told["guide"], "every Monday" in told["prompt"]) == (True, True)
