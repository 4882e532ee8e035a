"""The claim: what due ticks do is decided and written in one transaction. A list of ticks in, a list out."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.executions import ActiveRun, Execution, ExecutionStatus, Trigger
from app.domain.identities import execution_id
from app.domain.ledger import LedgerEntry
from app.domain.schedules import IfRunning, ScheduledJob
from app.domain.ticks import Decided, Fire, NotDue, Stale, Tick, decide
from app.persistence import executions, ledger, schedules
from app.persistence.database import Database
from app.persistence.executions import NewExecution, as_execution


class Busy(msgspec.Struct, frozen=True):
    """Someone holds the row; the message has to come back."""


class Claimed(msgspec.Struct, frozen=True):
    """The tick is handled: the schedule as it now is, and what to run, if it fired."""

    job: ScheduledJob
    execution: Execution | None


ClaimResult = Stale | NotDue | Busy | Claimed


async def claim(database: Database, ticks: Sequence[Tick], worker_id: UUID) -> list[ClaimResult]:
    """Decide and write what these ticks do. Each result stands at the place of its tick."""
    async with database.transaction() as connection:
        jobs = await schedules.lock_free(connection, [tick.job_id for tick in ticks])
        busy = await schedules.existing(connection, {tick.job_id for tick in ticks} - jobs.keys())
        active, now = await executions.active_and_now(connection, jobs)
        first_payloads = await executions.payloads(connection, _first_attempts(jobs.values()))
        batch = _Batch(jobs, active, first_payloads, busy, worker_id, now)
        results = [batch.handle(tick) for tick in ticks]
        await batch.write(connection)
    return results


class _Batch:
    """The state that the ticks of one claim share: each sees what those before it did."""

    def __init__(
        self,
        jobs: dict[UUID, ScheduledJob],
        active: dict[UUID, tuple[ActiveRun, ...]],
        first_payloads: dict[UUID, dict[str, Any]],
        busy: set[UUID],
        worker_id: UUID,
        now: datetime,
    ) -> None:
        self.jobs = jobs
        self.active = active
        self.first_payloads = first_payloads
        self.busy = busy
        self.worker_id = worker_id
        self.now = now
        self.changed: dict[UUID, ScheduledJob] = {}
        self.new_executions: list[NewExecution] = []
        self.new_entries: list[tuple[UUID, LedgerEntry]] = []

    def handle(self, tick: Tick) -> ClaimResult:
        job = self.jobs.get(tick.job_id)
        if job is None:
            return Busy() if tick.job_id in self.busy else Stale()
        decision = decide(job, tick, self.active.get(job.id, ()), self.now)
        if not isinstance(decision, Decided):
            return decision
        self.jobs[job.id] = self.changed[job.id] = decision.job
        self.new_entries.extend((job.id, entry) for entry in decision.ledger)
        return Claimed(decision.job, self._fire(job, decision.fire) if decision.fire else None)

    def _fire(self, job: ScheduledJob, fire: Fire) -> Execution:
        new = NewExecution(
            id=fire.execution_id,
            scheduled_job_id=job.id,
            workflow_id=job.workflow_id,
            trigger=Trigger.SCHEDULE,
            status=ExecutionStatus.RUNNING,
            exclusive=job.if_running is IfRunning.SKIP,
            repeat_number=fire.repeat_number,
            retry_attempt=fire.attempt,
            scheduled_for=fire.slot,
            payload=self._payload(job, fire),
            timeout_seconds=job.timeout_seconds,
            worker_id=self.worker_id,
            created_at=self.now,
            started_at=self.now,
        )
        self.new_executions.append(new)
        self.active[job.id] = (*self.active.get(job.id, ()), ActiveRun(new.id, new.trigger))
        return as_execution(job, new)

    def _payload(self, job: ScheduledJob, fire: Fire) -> dict[str, Any]:
        """A retry runs with what its first attempt had."""
        if not fire.attempt:
            return job.trigger_payload
        return self.first_payloads.get(execution_id(job.id, fire.slot, 0), job.trigger_payload)

    async def write(self, connection: AsyncConnection) -> None:
        await executions.add(connection, self.new_executions)
        await ledger.add(connection, self.new_entries)
        await schedules.save(connection, list(self.changed.values()))


def _first_attempts(jobs: Iterable[ScheduledJob]) -> list[UUID]:
    return [execution_id(job.id, job.next_slot, 0) for job in jobs if job.next_attempt and job.next_slot]
