"""What targets say later about the work that they were given."""

import hmac
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from app.actions.secrets import Hider
from app.actions.secrets_part import SecretStore
from app.domain.errors import ConflictError, NotFoundError, UnauthenticatedError
from app.domain.outputs import bounded
from app.engine.ringing import Ringer
from app.engine.run_resources import secret_proof, token_hash
from app.persistence import execution_queries, parking, secrets
from app.persistence.database import Database
from app.persistence.parking import Callback, Completion, ShownSecret
from app.services.inputs import CompletionInput
from app.services.views import AcceptedView

# In the place of what a callback said, where nobody can tell whether it holds a secret.
UNREADABLE = "Left out: a secret of this execution is not known to the API, or was changed since."


class CallbackService:
    """Takes callbacks; the token is all that it asks for."""

    def __init__(self, database: Database, ringer: Ringer, environment: SecretStore) -> None:
        """Ring for what goes on by a callback; hide in it what its execution was shown."""
        self._environment = environment
        self._database = database
        self._ringer = ringer

    async def complete(self, execution_id: UUID, token: str, said: CompletionInput) -> AcceptedView:
        """The work is done, or has failed; the nodes after it run now."""
        async with self._database.transaction() as connection:
            callback = await _open_callback(connection, execution_id, token)
            completion = await self._without_secrets(connection, callback, token, said)
            pending = await parking.complete(connection, execution_id, callback, completion)
        if pending is not None:
            await self._ringer.executions([pending])
        return AcceptedView(ok=True)

    async def _without_secrets(
        self, connection: AsyncConnection, callback: Callback, token: str, said: CompletionInput
    ) -> Completion:
        succeeded = said.status == "success"
        if not callback.shown:
            return Completion(succeeded, bounded(said.output), said.error)
        values = await self._shown_values(connection, callback.shown, token)
        if values is None:
            return Completion(succeeded, None if said.output is None else UNREADABLE, UNREADABLE if said.error else "")
        hider = Hider(values)
        return Completion(succeeded, bounded(hider.hidden(said.output)), hider.hidden(said.error))

    async def _shown_values(
        self, connection: AsyncConnection, shown: tuple[ShownSecret, ...], token: str
    ) -> list[str] | None:
        """The values that the execution was shown; None if one of them is not known any more."""
        wanted = [(one.owner_id, one.name) for one in shown if one.owner_id is not None]
        stored = {(one.owner_id, one.name): one.value for one in await secrets.of_owners(connection, wanted)}
        values = []
        for one in shown:
            value = stored.get((one.owner_id, one.name)) if one.owner_id is not None else None
            lent = self._environment.find(one.name) if value is None else None
            value = lent.value if lent is not None else value
            if value is None or not hmac.compare_digest(one.proof, secret_proof(token, value)):
                return None
            values.append(value)
        return values

    async def heartbeat(self, execution_id: UUID, token: str) -> AcceptedView:
        """The work goes on. That shows life, and does not extend the deadline."""
        async with self._database.transaction() as connection:
            callback = await _open_callback(connection, execution_id, token)
            await parking.heartbeat(connection, callback)
        return AcceptedView(ok=True)


async def _open_callback(connection: AsyncConnection, execution_id: UUID, token: str) -> Callback:
    if await execution_queries.get(connection, execution_id) is None:
        raise NotFoundError("There is no such execution.")
    callback = await parking.find(connection, execution_id, token_hash(token))
    if callback is None:
        raise UnauthenticatedError("This is not a callback token of this execution.")
    if not callback.is_open:
        raise ConflictError("The execution has ended, or the token is stale.")
    return callback
