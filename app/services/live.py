"""The live pulse: one message a second for all who watch, computed once in a process for each set of rights.

Nothing is computed while nobody watches. Credentials are checked twice a second: within a second a stream ends whose
token or session was revoked, has expired or was disabled, or whose rights have changed.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import Context

import msgspec
import structlog
from msgspec.structs import replace

from app import clock
from app.domain.access import Actor, Reach, Scope
from app.domain.errors import UnauthenticatedError, UnavailableError
from app.services.authentication import Authenticator
from app.services.overview import OverviewService

PULSE_SECONDS = 1.0
CHECK_SECONDS = 0.5
# A stream sends at least a comment this often, so that proxies do not close it while Postgres is away.
HEARTBEAT_SECONDS = 15.0
HEARTBEAT = b": waiting for the database\n\n"
BEGIN = b"retry: 2000\n\n"

log = structlog.get_logger(__name__)


class Credential(msgspec.Struct, frozen=True):
    """What a stream was opened with: a bearer token, or the secret of a session."""

    token: str | None = None
    secret: str | None = None


class _Watcher:
    """An open stream: what it was opened with, and whether it may go on."""

    def __init__(self, actor: Actor, credential: Credential) -> None:
        self.actor = replace(actor, needs=Scope.READ)
        self.reach: Reach = self.actor.reach()
        self.credential = credential
        self.has_ended = False


class LiveService:
    """Gives every watcher the pulse of what it sees."""

    def __init__(self, overview: OverviewService, authenticator: Authenticator) -> None:
        """Compute nothing until somebody watches."""
        self._overview = overview
        self._authenticator = authenticator
        self._watchers: set[_Watcher] = set()
        self._messages: dict[Reach, bytes] = {}
        self._published_at = clock.monotonic()
        self._next = asyncio.Event()
        self._sampling: asyncio.Task[None] | None = None

    async def watch(self, actor: Actor, credential: Credential) -> AsyncIterator[bytes]:
        """Yield a message a second, until the credential does not allow it any more."""
        watcher = _Watcher(actor, credential)
        self._watchers.add(watcher)
        self._start()
        try:
            yield BEGIN
            while not watcher.has_ended:
                yield await self._message(watcher)
        finally:
            self._watchers.discard(watcher)

    async def _message(self, watcher: _Watcher) -> bytes:
        """Wait for the next message of a watcher; an empty one if its stream ends."""
        while True:
            # Without a timeout of its own: there are as many watchers as open tabs, and one sampler wakes them all.
            await self._next.wait()
            if watcher.has_ended:
                return b""
            message = self._messages.get(watcher.reach)
            # A watcher that began after the pulse was computed waits for the next one.
            if message is not None:
                return message

    async def close(self) -> None:
        """End all streams."""
        self._end(set(self._watchers))
        if self._sampling is not None:
            self._sampling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sampling

    def _start(self) -> None:
        if self._sampling is None or self._sampling.done():
            # In a context of its own: the sampler outlives the request that started it.
            self._sampling = asyncio.get_running_loop().create_task(self._sample(), context=Context())

    async def _sample(self) -> None:
        """Compute and publish pulses while somebody watches, and check credentials once more in between."""
        while self._watchers:
            next_pulse = clock.monotonic() + PULSE_SECONDS
            await self._attempt(self._pulse)
            while (next_check := clock.monotonic() + CHECK_SECONDS) < next_pulse:
                await self._rest(next_check)
                await self._attempt(self._end_refused)
            await self._rest(next_pulse)

    async def _pulse(self) -> None:
        # First, because computing takes longer the more users watch.
        await self._end_refused()
        self._publish(await self._computed())

    async def _attempt(self, step: Callable[[], Awaitable[None]]) -> None:
        """Do one step; if that is not possible, keep the streams open."""
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await step()
        except (UnavailableError, TimeoutError):
            # Postgres is away: nothing can be computed, nor found out about credentials.
            self._keep_open()
        except Exception as error:
            log.exception("pulse_failed", error=type(error).__name__)
            self._keep_open()

    @staticmethod
    async def _rest(until: float) -> None:
        await asyncio.sleep(max(0.0, until - clock.monotonic()))

    def _keep_open(self) -> None:
        """Send a comment if nothing was sent for long."""
        if clock.monotonic() - self._published_at >= HEARTBEAT_SECONDS:
            self._publish({watcher.reach: HEARTBEAT for watcher in self._watchers})

    async def _end_refused(self) -> None:
        """End the streams whose credential is refused, or stands for other rights than before."""
        ended = await self._ended()
        if ended:
            self._end(ended)

    def _end(self, watchers: set[_Watcher]) -> None:
        for watcher in watchers:
            watcher.has_ended = True
        self._wake({})

    def _publish(self, messages: dict[Reach, bytes]) -> None:
        self._published_at = clock.monotonic()
        self._wake(messages)

    def _wake(self, messages: dict[Reach, bytes]) -> None:
        """Let all watchers look for their message; those without one wait for the next time."""
        self._messages = messages
        published, self._next = self._next, asyncio.Event()
        published.set()

    async def _computed(self) -> dict[Reach, bytes]:
        """Return the message for each reach, one after another: many reaches slow the pulse down, not the database."""
        mode = await self._overview.mode()
        messages = {}
        for reach in {watcher.reach for watcher in self._watchers if not watcher.has_ended}:
            pulse = await self._overview.pulse(reach, mode)
            messages[reach] = b"event: pulse\ndata: " + msgspec.json.encode(pulse) + b"\n\n"
        return messages

    async def _ended(self) -> set[_Watcher]:
        """Return the watchers whose credential is refused, or stands for other rights than before."""
        credentials = list({watcher.credential for watcher in self._watchers})
        actors = dict(zip(credentials, await asyncio.gather(*map(self._current, credentials)), strict=True))
        return {watcher for watcher in self._watchers if watcher.actor != actors.get(watcher.credential, watcher.actor)}

    async def _current(self, credential: Credential) -> Actor | None:
        try:
            actor = await self._authenticator.check(credential.token, credential.secret)
        except UnauthenticatedError:
            return None
        return replace(actor, needs=Scope.READ)
