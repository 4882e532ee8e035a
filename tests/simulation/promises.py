"""What must hold after any history, found out by counting: nothing here asks the product what it thinks.

Moments are whole microseconds since the beginning.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import combinations
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from tests.simulation.processes import START
from tests.simulation.world import World

SECOND = 1_000_000
# How late a tick may be handled when nothing is wrong.
PUNCTUAL = 2 * SECOND
FAILURES = {"failed", "timed_out", "lost"}
REPEATS = {"success", "skipped", "blocked"}


class Run(msgspec.Struct, frozen=True):
    """An execution, as the table has it."""

    id: UUID
    trigger: str
    status: str
    slot: int
    attempt: int
    exclusive: bool
    queued: bool
    token: int
    worker: UUID | None
    due: int
    created: int
    started: int | None
    finished: int | None
    unrun: str | None

    @property
    def is_manual(self) -> bool:
        """Whether somebody asked for it: then it counts for nothing."""
        return self.trigger == "manual"

    def is_active_at(self, moment: int) -> bool:
        """Whether it was pending or running then."""
        return self.created <= moment and (self.finished is None or self.finished > moment)


class Period(msgspec.Struct, frozen=True):
    """From one change of a schedule to the next: after ``begin``, up to and including ``end``."""

    begin: int
    end: int
    status: str
    anchor: int
    interval: int
    repeats: int

    def slots(self) -> Iterable[int]:
        """The slots that it expects, one after another."""
        first = self.anchor + self.interval * max(1, (self.begin - self.anchor) // self.interval + 1)
        return range(first, self.end + 1, self.interval) if self.status == "active" else ()


class Entry(msgspec.Struct, frozen=True):
    """Slots that did not fire."""

    first: int
    last: int
    count: int
    outcome: str

    def covers(self, slot: int) -> bool:
        """Whether it is about this slot."""
        return self.first <= slot <= self.last


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one schedule."""

    row: dict[str, Any]
    runs: tuple[Run, ...]
    entries: tuple[Entry, ...]
    periods: tuple[Period, ...]
    problems: tuple[str, ...]

    @property
    def scheduled(self) -> tuple[Run, ...]:
        """The runs that nobody asked for."""
        return tuple(run for run in self.runs if not run.is_manual)


def moment(value: datetime | str) -> int:
    """A time of the database or of a snapshot, in microseconds since the start of the history."""
    time = datetime.fromisoformat(value) if isinstance(value, str) else value
    return (time - START) // timedelta(microseconds=1)


def optional_moment(value: datetime | str | None) -> int | None:
    """The same where there may be none."""
    return None if value is None else moment(value)


async def accounts(connection: asyncpg.Connection, now: int) -> list[Account]:
    """Everything, read in four questions."""
    runs, entries, revisions = defaultdict(list), defaultdict(list), defaultdict(list)
    for row in await connection.fetch("SELECT * FROM workflow_executions ORDER BY scheduled_for, retry_attempt, id"):
        runs[row["scheduled_job_id"]].append(_run(row))
    for row in await connection.fetch("SELECT * FROM ledger_entries ORDER BY first_slot"):
        entry = Entry(moment(row["first_slot"]), moment(row["last_slot"]), row["slot_count"], row["outcome"])
        entries[row["scheduled_job_id"]].append(entry)
    for row in await connection.fetch("SELECT * FROM schedule_revisions ORDER BY at, id"):
        revisions[row["scheduled_job_id"]].append((row["action"], moment(row["at"]), row["snapshot"]))
    found = []
    for row in await connection.fetch("SELECT * FROM scheduled_jobs ORDER BY id"):
        job = row["id"]
        periods, problems = _periods(revisions[job], now)
        found.append(
            Account(
                row=dict(row),
                runs=tuple(runs[job]),
                entries=tuple(entries[job]),
                periods=tuple(periods),
                problems=tuple(problems),
            )
        )
    return found


