"""Skips: slots to come that people ask to leave out, and take back."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

from app.domain.access import Actor
from app.domain.audit import AuditAction
from app.domain.audited_changes import schedule_subject
from app.domain.errors import ConflictError, FieldError, InvalidError, NotFoundError
from app.domain.schedule_input import require_years
from app.domain.schedules import ScheduledJob
from app.domain.skips import MOST_SKIPS, Skip, SkipRequest, chosen_slots
from app.domain.trigger_event import rfc3339
from app.persistence import audit, schedules, skips
from app.persistence.database import Connection, Database, database_now
from app.services.inputs import SkipInput, Span
from app.services.schedules import fresh_schedule, owned_schedule
from app.services.views import SkippedSlots

# An event of the audit log names so many slots.
MOST_NAMED = 100


class SkipService:
    """Use cases about slots that are left out."""

    def __init__(self, database: Database) -> None:
        """Write to this database."""
        self._database = database
        # One thread: each takes processor time from the event loop.
        self._searches = ThreadPoolExecutor(1, thread_name_prefix="skips")

    async def skip(self, actor: Actor, job_id: UUID, wanted: SkipInput) -> SkippedSlots:
        """Leave out slots to come, and return them."""
        async with self._database.reading() as connection:
            job = await owned_schedule(connection, actor, job_id)
            request = _request(wanted)
            skipped = [skip.slot for skip in (await skips.of(connection, [job_id])).get(job_id, ())]
        # Before the schedule is locked, as the search may take long.
        search = partial(chosen_slots, job, request, skipped)
        slots = await asyncio.get_running_loop().run_in_executor(self._searches, search)
        async with self._database.transaction() as connection:
            await fresh_schedule(connection, actor, job_id)
            await _add(connection, actor, job, slots, wanted.note)
        return SkippedSlots(skipped=slots)

    async def take_back(self, actor: Actor, job_id: UUID, span: Span) -> None:
        """Let slots fire after all that are still to come and were to be left out, of a span or all."""
        async with self._database.transaction() as connection:
            await fresh_schedule(connection, actor, job_id)
            job = await _locked(connection, job_id)
            skipped = (await skips.of(connection, [job_id])).get(job_id, ())
            taken = [skip.slot for skip in skipped if _is_within(skip.slot, span)]
            if taken:
                await skips.take_back(connection, job_id, taken, are_left=len(taken) < len(skipped))
                await _record(connection, actor, AuditAction.SCHEDULE_SKIPS_REMOVED, job, taken)


def _request(wanted: SkipInput) -> SkipRequest:
    """Return what a request names, with every time in UTC; refuse several ways to name the slots, and none."""
    ways = [wanted.slots is not None, wanted.next is not None, wanted.since is not None or wanted.until is not None]
    if sum(ways) != 1:
        raise InvalidError(FieldError("", "Exactly one of `slots`, `next`, and `from` with `to` is needed."))
    if (wanted.since is None) != (wanted.until is None):
        raise InvalidError(FieldError("to" if wanted.until is None else "from", "`from` and `to` are needed both."))
    slots = None if wanted.slots is None else tuple(slot.astimezone(UTC) for slot in wanted.slots)
    first, last = (None if at is None else at.astimezone(UTC) for at in (wanted.since, wanted.until))
    require_years({"from": first, "to": last, **{f"slots[{number}]": slot for number, slot in enumerate(slots or ())}})
    if first is not None and last is not None and last < first:
        raise InvalidError(FieldError("to", "The end must not be before `from`."))
    return SkipRequest(slots=slots, next=wanted.next, first=first, last=last)


async def _add(connection: Connection, actor: Actor, seen: ScheduledJob, slots: Sequence[datetime], note: str) -> None:
    """Store the skips of a schedule that has not changed since its slots were searched."""
    job = await _locked(connection, seen.id)
    is_same = (job.spec, job.anchor_at, job.start_at, job.end_at, job.status) == (
        *(seen.spec, seen.anchor_at, seen.start_at, seen.end_at, seen.status),
    )
    is_ahead = not slots or (job.cadence_slot is not None and slots[0] >= job.cadence_slot)
    if not is_same or not is_ahead:
        raise ConflictError(
            "The schedule was changed, or one of the slots has come meanwhile. Read it again and retry."
        )
    if not slots:
        return
    known = {skip.slot for skip in (await skips.of(connection, [job.id])).get(job.id, ())}
    if len(known.union(slots)) > MOST_SKIPS:
        raise InvalidError(FieldError("", f"At most {MOST_SKIPS} slots to come of a schedule can be skipped."))
    now = await database_now(connection)
    await skips.add(connection, job.id, slots, Skip(slots[0], actor.username, now, note))
    await _record(connection, actor, AuditAction.SCHEDULE_SLOTS_SKIPPED, job, slots, note)


async def _locked(connection: Connection, job_id: UUID) -> ScheduledJob:
    job = (await schedules.lock(connection, [job_id])).get(job_id)
    if job is None:
        raise NotFoundError("There is no such schedule.")
    return job


async def _record(
    connection: Connection,
    actor: Actor,
    action: AuditAction,
    job: ScheduledJob,
    slots: Sequence[datetime],
    note: str = "",
) -> None:
    details = {"count": len(slots), "slots": [rfc3339(slot) for slot in slots[:MOST_NAMED]]}
    await audit.record(connection, actor, action, schedule_subject(job), details=details, note=note)


def _is_within(slot: datetime, span: Span) -> bool:
    return (span.since is None or slot >= span.since) and (span.until is None or slot <= span.until)
