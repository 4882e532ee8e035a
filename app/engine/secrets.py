"""Finds the secrets that a run may use: those in Postgres, and those of the environment and of files."""

from collections.abc import Mapping, Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from app import clock
from app.actions.secrets_part import SecretStore
from app.cache import BoundedCache
from app.domain.access import Actor
from app.domain.secrets import Secret, choose
from app.persistence import secrets, users
from app.persistence.database import Database

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
        self._known: BoundedCache[_Question, tuple[float, Mapping[str, Secret]]] = BoundedCache(
            MOST_ENTRIES, MOST_CACHED
        )

    async def find(self, user: Actor, workflow_owner_id: int, names: frozenset[str]) -> Mapping[str, Secret]:
        """Those of these secrets that both the user of a run and the owner of its workflow may use.

        The owner of the workflow can change what is sent, and where to.
        """
        question = (user, workflow_owner_id, names)
        known = self._known.get(question)
        if known is not None and clock.monotonic() - known[0] < FRESH_SECONDS:
            return known[1]
        async with self._database.reading() as connection:
            found = await self._read(connection, user, workflow_owner_id, names)
        weight = LEAST_WEIGHT + sum(len(secret.value) for secret in found.values())
        self._known.keep(question, (clock.monotonic(), found), weight)
        return found

    async def _read(
        self, connection: AsyncConnection, user: Actor, workflow_owner_id: int, names: frozenset[str]
    ) -> dict[str, Secret]:
        actors = [user]
        if workflow_owner_id != user.user_id:
            row = await users.get(connection, workflow_owner_id)
            if row is None:
                return {}
            actors.append(users.to_actor(row))
        return await find_secrets(connection, self._environment, actors, names)


async def find_secrets(
    connection: AsyncConnection, environment: SecretStore, actors: Sequence[Actor], names: frozenset[str]
) -> dict[str, Secret]:
    """Those of these secrets that all of these users may use, as they are now."""
    stored = await secrets.usable(connection, {actor.user_id for actor in actors}, names)
    chosen = (choose(actors, stored, environment.find(name), name) for name in sorted(names))
    return {secret.name: secret for secret in chosen if secret is not None}
