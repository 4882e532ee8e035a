"""Backfills: which past slots of a schedule run after all, in which order, and how many at a time."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.domain.errors import FieldError, InvalidError
from app.domain.recurrence import Recurrence
from app.domain.schedules import ScheduledJob, Status

# How many slots one backfill may have.
MOST_SLOTS = 100_000
# A run whose worker died is started again, up to so many times.
MOST_LOST = 3
# What a dry run assumes of a schedule that has never run, and what passes between two looks at the runs.
UNKNOWN_RUN_SECONDS = 1.0
LOOK_SECONDS = 0.1

FIRED = "fired"
QUEUED = "queued"
NOT_EXPECTED = "not_expected"
UNKNOWN = "unknown"
# Slots with one of these outcomes have run, or may have.
_RAN = frozenset({FIRED, QUEUED, UNKNOWN})

_INSTANT = timedelta.resolution
_SECONDS = {"s": 1, "m": 60, "h": 3600}


class BackfillOnly(StrEnum):
    """Which slots run."""

    NOT_FIRED = "not_fired"
    ALL = "all"


class BackfillOrder(StrEnum):
    """The order of the slots."""

    OLDEST = "oldest"
    NEWEST = "newest"


class BackfillTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a backfill runs, and how far it is."""

    schedule_id: UUID
    first: datetime
    last: datetime
    only: BackfillOnly = BackfillOnly.NOT_FIRED
    order: BackfillOrder = BackfillOrder.OLDEST
    max_concurrent: int = 1
    per_second: float | None = None
    # The last slot that was looked at.
    position: datetime | None = None
    is_exhausted: bool = False
    # When the rate allows the next run.
    next_at: datetime | None = None

    def admits(self, outcome: str) -> bool:
        """Return whether a slot runs that had this outcome."""
        return self.only is BackfillOnly.ALL or outcome not in _RAN

    def budget(self, active: int, now: datetime) -> int:
        """Return how many runs may start now, beside those that are active."""
        free = max(0, self.max_concurrent - active)
        if self.per_second is None:
            return free
        behind = (now - (self.next_at or now)).total_seconds()
        return min(free, int(min(behind, 1.0) * self.per_second) + 1) if behind >= 0 else 0

    def started(self, count: int, now: datetime) -> "BackfillTerms":
        """Return the terms after runs have started: the rate puts off the next ones."""
        if self.per_second is None or not count:
            return self
        # What was not used for longer than a second is lost: a rate is no debt.
        since = max(self.next_at or now, now - timedelta(seconds=1))
        return replace(self, next_at=since + timedelta(seconds=count / self.per_second))

    def estimate_seconds(self, count: int, run_seconds: float | None) -> float:
        """Return how long so many runs take at this pace, if each takes so long."""
        each = (UNKNOWN_RUN_SECONDS if run_seconds is None else run_seconds) + LOOK_SECONDS
        pace = each / self.max_concurrent
        return round(count * (pace if self.per_second is None else max(pace, 1 / self.per_second)), 1)


def parse_rate(rate: str | float | None) -> float | None:
    """Return a rate such as ``10/s``, ``30/m``, ``100/h``, or a number of runs in a second, in runs per second."""
    if rate is None:
        return None
    try:
        number, unit = (str(rate), "s") if isinstance(rate, int | float) else rate.replace(" ", "").split("/", 1)
        per_second = float(number) / _SECONDS[unit]
    except (ValueError, KeyError):
        raise InvalidError(FieldError("rate", "Expected a rate such as `10/s`, `30/m` or `100/h`.")) from None
    if not 1 / 3600 <= per_second <= 1000:  # noqa: PLR2004 - the bounds stand in the message
        raise InvalidError(FieldError("rate", "The rate must be between 1/h and 1000/s."))
    return per_second


