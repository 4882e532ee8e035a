"""Skips: slots that people ask to leave out, before they come. Each of them gets the outcome ``skipped_request``."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from app.domain.errors import FieldError, InvalidError, WrongStateError
from app.domain.ledger import LedgerEntry, LedgerOutcome, accounted, ledger_entry
from app.domain.schedules import ScheduledJob, Status
from app.domain.trigger_event import rfc3339

# How many slots to come of a schedule can be skipped at a time.
MOST_SKIPS = 1000


class Skip(msgspec.Struct, frozen=True):
    """A slot to leave out: who asked for it, when, and why."""

    slot: datetime
    author: str
    at: datetime
    note: str = ""

    @property
    def reason(self) -> str:
        """Return who asked for it, when, and why, in one line."""
        return f"{self.author} asked for it at {rfc3339(self.at)}" + (f" ({self.note})" if self.note else "")


class SkipRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The slots to leave out: these, or the next ones, or those of a span of time."""

    slots: tuple[datetime, ...] | None = None
    next: int | None = None
    first: datetime | None = None
    last: datetime | None = None


def chosen_slots(job: ScheduledJob, request: SkipRequest, skipped: Iterable[datetime]) -> list[datetime]:
    """Return the slots to come that a request names, earliest first; ``skipped`` are left out already.

    The search is bounded: a span may not have more slots than can be skipped.
    """
    if job.status is not Status.ACTIVE or job.spec_problem:
        raise WrongStateError(f"Cannot skip slots of a job with status '{job.status}'.")
    if request.slots is not None:
        return _named(job, request.slots)
    if request.next is not None:
        return _next(job, request.next, set(skipped))
    return _between(job, request)


def _named(job: ScheduledJob, slots: Sequence[datetime]) -> list[datetime]:
    pending = job.cadence_slot
    errors = [
        FieldError(f"slots[{number}]", f"{rfc3339(slot)} is no slot that is still to come.")
        for number, slot in enumerate(slots)
        if pending is None or slot < pending or not is_slot(job, slot)
    ]
    if errors:
        raise InvalidError(*errors)
    return sorted(set(slots))


def _next(job: ScheduledJob, count: int, skipped: set[datetime]) -> list[datetime]:
    slots: list[datetime] = []
    slot = job.cadence_slot
    while slot is not None and len(slots) < count:
        if slot not in skipped:
            slots.append(slot)
        slot = job.cadence.first_after(slot)
    return slots


def _between(job: ScheduledJob, request: SkipRequest) -> list[datetime]:
    slots: list[datetime] = []
    slot = job.cadence_slot
    if slot is not None and request.first is not None and slot < request.first:
        slot = job.cadence.first_after(request.first - timedelta.resolution)
    while slot is not None and (request.last is None or slot <= request.last):
        if len(slots) == MOST_SKIPS:
            raise InvalidError(FieldError("to", f"The span has more than {MOST_SKIPS} slots. Choose an earlier end."))
        slots.append(slot)
        slot = job.cadence.first_after(slot)
    return slots


def is_slot(job: ScheduledJob, moment: datetime) -> bool:
    """Return whether the schedule has a slot at a moment."""
    return job.cadence.latest_at(moment) == moment


def still_ahead(after: ScheduledJob, skips: Iterable[Skip], now: datetime) -> tuple[Skip, ...]:
    """Return the skips that a tick has not used up."""
    first = after.cadence_slot
    return tuple(skip for skip in skips if (skip.slot > now if first is None else skip.slot >= first))


def with_skipped(
    before: ScheduledJob, after: ScheduledJob, entries: Sequence[LedgerEntry], skips: Sequence[Skip], now: datetime
) -> tuple[ScheduledJob, tuple[LedgerEntry, ...]]:
    """Give skipped slots their outcome: ranges of other outcomes are split around them.

    Return the schedule, with the outcome of its newest slot, and all entries in the order of their slots.
    """
    slots = [skip.slot for skip in skips]
    split = [part for entry in entries for part in _split(before, entry, slots)]
    own = (ledger_entry(before, skip.slot, skip.slot, LedgerOutcome.SKIPPED_REQUEST, skip.reason) for skip in skips)
    ordered = tuple(sorted([*split, *own], key=lambda entry: entry.first_slot))
    is_newest = after.last_slot is None or ordered[-1].last_slot >= after.last_slot
    return (accounted(after, ordered, now) if is_newest else after), ordered


def _split(job: ScheduledJob, entry: LedgerEntry, slots: Sequence[datetime]) -> list[LedgerEntry]:
    inside = [slot for slot in slots if entry.first_slot <= slot <= entry.last_slot]
    parts: list[LedgerEntry] = []
    first: datetime | None = entry.first_slot
    for slot in inside:
        if first is not None and first < slot:
            parts.append(_part(job, entry, first, job.cadence.before(slot) or first))
        first = job.cadence.first_after(slot)
    if first is not None and first <= entry.last_slot:
        parts.append(_part(job, entry, first, entry.last_slot))
    return parts if inside else [entry]


def _part(job: ScheduledJob, entry: LedgerEntry, first: datetime, last: datetime) -> LedgerEntry:
    return replace(entry, first_slot=first, last_slot=last, slot_count=job.cadence.count(first, last))
