"""Signing outgoing calls by Standard Webhooks, with the keys of those on whose behalf they are made."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec
from standardwebhooks import Webhook

from app.clock import now


class Sender(msgspec.Struct, frozen=True):
    """On whose behalf a call is made."""

    owner_id: int
    # An admin's or a plugin's: what these send is signed with CARILLON_SIGNING_SECRET too.
    is_operators: bool = False


# The keys of an owner that are in use, newest first.
KeysOf = Callable[[int], Awaitable[Sequence[Webhook]]]


def key_from(text: str) -> Webhook:
    """A key in the form of Standard Webhooks: base64, with or without ``whsec_``; ``ValueError`` if it is not."""
    try:
        return Webhook(text)
    except (ValueError, RuntimeError) as error:
        raise ValueError("A signing key must be base64, as Standard Webhooks has it.") from error


class Signer:
    """Makes the headers by which a target can tell who sent a call."""

    def __init__(self, keys_of: KeysOf, operators_key: Webhook | None = None) -> None:
        """``operators_key`` is CARILLON_SIGNING_SECRET, which never signs what a member sends."""
        self._keys_of = keys_of
        self._operators_key = operators_key

    async def headers(self, sender: Sender, message_id: str, body: bytes) -> dict[str, str]:
        """The headers that prove a message; none where there is no key."""
        keys = await self._keys_of(sender.owner_id)
        if sender.is_operators and self._operators_key is not None:
            keys = (*keys, self._operators_key)
        if not keys:
            return {}
        moment, data = now(), body.decode()
        # Standard Webhooks: several signatures are separated by spaces, and one that verifies is enough.
        signatures = [key.sign(msg_id=message_id, timestamp=moment, data=data) for key in keys]
        return {
            "webhook-id": message_id,
            "webhook-timestamp": str(int(moment.timestamp())),
            "webhook-signature": " ".join(signatures),
        }
