"""The settle: in one transaction, executions end and their schedules move on. A list in, a list out."""

from collections.abc import Sequence
from uuid import UUID

import msgspec

from app.domain.accounting import dropped
from app.domain.executions import ACTIVE, ActiveRun, Outcome, counting
from app.domain.ledger import LedgerEntry
from app.domain.schedules import ScheduledJob
from app.domain.settling import EndedRun
from app.domain.settling import settle as settle_schedule
from app.persistence import executions, ledger, schedules
from app.persistence.database import Database
from app.persistence.executions import Held


class Superseded(msgspec.Struct, frozen=True):
    """The token had moved, or the execution was gone: someone else has had the last word."""


class Settled(msgspec.Struct, frozen=True):
    """The execution has ended; the schedule as it was before and as it is now."""

    before: ScheduledJob
    job: ScheduledJob


SettleResult = Superseded | Settled


async def settle(database: Database, outcomes: Sequence[Outcome]) -> list[SettleResult]:
    """Write these outcomes, each fenced by its token. Each result stands at the place of its outcome."""
    async with database.transaction() as connection:
        jobs = await schedules.lock(connection, [outcome.scheduled_job_id for outcome in outcomes])
        held = await executions.lock(connection, [outcome.execution_id for outcome in outcomes])
        active, now = await executions.active_and_now(connection, jobs)
        results: list[SettleResult] = []
        accepted: list[Outcome] = []
        changed: dict[UUID, ScheduledJob] = {}
        entries: list[tuple[UUID, LedgerEntry]] = []
        for outcome in outcomes:
            before, run = jobs.get(outcome.scheduled_job_id), held.pop(outcome.execution_id, None)
            if before is None or run is None or not _may_end(run, outcome):
                results.append(Superseded())
                continue
            others = active[before.id] = _without(active.get(before.id, ()), run.id)
            after = settle_schedule(before, _ended(run, outcome), counting(others), now)
            accepted.append(outcome)
            if after is not before:
                jobs[before.id] = changed[before.id] = after
                entries += ((before.id, entry) for entry in dropped(before, after, now))
            results.append(Settled(before, after))
        await executions.end(connection, accepted, now)
        await schedules.save(connection, list(changed.values()))
        await ledger.add(connection, entries)
    return results


def _may_end(run: Held, outcome: Outcome) -> bool:
    return run.status in ACTIVE and run.token == outcome.token


def _without(active: tuple[ActiveRun, ...], execution_id: UUID) -> tuple[ActiveRun, ...]:
    return tuple(run for run in active if run.execution_id != execution_id)


def _ended(run: Held, outcome: Outcome) -> EndedRun:
    return EndedRun(
        execution_id=run.id,
        trigger=run.trigger,
        slot=run.scheduled_for,
        attempt=run.retry_attempt,
        status=outcome.status,
        error=outcome.error,
    )
