"""How a worker's places are shared among the owners of what it runs: values in, a decision out.

What comes out of the queue takes whatever place is free, in the order in which it was due, so that one owner may use
nearly everything while nobody else wants something. Some places are always kept back for owners who hold few: however
many long runs the others have, the next owner starts at once. While such owners want more than that, more is kept.
"""

import msgspec


def kept_at_least(total: int) -> int:
    """The places that are always kept for owners who hold few: a tenth, where there is more than one place."""
    return max(1, total // 10) if total > 1 else 0


def kept_for_others(total: int, owners: int, kept: int, *, were_short: bool) -> int:
    """The places to keep from now on, given those kept until now.

    Doubled while others found no place, up to what leaves the greediest owner its equal share; halved when they did.
    """
    least, most = kept_at_least(total), total - equal_share(total, owners)
    wanted = kept * 2 if were_short else kept // 2
    return min(max(wanted, least), max(most, least))


def equal_share(total: int, owners: int) -> int:
    """What each of so many owners would have."""
    return max(1, total // max(1, owners))


class Crowd(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's places: how many there are, are used and are kept for others, and how many owners want some."""

    total: int
    used: int
    kept: int
    owners: int


def may_enter(crowd: Crowd, held: int) -> bool:
    """Whether a run of an owner who holds so many places may take a free one, the kept ones included.

    Up to its equal share an owner takes what is kept for others. The last tenth is for those who hold next to nothing,
    so that a second greedy owner does not use it up.
    """
    free, last = crowd.total - crowd.used, kept_at_least(crowd.total)
    if free > crowd.kept:
        return True
    if free > last:
        return held < equal_share(crowd.total, crowd.owners)
    return free > 0 and held < max(1, last // 4)
