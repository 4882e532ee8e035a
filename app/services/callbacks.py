"""What targets say later about the work that they were given."""

from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.errors import ConflictError, NotFoundError, UnauthenticatedError
from app.domain.outputs import bounded
from app.engine.callbacks import token_hash
from app.engine.ringing import Ringer
from app.persistence import callbacks, execution_records
from app.persistence.callbacks import Callback, Completion
from app.persistence.database import Database
from app.services.inputs import CompletionInput
from app.services.views import AcceptedView


class CallbackService:
    """Takes callbacks; the token is all that it asks for."""

    def __init__(self, database: Database, ringer: Ringer) -> None:
        """Ring for what goes on by a callback."""
        self._database = database
        self._ringer = ringer

    async def complete(self, execution_id: UUID, token: str, said: CompletionInput) -> AcceptedView:
        """The work is done, or has failed; the nodes after it run now."""
        async with self._database.transaction() as connection:
            callback = await _open_callback(connection, execution_id, token)
            completion = Completion(said.status == "success", bounded(said.output), said.error)
            pending = await callbacks.complete(connection, execution_id, callback, completion)
        if pending is not None:
            await self._ringer.executions([pending])
        return AcceptedView(ok=True)

    async def heartbeat(self, execution_id: UUID, token: str) -> AcceptedView:
        """The work goes on. That shows life, and does not extend the deadline."""
        async with self._database.transaction() as connection:
            callback = await _open_callback(connection, execution_id, token)
            await callbacks.heartbeat(connection, callback)
        return AcceptedView(ok=True)


async def _open_callback(connection: AsyncConnection, execution_id: UUID, token: str) -> Callback:
    if await execution_records.get(connection, execution_id) is None:
        raise NotFoundError("There is no such execution.")
    callback = await callbacks.find(connection, execution_id, token_hash(token))
    if callback is None:
        raise UnauthenticatedError("This is not a callback token of this execution.")
    if not callback.is_open:
        raise ConflictError("The execution has ended, or the token is stale.")
    return callback
