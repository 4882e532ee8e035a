"""The slots of a schedule beside its runs: spans in which nothing could fire, and the slots to come."""

from collections.abc import Callable, Iterable
from datetime import datetime
from enum import StrEnum

import msgspec

from app.domain.schedule_lifecycle import returned
from app.domain.schedules import ScheduledJob, Status

# The outcome of a slot that is still to come.
EXPECTED = "expected"


class SpanKind(StrEnum):
    """The kinds of spans in which a schedule fires nothing."""

    PAUSED = "paused"
    # All schedules were switched off.
    DISABLED = "disabled"


class Turn(msgspec.Struct, frozen=True):
    """A moment from which on something was off, or on again: by whom, and why."""

    at: datetime
    is_off: bool
    by: str
    note: str


class OffSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span of time in which nothing could fire; without an end it lasts."""

    kind: SpanKind
    first: datetime
    last: datetime | None
    by: str
    note: str


def pause_turns(turns: Iterable[Turn], paused_until: datetime | None) -> list[Turn]:
    """Return the turns of a schedule's pauses, with the end of one that lasts and ends by itself."""
    if paused_until is None:
        return list(turns)
    return [*turns, Turn(paused_until, is_off=False, by="", note="")]


def off_spans(
    kind: SpanKind, turns: Iterable[Turn], since: datetime | None = None, until: datetime | None = None
) -> list[OffSpan]:
    """Return the spans between turns, sorted by time, that touch the time from ``since`` to ``until``, newest first."""
    spans: list[OffSpan] = []
    began: Turn | None = None
    for turn in turns:
        if turn.is_off:
            began = began or turn
        elif began is not None:
            spans.append(_span(kind, began, turn.at))
            began = None
    if began is not None:
        spans.append(_span(kind, began, None))
    return [span for span in reversed(spans) if _touches(span, since, until)]


def _span(kind: SpanKind, began: Turn, last: datetime | None) -> OffSpan:
    return OffSpan(kind=kind, first=began.at, last=last, by=began.by, note=began.note)


def _touches(span: OffSpan, since: datetime | None, until: datetime | None) -> bool:
    begins_in_time = until is None or span.first <= until
    return begins_in_time and (since is None or span.last is None or span.last >= since)


def expected_slots(
    job: ScheduledJob, active_runs: int, count: int, is_enough: Callable[[], bool] = lambda: False
) -> list[datetime]:
    """Return the next slots of a schedule that have no outcome yet, at most ``count``; fewer if ``is_enough``.

    Of a schedule whose pause ends by itself, these are the slots after the pause.
    """
    if job.paused_until is not None:
        job = returned(job, active_runs)
    if job.status is not Status.ACTIVE or job.spec_problem:
        return []
    if job.is_limited:
        count = min(count, job.total_repeats - job.current_repeat - active_runs)
    slots: list[datetime] = []
    cadence, slot = job.cadence, job.cadence_slot
    while slot is not None and len(slots) < count and not (slots and is_enough()):
        slots.append(slot)
        slot = cadence.first_after(slot)
    return slots
