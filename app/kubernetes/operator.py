"""The operator process: ``carillon operator``."""

import asyncio
import os
import signal
import socket
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial

import msgspec
import structlog

from app.client.contexts import server_url
from app.client.errors import ClientError
from app.config import Settings, SettingsError, env_name
from app.domain.kubernetes_objects import KINDS
from app.kubernetes.api_server import ApiServer, ApiServerError, ClusterAddress, in_cluster
from app.kubernetes.leadership import Leadership
from app.kubernetes.passes import PASSES_AT_ONCE, CarillonServer, Passes
from app.kubernetes.watches import ObjectCache, Watch, watches
from app.observability.logs import Outage
from app.observability.metrics import OPERATOR_OBJECTS, OPERATOR_PASSES
from app.observability.serving import Health, OwnAnswers, serving

# Changes that come together, such as those of `kubectl apply`, are one pass.
GATHER_SECONDS = 0.1
RETRY_SECONDS = 2.5
MOST_DOUBLINGS = 10

log = structlog.get_logger(__name__)


async def run_until_signalled(settings: Settings) -> None:
    """Work until SIGINT or SIGTERM."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await run_operator(settings, in_cluster(os.environ), stopping)


async def run_operator(settings: Settings, address: ClusterAddress, stopping: asyncio.Event) -> None:
    """Work while this process holds the Lease, until ``stopping`` is set; then give it back."""
    server = carillon_server(settings)
    cluster_outage = Outage(log, away="kubernetes_unreachable", back="kubernetes_reachable")
    api_server = ApiServer(address)
    identity = f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
    leadership = Leadership(api_server, settings.operator_lease, identity, cluster_outage)
    operator = Operator(api_server, server, settings, cluster_outage)
    async with AsyncExitStack() as stack:
        stack.callback(api_server.close)
        if settings.metrics_port:
            answers = OwnAnswers(partial(_health, leadership, operator, cluster_outage))
            address_of_probes = (settings.host, settings.metrics_port)
            await stack.enter_async_context(serving(address_of_probes, answers, settings.metrics_token))
        log.info("operator_started", identity=identity, namespaces=settings.watched_namespaces or "all")
        await leadership.lead(operator.work, stopping)
        log.info("operator_stopped")


def carillon_server(settings: Settings) -> CarillonServer:
    """Return the API of the settings, or refuse what is missing."""
    for name in ("operator_url", "operator_tokens_dir"):
        if not getattr(settings, name):
            raise SettingsError(f"{env_name(name)} is not set")
    try:
        url = server_url(settings.operator_url)
    except ClientError as error:
        raise SettingsError(f"{env_name('operator_url')}: {error.message}") from None
    return CarillonServer(url=url, tokens_dir=settings.operator_tokens_dir, prefix=settings.operator_namespace_prefix)


def _health(leadership: Leadership, operator: "Operator", outage: Outage) -> Health:
    """Return what the process knows: it is ready if it leads and has read all objects, or stands by."""
    is_ready = not outage.is_ongoing and (operator.is_synced or not leadership.is_leading)
    body = {"status": "ok" if is_ready else "not ready", "leader": leadership.is_leading}
    return Health(is_ready, msgspec.json.encode(body))


class Operator:
    """Watches objects, and makes passes over each namespace that has some: after each change, and at intervals."""

    def __init__(self, api_server: ApiServer, server: CarillonServer, settings: Settings, outage: Outage) -> None:
        """Report an unreachable API server as this outage."""
        self._api_server = api_server
        self._server = server
        self._namespaces = settings.watched_namespaces
        self._resync_seconds = settings.operator_resync_seconds
        self._outage = outage
        self._watches: list[Watch] = []

    @property
    def is_synced(self) -> bool:
        """Whether all objects have been read."""
        return bool(self._watches) and all(one.synced.is_set() for one in self._watches)

    async def work(self) -> None:
        """Work until cancelled. Everything is read anew: another process may have led meanwhile."""
        loops = _NamespaceLoops(self._resync_seconds, self._outage)
        cache = ObjectCache(loops.mark)
        outage = Outage(log, away="carillon_unreachable", back="carillon_reachable")
        passes = Passes(self._api_server, cache, self._server, outage)
        self._watches = watches(self._api_server, cache, self._namespaces, self._outage)
        try:
            with _counted(cache):
                async with asyncio.TaskGroup() as group:
                    for one in self._watches:
                        group.create_task(one.run())
                    await loops.run(cache, passes, self._watches)
        finally:
            self._watches = []
            passes.close()


@contextmanager
def _counted(cache: ObjectCache) -> Iterator[None]:
    """Export how many objects there are for the duration of the block."""

    def count(kind: str, *, is_ready: bool) -> int:
        return sum(one.kind == kind and one.is_ready is is_ready for one in cache.all())

    for kind in KINDS:
        for is_ready in (True, False):
            gauge = OPERATOR_OBJECTS.labels(kind, str(is_ready).lower())
            gauge.set_function(partial(count, kind, is_ready=is_ready))
    try:
        yield
    finally:
        OPERATOR_OBJECTS.clear()


class _NamespaceLoops:
    """One loop for each namespace that has objects."""

    def __init__(self, resync_seconds: float, outage: Outage) -> None:
        self._resync_seconds = resync_seconds
        self._outage = outage
        self._changes: dict[str, asyncio.Event] = {}
        self._new: asyncio.Queue[str] = asyncio.Queue()
        self._places = asyncio.Semaphore(PASSES_AT_ONCE)

    def mark(self, namespace: str) -> None:
        """Record that objects of a namespace have changed."""
        if namespace not in self._changes:
            self._changes[namespace] = asyncio.Event()
            self._new.put_nowait(namespace)
        self._changes[namespace].set()

    async def run(self, cache: ObjectCache, passes: Passes, watched: Sequence[Watch]) -> None:
        """Begin a loop for each namespace that appears."""
        async with asyncio.TaskGroup() as group:
            while True:
                namespace = await self._new.get()
                synced = [one.synced for one in watched if one.covers(namespace)]
                group.create_task(self._repeat(namespace, cache, passes, synced))

    async def _repeat(
        self, namespace: str, cache: ObjectCache, passes: Passes, synced: Sequence[asyncio.Event]
    ) -> None:
        for event in synced:
            # A schedule whose workflow is not read yet would be refused.
            await event.wait()
        change = self._changes[namespace]
        failures = 0
        while True:
            wait_seconds = min(RETRY_SECONDS * 2**failures, self._resync_seconds) if failures else self._resync_seconds
            with suppress(TimeoutError):
                # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes together with the change, and
                # the loop of a leader that has lost the Lease would go on.
                async with asyncio.timeout(wait_seconds):
                    await change.wait()
            await asyncio.sleep(GATHER_SECONDS)
            change.clear()
            if not cache.of_namespace(namespace):
                del self._changes[namespace]
                return
            async with self._places:
                is_done = await self._pass(namespace, passes)
            failures = 0 if is_done else min(failures + 1, MOST_DOUBLINGS)

    async def _pass(self, namespace: str, passes: Passes) -> bool:
        """Make a pass; a failed one is repeated, whatever the reason."""
        part = f"pass:{namespace}"
        try:
            is_done = await passes.run(namespace)
        except ApiServerError as error:
            self._outage.report(part, str(error))
            OPERATOR_PASSES.labels("failed").inc()
            return False
        except Exception:
            log.exception("kubernetes_pass_failed", namespace=namespace)
            OPERATOR_PASSES.labels("failed").inc()
            return False
        self._outage.clear(part)
        return is_done
