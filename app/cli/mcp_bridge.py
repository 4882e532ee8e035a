"""``carillon mcp``: the endpoint of agents over standard input and output, for desktop clients."""

import json
import sys
from collections.abc import Iterable, Iterator
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, TextIO
from urllib.parse import urlsplit

from app.cli.options import REACH, Reach
from app.client.errors import ClientError, Exit

TIMEOUT_SECONDS = 60.0
_META_VERSION = "io.modelcontextprotocol/protocolVersion"
_INTERNAL_ERROR = -32603


def mcp(*, options: Reach = REACH) -> None:
    """Pass the messages of an agent's client on to the server, one JSON-RPC message a line."""
    with options.connect() as connection:
        target = connection.target
    if not target.token:
        raise ClientError("No token is known.", Exit.NOT_ALLOWED, hint="Give --token, or set CARILLON_TOKEN.")
    Bridge(target.url, target.token).run(sys.stdin.buffer, sys.stdout)


class Bridge:
    """Carries messages between two streams of lines and the endpoint of a server."""

    def __init__(self, address: str, token: str) -> None:
        """Use the server at an address with a token."""
        self._address = urlsplit(address)
        self._token = token
        # The version that the handshake agreed on; newer clients name theirs with each message.
        self._version: str | None = None

    def run(self, lines: Iterable[bytes], answers: TextIO) -> None:
        """Answer each line until there is none left."""
        for line in lines:
            for answer in self.answer(line.decode(errors="replace")):
                answers.write(f"{answer}\n")
                answers.flush()

    def answer(self, line: str) -> Iterator[str]:
        """Yield the answer to a message, if it has one."""
        if not line.strip():
            return
        message = _parsed(line)
        try:
            status, body = self._post(line, message)
        except (OSError, HTTPException) as error:
            status, body = 0, f"The server cannot be reached: {error}"
        answer = _parsed(body)
        if isinstance(answer, dict) and answer.get("jsonrpc") == "2.0":
            self._note_version(answer)
            yield json.dumps(answer)
        elif isinstance(message, dict) and "id" in message:
            problem = {"code": _INTERNAL_ERROR, "message": _failure(status, body, answer)}
            yield json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": problem})

    def _note_version(self, answer: dict[str, Any]) -> None:
        result = answer.get("result")
        if isinstance(result, dict) and isinstance(result.get("protocolVersion"), str):
            self._version = result["protocolVersion"]

    def _post(self, line: str, message: Any) -> tuple[int, str]:
        kind = HTTPSConnection if self._address.scheme == "https" else HTTPConnection
        connection = kind(self._address.hostname or "", self._address.port, timeout=TIMEOUT_SECONDS)
        try:
            connection.request("POST", f"{self._address.path.rstrip('/')}/mcp", line.encode(), self._headers(message))
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")
        finally:
            connection.close()

    def _headers(self, message: Any) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        params = message.get("params") if isinstance(message, dict) else None
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        named = meta.get(_META_VERSION) if isinstance(meta, dict) else None
        version = named if isinstance(named, str) else self._version
        if version is not None and version.isascii() and version.isprintable():
            headers["MCP-Protocol-Version"] = version
        values = {"Mcp-Method": message.get("method") if isinstance(message, dict) else None}
        values["Mcp-Name"] = params.get("name") or params.get("uri")
        # A header holds printable ASCII only; the server says what is wrong with a message without it.
        sound = {name: value for name, value in values.items() if isinstance(value, str) and value.isascii()}
        return headers | {name: value for name, value in sound.items() if value.isprintable()}


def _failure(status: int, body: str, answer: Any) -> str:
    """Return what is wrong with an answer that is no JSON-RPC; a page of a proxy is not quoted."""
    if not status:
        return body
    detail = answer.get("detail") if isinstance(answer, dict) else None
    if not isinstance(detail, str):
        detail = "The server's answer is not that of a Carillon."
    return f"{detail} ({status})"


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
