"""JSON-RPC messages of the Model Context Protocol: read, routed to a method, and answered.

Clients of 2024-11-05 to 2025-11-25 begin with `initialize`; those of 2026-07-28 send the version, and who they are,
with each request. Nothing is remembered between requests, so that any process can answer any of them.
"""

from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
import structlog

from app.domain.access import Actor
from app.domain.errors import CarillonError
from app.services.validation import read

log = structlog.get_logger(__name__)

# Versions that begin with a handshake, and those that carry everything with each request.
HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)
VERSION_HEADER, METHOD_HEADER, NAME_HEADER = "mcp-protocol-version", "mcp-method", "mcp-name"
_META = "io.modelcontextprotocol/"
# The parameter that the header ``Mcp-Name`` repeats.
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_CACHEABLE = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022
_STATUS = {PARSE_ERROR: 400, INVALID_REQUEST: 400, HEADER_MISMATCH: 400, UNSUPPORTED_VERSION: 400}
_MODERN_STATUS = {**_STATUS, INVALID_PARAMS: 400, METHOD_NOT_FOUND: 404}
_LARGEST_ID = 2**63
_LONGEST_TEXT = 200

Json = dict[str, Any]


class RpcError(Exception):
    """A message that cannot be answered with a result."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        """Store the code of JSON-RPC, what is wrong, and further data."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who sends a request, and by which program."""

    actor: Actor
    client: str
    is_modern: bool = False


class Reply(msgspec.Struct, frozen=True):
    """The answer over HTTP: its status, and its body unless there is none."""

    status: int
    body: Json | None = None


Method = Callable[[Caller, Json], Awaitable[Json]]


class RpcServer:
    """Answers the messages of one endpoint."""

    def __init__(self, methods: Mapping[str, Method], describe: Callable[[], Json]) -> None:
        """Know these methods; ``describe`` returns the name, the capabilities and the instructions of the server."""
        self._methods = {
            **methods,
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": _ping,
        }
        self._describe = describe

    async def answer(self, actor: Actor, body: bytes, headers: Mapping[str, str]) -> Reply:
        """Return the answer to a message. Whatever the message is, this raises nothing."""
        request_id: str | int | None = None
        is_modern = headers.get(VERSION_HEADER) in MODERN_VERSIONS
        try:
            message = _message(body)
            if "id" not in message or "method" not in message:
                # A notification, or the answer to a request that was never sent: nothing to do for either.
                _require_version(headers)
                return Reply(202)
            request_id = _id_of(message)
            _require_version(headers)
            result = await self._result(actor, message, headers, is_modern=is_modern)
            return Reply(200, {"jsonrpc": "2.0", "id": request_id, "result": result})
        except RpcError as error:
            statuses = _MODERN_STATUS if is_modern else _STATUS
            return Reply(statuses.get(error.code, 200), _failure(request_id, error))
        except Exception as error:
            log.exception("mcp_call_failed", error=type(error).__name__)
            text = "An internal error occurred. The server's log has the details."
            return Reply(200, _failure(request_id, RpcError(INTERNAL_ERROR, text)))

    async def _result(self, actor: Actor, message: Json, headers: Mapping[str, str], *, is_modern: bool) -> Json:
        name, params = message["method"], message.get("params", {})
        if not isinstance(name, str) or not isinstance(params, dict):
            raise RpcError(INVALID_REQUEST, "`method` must be a text, and `params` an object.")
        meta = params.get("_meta")
        if is_modern:
            _require_envelope(name, params, headers)
        method = self._methods.get(name)
        if method is None or (is_modern and name == "initialize"):
            raise RpcError(METHOD_NOT_FOUND, f"There is no method '{_cut(name)}'.")
        caller = Caller(actor=actor, client=_client(meta, params, headers), is_modern=is_modern)
        result = await method(caller, params)
        if not is_modern:
            return result
        cached = {"ttlMs": 0, "cacheScope": "private"} if name in (*_CACHEABLE, "server/discover") else {}
        return {"resultType": "complete", **cached, **result}

    async def _initialize(self, _caller: Caller, params: Json) -> Json:
        wanted = params.get("protocolVersion")
        version = wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
        return {"protocolVersion": version, **self._describe()}

    async def _discover(self, _caller: Caller, _params: Json) -> Json:
        about = self._describe()
        info = about.pop("serverInfo")
        return {
            "supportedVersions": [*HANDSHAKE_VERSIONS, *MODERN_VERSIONS],
            **about,
            "_meta": {f"{_META}serverInfo": info},
        }


