"""The quotas that admins have set for single owners, and a copy of them that each process keeps for a short time."""

from typing import Any

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app import clock
from app.domain.limits import OwnerQuotas, OwnQuotas, Quotas
from app.persistence.sql_batches import fetch

# How old the copy may be where quotas are checked.
FRESH_SECONDS = 1.0

_ALL = "SELECT id, quotas::text FROM user_profiles WHERE quotas IS NOT NULL"


def stored_quotas(value: Any) -> OwnQuotas:
    """Return the quotas in a column; names that a newer release has written are left out."""
    known = {name: number for name, number in (value or {}).items() if name in OwnQuotas.__struct_fields__}
    return msgspec.convert(known, OwnQuotas)


async def read(connection: AsyncConnection) -> dict[int, OwnQuotas]:
    """Return what admins have set, by owner."""
    rows = await fetch(connection, _ALL)
    return {owner_id: stored_quotas(msgspec.json.decode(text)) for owner_id, text in rows}


class QuotaBook:
    """The quotas of all owners as one process knows them."""

    def __init__(self, general: Quotas | None = None) -> None:
        """Begin with the quotas of the settings."""
        self.current = OwnerQuotas(general or Quotas())
        self._read_at: float | None = None

    async def refreshed(self, connection: AsyncConnection) -> OwnerQuotas:
        """Return the quotas, read again if the copy is too old."""
        now = clock.monotonic()
        if self._read_at is None or now - self._read_at >= FRESH_SECONDS:
            self.current = OwnerQuotas(self.current.general, await read(connection))
            self._read_at = now
        return self.current
