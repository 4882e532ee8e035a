"""The tokens that calls carry, minted in the process that makes the call: RS256, with a key that all processes share.

A signature takes about 0.3 ms, less than sending the request, so it is made in the event loop. Tokens are not cached:
each names one attempt of one node.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from app import clock
from app.cache import ExpiringCache
from app.domain.call_tokens import ALGORITHM, CallOrigin, KeyTerm, claims_of, signing_key
from app.domain.errors import UnavailableError
from app.engine.oidc_keys import ensure_key
from app.persistence import oidc_keys, users
from app.persistence.database import Database, database_now

# A rotated key is seen after this time at the latest.
CACHE_SECONDS = 5.0
CACHED_OWNERS = 10_000
# Teams are renamed, and another team may take the name: tokens have the new one after this time at the latest.
NAME_SECONDS = 30.0
OUTAGE_PAUSE_SECONDS = 1.0


class _LoadedKey(KeyTerm, frozen=True, kw_only=True):
    private_key: RSAPrivateKey

    def __repr__(self) -> str:
        return f"_LoadedKey({self.kid!r})"


class _Ring(msgspec.Struct, frozen=True):
    """The keys, and when they were read by the monotonic clock and by the database's clock."""

    keys: tuple[_LoadedKey, ...]
    read_at: float
    read_time: datetime
    fresh_until: float

    @property
    def now(self) -> datetime:
        """The time by the database's clock: that of a worker may be wrong, and its tokens would be refused."""
        return self.read_time + timedelta(seconds=clock.monotonic() - self.read_at)

    @property
    def signing(self) -> _LoadedKey | None:
        """The key that signs now."""
        return signing_key(self.keys, self.now)

    def still_fresh(self) -> "_Ring":
        """Return the same for use during an outage: Postgres is not asked again for a moment."""
        return msgspec.structs.replace(self, fresh_until=clock.monotonic() + OUTAGE_PAUSE_SECONDS)


class TokenMinter:
    """Mints the tokens of calls. The keys are cached for some seconds, so that most calls cost no query."""

    def __init__(self, database: Database, issuer: str) -> None:
        """Name ``issuer`` in the tokens: the URL below which verifiers find the keys."""
        self._database = database
        self._issuer = issuer
        self._ring: _Ring | None = None
        self._reading = asyncio.Lock()
        self._names: ExpiringCache[int, str] = ExpiringCache(CACHED_OWNERS)

    def of_node(self, origin: Callable[[], CallOrigin]) -> "NodeTokens":
        """Return the port by which one node gets its tokens; most nodes never ask for the origin."""
        return NodeTokens(self, origin)

    async def mint(self, origin: CallOrigin, audience: str) -> str:
        """Return a token for one call. During an outage of the database it waits, unless the keys are cached."""
        key, now = await self._signing_key()
        owner = await self._owner_name(origin.owner_id)
        claims = claims_of(origin, owner, self._issuer, audience, now)
        return jwt.encode(claims, key.private_key, algorithm=ALGORITHM, headers={"kid": key.kid})

    async def _signing_key(self) -> tuple[_LoadedKey, datetime]:
        while True:
            ring = self._ring
            if ring is None or clock.monotonic() >= ring.fresh_until or ring.signing is None:
                ring = await self._refresh(ring)
            if ring is not None and ring.signing is not None:
                return ring.signing, ring.now
            await asyncio.sleep(OUTAGE_PAUSE_SECONDS)

    async def _refresh(self, before: _Ring | None) -> _Ring | None:
        """Return the keys as they are now; during an outage those that were read before."""
        async with self._reading:
            # Another call has read them while this one waited.
            if self._ring is before:
                try:
                    self._ring = await self._read(before)
                except UnavailableError:
                    self._ring = before and before.still_fresh()
            return self._ring

    async def _read(self, before: _Ring | None) -> _Ring:
        ring = await self._load(before)
        if ring.signing is None:
            await ensure_key(self._database)
            ring = await self._load(before)
        return ring

    async def _load(self, before: _Ring | None) -> _Ring:
        known = {key.kid: key.private_key for key in before.keys} if before else {}
        async with self._database.reading("read_oidc_keys") as connection:
            read_at = clock.monotonic()
            now = await database_now(connection)
            stored = await oidc_keys.read(connection)
            new = await oidc_keys.read_private(connection, [key.kid for key in stored if key.kid not in known])
        known |= {kid: _parsed(pem) for kid, pem in new.items()}
        keys = tuple(
            _LoadedKey(
                kid=key.kid, activates_at=key.activates_at, retires_at=key.retires_at, private_key=known[key.kid]
            )
            for key in stored
            if key.kid in known
        )
        return _Ring(keys, read_at, now, read_at + CACHE_SECONDS)

    async def _owner_name(self, owner_id: int) -> str:
        """Return an owner's username; during an outage the one that was read last."""
        name = self._names.fresh(owner_id, clock.monotonic())
        while name is None:
            try:
                async with self._database.reading("read_owner_name") as connection:
                    row = await users.get(connection, owner_id)
                name = row.username if row else ""
                self._names.keep(owner_id, name, clock.monotonic() + NAME_SECONDS)
            except UnavailableError:
                name = self._names.stale(owner_id)
                if name is None:
                    await asyncio.sleep(OUTAGE_PAUSE_SECONDS)
        return name


def _parsed(pem: str) -> RSAPrivateKey:
    key = load_pem_private_key(pem.encode(), password=None)
    if not isinstance(key, RSAPrivateKey):
        raise TypeError("oidc_keys.private_key is not an RSA key")
    return key


class NodeTokens:
    """The tokens of one node."""

    def __init__(self, minter: TokenMinter, origin: Callable[[], CallOrigin]) -> None:
        """Name ``origin`` in every token."""
        self._minter = minter
        self._origin = origin

    async def mint(self, audience: str) -> str:
        """Return a token for one call to this audience."""
        return await self._minter.mint(self._origin(), audience)
