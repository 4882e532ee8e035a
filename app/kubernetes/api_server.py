"""Requests to the API server of the cluster: objects, patches, and watches.

Blocking calls of the standard library run in threads. Few requests are made, and the API server is one host.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from app.config import SettingsError
from app.domain.declarations import Kind
from app.domain.kubernetes_objects import GROUP, PLURALS, VERSION

# The files that Kubernetes puts into a pod, for calls to its API server.
POD_FILES = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ANSWER_SECONDS = 30.0
# A watch ends by itself after this time, and a connection on which nothing arrives a little later.
WATCH_SECONDS = 240
MERGE_PATCH = "application/merge-patch+json"
ERRORS_FROM = 400
NOT_FOUND, CONFLICT, GONE = 404, 409, 410
LIST_ITEMS = 500

Json = dict[str, Any]
T = TypeVar("T")


class ApiServerError(Exception):
    """The API server refused a request, or cannot be reached (status 0)."""

    code = "api_server_error"

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}" if status else message)
        self.status = status


class ClusterAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where the API server is, and the files with the token and the certificate authority."""

    url: str
    token_file: str = ""
    ca_file: str = ""
    # The namespace of the operator's own pod.
    namespace: str = "default"


def in_cluster(environ: Mapping[str, str], pod_files: Path = POD_FILES) -> ClusterAddress:
    """Return the address of the API server as a pod finds it."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise SettingsError("KUBERNETES_SERVICE_HOST is not set: `carillon operator` runs in a pod of the cluster")
    try:
        namespace = (pod_files / "namespace").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingsError(
            f"The files of the pod's service account cannot be read ({error.strerror}): {pod_files}"
        ) from None
    return ClusterAddress(
        url=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        token_file=str(pod_files / "token"),
        ca_file=str(pod_files / "ca.crt"),
        namespace=namespace,
    )


def objects_path(kind: Kind, namespace: str = "", name: str = "") -> str:
    """Return the path of the objects of a kind, of one namespace or of all, or of one object."""
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{GROUP}/{VERSION}{within}/{PLURALS[kind]}" + (f"/{name}" if name else "")


def lease_path(namespace: str, name: str = "") -> str:
    """Return the path of a Lease, or of the Leases of a namespace."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases" + (f"/{name}" if name else "")


