"""Callbacks as a running node sees them: promised before the call, closed if the target answers at once."""

import hmac
import secrets
from hashlib import sha256
from uuid import UUID

from app.actions.context import Invitation
from app.actions.secrets_part import RunSecrets
from app.persistence import parking
from app.persistence.database import Database

PREFIX = "cb_"


class CallbackBook:
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
        token = PREFIX + secrets.token_urlsafe(32)
        # Before the transaction: they may have to be read.
        shown = [
            parking.ShownSecret(one.name, one.owner_id, secret_proof(token, one.value))
            for one in await self._shown.foresee()
        ]
        async with self._database.transaction() as connection:
            await parking.open_one(connection, self._execution_id, self._node_id, token_hash(token), shown)
        return Invitation(f"{self._public_url}/api/v1/executions/{self._execution_id}/complete/", token)

    async def withdraw(self) -> None:
        """The target has answered at once."""
        async with self._database.transaction() as connection:
            await parking.close_open(connection, self._execution_id, self._node_id)


def token_hash(token: str) -> bytes:
    """What is stored of a token."""
    return sha256(token.encode()).digest()


def secret_proof(token: str, value: str) -> str:
    """What tells later whether a secret has still the value that a run was shown.

    The key is the callback's token, which is stored nowhere: who reads the table can try no guesses against it.
    """
    return hmac.new(token.encode(), value.encode(errors="surrogatepass"), sha256).hexdigest()
