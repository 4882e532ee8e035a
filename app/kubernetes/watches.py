"""The objects of the cluster in memory: listed, then watched, and listed again every few minutes."""

import asyncio
from collections.abc import Callable

import structlog

from app import clock
from app.domain.declarations import Kind
from app.domain.kubernetes_objects import KINDS, Resource, needs_pass, resource_of
from app.kubernetes.api_server import GONE, ApiServer, ApiServerError, Json, objects_path
from app.observability.logs import Outage

RELIST_SECONDS = 600.0
RETRY_SECONDS = 2.0

log = structlog.get_logger(__name__)

Scope = tuple[Kind, str]


class ObjectCache:
    """The objects of all watched namespaces. A change of what an object declares is reported by its namespace."""

    def __init__(self, on_change: Callable[[str], None]) -> None:
        """Call this function with the namespace of each object that is new, changed or gone."""
        self._objects: dict[tuple[Kind, str, str], Resource] = {}
        self._on_change = on_change

    def of_namespace(self, namespace: str) -> list[Resource]:
        """Return the objects of a namespace."""
        return [one for one in self._objects.values() if one.namespace == namespace]

    def all(self) -> list[Resource]:
        """Return all objects."""
        return list(self._objects.values())

    def store(self, resource: Resource) -> None:
        """Store an object as the API server has it."""
        key = (resource.kind, resource.namespace, resource.name)
        before = self._objects.get(key)
        self._objects[key] = resource
        if needs_pass(before, resource):
            self._on_change(resource.namespace)

    def refresh(self, resource: Resource) -> None:
        """Store the answer to a change, unless a watch has said meanwhile that the object is gone."""
        stored = self._objects.get((resource.kind, resource.namespace, resource.name))
        if stored is not None and stored.uid == resource.uid:
            self.store(resource)

    def remove(self, resource: Resource) -> None:
        """Remove an object that the API server does not have any more."""
        if self._objects.pop((resource.kind, resource.namespace, resource.name), None) is not None:
            self._on_change(resource.namespace)

    def replace(self, scope: Scope, resources: list[Resource]) -> None:
        """Replace the objects of a kind, in one namespace or in all, by those of a list."""
        kind, namespace = scope
        names = {(one.namespace, one.name) for one in resources}
        for one in self.all():
            is_listed = one.kind is kind and namespace in {"", one.namespace}
            if is_listed and (one.namespace, one.name) not in names:
                self.remove(one)
        for one in resources:
            self.store(one)


class Watch:
    """Keeps the objects of one kind up to date, of one namespace or of all."""

    def __init__(self, api_server: ApiServer, cache: ObjectCache, scope: Scope, outage: Outage) -> None:
        """Write to this cache, and report failures as an outage of the API server."""
        self._api_server = api_server
        self._cache = cache
        self._scope = scope
        self._path = objects_path(*scope)
        self._outage = outage
        self.synced = asyncio.Event()

    def covers(self, namespace: str) -> bool:
        """Return whether the objects of a namespace are among those that are watched."""
        return self._scope[1] in {"", namespace}

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            try:
                await self._follow(await self._list())
            except ApiServerError as error:
                self._outage.report(self._path, str(error))
                await asyncio.sleep(RETRY_SECONDS)

    async def _list(self) -> str:
        items, version = await self._api_server.items(self._path)
        self._cache.replace(self._scope, [resource_of(self._scope[0], item) for item in items])
        self._outage.clear(self._path)
        self.synced.set()
        return version

    async def _follow(self, version: str) -> None:
        """Watch from a version, one watch after another, until the list has to be read again."""
        until = clock.monotonic() + RELIST_SECONDS
        while clock.monotonic() < until:
            try:
                async for event in self._api_server.watch(self._path, version):
                    version = self._take(event)
                self._outage.clear(self._path)
            except ApiServerError as error:
                if error.status == GONE:
                    log.info("watch_expired", path=self._path)
                    return
                # The versions of bookmarks let the next watch go on where this one broke off.
                self._outage.report(self._path, str(error))
                await asyncio.sleep(RETRY_SECONDS)

    def _take(self, event: Json) -> str:
        """Store what an event says, and return its version."""
        kind, value = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            raise ApiServerError(int(value.get("code") or 0), str(value.get("message") or "The watch failed."))
        resource = resource_of(self._scope[0], value)
        if kind == "DELETED":
            self._cache.remove(resource)
        elif kind in {"ADDED", "MODIFIED"}:
            self._cache.store(resource)
        return resource.resource_version


def watches(api_server: ApiServer, cache: ObjectCache, namespaces: tuple[str, ...], outage: Outage) -> list[Watch]:
    """Return the watches of both kinds, for these namespaces; without any, for all."""
    return [Watch(api_server, cache, (kind, one), outage) for kind in KINDS for one in namespaces or ("",)]
