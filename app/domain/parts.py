"""Which part of a long list somebody wants, and how large an answer may get."""

import msgspec

# A page ends before it is larger than this, but has one item at least.
PAGE_BYTES = 1024 * 1024
# An offset makes Postgres read and drop everything before it; a cursor does not.
MOST_OFFSET = 10_000


class Part(msgspec.Struct, frozen=True):
    """So many, from an offset or from a cursor on; and whether the length of the whole list is wanted."""

    limit: int
    offset: int = 0
    cursor: str | None = None
    counts: bool = True
