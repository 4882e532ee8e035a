"""Requests that are sent again: the first answer is stored, and given again for a day."""

from collections.abc import Mapping

import msgspec
import structlog

from app.domain.errors import UnavailableError
from app.domain.idempotency import StoredAnswer, Verdict, decide, is_kept
from app.persistence import idempotency
from app.persistence.database import Database, database_now

log = structlog.get_logger(__name__)


class Claim(msgspec.Struct, frozen=True):
    """A request that is carried out under a key of its user."""

    user_id: int
    key: str


class IdempotencyService:
    """Use cases about idempotency keys."""

    def __init__(self, database: Database) -> None:
        """Store answers in this database."""
        self._database = database

    async def begin(self, claim: Claim, request_hash: bytes) -> StoredAnswer | None:
        """Note that a request begins; return the answer to give again, or None if it has to be carried out."""
        async with self._database.transaction("begin_request") as connection:
            if await idempotency.claim(connection, claim.user_id, claim.key, request_hash):
                return None
            known = await idempotency.read(connection, claim.user_id, claim.key)
            if known is None:
                # Released at the same moment: the client's next attempt finds the key free.
                raise UnavailableError
            if decide(known, request_hash, await database_now(connection)) is Verdict.REPLAY:
                return known
            if not await idempotency.take_over(connection, claim.user_id, claim.key, request_hash, known.began_at):
                raise UnavailableError
        return None

    async def finish(self, claim: Claim, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Store the answer to a request before it is sent. If that fails, the answer is sent nevertheless."""
        try:
            async with self._database.transaction("finish_request") as connection:
                if is_kept(status):
                    await idempotency.finish(connection, claim.user_id, claim.key, status, headers, body)
                else:
                    await idempotency.release(connection, claim.user_id, claim.key)
        except UnavailableError:
            log.warning("answer_not_stored", user=claim.user_id)