class Era(msgspec.Struct, frozen=True):
    """A time during which the slots of a schedule were counted in one way: from ``since`` until before ``until``."""

    job: ScheduledJob
    since: datetime | None
    until: datetime | None

    @property
    def is_before_creation(self) -> bool:
        """Return whether the schedule did not exist yet: its slots are those that it would have had."""
        return self.since is None

    @property
    def why_not_expected(self) -> str:
        """Return why no slot was expected then; empty if slots were."""
        if self.is_before_creation:
            return "the schedule did not exist yet"
        return "" if self.job.status is Status.ACTIVE else f"the schedule was {self.job.status}"

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Return the slots after a moment, earliest first."""
        low = moment if self.since is None else max(moment, self.since - _INSTANT)
        slot = self._next(low)
        while slot is not None and (self.until is None or slot < self.until):
            yield slot
            slot = self._next(slot)

    def before(self, moment: datetime) -> Iterator[datetime]:
        """Return the slots before a moment, latest first."""
        slot = self._previous(moment if self.until is None else min(moment, self.until))
        while slot is not None and (self.since is None or slot >= self.since):
            yield slot
            slot = self._previous(slot)

    def _next(self, moment: datetime) -> datetime | None:
        if not self.is_before_creation:
            return self.job.cadence.first_after(moment)
        start, end = self.job.start_at, self.job.end_at
        slot = self._slots.next(moment if start is None else max(moment, start - _INSTANT))
        return None if slot is None or (end is not None and slot > end) else slot

    def _previous(self, moment: datetime) -> datetime | None:
        if not self.is_before_creation:
            return self.job.cadence.before(moment)
        start, end = self.job.start_at, self.job.end_at
        slot = self._slots.previous(moment if end is None else min(moment, end + _INSTANT))
        return None if slot is None or (start is not None and slot < start) else slot

    @property
    def _slots(self) -> Recurrence:
        return self.job.spec.slots_from(self.job.anchor_at, self.job.start_at)


def eras(created_at: datetime, versions: Sequence[tuple[datetime, ScheduledJob]]) -> list[Era]:
    """Return the eras of a schedule from its versions, earliest first, each with the moment since when it is in force.

    Versions with an invalid spec have no slots. Before the creation, slots are those of the first version.
    """
    first = versions[0][1]
    found = [Era(first, None, created_at)]
    for number, (since, job) in enumerate(versions):
        until = versions[number + 1][0] if number + 1 < len(versions) else None
        found.append(Era(job, max(since, created_at), until))
    return [era for era in found if not era.job.spec.problem]


def past_slots(found: Sequence[Era], terms: BackfillTerms, limit: int) -> list[tuple[datetime, Era]]:
    """Return the next slots of a backfill after its position, at most ``limit``, whatever became of them."""
    slots: list[tuple[datetime, Era]] = []
    for slot, era in _oldest(found, terms) if terms.order is BackfillOrder.OLDEST else _newest(found, terms):
        slots.append((slot, era))
        if len(slots) == limit:
            break
    return slots


def _oldest(found: Sequence[Era], terms: BackfillTerms) -> Iterator[tuple[datetime, Era]]:
    position = terms.position or terms.first - _INSTANT
    for era in found:
        for slot in era.after(position):
            if slot > terms.last:
                return
            yield slot, era


def _newest(found: Sequence[Era], terms: BackfillTerms) -> Iterator[tuple[datetime, Era]]:
    position = terms.position or terms.last + _INSTANT
    for era in reversed(found):
        for slot in era.before(position):
            if slot < terms.first:
                return
            yield slot, era


class PastSlot(msgspec.Struct, frozen=True):
    """A past slot, and what became of it."""

    slot: datetime
    outcome: str
    reason: str = ""


class Span(msgspec.Struct, frozen=True):
    """The outcome of a slot, or of a range of slots."""

    first: datetime
    last: datetime
    outcome: str
    reason: str


class Records(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored about past slots."""

    # By slot, of those that have a run: outcome and reason.
    runs: Mapping[datetime, tuple[str, str]]
    # Slots that an earlier backfill has run.
    backfilled: Collection[datetime]
    # Of those that have none, sorted by their first slots.
    spans: Sequence[Span]


def fates(slots: Iterable[tuple[datetime, Era]], records: Records) -> list[PastSlot]:
    """Say of each slot what became of it."""
    beginnings = [span.first for span in records.spans]
    return [_fate(slot, era, records, beginnings) for slot, era in slots]


def _fate(slot: datetime, era: Era, records: Records, beginnings: Sequence[datetime]) -> PastSlot:
    if slot in records.backfilled:
        return PastSlot(slot, FIRED, "a backfill ran it")
    if slot in records.runs:
        return PastSlot(slot, *records.runs[slot])
    number = bisect_right(beginnings, slot) - 1
    if number >= 0 and records.spans[number].last >= slot:
        return PastSlot(slot, records.spans[number].outcome, records.spans[number].reason)
    if era.why_not_expected:
        return PastSlot(slot, NOT_EXPECTED, era.why_not_expected)
    return PastSlot(slot, UNKNOWN, "its record is gone")