# What triggers keep beside the tables that count: the same rows with the same values, at every moment.
_ASTRAY = """
SELECT 'active', e.id FROM (SELECT id, status, token, queued, worker_id, due_at FROM workflow_executions
  WHERE finished_at IS NULL) AS e
FULL JOIN active_executions AS a ON a.id = e.id
WHERE (e.id, e.status, e.token, e.queued, e.worker_id, e.due_at)
  IS DISTINCT FROM (a.id, a.status, a.token, a.queued, a.worker_id, a.due_at)
UNION ALL SELECT 'due', j.id FROM (SELECT id, next_run_at FROM scheduled_jobs WHERE next_run_at IS NOT NULL) AS j
FULL JOIN due_ticks AS d ON d.id = j.id WHERE (j.id, j.next_run_at) IS DISTINCT FROM (d.id, d.next_run_at)
UNION ALL SELECT 'unsuccessful', e.id FROM (SELECT id, status FROM workflow_executions
  WHERE finished_at IS NOT NULL AND status <> 'success') AS e
FULL JOIN unsuccessful_executions AS u ON u.id = e.id WHERE (e.id, e.status) IS DISTINCT FROM (u.id, u.status)
"""


async def astray(connection: asyncpg.Connection) -> list[str]:
    """Where the narrow tables say something else than those that they follow."""
    return [f"{kind}: {row_id} is not as it should be" for kind, row_id in await connection.fetch(_ASTRAY)]


def _run(row: asyncpg.Record) -> Run:
    return Run(
        id=row["id"],
        trigger=row["trigger"],
        status=row["status"],
        slot=moment(row["scheduled_for"]),
        attempt=row["retry_attempt"],
        exclusive=row["exclusive"],
        queued=row["queued"],
        token=row["token"],
        worker=row["worker_id"],
        due=moment(row["due_at"]),
        created=moment(row["created_at"]),
        started=optional_moment(row["started_at"]),
        finished=optional_moment(row["finished_at"]),
        unrun=row["unrun_outcome"],
    )


def _periods(revisions: Sequence[tuple[str, int, str]], now: int) -> tuple[list[Period], list[str]]:
    """What was expected when; the slots are counted anew only from the moment of the change that says so."""
    periods: list[Period] = []
    problems: list[str] = []
    ends = [at for _, at, _ in revisions[1:]] + [now]
    for (action, at, words), end in zip(revisions, ends, strict=True):
        snapshot = msgspec.json.decode(words)
        anchor, interval = moment(snapshot["anchor_at"]), int(snapshot["interval_seconds"] * SECOND)
        before = periods[-1] if periods else None
        fresh = before is None or action in {"resumed", "revived"} or before.interval != interval
        if anchor not in ({at} if fresh or before is None else {at, before.anchor}):
            problems.append(f"{action} at {at} counts slots from {anchor}")
        periods.append(Period(at, end, snapshot["status"], anchor, interval, snapshot["total_repeats"]))
    return periods, problems


def broken_promises(account: Account) -> list[str]:
    """What does not hold of a schedule that has come to rest."""
    checks = (_slots, _limits, _attempts, _timeliness, _overlaps, _counters, _last_attempt)
    name = f"schedule {str(account.row['id'])[:8]}"
    found = [*account.problems, *(problem for check in checks for problem in check(account))]
    return [f"{name}: {problem}" for problem in found]


def _slots(account: Account) -> Iterable[str]:
    """Every slot has exactly one outcome, and nothing has one that is not a slot."""
    fired: dict[int, int] = defaultdict(int)
    for run in account.scheduled:
        if run.attempt == 0:
            fired[run.slot] += 1
    expected = [(slot, period) for period in account.periods for slot in period.slots()]
    grid = {slot for slot, _ in expected}
    yield from (f"slot {slot} fired and was not expected" for slot in fired if slot not in grid)
    for entry in account.entries:
        covered = [slot for slot in grid if entry.covers(slot)]
        if len(covered) != entry.count or entry.first not in grid or entry.last not in grid:
            yield f"{entry} covers {sorted(covered)}"
    for slot, period in expected:
        outcomes = fired[slot] + sum(entry.covers(slot) for entry in account.entries)
        if outcomes > 1 or (not outcomes and not _was_full(account, slot, period)):
            yield f"slot {slot} has {outcomes} outcomes"


