"""Keys that sign outgoing calls."""

import msgspec

from app.services.inputs import Instant


class PreviousKeyView(msgspec.Struct, kw_only=True):
    """The key before the one in use; calls are signed with it too until it retires."""

    key_id: str
    key: str
    retires_at: Instant


class SigningKeyView(msgspec.Struct, kw_only=True):
    """The key that signs your calls, in the form of Standard Webhooks."""

    key_id: str
    key: str
    previous: PreviousKeyView | None
