"""Which part of a long list somebody wants."""

import msgspec


class Part(msgspec.Struct, frozen=True):
    """So many, from an offset or from a cursor on."""

    limit: int
    offset: int = 0
    cursor: str | None = None