def _was_full(account: Account, slot: int, period: Period) -> bool:
    """Whether the repeats were used up by what was completed or under way: then no slot is expected."""
    if not period.repeats:
        return False
    by_slot: dict[int, list[Run]] = defaultdict(list)
    for run in account.scheduled:
        if run.created <= slot:
            by_slot[run.slot].append(run)
    taken = 0
    for runs in by_slot.values():
        done = any(run.status in REPEATS and run.finished and run.finished <= slot for run in runs)
        under_way = any(run.is_active_at(slot) or run.status in FAILURES for run in runs)
        taken += done or under_way
    return taken >= period.repeats


def _limits(account: Account) -> Iterable[str]:
    """Nothing begins beyond the number of repeats."""
    for run in account.scheduled:
        period = next((one for one in account.periods if one.begin < run.created <= one.end), None)
        if run.attempt or period is None or not period.repeats:
            continue
        others = [one for one in account.scheduled if one.id != run.id]
        done = sum(one.status in REPEATS and one.finished is not None and one.finished < run.created for one in others)
        before = sum(
            one.is_active_at(run.created) and (one.created, one.slot) < (run.created, run.slot) for one in others
        )
        if done + before >= period.repeats:
            yield f"slot {run.slot} fired after {done} repeats and beside {before}, of {period.repeats}"


def _attempts(account: Account) -> Iterable[str]:
    """Each attempt once, and only after the one before it has failed and the backoff has passed."""
    by_key: dict[tuple[int, int], Run] = {}
    for run in account.scheduled:
        if (run.slot, run.attempt) in by_key:
            yield f"slot {run.slot} attempt {run.attempt} exists twice"
        by_key[run.slot, run.attempt] = run
    for run in by_key.values():
        if not run.attempt:
            continue
        before = by_key.get((run.slot, run.attempt - 1))
        if before is None or before.status not in FAILURES or before.finished is None:
            yield f"slot {run.slot} attempt {run.attempt} follows {before and before.status}"
        elif run.started and run.started < before.finished + account.row["backoff_base_seconds"] * SECOND:
            yield f"slot {run.slot} attempt {run.attempt} did not wait"


def _timeliness(account: Account) -> Iterable[str]:
    """Nothing fires early, and nothing while it is not active; what was handed back may go on."""
    for run in account.scheduled:
        if run.started is not None and run.started < run.slot:
            yield f"slot {run.slot} started at {run.started}"
        begins = [run.created] if run.started is None or run.token > 2 else [run.created, run.started]
        for begin in begins:
            status = next((one.status for one in account.periods if one.begin < begin <= one.end), "not there")
            if status != "active":
                yield f"slot {run.slot} attempt {run.attempt} began at {begin} while it was {status}"


def _overlaps(account: Account) -> Iterable[str]:
    """What may not run beside others does not."""
    spans = [
        (run.started, run.finished, f"{run.slot}/{run.attempt}")
        for run in account.runs
        if run.exclusive and run.started is not None and run.finished is not None
    ]
    for (began, ended, run), (other_began, other_ended, other) in combinations(spans, 2):
        if max(began, other_began) < min(ended, other_ended):
            yield f"{run} and {other} overlap"


def _counters(account: Account) -> Iterable[str]:
    """They say what the history says."""
    runs, row = account.scheduled, account.row
    counted = {
        "run_count": sum(run.status == "success" for run in runs),
        "error_count": sum(run.status in FAILURES for run in runs),
        "current_repeat": sum(run.status in REPEATS for run in runs),
    }
    yield from (f"{name} is {row[name]}, not {value}" for name, value in counted.items() if row[name] != value)
    if row["status"] != "dead" and row["current_retry"] > row["max_retries"]:
        yield f"current_retry is {row['current_retry']} of {row['max_retries']}"
    if any(run.finished is None for run in account.runs):
        yield "a run has not ended"


