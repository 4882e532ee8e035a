"""The Lease in the operator's own namespace: only the process that holds it works."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from app import clock
from app.domain.leader_leases import (
    RENEW_WITHIN_SECONDS,
    RETRY_SECONDS,
    Held,
    Turn,
    held_of,
    lease_spec,
    released_spec,
    turn_of,
)
from app.kubernetes.api_server import CONFLICT, NOT_FOUND, ApiServer, ApiServerError, Json, lease_path
from app.observability.logs import Outage
from app.observability.metrics import OPERATOR_LEADER

# A process that stops has the rest of its grace period for this.
RELEASE_SECONDS = 5.0

log = structlog.get_logger(__name__)


class Leadership:
    """Acquires, renews and gives back the Lease."""

    def __init__(self, api_server: ApiServer, name: str, identity: str, outage: Outage) -> None:
        """Compete for the Lease of this name; the identity is that of the process."""
        self._api_server = api_server
        self._name = name
        self._identity = identity
        self._outage = outage
        self._lease: Json | None = None
        self._held: Held | None = None
        self._renewed_at = 0.0
        self.is_leading = False

    async def lead(self, work: Callable[[], Awaitable[None]], stopping: asyncio.Event) -> None:
        """Work while this process holds the Lease, until it is to stop; then give the Lease back."""
        working: asyncio.Task[None] | None = None
        OPERATOR_LEADER.set_function(lambda: self.is_leading)
        try:
            while not stopping.is_set() and not (working is not None and working.done()):
                was_leading, self.is_leading = self.is_leading, await self._is_leader()
                if self.is_leading and not was_leading:
                    log.info("leadership_acquired", lease=self._name)
                    working = asyncio.create_task(_awaited(work))
                elif was_leading and not self.is_leading:
                    log.warning("leadership_lost", lease=self._name)
                    await _end(working)
                    working = None
                await _wait(RETRY_SECONDS, stopping, working)
            if working is not None and working.done():
                # A defect ends the process, and Kubernetes starts another one.
                working.result()
        finally:
            await _end(working)
            await self._release()

    async def _is_leader(self) -> bool:
        """Take a turn, and return whether this process leads. A leader has some seconds to renew."""
        try:
            # An API server that does not answer must not hold a leader here while another one acquires the Lease.
            async with asyncio.timeout(self._seconds_for_turn()):
                await self._take_turn()
            self._outage.clear("lease")
        except TimeoutError:
            self._outage.report("lease", "The API server does not answer.")
        except ApiServerError as error:
            if error.status != CONFLICT:
                self._outage.report("lease", str(error))
        has_held = self._held is not None and self._held.holder == self._identity
        return has_held and clock.monotonic() - self._renewed_at < RENEW_WITHIN_SECONDS

    def _seconds_for_turn(self) -> float:
        """Return how long a turn may take: of a leader, until it would have to stop."""
        if not self.is_leading:
            return RENEW_WITHIN_SECONDS
        return max(0.0, self._renewed_at + RENEW_WITHIN_SECONDS - clock.monotonic())

    async def _take_turn(self) -> None:
        began = clock.monotonic()
        try:
            self._see(await self._api_server.get(lease_path(self._api_server.namespace, self._name)))
        except ApiServerError as error:
            if error.status != NOT_FOUND:
                raise
            self._lease, self._held = None, None
        if turn_of(self._held, self._identity, clock.monotonic()) is Turn.WAIT:
            return
        self._see(await self._written())
        # From the beginning of the turn: another process may count from any moment after it.
        self._renewed_at = began

    async def _written(self) -> Json:
        """Write the Lease as held by this process. A conflict says that another one was faster."""
        path = lease_path(self._api_server.namespace)
        if self._lease is None:
            metadata = {"name": self._name, "namespace": self._api_server.namespace}
            spec = lease_spec({}, self._identity, clock.now())
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
            return await self._api_server.create(path, body)
        spec = lease_spec(self._lease.get("spec") or {}, self._identity, clock.now())
        return await self._api_server.replace(f"{path}/{self._name}", {**self._lease, "spec": spec})

    def _see(self, lease: Json) -> None:
        self._lease = lease
        self._held = held_of(lease, self._held, clock.monotonic())

    async def _release(self) -> None:
        is_holder = self._held is not None and self._held.holder == self._identity
        self.is_leading = False
        if self._lease is None or not is_holder:
            return
        spec = released_spec(self._lease.get("spec") or {}, clock.now())
        # Without an answer the Lease ends by itself.
        with suppress(ApiServerError, TimeoutError):
            path = lease_path(self._api_server.namespace, self._name)
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._api_server.replace(path, {**self._lease, "spec": spec})
            log.info("leadership_released", lease=self._name)


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()


async def _wait(seconds: float, stopping: asyncio.Event, working: asyncio.Task[None] | None) -> None:
    """Wait for some seconds, or until the process is to stop or its work has failed."""
    stop_requested = asyncio.create_task(stopping.wait())
    await asyncio.wait(
        {stop_requested, *([working] if working is not None else [])},
        timeout=seconds,
        return_when=asyncio.FIRST_COMPLETED,
    )
    stop_requested.cancel()


async def _end(working: asyncio.Task[None] | None) -> None:
    if working is not None and not working.done():
        working.cancel()
        await asyncio.wait({working})
