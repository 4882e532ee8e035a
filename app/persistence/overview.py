"""The overview: schedules counted by status and health, what is due, running and wrong, and the workers.

Nothing here scans the schedules of all owners. Overdue ones are in ``due_ticks``, failing ones in ``schedule_marks``,
and those that are not active in an index of their own.
"""

from collections import Counter
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Reach
from app.domain.attention import Attention, AttentionKind
from app.domain.health import LATE_AFTER, Health, health_facts
from app.domain.schedules import Reason, ScheduledJob, Status
from app.persistence.calendars import with_calendars
from app.persistence.gauges import MOST_COUNTED
from app.persistence.leases import SCHEDULES_ENABLED
from app.persistence.pagination import Page, Part, read_page
from app.persistence.schedules import COLUMNS, from_record
from app.persistence.sql_batches import fetch
from app.persistence.tables import ActiveExecutionRow, WorkerRow

_ACTIVE = ActiveExecutionRow.__table__
_WORKERS = WorkerRow.__table__

# Overdue schedules are few, unless nothing fires them. The health of more is not looked at: they count as late.
MOST_OVERDUE = 1000
# Of each kind so many are candidates for the attention list.
MOST_OF_A_KIND = 20

_LISTED = COLUMNS.replace("j.trigger_payload", "'{}'::jsonb AS trigger_payload")
_TICKS = "due_ticks AS d JOIN scheduled_jobs AS j ON j.id = d.id"
_HEALTH_OF_STATUS = {Status.PAUSED: Health.PAUSED, Status.DONE: Health.DONE, Status.DEAD: Health.DEAD}
_KIND_OF_REASON = {Reason.INVALID_SPEC: AttentionKind.INVALID, Reason.POISONED: AttentionKind.POISONED}


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """What changes from second to second: due ticks, runs under way, workers, the switch, open breakers, changes."""

    now: datetime
    due: int
    oldest_overdue_seconds: float
    running: int
    workers: int
    schedules_enabled: bool
    open_breakers: int
    # The id of the newest event of the audit log; None if there is none.
    last_change: UUID | None


class Counts(msgspec.Struct, frozen=True):
    """Schedules by status and by health, and those of them that need attention."""

    status: dict[str, int]
    health: dict[str, int]
    attention: tuple[Attention, ...]


class StoredWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker with its lease, and the number of executions that it runs."""

    id: UUID
    name: str
    started_at: datetime
    lease_expires_at: datetime
    is_live: bool
    running: int


class _Scope(msgspec.Struct, frozen=True):
    """Conditions for what is within reach, as SQL behind other conditions, and the values of its parameters."""

    reach: Reach

    def of(self, table: str, workflow: str = "workflow_id") -> str:
        """Return the condition for the rows of a table, which is one of ``_SCHEDULE_OF`` or ``w`` for workflows."""
        # All of them use all parameters: a statement with one that it does not use is refused.
        parts = {
            "owners": f"{table}.user_profile_id = ANY({{}}::int[])",
            "workflow_ids": f"{table}.{workflow} = ANY({{}}::int[])",
            "labels": _LABELLED_WORKFLOW if table == "w" else _LABELLED,
            "namespace": _DECLARED_WORKFLOW if table == "w" else _DECLARED,
        }
        schedule = _SCHEDULE_OF.get(table, "")
        numbered = enumerate(self._given, start=1)
        return "".join(f" AND {parts[name].format(f'${number}', schedule=schedule)}" for number, name in numbered)

    @property
    def values(self) -> list[Any]:
        """Return the values of the conditions."""
        return list(self._given.values())

    @property
    def _given(self) -> dict[str, Any]:
        """Return the parts of the reach that leave something out, as the values of parameters."""
        reach = self.reach
        given: dict[str, Any] = {}
        if reach.owners is not None:
            given["owners"] = list(reach.owners)
        if reach.workflow_ids is not None:
            given["workflow_ids"] = list(reach.workflow_ids)
        if reach.labels:
            given["labels"] = msgspec.json.encode(dict(reach.labels)).decode()
        if reach.namespace:
            given["namespace"] = reach.namespace
        return given

    @property
    def is_all(self) -> bool:
        """Return whether everything is within reach."""
        return not self.values


# The schedule that a row of a table belongs to.
_SCHEDULE_OF = {"j": "j.id", "k": "k.id", "e": "e.scheduled_job_id"}
_LABELLED = "EXISTS (SELECT FROM scheduled_jobs AS s WHERE s.id = {schedule} AND s.labels @> {}::text::jsonb)"
_DECLARED = "EXISTS (SELECT FROM managed_schedules AS m WHERE m.scheduled_job_id = {schedule} AND m.namespace = {})"
_LABELLED_WORKFLOW = "w.labels @> {}::text::jsonb"
_DECLARED_WORKFLOW = "EXISTS (SELECT FROM managed_workflows AS m WHERE m.workflow_id = w.id AND m.namespace = {})"
# Not ``clock_timestamp()``, which may change within a statement: no index answers a comparison with it.
_NOW = "statement_timestamp()"
_ALL_DUE = "due_ticks AS d"
_ALL_RUNNING = "active_executions AS a"
_RUNNING = "active_executions AS a JOIN workflow_executions AS e ON e.id = a.id"


async def read_moment(connection: AsyncConnection, reach: Reach) -> Moment:
    """Return what is due, running and open now."""
    scope = _Scope(reach)
    ticks, of_ticks = (_ALL_DUE, "") if scope.is_all else (_TICKS, scope.of("j"))
    runs, of_runs = (_ALL_RUNNING, "") if scope.is_all else (_RUNNING, scope.of("e"))
    (row,) = await fetch(
        connection,
        f"SELECT clock_timestamp() AS now, (SELECT count(*) FROM (SELECT FROM {ticks} "  # noqa: S608
        f"WHERE d.next_run_at <= {_NOW}{of_ticks} LIMIT {MOST_COUNTED}) AS due) AS due, "
        f"coalesce((SELECT greatest(extract(epoch FROM {_NOW} - d.next_run_at), 0) "
        f"FROM {ticks} WHERE d.next_run_at <= {_NOW}{of_ticks} ORDER BY d.next_run_at LIMIT 1), 0)::float "
        f"AS oldest, (SELECT count(*) FROM {runs} WHERE a.status = 'running'{of_runs}) AS running, "
        "(SELECT count(*) FROM workers WHERE lease_expires_at > clock_timestamp()) AS workers, "
        f"{SCHEDULES_ENABLED} AS enabled, (SELECT count(*) FROM circuit_breakers AS b JOIN workflows AS w "
        f"ON w.id = b.workflow_id WHERE b.state = 'open'{scope.of('w', 'id')}) AS breakers, "
        f"{_last_change(reach)} AS last_change",
        *scope.values,
    )
    return Moment(
        now=row["now"],
        due=row["due"],
        oldest_overdue_seconds=round(row["oldest"], 3),
        running=row["running"],
        workers=row["workers"],
        schedules_enabled=row["enabled"],
        open_breakers=row["breakers"],
        last_change=row["last_change"],
    )


def _last_change(reach: Reach) -> str:
    """Return the query for the newest change. Restricted tokens do not reach the audit log."""
    if reach.is_restricted:
        return "NULL::uuid"
    if reach.owners is None:
        return "(SELECT a.id FROM audit_events AS a ORDER BY a.id DESC LIMIT 1)"
    newest = "SELECT a.id FROM audit_events AS a WHERE a.owner_id = o.id ORDER BY a.id DESC LIMIT 1"
    return (
        f"(SELECT n.id FROM unnest($1::int[]) AS o(id) CROSS JOIN LATERAL ({newest}) AS n ORDER BY n.id DESC LIMIT 1)"  # noqa: S608
    )


async def read_counts(connection: AsyncConnection, reach: Reach, now: datetime) -> Counts:
    """Return the schedules within reach by status and health, and which of them need attention."""
    scope = _Scope(reach)
    resting = await fetch(
        connection,
        "SELECT j.status, j.status_reason, count(*) AS number FROM scheduled_jobs AS j "  # noqa: S608
        f"WHERE j.status <> 'active'{scope.of('j')} GROUP BY 1, 2",
        *scope.values,
    )
    status = Counter({str(one): 0 for one in Status})
    health = Counter({str(one): 0 for one in Health})
    for row in resting:
        status[row["status"]] += row["number"]
        invalid = row["status_reason"] == Reason.INVALID_SPEC
        health[Health.INVALID if invalid else _HEALTH_OF_STATUS.get(row["status"], Health.PAUSED)] += row["number"]
    status[Status.ACTIVE] = await _active(connection, scope, resting=status.total())
    overdue, total = await _overdue(connection, scope)
    found = Counter(str(health_facts(job).at(now)) for job in overdue)
    found[Health.LATE] += total - len(overdue)
    marks = await _marks(connection, scope)
    marks.subtract(Counter(str(health_facts(job).usual) for job in overdue))
    for name in (Health.FAILING, Health.NEVER_RAN):
        found[name] += max(0, marks[name])
    health.update(found)
    health[Health.HEALTHY] = max(0, status[Status.ACTIVE] - sum(found.values()))
    return Counts(dict(status), dict(health), (*_overdue_items(overdue, now), *await _items(connection, scope)))


async def _active(connection: AsyncConnection, scope: _Scope, *, resting: int) -> int:
    if not scope.is_all:
        # All, less those that are not active: an index of owners has the number, and nothing of the status.
        sql = f"SELECT count(*) AS number FROM scheduled_jobs AS j WHERE true{scope.of('j')}"  # noqa: S608
        return max(0, int((await fetch(connection, sql, *scope.values))[0]["number"]) - resting)
    # An active schedule without a tick has its last run under way.
    (row,) = await fetch(
        connection,
        "SELECT (SELECT count(*) FROM due_ticks) + (SELECT count(DISTINCT j.id) FROM active_executions AS a "
        "JOIN scheduled_jobs AS j ON j.id = a.scheduled_job_id WHERE j.status = 'active' AND j.next_run_at IS NULL) "
        "AS number",
    )
    return int(row["number"])


async def _marks(connection: AsyncConnection, scope: _Scope) -> Counter[str]:
    """Return how many active schedules have failed last, or never ran."""
    marks = Counter({str(Health.FAILING): 0, str(Health.NEVER_RAN): 0})
    all_marked = f"schedule_marks AS k WHERE true{scope.of('k')}"
    resting = f"scheduled_jobs AS j JOIN schedule_marks AS k ON k.id = j.id WHERE j.status <> 'active'{scope.of('j')}"
    for source, sign in ((all_marked, 1), (resting, -1)):
        sql = f"SELECT k.mark, count(*) AS number FROM {source} GROUP BY 1"  # noqa: S608
        for row in await fetch(connection, sql, *scope.values):
            marks[row["mark"]] += sign * row["number"]
    return marks


async def _overdue(connection: AsyncConnection, scope: _Scope) -> tuple[list[ScheduledJob], int]:
    """Return the schedules that are overdue for longest, and how many are overdue at all."""
    # Not as a parameter, of which a plan would not know that few ticks are before it.
    before = f"{_NOW} - interval '{LATE_AFTER.total_seconds():.0f} seconds'"
    late = f"FROM {_TICKS} WHERE d.next_run_at < {before}{scope.of('j')}"
    rows = await fetch(
        connection,
        f"SELECT {_LISTED} {late} ORDER BY d.next_run_at LIMIT {MOST_OVERDUE}",
        *scope.values,
    )
    jobs = await with_calendars(connection, [from_record(row) for row in rows])
    if len(rows) < MOST_OVERDUE:
        return jobs, len(rows)
    counted = f"SELECT count(*) AS number FROM (SELECT {late} LIMIT {MOST_COUNTED}) AS few"  # noqa: S608
    return jobs, (await fetch(connection, counted, *scope.values))[0]["number"]


def _overdue_items(overdue: list[ScheduledJob], now: datetime) -> list[Attention]:
    kinds = {Health.SILENT: AttentionKind.SILENT, Health.LATE: AttentionKind.LATE}
    items = [(kinds.get(health_facts(job).at(now)), job) for job in overdue[:MOST_OF_A_KIND]]
    return [_schedule(kind, job.id, job.name, job.next_run_at) for kind, job in items if kind is not None]


async def _items(connection: AsyncConnection, scope: _Scope) -> list[Attention]:
    """Return the newest of those that are dead, put aside, failing, or whose breaker is open."""
    limit = f"LIMIT {MOST_OF_A_KIND}"
    queries = {
        "dead": "SELECT j.id, j.name, j.dead_at AS since FROM scheduled_jobs AS j WHERE j.status <> 'active' "  # noqa: S608
        f"AND j.status = 'dead'{scope.of('j')} ORDER BY j.dead_at DESC {limit}",
        "paused": "SELECT j.id, j.name, j.status_reason, j.updated_at AS since FROM scheduled_jobs AS j "  # noqa: S608
        "WHERE j.status_reason <> '' AND j.status_reason IN ('invalid_spec', 'poisoned') "
        f"AND j.status <> 'active'{scope.of('j')} ORDER BY j.updated_at DESC {limit}",
        "failing": "SELECT j.id, j.name, j.last_error_at AS since FROM schedule_marks AS k "  # noqa: S608
        f"JOIN scheduled_jobs AS j ON j.id = k.id WHERE k.mark = 'failing' AND j.status = 'active'{scope.of('k')} "
        f"ORDER BY k.created_at DESC {limit}",
        "breakers": "SELECT w.id, w.name, b.opened_at AS since FROM circuit_breakers AS b JOIN workflows AS w "  # noqa: S608
        f"ON w.id = b.workflow_id WHERE b.state = 'open'{scope.of('w', 'id')} ORDER BY b.opened_at DESC {limit}",
    }
    rows = {name: await fetch(connection, sql, *scope.values) for name, sql in queries.items()}
    kinds = [
        *((AttentionKind.DEAD, row) for row in rows["dead"]),
        *((_KIND_OF_REASON[row["status_reason"]], row) for row in rows["paused"]),
        *((AttentionKind.FAILING, row) for row in rows["failing"]),
    ]
    schedules = [_schedule(kind, row["id"], row["name"], row["since"]) for kind, row in kinds]
    return [*schedules, *(_breaker(row) for row in rows["breakers"])]


def _schedule(kind: AttentionKind, job_id: UUID, name: str, since: datetime | None) -> Attention:
    return Attention(kind=kind, object_type="schedule", id=str(job_id), name=name, since=since)


def _breaker(row: Any) -> Attention:
    return Attention(
        kind=AttentionKind.BREAKER_OPEN,
        object_type="workflow",
        id=str(row["id"]),
        name=row["name"],
        since=row["since"],
    )


async def workers(connection: AsyncConnection, part: Part) -> Page[StoredWorker]:
    """Return a page of the workers in the order of their ids, those whose lease has expired too."""
    running = select(func.count()).where(_ACTIVE.c.worker_id == _WORKERS.c.id).scalar_subquery().label("running")
    is_live = (_WORKERS.c.lease_expires_at > func.clock_timestamp()).label("is_live")
    query = select(_WORKERS, is_live, running)
    return await read_page(connection, query, StoredWorker, (_WORKERS.c.id,), part, ascending=True)