class ApiServer:
    """A client of the API server. The token is read for each request, the certificate authority for each connection."""

    def __init__(self, address: ClusterAddress) -> None:
        """Connect to this address when the first request is made."""
        self.namespace = address.namespace
        self._address = address
        self._idle: list[HTTPConnection] = []

    async def get(self, path: str) -> Json:
        """Return an object."""
        return await asyncio.to_thread(self._exchange, "GET", path)

    async def create(self, path: str, body: Json) -> Json:
        """Create an object, and return it."""
        return await asyncio.to_thread(self._exchange, "POST", path, body)

    async def replace(self, path: str, body: Json) -> Json:
        """Replace an object, unless it was changed since its ``resourceVersion``; return it."""
        return await asyncio.to_thread(self._exchange, "PUT", path, body)

    async def patch(self, path: str, body: Json) -> Json:
        """Change some fields of an object, and return it."""
        return await asyncio.to_thread(self._exchange, "PATCH", path, body, MERGE_PATCH)

    async def items(self, path: str) -> tuple[list[Json], str]:
        """Return all objects of a list, and the version from which to watch it."""
        found: list[Json] = []
        params: dict[str, str | int] = {"limit": LIST_ITEMS}
        while True:
            page = await self.get(f"{path}?{urlencode(params)}")
            found += page.get("items") or []
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return found, metadata.get("resourceVersion", "")
            params["continue"] = metadata["continue"]

    async def watch(self, path: str, version: str) -> AsyncIterator[Json]:
        """Yield the events of a list since a version, until the API server ends the watch."""
        params = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": WATCH_SECONDS,
        }
        stream = _Stream(self._connected, self._headers("GET", MERGE_PATCH), f"{path}?{urlencode(params)}")
        try:
            await stream.open()
            async for line in stream.lines():
                yield _decoded(line)
        finally:
            stream.close()

    def close(self) -> None:
        """Close idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _exchange(self, method: str, path: str, body: Json | None = None, content_type: str = "") -> Json:
        """Send a request and return the decoded answer; once more if a kept connection was closed meanwhile.

        Every request may be repeated: changes name the version that they are about.
        """
        content = None if body is None else msgspec.json.encode(body)
        headers = self._headers(method, content_type)
        while True:
            is_kept, connection = self._taken()
            try:
                connection.request(method, path, content, headers)
                response = connection.getresponse()
                status, answer = response.status, response.read()
            except (OSError, HTTPException) as error:
                connection.close()
                if is_kept:
                    continue
                raise ApiServerError(0, _reason(error)) from None
            self._idle.append(connection)
            if status >= ERRORS_FROM:
                raise _refusal(status, answer)
            return _decoded(answer)

    def _taken(self) -> tuple[bool, HTTPConnection]:
        with suppress(IndexError):
            return True, self._idle.pop()
        try:
            return False, self._connected(ANSWER_SECONDS)
        except (OSError, ValueError) as error:
            raise ApiServerError(0, _reason(error)) from None

    def _connected(self, seconds: float) -> HTTPConnection:
        parts = urlsplit(self._address.url)
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self._address.ca_file or None)
            return HTTPSConnection(host, port, timeout=seconds, context=context)
        return HTTPConnection(host, port, timeout=seconds)

    def _headers(self, method: str, content_type: str) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "carillon-operator"}
        if method != "GET":
            headers["Content-Type"] = content_type or "application/json"
        if self._address.token_file:
            # Kubernetes replaces the file before the token ends.
            headers["Authorization"] = f"Bearer {_text_of(self._address.token_file)}"
        return headers


class _Stream:
    """The answer to a watch, read line by line in a thread of its own."""

    def __init__(self, connect: Callable[[float], HTTPConnection], headers: dict[str, str], path: str) -> None:
        self._connect = connect
        self._headers = headers
        self._path = path
        self._connection: HTTPConnection | None = None
        self._response: HTTPResponse | None = None
        self._thread = ThreadPoolExecutor(1, "watch")

    async def open(self) -> None:
        """Send the request, and raise what the API server refuses."""
        await self._run(self._open)

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of the answer."""
        while line := await self._run(self._read_line):
            yield line

    def close(self) -> None:
        """Close the connection. No thread reads from it any more."""
        if self._response is not None:
            self._response.close()
        if self._connection is not None:
            self._connection.close()
        self._thread.shutdown(wait=False)

    def _open(self) -> None:
        self._connection = self._connect(WATCH_SECONDS + ANSWER_SECONDS)
        self._connection.request("GET", self._path, headers=self._headers)
        self._response = self._connection.getresponse()
        if self._response.status >= ERRORS_FROM:
            raise _refusal(self._response.status, self._response.read())

    def _read_line(self) -> bytes:
        return b"" if self._response is None else self._response.readline()

    async def _run(self, call: Callable[[], T]) -> T:
        """Call a function in the thread. If the caller is cancelled, cut the connection and wait until it returns."""
        future = asyncio.get_running_loop().run_in_executor(self._thread, call)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self._cut()
            await asyncio.wait({future})
            with suppress(Exception):
                future.result()
            raise
        except (OSError, HTTPException, ValueError) as error:
            raise ApiServerError(0, _reason(error)) from None

    def _cut(self) -> None:
        sock = getattr(self._connection, "sock", None) or _socket_of(self._response)
        if sock is not None:
            with suppress(OSError):
                # Not the method of a TLS socket, which a thread that reads would meet half-way.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _socket_of(response: HTTPResponse | None) -> socket.socket | None:
    """Return the socket that a response reads from: its connection forgets it if the server will close it."""
    raw = getattr(getattr(response, "fp", None), "raw", None)
    found = getattr(raw, "_sock", None)
    return found if isinstance(found, socket.socket) else None


def _decoded(content: bytes) -> Json:
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ApiServerError(0, "The API server's answer is not JSON.") from None
    return value if isinstance(value, dict) else {}


def _refusal(status: int, content: bytes) -> ApiServerError:
    try:
        message = msgspec.json.decode(content)["message"]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        message = "The API server refuses the request."
    return ApiServerError(status, str(message))


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ApiServerError(0, f"The token of the service account cannot be read ({error.strerror}): {path}") from None
