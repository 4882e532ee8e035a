"""The signing keys of owners as a worker knows them: read from Postgres, and remembered for some seconds."""

import asyncio
from collections.abc import Sequence

import msgspec
from standardwebhooks import Webhook

from app import clock
from app.actions.signing import key_from
from app.domain.errors import UnavailableError
from app.micro_batcher import MicroBatcher
from app.persistence import signing_keys
from app.persistence.database import Database

# A new key signs after this time at the latest; the one before is good for much longer.
CACHE_SECONDS = 10.0
CACHED_OWNERS = 10_000
OUTAGE_PAUSE_SECONDS = 1.0


class _Known(msgspec.Struct, frozen=True):
    """The keys of an owner, and until when they are not read again."""

    keys: tuple[Webhook, ...]
    until: float


class KeyCache:
    """Answers with the keys of an owner; most calls cost no query."""

    def __init__(self, database: Database) -> None:
        """Nothing is known yet."""
        self._database = database
        self._known: dict[int, _Known] = {}
        self._reads = MicroBatcher("signing_keys", self._read, shared=(UnavailableError,))

    async def keys_of(self, owner_id: int) -> Sequence[Webhook]:
        """The keys of an owner that are in use, newest first."""
        known = self._known.get(owner_id)
        if known is not None and known.until > clock.monotonic():
            return known.keys
        while True:
            try:
                return await self._reads.ask(owner_id)
            except UnavailableError:
                # Keys that were read long ago are better than none: a rotation leaves hours to both.
                if known is not None:
                    return known.keys
                await asyncio.sleep(OUTAGE_PAUSE_SECONDS)

    async def _read(self, owner_ids: Sequence[int]) -> list[tuple[Webhook, ...]]:
        async with self._database.reading() as connection:
            found = await signing_keys.read_many(connection, owner_ids)
        for owner_id in set(owner_ids):
            self._keep(owner_id, tuple(key_from(key) for key in found.get(owner_id, ())))
        return [self._known[owner_id].keys for owner_id in owner_ids]

    def _keep(self, owner_id: int, keys: tuple[Webhook, ...]) -> None:
        """Remember keys; the oldest are forgotten."""
        self._known.pop(owner_id, None)
        while len(self._known) >= CACHED_OWNERS:
            del self._known[next(iter(self._known))]
        self._known[owner_id] = _Known(keys, clock.monotonic() + CACHE_SECONDS)
