"""Backfills: past slots that run after all, tried out and started. Workers carry them out."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.domain.access import Actor
from app.domain.audit import AuditAction
from app.domain.audited_changes import schedule_subject
from app.domain.backfills import MOST_SLOTS, BackfillOnly, BackfillOrder, BackfillTerms, PastSlot, parse_rate
from app.domain.bulk_operations import BulkAction, Terms
from app.domain.errors import FieldError, InvalidError
from app.domain.schedule_input import require_years
from app.domain.schedules import ScheduledJob
from app.domain.trigger_event import rfc3339
from app.engine import lease_bounds
from app.engine.backfills import next_slots
from app.persistence import audit, backfills, operations
from app.persistence.database import Connection, Database, database_now
from app.services.bulk_operations import new_operation, record_operation, stored_operation
from app.services.inputs import BackfillInput
from app.services.schedules import fresh_schedule, owned_schedule
from app.services.views import BackfillDryRun, OperationView, PastSlotView, operation_view

# A dry run names so many slots.
MOST_NAMED = 100
# How many slots are looked at between two queries.
PAGE = 5000


class BackfillService:
    """Use cases about backfills."""

    def __init__(self, database: Database) -> None:
        """Write to this database."""
        self._database = database

    async def try_out(self, actor: Actor, job_id: UUID, wanted: BackfillInput) -> BackfillDryRun:
        """Return which slots would run, what became of each, and how long it would take; nothing is stored."""
        async with self._database.reading() as connection:
            job = await owned_schedule(connection, actor, job_id)
            now = await database_now(connection)
            terms = _terms(job, wanted, now)
            chosen = await _chosen(connection, job, terms)
            await lease_bounds.require_runs(connection, job, chosen.count, now)
            seconds = terms.estimate_seconds(chosen.count, await backfills.run_seconds(connection, job.id))
        named = [PastSlotView(past.slot, past.outcome, past.reason) for past in chosen.first]
        return BackfillDryRun(count=chosen.count, slots=named, estimate_seconds=seconds)

    async def start(self, actor: Actor, job_id: UUID, wanted: BackfillInput) -> OperationView:
        """Store a backfill; a worker begins at once."""
        async with self._database.transaction() as connection:
            job = await fresh_schedule(connection, actor, job_id)
            now = await database_now(connection)
            terms = _terms(job, wanted, now)
            total = (await _chosen(connection, job, terms)).count
            await lease_bounds.require_runs(connection, job, total, now)
            selection = {"schedule_id": str(job.id), "from": rfc3339(terms.first), "to": rfc3339(terms.last)}
            new = new_operation(actor, BulkAction.BACKFILL, selection, wanted.note, terms=Terms(backfill=terms))
            await operations.add(connection, replace(new, total=total))
            await record_operation(connection, actor, AuditAction.OPERATION_STARTED, replace(new, total=total))
            details = {"operation_id": str(new.id), "count": total, **selection}
            await audit.record(
                connection,
                actor,
                AuditAction.SCHEDULE_BACKFILLED,
                schedule_subject(job),
                details=details,
                note=wanted.note,
            )
            return operation_view(await stored_operation(connection, new.id))


def _terms(job: ScheduledJob, wanted: BackfillInput, now: datetime) -> BackfillTerms:
    """Return what a request asks for; slots that have no outcome yet are left to the schedule itself."""
    if wanted.since is None or wanted.until is None:
        missing = [name for name, at in (("from", wanted.since), ("to", wanted.until)) if at is None]
        raise InvalidError(*(FieldError(name, "This field is required.") for name in missing))
    require_years({"from": wanted.since, "to": wanted.until})
    first, last = wanted.since.astimezone(UTC), wanted.until.astimezone(UTC)
    if last < first:
        raise InvalidError(FieldError("to", "The end must not be before `from`."))
    if first > now:
        raise InvalidError(FieldError("from", "The time is in the future. A backfill runs past slots."))
    pending = job.cadence_slot
    if pending is not None:
        last = min(last, pending - timedelta.resolution)
    return BackfillTerms(
        schedule_id=job.id,
        first=first,
        last=min(last, now),
        only=BackfillOnly(wanted.only),
        order=BackfillOrder(wanted.order),
        max_concurrent=wanted.max_concurrent,
        per_second=parse_rate(wanted.rate),
    )


class _Chosen(msgspec.Struct, frozen=True):
    """The slots that a backfill would run: how many, and the first ones."""

    count: int
    first: list[PastSlot]


async def _chosen(connection: Connection, job: ScheduledJob, terms: BackfillTerms) -> _Chosen:
    """Return the slots that a backfill would run now."""
    count, first = 0, list[PastSlot]()
    is_all, looked_at = False, 0
    while not is_all:
        slots, is_all = await next_slots(connection, job, terms, PAGE)
        looked_at += len(slots)
        if looked_at > MOST_SLOTS:
            message = f"The span has more than {MOST_SLOTS} slots. Choose a shorter one."
            raise InvalidError(FieldError("to", message))
        admitted = [past for past in slots if terms.admits(past.outcome)]
        count += len(admitted)
        first += admitted[: MOST_NAMED - len(first)]
        if slots:
            terms = replace(terms, position=slots[-1].slot)
    return _Chosen(count, first)