def _last_attempt(account: Account) -> Iterable[str]:
    """The row says what became of the newest slot, and which run is the last of the newest slot that fired."""
    row = account.row
    outcomes = {entry.last: entry.outcome for entry in account.entries}
    for run in account.scheduled:
        # Sorted by slot and attempt; a retry that never started gives its slot no second outcome.
        if run.started is not None:
            outcomes[run.slot] = run.status
        elif not run.attempt:
            outcomes[run.slot] = run.unrun or "queued"
    newest = outcomes[max(outcomes)] if outcomes else None
    if row["last_outcome"] != newest:
        yield f"last_outcome is {row['last_outcome']}, not {newest}"
    started = [run.id for run in account.scheduled if run.started is not None]
    if row["last_execution_id"] != max(started, default=None):
        yield f"last_execution_id is {row['last_execution_id']}, not {max(started, default=None)}"
    if (row["last_attempt_at"] is None) != (not outcomes):
        yield f"last_attempt_at is {row['last_attempt_at']}"
    if bool(row["last_error"]) != (row["last_error_at"] is not None):
        yield f"last_error is '{row['last_error']}' and last_error_at {row['last_error_at']}"


def is_full(all_accounts: Iterable[Account], most: int | None) -> bool:
    """Whether runs have to wait for a place."""
    running = sum(run.status == "running" for account in all_accounts for run in account.runs)
    return most is not None and running >= most


def broken_guard(all_accounts: Iterable[Account], most: int | None) -> list[str]:
    """No scheduled run begins while as many are running as the workflow lets through."""
    if most is None:
        return []
    runs = [(run, run.started) for account in all_accounts for run in account.runs if run.started is not None]
    found = []
    for run, started in runs:
        beside = [
            other for other, began in runs if other.id != run.id and began <= started < (other.finished or started)
        ]
        if not run.is_manual and len(beside) >= most:
            found.append(f"the run of {run.slot}/{run.attempt} began beside {len(beside)} others, of {most}")
    return found


def not_going_on(account: Account, owned: set[UUID], now: int, *, is_full: bool) -> list[str]:
    """What stands still although nothing has been wrong for a while."""
    row, found = account.row, []
    if row["status_reason"] == "poisoned":
        found.append("was poisoned")
    active = [run for run in account.runs if run.finished is None]
    due = optional_moment(row["next_run_at"])
    if due is not None and due < now - PUNCTUAL:
        found.append(f"its tick was due at {due}")
    if row["status"] == "active" and due is None and not any(not run.is_manual for run in active):
        found.append("is active, and nothing is planned or under way")
    for run in active:
        if run.status == "running" and run.id not in owned:
            found.append(f"the run of {run.slot}/{run.attempt} has nobody who works on it")
        if run.status == "pending" and not run.queued and run.due < now - PUNCTUAL and not is_full:
            found.append(f"the run of {run.slot}/{run.attempt} could have started at {run.due}")
    if any(run.queued for run in active) and all(run.queued for run in active) and not row["next_attempt"]:
        found.append("what is queued waits for nobody")
    return [f"schedule {str(row['id'])[:8]}: {problem}" for problem in found]


def has_moved_on(account: Account, before: dict[UUID, int]) -> bool:
    """Whether a schedule has handled a tick since, or has none to handle."""
    row = account.row
    return row["next_run_at"] is None or row["generation"] != before.get(row["id"])


def broken_calls(world: World, all_accounts: Iterable[Account]) -> list[str]:
    """A success has been worked for, nobody does the same work twice at once, and nothing of what is deleted begins."""
    found = []
    for one, other in combinations(world.calls, 2):
        same = (one.execution, one.worker) == (other.execution, other.worker)
        if same and (one.left is None or other.begun < one.left):
            found.append(f"{one} and {other} are the same work at the same time")
    done = {call.execution for call in world.calls if call.ended is not None}
    for account in all_accounts:
        found += [
            f"{run} succeeded by itself" for run in account.runs if run.status == "success" and run.id not in done
        ]
    for call in world.calls:
        gone = world.deleted.get(call.schedule) if call.schedule else None
        if gone is not None and moment(call.claimed_at) > gone * SECOND + SECOND // 10:
            found.append(f"{call} although its schedule was deleted at {gone}")
    return found
