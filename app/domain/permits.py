"""Limits by name: how many runs or calls may be under way at once, how many may start in a time, and who is next.

A limit has one bucket, or one for each key that its users name. A run or a call needs a permit of every bucket that it
enters; it starts only with all of them.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.domain.errors import FieldError
from app.domain.field_errors import EXPECTED
from app.domain.limits import OwnerQuotas, Quota

# The reason of a run that waits for a limit.
WAITING_FOR_LIMIT = "waiting_for_limit"
LONGEST_KEY = 200
# How far ahead permits of a rate are given out. A permit says when its run may start, so that the rate does not depend
# on how punctually somebody asks.
LOOKAHEAD = timedelta(milliseconds=500)
_UNITS = {"s": timedelta(seconds=1), "m": timedelta(minutes=1), "h": timedelta(hours=1)}
_RATE = re.compile(r"([1-9][0-9]{0,6})/([smh])")

LimitName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$(?!\n)",
        examples=["crm"],
        extra={EXPECTED: "1 to 100 letters, digits, `.`, `_` and `-` that begin with a letter or a digit"},
    ),
]
LimitKey = (
    Annotated[
        str,
        msgspec.Meta(
            max_length=LONGEST_KEY,
            pattern=r"^[^\x00]*$(?!\n)",
            examples=["api.example.com"],
            extra={EXPECTED: f"at most {LONGEST_KEY} characters, without NUL"},
        ),
    ]
    | int
)
RateText = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[1-9][0-9]{0,6}/[smh]$(?!\n)",
        examples=["100/s", "30/m"],
        extra={EXPECTED: "a number and a unit, such as `100/s`, `30/m` or `500/h`"},
    ),
]


class Rate(msgspec.Struct, frozen=True):
    """So many starts in a unit of time."""

    count: int
    unit: timedelta

    @property
    def interval(self) -> timedelta:
        """Return the time between two starts."""
        return self.unit / self.count

    @property
    def usual_burst(self) -> int:
        """Return how many may start at once unless the limit says so: those of a second, at least one."""
        return max(1, -(-self.count * timedelta(seconds=1) // self.unit))


def parse_rate(text: str) -> Rate:
    """Return a rate that was written as ``100/s``."""
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text}' is not a rate. Write one such as '100/s' or '30/m'.")
    return Rate(int(match[1]), _UNITS[match[2]])


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a limit allows; None where it sets no bound."""

    max_concurrent: int | None = None
    rate: Rate | None = None
    burst: int | None = None

    @property
    def allowance(self) -> timedelta:
        """Return how long before its regular time a start may be, by the burst."""
        if self.rate is None:
            return timedelta(0)
        return self.rate.interval * ((self.burst or self.rate.usual_burst) - 1)


def bounds_errors(max_concurrent: int | None, rate: str | None, burst: int | None) -> list[FieldError]:
    """Return what is wrong with the bounds of a limit as a whole."""
    if max_concurrent is None and rate is None:
        return [FieldError("max_concurrent", "A limit needs `max_concurrent`, `rate` or both.")]
    if burst is not None and rate is None:
        return [FieldError("burst", "`burst` belongs to a `rate`. Give a rate, or leave it out.")]
    return []


def no_such_limit(name: str, field: str = "limit") -> FieldError:
    """Return the error of a name that stands for no limit of the owner, of the owner's teams, and for no public one."""
    return FieldError(
        field, f"There is no limit '{name}' that the owner may use. Create it first, or correct the name."
    )


class LimitOfCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limit that a call names: with a key, it counts among the calls with the same key alone."""

    name: LimitName
    key: LimitKey = ""

    @property
    def text(self) -> str:
        """Return the key of the bucket; a number stands for its digits."""
        return str(self.key)


class LimitUse(msgspec.Struct, frozen=True):
    """A use of a limit: whose limit of this name is meant, and the key of its bucket."""

    owner_id: int
    name: str
    key: str = ""


class QuotaUse(msgspec.Struct, frozen=True):
    """A use of a quota: whose it is, and which one. A quota is a limit for everything that an owner has."""

    owner_id: int
    quota: Quota


def quota_bounds(quotas: OwnerQuotas, use: QuotaUse) -> Bounds:
    """Return what the quota of an owner allows; no bounds if there is none any more."""
    limit = quotas.limit_of(use.quota, use.owner_id)
    if not limit:
        return Bounds()
    if use.quota is Quota.CALLS_PER_SECOND:
        return Bounds(rate=Rate(limit, _UNITS["s"]))
    return Bounds(max_concurrent=limit)


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a limit, or of one key of it: how many permits are held, and when the next start is regular."""

    id: int
    bounds: Bounds
    held: int = 0
    # By the rate, the next start is due at this time; None: nothing has started for long.
    next_at: datetime | None = None

    @property
    def is_full(self) -> bool:
        """Return whether no further permit may be held."""
        return self.bounds.max_concurrent is not None and self.held >= self.bounds.max_concurrent

    def earliest(self, now: datetime) -> datetime:
        """Return the earliest time at which another start keeps the rate."""
        if self.bounds.rate is None or self.next_at is None:
            return now
        return max(now, self.next_at - self.bounds.allowance)

    def entered(self, starts_at: datetime) -> "Bucket":
        """Return the bucket after it has given a permit for a start at this time."""
        next_at = self.next_at
        if self.bounds.rate is not None:
            regular = starts_at if next_at is None else max(next_at, starts_at)
            next_at = regular + self.bounds.rate.interval
        return replace(self, held=self.held + 1, next_at=next_at)


class PermitHolder(msgspec.Struct, frozen=True):
    """What holds a permit or waits for one: a run, or with ``node_id`` a call in it."""

    execution_id: UUID
    node_id: str = ""


class Waiter(msgspec.Struct, frozen=True, kw_only=True):
    """A run or a call that waits for its permits."""

    holder: PermitHolder
    buckets: tuple[int, ...]
    # The schedule or entity of the run: the waiting ones of different sources take turns.
    source: str
    slot: datetime
    # The token of the run, by which it is rung for.
    token: int = 1


class Permit(msgspec.Struct, frozen=True):
    """A permit that is given now, and when its run or call may start."""

    waiter: Waiter
    starts_at: datetime


class Grants(msgspec.Struct, frozen=True, kw_only=True):
    """The permits that are given, the buckets after that, and when to ask again; None: when a permit is returned."""

    permits: tuple[Permit, ...]
    buckets: dict[int, Bucket]
    ask_again_at: datetime | None = None


def in_turn(waiters: Iterable[Waiter], held: Mapping[str, int]) -> list[Waiter]:
    """Return the waiters in the order in which they are served: in turns of their sources, by slot within a turn.

    ``held`` says how many permits each source holds: one with many waiting runs takes turns with the others.
    """
    of_source: dict[str, list[Waiter]] = defaultdict(list)
    for waiter in sorted(waiters, key=_by_slot):
        of_source[waiter.source].append(waiter)
    turns = (
        (held.get(source, 0) + number, waiter) for source, own in of_source.items() for number, waiter in enumerate(own)
    )
    return [waiter for _, waiter in sorted(turns, key=lambda turn: (turn[0], *_by_slot(turn[1])))]


def _by_slot(waiter: Waiter) -> tuple[datetime, UUID, str]:
    return waiter.slot, waiter.holder.execution_id, waiter.holder.node_id


def grant(buckets: Mapping[int, Bucket], waiters: Sequence[Waiter], now: datetime) -> Grants:
    """Give permits to waiters in their order, as far as the buckets allow.

    A waiter gets all permits that it needs or none. One that has to wait for a bucket does not hold up others that need
    other buckets. A waiter that needs a bucket which is not among ``buckets`` is passed over.
    """
    left = dict(buckets)
    permits: list[Permit] = []
    ask_again_at: datetime | None = None
    for waiter in waiters:
        needed = [left[bucket_id] for bucket_id in waiter.buckets if bucket_id in left]
        if len(needed) < len(waiter.buckets) or any(bucket.is_full for bucket in needed):
            continue
        starts_at = max((bucket.earliest(now) for bucket in needed), default=now)
        if starts_at > now + LOOKAHEAD:
            # Half of the time ahead is left for whoever asks again to be late.
            again = starts_at - LOOKAHEAD / 2
            ask_again_at = again if ask_again_at is None else min(ask_again_at, again)
            continue
        permits.append(Permit(waiter, starts_at))
        left.update({bucket.id: bucket.entered(starts_at) for bucket in needed})
    return Grants(permits=tuple(permits), buckets=left, ask_again_at=ask_again_at)
