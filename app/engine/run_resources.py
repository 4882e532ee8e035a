"""What a running node may use of Postgres: callbacks, secrets and signing keys."""

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
from app.domain.secrets import Secret, choose
from app.micro_batcher import MicroBatcher
from app.persistence import parking, secrets, users
from app.persistence.database import Connection, Database

PREFIX = "cb_"


class CallbackIssuer:
    """Makes the callbacks of executions."""

    def __init__(self, database: Database, public_url: str) -> None:
        """Targets reach the API under this address."""
        self._database = database
        self._public_url = public_url.rstrip("/")

    def of_node(self, execution_id: UUID, node_id: str, shown: RunSecrets) -> "NodeCallback":
        """The port of one node, of a run that is shown these secrets."""
        return NodeCallback(self._database, self._public_url, execution_id, node_id, shown)


class NodeCallback:
    """What one node promises its target."""

    def __init__(
        self, database: Database, public_url: str, execution_id: UUID, node_id: str, shown: RunSecrets
    ) -> None:
        """Nothing is promised yet."""
        self._database = database
        self._public_url = public_url
        self._execution_id = execution_id
        self._node_id = node_id
        self._shown = shown

    async def invite(self) -> Invitation:
        """A new token, stored as its hash before anybody is told of it."""
        token = PREFIX + token_urlsafe(32)
        # Before the transaction: they may have to be read.
        shown = [
            parking.ShownSecret(one.name, one.owner_id, secret_proof(token, one.value))
            for one in await self._shown.foresee()
        ]
        async with self._database.transaction() as connection:
            await parking.open_callback(connection, self._execution_id, self._node_id, token_hash(token), shown)
        return Invitation(f"{self._public_url}/api/v1/executions/{self._execution_id}/complete/", token)

    async def withdraw(self) -> None:
        """The target has answered at once."""
        async with self._database.transaction() as connection:
            await parking.close_callbacks(connection, self._execution_id, self._node_id)


def token_hash(token: str) -> bytes:
    """What is stored of a token."""
    return sha256(token.encode()).digest()


def secret_proof(token: str, value: str) -> str:
    """What tells later whether a secret has still the value that a run was shown.

    The key is the callback's token, which is stored nowhere: who reads the table can try no guesses against it.
    """
    return hmac.new(token.encode(), value.encode(errors="surrogatepass"), sha256).hexdigest()


# A share that was taken back, or a new value, is known after this time at the latest.
FRESH_SECONDS = 3.0
# In characters of values.
MOST_CACHED = 4_000_000
MOST_ENTRIES = 5000
LEAST_WEIGHT = 200

_Question = tuple[Actor, int, frozenset[str]]


class SecretFinder:
    """Finds secrets for runs, and remembers for a few seconds what it found."""

    def __init__(self, database: Database, environment: SecretStore) -> None:
        """Nothing is read yet."""
        self._database = database
        self._environment = environment
        self._known: ExpiringCache[_Question, Mapping[str, Secret]] = ExpiringCache(MOST_ENTRIES, MOST_CACHED)

    async def find(self, user: Actor, workflow_owner_id: int, names: frozenset[str]) -> Mapping[str, Secret]:
        """Those of these secrets that both the user of a run and the owner of its workflow may use.

        The owner of the workflow can change what is sent, and where to.
        """
        question = (user, workflow_owner_id, names)
        known = self._known.fresh(question, clock.monotonic())
        if known is not None:
            return known
        async with self._database.reading() as connection:
            found = await self._read(connection, user, workflow_owner_id, names)
        weight = LEAST_WEIGHT + sum(len(secret.value) for secret in found.values())
        self._known.keep(question, found, clock.monotonic() + FRESH_SECONDS, weight)
        return found

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
    """Those of these secrets that all of these users may use, as they are now."""
    stored = await secrets.usable(connection, {actor.user_id for actor in actors}, names)
    chosen = (choose(actors, stored, environment.find(name), name) for name in sorted(names))
    return {secret.name: secret for secret in chosen if secret is not None}


# A new key signs after this time at the latest; the one before is good for much longer.
CACHE_SECONDS = 10.0
CACHED_OWNERS = 10_000
OUTAGE_PAUSE_SECONDS = 1.0


class SigningKeyCache:
    """Answers with the keys of an owner; most calls cost no query."""

    def __init__(self, database: Database) -> None:
        """Nothing is known yet."""
        self._database = database
        self._known: ExpiringCache[int, tuple[Webhook, ...]] = ExpiringCache(CACHED_OWNERS)
        self._reads = MicroBatcher("signing_keys", self._read, shared=(UnavailableError,))

    async def keys_of(self, owner_id: int) -> Sequence[Webhook]:
        """The keys of an owner that are in use, newest first."""
        keys = self._known.fresh(owner_id, clock.monotonic())
        if keys is not None:
            return keys
        while True:
            try:
                return await self._reads.ask(owner_id)
            except UnavailableError:
                # Keys that were read long ago are better than none: a rotation leaves hours to both.
                keys = self._known.stale(owner_id)
                if keys is not None:
                    return keys
                await asyncio.sleep(OUTAGE_PAUSE_SECONDS)

    async def _read(self, owner_ids: Sequence[int]) -> list[tuple[Webhook, ...]]:
        async with self._database.reading() as connection:
            found = await secrets.read_signing_keys(connection, owner_ids)
        keys = {owner_id: tuple(key_from(key) for key in found.get(owner_id, ())) for owner_id in set(owner_ids)}
        for owner_id, its_keys in keys.items():
            self._known.keep(owner_id, its_keys, clock.monotonic() + CACHE_SECONDS)
        return [keys[owner_id] for owner_id in owner_ids]
