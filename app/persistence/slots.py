"""The newest slots of several schedules at once: their runs, their ledger entries, pauses and the global switch."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.run_ids import first_id_at, last_id_at
from app.domain.slot_strips import Turn
from app.persistence.leases import SCHEDULES_SWITCH
from app.persistence.ledger import StoredEntry, Stretch
from app.persistence.permits import waited_limit
from app.persistence.sql_batches import fetch

# How many pauses of a schedule, and how many changes of the switch, are looked at.
MOST_TURNS = 100
_FIRST_ID, _LAST_ID = UUID(int=0), UUID(int=2**128 - 1)

_RUN_COLUMNS = (
    *("scheduled_job_id", "id", "scheduled_for", "started_at", "finished_at", "status", "deadline_at", "error"),
    *("unrun_outcome", "trigger", "retry_attempt"),
)
_SELECTED = ", ".join((*(f"e.{name}" for name in _RUN_COLUMNS), f"{waited_limit('e')} AS waiting_limit"))
_SHOWN = ", ".join(f"r.{name}" for name in (*_RUN_COLUMNS, "waiting_limit"))
# The row comparison and the order name the columns of one index: by the id alone, a plan could read the runs of all
# schedules. The bounds of the id alone leave out the partitions of other weeks.
_RUNS = (
    f"SELECT {_SHOWN} FROM unnest($1::uuid[]) AS ids(id) "  # noqa: S608
    f"CROSS JOIN LATERAL (SELECT {_SELECTED} FROM workflow_executions AS e "
    "WHERE (e.scheduled_job_id, e.id) >= (ids.id, $2) AND (e.scheduled_job_id, e.id) < (ids.id, $3) "
    "AND e.id >= $2 AND e.id < $3 AND e.retry_attempt = 0 AND e.trigger NOT IN ('manual', 'backfill') "
    "AND ($4::timestamptz IS NULL OR e.scheduled_for >= $4) AND ($5::timestamptz IS NULL OR e.scheduled_for <= $5) "
    "AND ($6::timestamptz IS NULL OR e.scheduled_for < $6) "
    "ORDER BY e.scheduled_job_id DESC, e.id DESC LIMIT $7) AS r"
)
_LAST_ATTEMPTS = (
    f"SELECT {_SHOWN} "  # noqa: S608
    "FROM unnest($1::uuid[], $2::timestamptz[], $3::uuid[], $4::uuid[]) AS s(id, slot, first_id, last_id) "
    f"CROSS JOIN LATERAL (SELECT {_SELECTED} FROM workflow_executions AS e "
    "WHERE (e.scheduled_job_id, e.id) > (s.id, s.first_id) AND (e.scheduled_job_id, e.id) < (s.id, s.last_id) "
    "AND e.id > s.first_id AND e.id < s.last_id AND e.retry_attempt > 0 AND e.trigger NOT IN ('manual', 'backfill') "
    "AND e.scheduled_for = s.slot ORDER BY e.scheduled_job_id DESC, e.id DESC LIMIT 1) AS r"
)
_ENTRIES = (
    "SELECT r.scheduled_job_id, r.first_slot, r.last_slot, r.slot_count, r.outcome, r.reason, r.execution_id "
    "FROM unnest($1::uuid[]) AS ids(id) CROSS JOIN LATERAL (SELECT l.* FROM ledger_entries AS l "
    "WHERE l.scheduled_job_id = ids.id AND ($2::timestamptz IS NULL OR l.last_slot >= $2) "
    "AND ($3::timestamptz IS NULL OR l.first_slot <= $3) AND ($4::timestamptz IS NULL OR l.last_slot < $4) "
    "ORDER BY l.last_slot DESC LIMIT $5) AS r"
)
_TURN = "SELECT r.id, r.scheduled_job_id, r.at, r.author, r.note, r.snapshot ->> 'status' AS status"
_TURNS = (
    "SELECT t.* FROM unnest($1::uuid[], $2::timestamptz[]) AS w(id, since) CROSS JOIN LATERAL ("  # noqa: S608
    f"({_TURN} FROM schedule_revisions AS r WHERE r.scheduled_job_id = w.id AND r.at >= w.since "
    "AND r.changes ? 'status' ORDER BY r.at DESC, r.id DESC LIMIT $3) UNION ALL "
    f"({_TURN} FROM schedule_revisions AS r WHERE r.scheduled_job_id = w.id AND r.at < w.since "
    "AND r.changes ? 'status' ORDER BY r.at DESC, r.id DESC LIMIT 1)) AS t ORDER BY t.at, t.id"
)
_SWITCH_TURNS = (
    "SELECT at, actor, note, changes -> 'schedules_enabled' ->> 'to' AS is_on FROM audit_events "
    "WHERE action = 'settings_changed' AND changes ? 'schedules_enabled' ORDER BY id DESC LIMIT $1"
)
_SWITCH = "SELECT is_on, changed_at FROM switches WHERE name = $1"


class SlotRun(msgspec.Struct, frozen=True, gc=False):
    """The run of a slot, in the words of the table and in the order of the columns that are read.

    A request for strips makes thousands of them: they are made by position, and hold nothing that could be a cycle.
    """

    scheduled_job_id: UUID
    id: UUID
    scheduled_for: datetime
    started_at: datetime | None
    finished_at: datetime | None
    status: str
    deadline_at: datetime | None
    error: str
    unrun_outcome: str | None
    trigger: str
    retry_attempt: int
    # The name of the limit that it waits for.
    waiting_limit: str | None


async def first_runs(
    connection: AsyncConnection, job_ids: Sequence[UUID], stretch: Stretch, limit: int
) -> dict[UUID, list[SlotRun]]:
    """Return the first runs of the newest slots of each schedule, newest first, at most ``limit`` of each."""
    first = _FIRST_ID if stretch.since is None else first_id_at(stretch.since)
    ends = [last_id_at(moment) for moment in (stretch.until, stretch.before) if moment is not None]
    rows = await fetch(
        connection,
        _RUNS,
        list(job_ids),
        first,
        min(ends, default=_LAST_ID),
        stretch.since,
        stretch.until,
        stretch.before,
        limit,
    )
    runs: dict[UUID, list[SlotRun]] = {}
    for row in rows:
        runs.setdefault(row[0], []).append(SlotRun(*row))
    return runs


async def last_attempts(connection: AsyncConnection, runs: Sequence[SlotRun]) -> dict[UUID, SlotRun]:
    """Return the last retries of the slots of these first runs, by the ids of the first runs."""
    if not runs:
        return {}
    by_slot = {(run.scheduled_job_id, run.scheduled_for): run.id for run in runs}
    rows = await fetch(
        connection,
        _LAST_ATTEMPTS,
        [run.scheduled_job_id for run in runs],
        [run.scheduled_for for run in runs],
        [run.id for run in runs],
        [last_id_at(run.scheduled_for) for run in runs],
    )
    retries = [SlotRun(*row) for row in rows]
    return {by_slot[run.scheduled_job_id, run.scheduled_for]: run for run in retries}


async def entries(
    connection: AsyncConnection, job_ids: Sequence[UUID], stretch: Stretch, limit: int
) -> dict[UUID, list[StoredEntry]]:
    """Return the newest ledger entries of each schedule that touch a span of time, newest first."""
    rows = await fetch(connection, _ENTRIES, list(job_ids), stretch.since, stretch.until, stretch.before, limit)
    found: dict[UUID, list[StoredEntry]] = {}
    for row in rows:
        job_id, *values = row
        found.setdefault(job_id, []).append(
            StoredEntry(**dict(zip(StoredEntry.__struct_fields__, values, strict=True)))
        )
    return found


async def pauses(connection: AsyncConnection, since: dict[UUID, datetime]) -> dict[UUID, list[Turn]]:
    """Return when schedules were paused and went on since these moments, oldest first.

    The first turn of each is the one that was in force at its moment.
    """
    turns: dict[UUID, list[Turn]] = {}
    for row in await fetch(connection, _TURNS, list(since), list(since.values()), MOST_TURNS):
        turn = Turn(row["at"], row["status"] == "paused", row["author"], row["note"])
        turns.setdefault(row["scheduled_job_id"], []).append(turn)
    return turns


async def switch_turns(connection: AsyncConnection) -> list[Turn]:
    """Return when all schedules were switched off and on, oldest first, as far as the audit log reaches back."""
    rows = await fetch(connection, _SWITCH_TURNS, MOST_TURNS)
    turns = [Turn(row["at"], row["is_on"] == "false", row["actor"] or "", row["note"]) for row in reversed(rows)]
    switch = next(iter(await fetch(connection, _SWITCH, SCHEDULES_SWITCH)), None)
    if switch is not None and not switch["is_on"] and not (turns and turns[-1].is_off):
        turns.append(Turn(switch["changed_at"], is_off=True, by="", note=""))
    return turns
