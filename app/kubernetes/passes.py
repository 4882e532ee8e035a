"""A pass over the objects of a namespace: finalizers, apply, deletions, then the status of each object.

A pass starts from what the objects declare, not from what has changed, so a repeated pass puts right what was changed
in Carillon, and what an interrupted pass left undone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec
import structlog

from app import clock
from app.client.errors import ClientError
from app.domain.declarations import Kind
from app.domain.kubernetes_objects import (
    FINALIZER,
    KINDS,
    DeletionPolicy,
    Reason,
    Resource,
    Verdict,
    claimants,
    declared,
    observation_of,
    resource_of,
    status_patch,
)
from app.kubernetes.api_server import CONFLICT, NOT_FOUND, ApiServer, ApiServerError, Json, objects_path
from app.kubernetes.declarations import (
    AS_DECLARED,
    Applied,
    CarillonNamespace,
    NoTokenError,
    token_of,
    verdict_of,
)
from app.kubernetes.watches import ObjectCache
from app.observability.logs import Outage
from app.observability.metrics import OPERATOR_PASSES

PASSES_AT_ONCE = 4
# Changes of objects in one pass.
WRITES_AT_ONCE = 8
MOST_CONFLICTS = 5
# A schema or an admission webhook refuses the change of one object; others need not wait for it.
OBJECT_REFUSED = {400, 422}
TAKEN = Verdict(Reason.NAME_TAKEN, "An older object of the namespace declares this name.")

log = structlog.get_logger(__name__)

T = TypeVar("T")


class CarillonServer(msgspec.Struct, frozen=True, kw_only=True):
    """The API of Carillon, the folder with a token for each namespace, and what its namespaces begin with."""

    url: str
    tokens_dir: str
    prefix: str = ""

    def namespace(self, name: str) -> CarillonNamespace:
        """Return the namespace of Carillon for one of Kubernetes. Raise ``NoTokenError`` without a token."""
        return CarillonNamespace(self.url, token_of(self.tokens_dir, name), self.prefix + name)


class _Outcome(msgspec.Struct, frozen=True):
    """What a pass did in Carillon: the verdict on each object by uid, and the schedules by id."""

    applied: Applied
    schedules: Mapping[str, Mapping[str, object]]
    # Deleted objects whose finalizer can be removed, and why others cannot be.
    removed: frozenset[str]
    kept: Mapping[str, Verdict]


class Passes:
    """Carries out passes."""

    def __init__(self, api_server: ApiServer, cache: ObjectCache, server: CarillonServer, outage: Outage) -> None:
        """Report an unreachable Carillon as this outage."""
        self._api_server = api_server
        self._cache = cache
        self._server = server
        self._outage = outage
        # Threads of their own: a Carillon that does not answer must not keep the Lease from being renewed.
        self._threads = ThreadPoolExecutor(PASSES_AT_ONCE, "pass")

    def close(self) -> None:
        """Begin no further calls; those that are under way end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, namespace: str) -> bool:
        """Make one pass; return False if it has to be repeated soon."""
        resources = await self._with_finalizers(self._cache.of_namespace(namespace))
        try:
            loop = asyncio.get_running_loop()
            outcome = await loop.run_in_executor(self._threads, self._carry_out, namespace, resources)
        except (ClientError, NoTokenError) as error:
            return await self._fail(namespace, resources, verdict_of(error))
        self._outage.clear(namespace)
        OPERATOR_PASSES.labels("done").inc()
        if outcome.applied.changes:
            log.info("kubernetes_objects_applied", namespace=namespace, **outcome.applied.changes)
        await self._write(resources, outcome)
        return not outcome.kept

    async def _fail(self, namespace: str, resources: Sequence[Resource], verdict: Verdict) -> bool:
        """Say on new and changed objects why they were not applied; the others are as they were."""
        OPERATOR_PASSES.labels("failed").inc()
        if verdict.reason is Reason.UNREACHABLE:
            self._outage.report(namespace, verdict.message)
        is_away = verdict.reason is Reason.UNREACHABLE

        async def write(resource: Resource) -> None:
            is_seen = resource.status.get("observedGeneration") == resource.generation and resource.is_ready
            if resource.is_deleting and resource.leaves_nothing and not is_away:
                await self._remove_finalizer(resource)
            elif not (is_away and is_seen):
                await self._write_status(resource, verdict, str(resource.status.get("id") or "") or None, None)

        await _for_each(resources, write)
        return False

    def _carry_out(self, namespace: str, resources: Sequence[Resource]) -> _Outcome:
        """Do what Carillon has to do. Schedules are removed before the workflows that they run."""
        owners = claimants(resources)
        with self._server.namespace(namespace) as carillon:
            applied = carillon.apply(declared(resources))
            removed, kept = set[str](), dict[str, Verdict]()
            for resource in sorted(resources, key=lambda one: -KINDS.index(one.kind)):
                if not resource.is_deleting or FINALIZER not in resource.finalizers:
                    continue
                object_id = applied.ids.get(resource.claim) if owners[resource.claim] is resource else None
                problem = None if resource.leaves_nothing else applied.problem
                if object_id is not None:
                    problem = carillon.remove(resource.kind, object_id, resource.deletion_policy)
                if problem is None:
                    removed.add(resource.uid)
                else:
                    kept[resource.uid] = problem
            return _Outcome(applied, carillon.schedules(), frozenset(removed), kept)

    async def _write(self, resources: Sequence[Resource], outcome: _Outcome) -> None:
        owners = claimants(resources)

        async def write(resource: Resource) -> None:
            if resource.uid in outcome.removed:
                await self._remove_finalizer(resource)
                return
            is_owner = owners[resource.claim] is resource
            verdict = outcome.applied.verdicts.get(resource.claim, AS_DECLARED) if is_owner else TAKEN
            object_id = outcome.applied.ids.get(resource.claim) if is_owner else None
            schedule = outcome.schedules.get(object_id or "") if resource.kind is Kind.SCHEDULE else None
            await self._write_status(resource, outcome.kept.get(resource.uid, verdict), object_id, schedule)

        await _for_each(resources, write)

    async def _with_finalizers(self, resources: Sequence[Resource]) -> list[Resource]:
        """Add the finalizer to objects that have none, before anything of them is applied."""
        changed = await _for_each(resources, lambda resource: self._changed(resource, _with_finalizer))
        return [resource for resource in changed if resource is not None]

    async def _remove_finalizer(self, resource: Resource) -> None:
        await self._changed(resource, _without_finalizer)
        if resource.deletion_policy is not DeletionPolicy.KEEP:
            log.info("kubernetes_object_removed", kind=resource.kind, namespace=resource.namespace, name=resource.name)

    async def _write_status(
        self, resource: Resource, verdict: Verdict, object_id: str | None, schedule: Mapping[str, object] | None
    ) -> None:
        observed = observation_of(object_id, schedule)
        if not verdict.is_ready and resource.reason != verdict.reason:
            log.warning(
                "kubernetes_object_refused",
                kind=resource.kind,
                namespace=resource.namespace,
                name=resource.name,
                reason=verdict.reason,
            )

        def changes(current: Resource) -> Json | None:
            # What the verdict is about is the generation that the pass has seen.
            seen = msgspec.structs.replace(current, generation=resource.generation)
            status = status_patch(seen, verdict, observed, clock.now())
            return None if status is None else {"status": status}

        await self._changed(resource, changes, "/status")

    async def _changed(
        self, resource: Resource, changes: Callable[[Resource], Json | None], subresource: str = ""
    ) -> Resource | None:
        """Change an object; after a conflict, read it again and retry. Return it as it is then.

        None: it is gone, the API server refuses the change of this object, or others change it all the time.
        """
        path = objects_path(resource.kind, resource.namespace, resource.name)
        current = resource
        for _ in range(MOST_CONFLICTS):
            patch = changes(current)
            if patch is None:
                return current
            metadata = {**patch.get("metadata", {}), "resourceVersion": current.resource_version}
            try:
                answer = await self._api_server.patch(path + subresource, {**patch, "metadata": metadata})
            except ApiServerError as error:
                if error.status == NOT_FOUND:
                    return None
                if error.status in OBJECT_REFUSED:
                    log.warning("kubernetes_object_unchanged", path=path + subresource, error=str(error))
                    return None
                if error.status != CONFLICT:
                    raise
                latest = await self._read(path, resource)
                if latest is None:
                    return None
                current = latest
                continue
            current = resource_of(resource.kind, answer)
            self._cache.refresh(current)
            return current
        return None

    async def _read(self, path: str, resource: Resource) -> Resource | None:
        """Return the object as it is now; None if it is gone, or another one has its name."""
        try:
            latest = resource_of(resource.kind, await self._api_server.get(path))
        except ApiServerError as error:
            if error.status == NOT_FOUND:
                return None
            raise
        return latest if latest.uid == resource.uid else None


async def _for_each(resources: Sequence[Resource], call: Callable[[Resource], Awaitable[T]]) -> list[T]:
    """Call a function with each object, some at a time; return the results in order, or raise the first error."""
    places = asyncio.Semaphore(WRITES_AT_ONCE)

    async def one(resource: Resource) -> T:
        async with places:
            return await call(resource)

    results = await asyncio.gather(*(one(resource) for resource in resources), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def _with_finalizer(resource: Resource) -> Json | None:
    if resource.is_deleting or FINALIZER in resource.finalizers:
        return None
    return {"metadata": {"finalizers": [*resource.finalizers, FINALIZER]}}


def _without_finalizer(resource: Resource) -> Json | None:
    if FINALIZER not in resource.finalizers:
        return None
    return {"metadata": {"finalizers": [one for one in resource.finalizers if one != FINALIZER]}}
