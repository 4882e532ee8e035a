"""The key with which an owner's calls are signed."""

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor
from app.persistence import signing_keys
from app.persistence.database import Database
from app.services.views import PreviousKeyView, SigningKeyView

log = structlog.get_logger(__name__)


class SigningKeyService:
    """Use cases about signing keys. Everybody has their own, and sees no other."""

    def __init__(self, database: Database) -> None:
        """Workers sign; this is where keys are made and shown."""
        self._database = database

    async def get(self, actor: Actor) -> SigningKeyView:
        """The actor's key; one is made for an actor who has none."""
        async with self._database.transaction() as connection:
            is_new = await signing_keys.ensure(connection, actor.user_id)
            view = await _view(connection, actor)
        if is_new:
            log.info("signing_key_created", key=view.key_id, by=actor.user_id)
        return view

    async def rotate(self, actor: Actor) -> SigningKeyView:
        """A new key for the actor; the one in use so far signs beside it for a while."""
        async with self._database.transaction() as connection:
            await signing_keys.rotate(connection, actor.user_id)
            view = await _view(connection, actor)
        log.info("signing_key_rotated", key=view.key_id, by=actor.user_id)
        return view


async def _view(connection: AsyncConnection, actor: Actor) -> SigningKeyView:
    current, *retiring = await signing_keys.keys_of(connection, actor.user_id)
    previous = [
        PreviousKeyView(key_id=old.key_id, key=old.key, retires_at=old.retires_at) for old in retiring if old.retires_at
    ]
    return SigningKeyView(key_id=current.key_id, key=current.key, previous=next(iter(previous), None))
