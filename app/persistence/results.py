"""What comes of asking for ticks, and of ending executions."""

from datetime import datetime
from uuid import UUID

import msgspec

from app.domain.executions import Execution, PendingRun
from app.domain.schedules import ScheduledJob
from app.domain.ticks import NotDue, Stale
from app.persistence.row_cache import Sight


class Known(msgspec.Struct, frozen=True):
    """A schedule as its claim left it: the version of its row, and the database's time then."""

    job: ScheduledJob
    version: int
    at: datetime
    # Of the memory of the worker that claimed it; after a failover versions say nothing any more.
    epoch: int = 0


class Busy(msgspec.Struct, frozen=True):
    """Someone holds the row, or that of its workflow; the message has to come back."""


class Claimed(msgspec.Struct, frozen=True):
    """The tick is handled: the schedule as it now is, what to run here, what may start elsewhere, what was stopped."""

    job: ScheduledJob
    execution: Execution | None = None
    pending: tuple[PendingRun, ...] = ()
    cancelled: tuple[UUID, ...] = ()
    # The schedule with the version of its row; None where others may have changed it since.
    known: Known | None = None
    sight: Sight | None = None


ClaimResult = Stale | NotDue | Busy | Claimed


class Superseded(msgspec.Struct, frozen=True):
    """The token had moved, or the execution was gone: someone else has had the last word."""


class Settled(msgspec.Struct, frozen=True):
    """The execution has ended; the schedule as it was before and as it is now, and what may start."""

    execution_id: UUID
    before: ScheduledJob
    job: ScheduledJob
    pending: tuple[PendingRun, ...] = ()


class EntityRunSettled(msgspec.Struct, frozen=True):
    """The execution of an entity has ended; its next attempt, if there is one."""

    execution_id: UUID
    pending: tuple[PendingRun, ...] = ()


class Delayed(msgspec.Struct, frozen=True):
    """Someone holds a row that this needs; it has to be written alone, so that nobody else waits for it."""


SettleResult = Superseded | Settled | EntityRunSettled
FreeResult = SettleResult | Delayed
