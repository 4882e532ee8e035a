"""A client of ``/mcp`` that speaks each version of the protocol, as its own messages over HTTP."""

import itertools
from typing import Any

import httpx

from tests.support.carillon import Carillon, Json

META = "io.modelcontextprotocol/"


class Agent:
    """An agent with a token, a name, and a version of the protocol."""

    def __init__(self, carillon: Carillon, token: str, version: str = "2025-11-25") -> None:
        self._carillon = carillon
        self._token = token
        self.version = version
        self._ids = itertools.count(1)

    async def post(self, message: Any, **headers: str) -> httpx.Response:
        """Send a message, of any kind."""
        sent = {
            "Authorization": f"Bearer {self._token}",
            "User-Agent": "scripted",
            "MCP-Protocol-Version": self.version,
        }
        body = {"content": message} if isinstance(message, bytes) else {"json": message}
        return await self._carillon.raw("POST", "/mcp", headers={**sent, **headers}, **body)

    async def request(self, method: str, **params: Any) -> Json:
        """Send a request, and return its result."""
        headers: dict[str, str] = {}
        if self.version == "2026-07-28":
            info = {"name": "scripted", "version": "1"}
            meta = {"protocolVersion": self.version, "clientInfo": info, "clientCapabilities": {}}
            params["_meta"] = {f"{META}{name}": value for name, value in meta.items()}
            headers["Mcp-Method"] = method
            if named := params.get("name") or params.get("uri"):
                headers["Mcp-Name"] = named
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        response = await self.post(message, **headers)
        assert 200 == response.status_code, response.text
        answer: Json = response.json()
        assert message["id"] == answer["id"]
        assert "result" in answer, answer
        result: Json = answer["result"]
        return result

    async def call(self, tool: str, *, is_error: bool = False, **arguments: Any) -> Json:
        """Call a tool, and return its structured answer."""
        result = await self.request("tools/call", name=tool, arguments=arguments)
        assert is_error == result["isError"], result
        answer: Json = result["structuredContent"]
        return answer