async def _ping(_caller: Caller, _params: Json) -> Json:
    return {}


def _message(body: bytes) -> Json:
    try:
        raw = read(body, Any)
    except CarillonError as error:
        raise RpcError(PARSE_ERROR, error.detail) from None
    if isinstance(raw, list):
        raise RpcError(INVALID_REQUEST, "Send one message at a time: batches are not part of the protocol.")
    if not isinstance(raw, dict) or raw.get("jsonrpc") != "2.0" or not raw.keys() & {"method", "result", "error"}:
        raise RpcError(INVALID_REQUEST, "Expected one JSON-RPC 2.0 message.")
    return raw


def _id_of(message: Json) -> str | int:
    given = message["id"]
    is_number = isinstance(given, int) and not isinstance(given, bool) and abs(given) < _LARGEST_ID
    if is_number or (isinstance(given, str) and len(given) <= _LONGEST_TEXT):
        identity: str | int = given
        return identity
    raise RpcError(INVALID_REQUEST, f"`id` must be a whole number, or a text of at most {_LONGEST_TEXT} characters.")


def _require_version(headers: Mapping[str, str]) -> None:
    version = headers.get(VERSION_HEADER)
    supported = [*HANDSHAKE_VERSIONS, *MODERN_VERSIONS]
    if version is not None and version not in supported:
        data = {"supported": supported, "requested": _cut(version)}
        raise RpcError(UNSUPPORTED_VERSION, "This version of the protocol is not supported.", data)


def _require_envelope(method: str, params: Json, headers: Mapping[str, str]) -> None:
    """Refuse a request of 2026-07-28 without what each request carries, or whose headers say something else."""
    meta = params.get("_meta")
    needed = (f"{_META}protocolVersion", f"{_META}clientCapabilities")
    missing = [key for key in needed if not isinstance(meta, dict) or key not in meta]
    if missing or not isinstance(meta, dict):
        raise RpcError(INVALID_PARAMS, f"`params._meta` must have {' and '.join(missing)}.")
    if meta[needed[0]] != headers.get(VERSION_HEADER):
        raise RpcError(HEADER_MISMATCH, f"`{VERSION_HEADER}` differs from the version in `params._meta`.")
    if headers.get(METHOD_HEADER) != method:
        raise RpcError(HEADER_MISMATCH, f"`{METHOD_HEADER}` differs from `method`.")
    named = params.get(_NAMED_BY.get(method, ""))
    if named is not None and _decoded(headers.get(NAME_HEADER)) != named:
        raise RpcError(HEADER_MISMATCH, f"`{NAME_HEADER}` differs from `params.{_NAMED_BY[method]}`.")


def _decoded(value: str | None) -> str | None:
    """Return the value of a header; what a header cannot hold is sent as ``=?base64?...?=``."""
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return b64decode(value.removeprefix("=?base64?").removesuffix("?="), validate=True).decode()
    except ValueError:
        return value


def _client(meta: Any, params: Json, headers: Mapping[str, str]) -> str:
    """Return the name of the client as far as the protocol tells it, else what it calls itself as a user agent."""
    info = meta.get(f"{_META}clientInfo") if isinstance(meta, dict) else None
    info = info or params.get("clientInfo")
    name = info.get("name") if isinstance(info, dict) else None
    return _cut(name if isinstance(name, str) else headers.get("user-agent", ""))


def _cut(text: str) -> str:
    return text[:_LONGEST_TEXT]


def _failure(request_id: str | int | None, error: RpcError) -> Json:
    told: Json = {"code": error.code, "message": error.message}
    if error.data is not None:
        told["data"] = error.data
    return {"jsonrpc": "2.0", "id": request_id, "error": told}
