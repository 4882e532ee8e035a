"""An API server of Kubernetes on loopback: lists, watches, versions, conflicts, finalizers, status and Leases.

It keeps to what controllers rely on: each change has a version, a change that names an older version is a conflict, a
watch goes on after a version or says that it is gone, and an object with finalizers stays until they are removed.
"""

import asyncio
import ssl
import uuid
from collections import defaultdict
from copy import deepcopy
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web

from app.kubernetes.api_server import ClusterAddress
from tests.support.tls_front import Authority

Json = dict[str, Any]
OBJECTS = "/apis/carillon.dev/v1alpha1/namespaces/{namespace}/{plural}"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


class Refusal(Exception):
    """A request is refused with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class KubernetesApi:
    """The API server. Tests create, change and delete objects by its methods, as kubectl would."""

    def __init__(self, authority: Authority) -> None:
        """Serve with a certificate of this authority."""
        self._authority = authority
        self.url = ""
        self.token = "the-token-of-the-pod"
        self.requests: list[tuple[str, str]] = []
        self.conflicts_to_make = 0
        self._version = 100
        self._oldest = 0
        self._objects: dict[tuple[str, str, str], Json] = {}
        self._events: list[tuple[int, str, Json]] = []
        self._changed = asyncio.Condition()
        self._broken = 0
        self.watching: dict[str, int] = defaultdict(int)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/apis/carillon.dev/v1alpha1/{plural}", self._answered(self._list))
        app.router.add_get(OBJECTS, self._answered(self._list))
        app.router.add_get(OBJECTS + "/{name}", self._answered(self._get))
        app.router.add_patch(OBJECTS + "/{name}", self._answered(self._patch))
        app.router.add_patch(OBJECTS + "/{name}/status", self._answered(self._patch_status))
        app.router.add_get(LEASES + "/{name}", self._answered(self._get_lease))
        app.router.add_post(LEASES, self._answered(self._create_lease))
        app.router.add_put(LEASES + "/{name}", self._answered(self._replace_lease))
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self._authority.issue("localhost"))
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context).start()
        self.url = f"https://localhost:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def address(self, token_file: str) -> ClusterAddress:
        """Return the address for a pod of the namespace ``system``."""
        ca_file = str(self._authority.certificate)
        return ClusterAddress(url=self.url, token_file=token_file, ca_file=ca_file, namespace="system")

    async def apply(self, plural: str, namespace: str, name: str, spec: Json) -> Json:
        """Create an object, or give it another spec."""
        key = (plural, namespace, name)
        if key in self._objects:
            return await self._store(key, {**self._objects[key], "spec": spec})
        kind = plural.removesuffix("s").capitalize()
        metadata = {"name": name, "namespace": namespace, "uid": uuid.uuid4().hex, "creationTimestamp": self._time()}
        made = {"apiVersion": "carillon.dev/v1alpha1", "kind": kind, "metadata": {**metadata, "generation": 1}}
        return await self._store(key, {**made, "spec": spec}, "ADDED")

    async def delete(self, plural: str, namespace: str, name: str) -> None:
        """Delete an object; one with finalizers is only marked."""
        key = (plural, namespace, name)
        current = self._objects[key]
        if not current["metadata"].get("finalizers"):
            await self._remove(key)
            return
        generation = current["metadata"]["generation"] + 1
        metadata = {**current["metadata"], "deletionTimestamp": self._time(), "generation": generation}
        await self._store(key, {**current, "metadata": metadata})

    def read(self, plural: str, namespace: str, name: str) -> Json | None:
        """Return an object, or None."""
        return deepcopy(self._objects.get((plural, namespace, name)))

    async def break_watches(self) -> None:
        """End all connections of watches in the middle."""
        async with self._changed:
            self._broken += 1
            self._changed.notify_all()

    async def compact(self) -> None:
        """Forget all past events, so that a watch from an older version is gone; end all watches."""
        self._version += 1
        self._oldest = self._version
        self._events.clear()
        await self.break_watches()

    async def bookmark(self) -> None:
        """Tell all watches the current version."""
        self._version += 1
        async with self._changed:
            self._events.append((self._version, "BOOKMARK", {}))
            self._changed.notify_all()

    def _answered(self, handler: Any) -> Any:
        async def answer(request: web.Request) -> web.StreamResponse:
            self.requests.append((request.method, request.path_qs))
            try:
                self._require_token(request)
                found = await handler(request)
            except Refusal as error:
                body = {"kind": "Status", "status": "Failure", "message": str(error), "code": error.status}
                return web.json_response(body, status=error.status)
            return found if isinstance(found, web.StreamResponse) else web.json_response(found)

        return answer

    def _time(self) -> str:
        """Return a time that is later than all before."""
        return f"2026-01-01T00:{self._version // 60 % 60:02}:{self._version % 60:02}Z"

    def _require_token(self, request: web.Request) -> None:
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            raise Refusal(401, "Unauthorized")

    async def _list(self, request: web.Request) -> Json | web.StreamResponse:
        if request.query.get("watch") == "true":
            return await self._watch(request)
        chosen = [value for key, value in sorted(self._objects.items()) if _is_within(key, request)]
        begin, size = int(request.query.get("continue", 0)), 2
        metadata: Json = {"resourceVersion": str(self._version)}
        if begin + size < len(chosen):
            metadata["continue"] = str(begin + size)
        return {"kind": "List", "metadata": metadata, "items": chosen[begin : begin + size]}

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        """Send events after a version until the watches are broken."""
        version = int(request.query["resourceVersion"])
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        if version < self._oldest:
            gone = {"kind": "Status", "code": 410, "message": f"too old resource version: {version}"}
            await _send(response, "ERROR", gone)
            return response
        broken = self._broken
        self.watching[request.match_info["plural"]] += 1
        try:
            while self._broken == broken:
                for number, kind, value in list(self._events):
                    is_bookmark = kind == "BOOKMARK"
                    if number > version and (is_bookmark or _is_within(_key_of(value), request)):
                        only_version = {"metadata": {"resourceVersion": str(number)}}
                        await _send(response, kind, only_version if is_bookmark else value)
                version = self._version
                async with self._changed:
                    while self._version == version and self._broken == broken:
                        await self._changed.wait()
            if request.transport is not None:
                request.transport.abort()
        finally:
            self.watching[request.match_info["plural"]] -= 1
        return response

    async def _get(self, request: web.Request) -> Json:
        return self._current(_requested(request))

    async def _patch(self, request: web.Request) -> Json:
        """Change all but the status, which has a path of its own."""
        key, changes = _requested(request), await request.json()
        current = await self._checked(key, changes)
        changed: Json = _merged(current, {name: value for name, value in changes.items() if name != "status"})
        if changed["metadata"].get("deletionTimestamp") and not changed["metadata"].get("finalizers"):
            await self._remove(key)
            return changed
        return await self._store(key, changed)

    async def _patch_status(self, request: web.Request) -> Json:
        key, changes = _requested(request), await request.json()
        current = await self._checked(key, changes)
        return await self._store(key, _merged(current, {"status": changes.get("status", {})}))

    async def _get_lease(self, request: web.Request) -> Json:
        return self._current(("leases", request.match_info["namespace"], request.match_info["name"]))

    async def _create_lease(self, request: web.Request) -> Json:
        body = await request.json()
        key = ("leases", request.match_info["namespace"], body["metadata"]["name"])
        if key in self._objects:
            raise Refusal(409, "already exists")
        return await self._store(key, body)

    async def _replace_lease(self, request: web.Request) -> Json:
        body = await request.json()
        key = ("leases", request.match_info["namespace"], request.match_info["name"])
        await self._checked(key, body)
        return await self._store(key, body)

    async def _checked(self, key: tuple[str, str, str], changes: Json) -> Json:
        """Return the object that a change is about; refuse one that names another version."""
        current = self._current(key)
        if self.conflicts_to_make and key[0] != "leases":
            self.conflicts_to_make -= 1
            current = await self._store(key, current)
        if changes.get("metadata", {}).get("resourceVersion") != current["metadata"]["resourceVersion"]:
            raise Refusal(409, "the object has been modified")
        return current

    def _current(self, key: tuple[str, str, str]) -> Json:
        if key not in self._objects:
            raise Refusal(404, "not found")
        return deepcopy(self._objects[key])

    async def _store(self, key: tuple[str, str, str], value: Json, event: str = "MODIFIED") -> Json:
        before = self._objects.get(key)
        self._version += 1
        metadata = {**value["metadata"], "resourceVersion": str(self._version)}
        if before is not None and before.get("spec") != value.get("spec"):
            metadata["generation"] = metadata.get("generation", 0) + 1
        self._objects[key] = deepcopy({**value, "metadata": metadata})
        await self._tell(event, key)
        return deepcopy(self._objects[key])

    async def _remove(self, key: tuple[str, str, str]) -> None:
        self._version += 1
        self._objects[key]["metadata"]["resourceVersion"] = str(self._version)
        await self._tell("DELETED", key)
        del self._objects[key]

    async def _tell(self, event: str, key: tuple[str, str, str]) -> None:
        async with self._changed:
            if key[0] != "leases":
                self._events.append((self._version, event, deepcopy(self._objects[key])))
            self._changed.notify_all()


async def _send(response: web.StreamResponse, kind: str, value: Json) -> None:
    await response.write(msgspec.json.encode({"type": kind, "object": value}) + b"\n")


def _requested(request: web.Request) -> tuple[str, str, str]:
    return request.match_info["plural"], request.match_info["namespace"], request.match_info["name"]


def _key_of(value: Json) -> tuple[str, str, str]:
    return f"{value['kind'].lower()}s", value["metadata"]["namespace"], value["metadata"]["name"]


def _is_within(key: tuple[str, str, str], request: web.Request) -> bool:
    namespace = request.match_info.get("namespace", key[1])
    return key[:2] == (request.match_info["plural"], namespace)


def _merged(value: Any, changes: Any) -> Any:
    """Return a value after a JSON merge patch (RFC 7396)."""
    if not isinstance(changes, dict):
        return changes
    merged = dict(value) if isinstance(value, dict) else {}
    for name, change in changes.items():
        if change is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), change)
    return merged
