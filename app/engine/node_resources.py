"""What a running node may use that is stored in Postgres: callbacks, secrets and signing keys."""

import asyncio
import hmac
from collections.abc import Mapping, Sequence
from hashlib import sha256
from secrets import token_urlsafe
from uuid import UUID

from standardwebhooks import Webhook

from app import clock
from app.actions.context import Invitation
from app.actions.http_client import key_from
from app.actions.secrets import RunSecrets, SecretStore
from app.cache import ExpiringCache
from app.domain.access import Actor
from app.domain.errors import UnavailableError
from app.domain.secrets import Secret, choose_secret
from app.micro_batcher import MicroBatcher
from app.persistence import parked_runs, secrets, users
from app.persistence.database import Connection, Database

PREFIX = "cb_"


class CallbackIssuer:
    """Issues the callbacks of executions: a URL and a token, by which a target reports the result later."""

    def __init__(self, database: Database, public_url: str) -> None:
        """Issue URLs that begin with ``public_url``, where targets reach the API."""
        self._database = database
        self._public_url = public_url.rstrip("/")

    def of_node(self, execution_id: UUID, node_id: str, shown: RunSecrets) -> "NodeCallback":
        """Return the callback port of one node; ``shown`` are the secrets that its run may see."""
        return NodeCallback(self._database, self._public_url, execution_id, node_id, shown)


class NodeCallback:
    """The callback of one node."""

    def __init__(
        self, database: Database, public_url: str, execution_id: UUID, node_id: str, shown: RunSecrets
    ) -> None:
        """Prepare a callback; ``invite`` opens it."""
        self._database = database
        self._public_url = public_url
        self._execution_id = execution_id
        self._node_id = node_id
        self._shown = shown

    async def invite(self) -> Invitation:
        """Open a callback with a new token. Its hash is stored before the target can learn the token."""
        token = PREFIX + token_urlsafe(32)
        # Before the transaction, because secrets may have to be read from Postgres.
        shown = [
            parked_runs.ShownSecret(secret.name, secret.owner_id, secret_proof(token, secret.value))
            for secret in await self._shown.foresee()
        ]
        async with self._database.transaction() as connection:
            await parked_runs.open_callback(connection, self._execution_id, self._node_id, token_hash(token), shown)
        return Invitation(f"{self._public_url}/api/v1/executions/{self._execution_id}/complete/", token)

    async def withdraw(self) -> None:
        """Close the callback: the target has answered at once."""
        async with self._database.transaction() as connection:
            await parked_runs.close_callbacks(connection, self._execution_id, self._node_id)


def token_hash(token: str) -> bytes:
    """Return what is stored of a token."""
    return sha256(token.encode()).digest()


def secret_proof(token: str, value: str) -> str:
    """Return a digest that shows later whether a secret still has the value that a run was shown.

    It is keyed by the callback's token, which is stored nowhere, so that a reader of the table cannot test guesses.
    """
    return hmac.new(token.encode(), value.encode(errors="surrogatepass"), sha256).hexdigest()


# A withdrawn share or a new value takes effect after this time at the latest.
FRESH_SECONDS = 3.0
# In characters of secret values.
MOST_CACHED = 4_000_000
MOST_ENTRIES = 5000
LEAST_WEIGHT = 200

_CacheKey = tuple[Actor, int, frozenset[str]]


class SecretFinder:
    """Finds secrets for runs, and caches them for a few seconds."""

    def __init__(self, database: Database, environment: SecretStore) -> None:
        """Search stored secrets first, then those of the environment."""
        self._database = database
        self._environment = environment
        self._cache: ExpiringCache[_CacheKey, Mapping[str, Secret]] = ExpiringCache(MOST_ENTRIES, MOST_CACHED)

    async def find(self, user: Actor, workflow_owner_id: int, names: frozenset[str]) -> Mapping[str, Secret]:
        """Return the secrets that both the user of a run and the owner of its workflow may use.

        Both are asked because the owner of the workflow can change what is sent, and where to.
        """
        key = (user, workflow_owner_id, names)
        cached = self._cache.fresh(key, clock.monotonic())
        if cached is not None:
            return cached
        async with self._database.reading() as connection:
            usable = await self._read(connection, user, workflow_owner_id, names)
        weight = LEAST_WEIGHT + sum(len(secret.value) for secret in usable.values())
        self._cache.keep(key, usable, clock.monotonic() + FRESH_SECONDS, weight)
        return usable

    async def _read(
        self, connection: Connection, user: Actor, workflow_owner_id: int, names: frozenset[str]
    ) -> dict[str, Secret]:
        actors = [user]
        if workflow_owner_id != user.user_id:
            row = await users.get(connection, workflow_owner_id)
            if row is None:
                return {}
            actors.append(users.to_actor(row))
        return await find_secrets(connection, self._environment, actors, names)


async def find_secrets(
    connection: Connection, environment: SecretStore, actors: Sequence[Actor], names: frozenset[str]
) -> dict[str, Secret]:
    """Return the secrets of these names that all of these users may use, read now."""
    stored = await secrets.usable(connection, {actor.user_id for actor in actors}, names)
    chosen = (choose_secret(actors, stored, environment.find(name), name) for name in sorted(names))
    return {secret.name: secret for secret in chosen if secret is not None}


# A new key signs after this time at the latest. The key before it stays valid for hours.
CACHE_SECONDS = 10.0
CACHED_OWNERS = 10_000
OUTAGE_PAUSE_SECONDS = 1.0


class SigningKeyCache:
    """Returns the signing keys of owners from a cache, so that most calls cost no query."""

    def __init__(self, database: Database) -> None:
        """Start with an empty cache."""
        self._database = database
        self._cache: ExpiringCache[int, tuple[Webhook, ...]] = ExpiringCache(CACHED_OWNERS)
        self._reads = MicroBatcher("signing_keys", self._read, shared=(UnavailableError,))

    def known(self, owner_id: int) -> Sequence[Webhook] | None:
        """Return the keys of an owner if they are cached, else None."""
        return self._cache.fresh(owner_id, clock.monotonic())

    async def keys_of(self, owner_id: int) -> Sequence[Webhook]:
        """Return the keys of an owner that are in use, newest first."""
        keys = self.known(owner_id)
        if keys is not None:
            return keys
        while True:
            try:
                return await self._reads.ask(owner_id)
            except UnavailableError:
                # Old keys are better than none: after a rotation the old key stays valid for hours.
                keys = self._cache.stale(owner_id)
                if keys is not None:
                    return keys
                await asyncio.sleep(OUTAGE_PAUSE_SECONDS)

    async def _read(self, owner_ids: Sequence[int]) -> list[tuple[Webhook, ...]]:
        async with self._database.reading() as connection:
            stored = await secrets.read_signing_keys(connection, owner_ids)
        keys = {owner_id: tuple(key_from(key) for key in stored.get(owner_id, ())) for owner_id in set(owner_ids)}
        for owner_id, its_keys in keys.items():
            self._cache.keep(owner_id, its_keys, clock.monotonic() + CACHE_SECONDS)
        return [keys[owner_id] for owner_id in owner_ids]
