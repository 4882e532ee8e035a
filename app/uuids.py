"""Ids that are made, hashed and compared in C: a tick handles a dozen, and Python's own cost more than its decision.

They are UUIDs like any other, equal to Python's and with the same hash; the driver answers with them too.
"""

from uuid import UUID

from asyncpg.pgproto import pgproto


def uuid_of(value: str | bytes) -> UUID:
    """From its text or its 16 bytes; ``ValueError`` if it is neither."""
    made: UUID = pgproto.UUID(value)
    return made
