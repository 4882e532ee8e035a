"""A process that uses Carillon by the earlier SDK: ``URL`` over HTTP, or a ``PROGRAM`` over stdio. It prints JSON.

The variables CARILLON_URL and CARILLON_TOKEN are those of the command line.
"""

import asyncio
import importlib
import json
import os
import sys
from typing import Any

# Untyped: the SDK that is installed for development has other names.
mcp: Any = importlib.import_module("mcp")
http: Any = importlib.import_module("mcp.client.streamable_http")
stdio: Any = importlib.import_module("mcp.client.stdio")


def transport(place: str) -> Any:
    """Return the way to the server."""
    if place.startswith("http://"):
        headers = {"Authorization": f"Bearer {os.environ['CARILLON_TOKEN']}"}
        return http.streamablehttp_client(place, headers=headers)
    return stdio.stdio_client(mcp.StdioServerParameters(command=place, args=["mcp"], env=dict(os.environ)))


async def use(place: str) -> dict[str, Any]:
    """Connect, list tools, call two of them, read a resource and get a prompt."""
    async with transport(place) as (reading, writing, *_), mcp.ClientSession(reading, writing) as session:
        hello = await session.initialize()
        tools = await session.list_tools()
        status = await session.call_tool("lease_status", {})
        refused = await session.call_tool("get_run", {"run_id": "01a1ee65-1646-8000-b60c-ecf863320146"})
        guide = await session.read_resource("carillon://guides/specs")
        prompt = await session.get_prompt("plan_a_schedule", {"wish": "every Monday"})
        return {
            "version": hello.protocolVersion,
            "tools": sorted(tool.name for tool in tools.tools),
            "status": [status.isError, status.structuredContent],
            "refused": [refused.isError, refused.structuredContent["code"]],
            "guide": guide.contents[0].text,
            "prompt": prompt.messages[0].content.text,
        }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(use(sys.argv[1]))))
