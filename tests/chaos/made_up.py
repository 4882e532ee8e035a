"""Made-up histories of a scheduler that keeps its promises, for trying the checker out.

A tiny scheduler in virtual time: it fires, retries, skips, misses, hands back, and is asked this and that by a
client who does not always get an answer. The same seed gives the same history.
"""

import heapq
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from tests.chaos.evidence import (
    Ack,
    Arrival,
    Evidence,
    ExecutionRow,
    Fault,
    LedgerRow,
    Request,
    ScheduleRow,
    Verb,
)

BEGAN = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
ENDED = BEGAN + timedelta(seconds=180)
# Nobody works in between.
OUTAGE = Fault("workers away", BEGAN + timedelta(seconds=60.4), BEGAN + timedelta(seconds=73.1))
SETTLE_SECONDS = 20.0
# Everything that was asked is done or given up when the tables are read.
LAST_ASKED = ENDED - timedelta(seconds=6)

FAILURES = ("failed", "timed_out", "lost")


class Habits:
    """How a schedule is treated and how it fares. Chances are between 0 and 1."""

    def __init__(
        self,
        *,
        failing: float = 0.0,
        unanswered: float = 0.0,
        slow: float = 0.1,
        verbs: tuple[Verb, ...] = (),
        repeats: int = 0,
        retries: int = 50,
    ) -> None:
        self.failing = failing
        self.unanswered = unanswered
        self.slow = slow
        self.verbs = verbs
        self.repeats = repeats
        self.retries = retries


# The first schedules are treated with certainty, so that there is something to break.
EVERYTHING = (Verb.PATCH, Verb.PATCH, Verb.PAUSE, Verb.RESUME, Verb.RESUME, Verb.RUN)
CAST = (
    Habits(),
    Habits(failing=0.15, verbs=(Verb.PAUSE, Verb.RESUME)),
    Habits(failing=0.3, verbs=(Verb.PATCH,)),
    Habits(failing=0.1, verbs=EVERYTHING),
    Habits(failing=0.1, unanswered=0.4, verbs=EVERYTHING),
    Habits(failing=0.2, unanswered=0.7, verbs=EVERYTHING),
    Habits(unanswered=0.3, verbs=(*EVERYTHING, Verb.DELETE)),
    Habits(verbs=(Verb.RUN, Verb.PATCH, Verb.DELETE)),
    Habits(failing=0.7, verbs=EVERYTHING, retries=2),
    Habits(failing=0.2, repeats=6, verbs=(Verb.RUN,)),
    Habits(failing=0.25, slow=0.0),
    Habits(unanswered=1.0),
)


def history(seed: int) -> Evidence:
    """A sound history."""
    lives = [Life(random.Random(f"{seed}-{number}"), number, habits) for number, habits in enumerate(CAST)]
    for life in lives:
        life.live()
    chance = random.Random(seed)
    return Evidence(
        requests=sorted((request for life in lives for request in life.requests), key=lambda request: request.asked),
        arrivals=_shuffled(chance, [arrival for life in lives for arrival in life.arrivals if arrival.at <= ENDED]),
        executions=_shuffled(chance, [row for life in lives for row in life.executions.values()]),
        ledger=_shuffled(chance, [row for life in lives for row in life.ledger]),
        schedules=[life.row() for life in lives if life.exists],
        faults=[OUTAGE],
        began=BEGAN,
        calm=OUTAGE.ended,
        ended=ENDED,
    )


def _shuffled(chance: random.Random, rows: list[Any]) -> list[Any]:
    chance.shuffle(rows)
    return rows


class Life:
    """One schedule, from its creation on."""

    def __init__(self, chance: random.Random, number: int, habits: Habits) -> None:
        self._chance = chance
        self._habits = habits
        self._now = BEGAN
        self._events: list[tuple[datetime, int, Callable[[], object]]] = []
        self._sequence = 0
        self.id = self._uuid()
        self._path = f"/c{number}"
        self.requests: list[Request] = []
        self.arrivals: list[Arrival] = []
        self.executions: dict[UUID, ExecutionRow] = {}
        self.ledger: list[LedgerRow] = []
        self.exists = False
        self._fields: dict[str, Any] = {
            "name": f"c{number}",
            "interval_seconds": chance.randint(1, 5),
            "max_retries": habits.retries,
            "trigger_payload": {},
        }
        self._status = "active"
        self._created = BEGAN
        self._next_slot = BEGAN
        self._next_run_at: datetime | None = None
        self._generation = 0
        self._pending_retry: tuple[datetime, int] | None = None
        self._retry = self._runs = self._errors = self._repeats = 0
        # Whether the next slot that it shows is that of a pending retry, or the next one of the cadence.
        self._shows_retries = chance.random() < 0.5

    def live(self) -> None:
        """Go from event to event until the end."""
        self._after(self._chance.uniform(0.1, 3), self._ask_for_creation)
        while self._events and self._events[0][0] <= ENDED:
            self._now, _, event = heapq.heappop(self._events)
            event()

    def row(self) -> ScheduleRow:
        """The schedule at the end."""
        return ScheduleRow(
            id=self.id,
            status=self._status,
            status_reason="",
            if_running="skip",
            total_repeats=self._habits.repeats,
            current_repeat=self._repeats,
            current_retry=self._retry,
            run_count=self._runs,
            error_count=self._errors,
            next_slot=self._shown_slot(),
            next_run_at=self._next_run_at,
            created_at=self._created,
            **self._fields,
        )

    # What the client does.

    def _ask_for_creation(self) -> None:
        body = dict(self._fields)
        if self._habits.unanswered == 1.0:
            # It is there, and found by its name at the end: the client knows no id.
            self._create(body)
            self._note(self._uuid(), Verb.CREATE, self._now, Ack.UNKNOWN, body, None)
        else:
            self._ask(Verb.CREATE, body, Ack.YES)

    def _ask_something(self) -> None:
        if not self._habits.verbs or self._now > LAST_ASKED:
            return
        verb = self._chance.choice(self._habits.verbs)
        body = self._changes() if verb is Verb.PATCH else {}
        unanswered = self._chance.random() < self._habits.unanswered
        self._ask(verb, body, Ack.UNKNOWN if unanswered else Ack.YES)

    def _ask(self, verb: Verb, body: dict[str, Any], ack: Ack) -> None:
        """Ask now; it takes effect some time later, or never, and is answered some time later."""
        asked = self._now
        effect, answer = sorted(self._chance.uniform(0.01, 1.2) for _ in range(2))
        if ack is Ack.YES:
            self._after(effect, lambda: self._answer(verb, asked, body, self._do(verb, body), answer - effect))
            return
        if self._chance.random() < 0.6:
            self._after(effect + self._chance.choice((0, 2.5)), lambda: self._do(verb, body))
        self._after(answer, lambda: self._hear(self.id, verb, asked, ack, body, None))

    def _answer(
        self, verb: Verb, asked: datetime, body: dict[str, Any], answer: dict[str, Any] | None, delay: float
    ) -> None:
        ack = Ack.NO if answer is None else Ack.YES
        self._after(delay, lambda: self._hear(self.id, verb, asked, ack, body, answer))

    def _hear(self, *heard: Any) -> None:
        self._note(*heard)
        self._after(self._chance.choice((0.3, 4, 9, 15)), self._ask_something)

    def _note(
        self,
        schedule_id: UUID,
        verb: Verb,
        asked: datetime,
        ack: Ack,
        body: dict[str, Any],
        answer: dict[str, Any] | None,
    ) -> None:
        self.requests.append(
            Request(
                schedule_id=schedule_id,
                verb=verb,
                asked=asked,
                answered=self._now,
                ack=ack,
                body=body,
                answer=answer or None,
            )
        )

    def _changes(self) -> dict[str, Any]:
        return self._chance.choice(
            (
                {"name": f"n{self._chance.randrange(10**6)}"},
                {"interval_seconds": self._chance.randint(1, 5)},
                {"trigger_payload": {"x": self._chance.randrange(10**6)}},
                {"max_retries": self._habits.retries + self._chance.randrange(3)},
            )
        )

    # What the API does: an answer, or None if it refuses.

    def _do(self, verb: Verb, body: dict[str, Any]) -> dict[str, Any] | None:
        if verb is not Verb.CREATE and not self.exists:
            return None
        deed = {
            Verb.CREATE: self._create,
            Verb.PATCH: self._patch,
            Verb.PAUSE: self._pause,
            Verb.RESUME: self._resume,
            Verb.DELETE: self._delete,
            Verb.RUN: self._run,
        }[verb]
        return deed(body)

    def _shown(self) -> dict[str, Any]:
        slot = self._shown_slot()
        return {
            "id": str(self.id),
            "status": self._status,
            "created_at": self._created.isoformat(),
            "next_slot": None if slot is None else slot.isoformat(),
            "current_retry": self._retry,
            **self._fields,
        }

    def _shown_slot(self) -> datetime | None:
        if self._next_run_at is None:
            return None
        return self._pending_retry[0] if self._pending_retry and self._shows_retries else self._next_slot

    def _create(self, _: dict[str, Any]) -> dict[str, Any]:
        self.exists = True
        self._created = self._now
        self._anchor()
        return self._shown()

    def _patch(self, body: dict[str, Any]) -> dict[str, Any]:
        moved = body.get("interval_seconds", self._fields["interval_seconds"]) != self._fields["interval_seconds"]
        if moved and self._status == "active":
            self._account_for_passed()
        self._fields |= body
        if moved and self._status == "active":
            self._anchor()
        return self._shown()

    def _pause(self, _: dict[str, Any]) -> dict[str, Any] | None:
        if self._status != "active":
            return None
        self._account_for_passed()
        self._status = "paused"
        self._plan_nothing()
        return self._shown()

    def _resume(self, _: dict[str, Any]) -> dict[str, Any] | None:
        if self._status != "paused":
            return None
        self._status = "active"
        self._anchor()
        return self._shown()

    def _delete(self, _: dict[str, Any]) -> dict[str, Any]:
        self.exists = False
        self._status = "deleted"
        self.executions.clear()
        self.ledger.clear()
        return {}

    def _run(self, _: dict[str, Any]) -> dict[str, Any] | None:
        if self._is_running() or self._is_away():
            return None
        return {"id": str(self._start(self._now, 0, "manual")), "scheduled_for": self._now.isoformat()}

    # What the scheduler does.

    def _anchor(self) -> None:
        self._pending_retry = None
        self._next_slot = self._now + self._interval
        self._plan(self._next_slot)

    def _plan(self, due: datetime) -> None:
        """Replace the pending tick."""
        self._generation += 1
        self._next_run_at = due
        generation = self._generation
        woken = OUTAGE.ended if OUTAGE.began <= due <= OUTAGE.ended else due
        self._at(woken + timedelta(seconds=self._chance.uniform(0.001, 0.02)), lambda: self._tick(generation))

    def _plan_nothing(self) -> None:
        self._generation += 1
        self._next_run_at = None
        self._pending_retry = None

    def _plan_next_slot(self) -> None:
        under_way = sum(self._is_open(row) for row in self.executions.values() if row.trigger != "manual")
        if self._habits.repeats and self._repeats + under_way >= self._habits.repeats:
            self._plan_nothing()
        else:
            self._plan(self._next_slot)

    def _tick(self, generation: int) -> None:
        if generation != self._generation or self._status != "active":
            return
        if self._pending_retry is None:
            self._fire_latest(self._passed())
        elif self._is_running():
            self._plan(self._now + timedelta(seconds=0.3))
            return
        else:
            slot, attempt = self._pending_retry
            self._account_for_passed()
            self._pending_retry = None
            self._start(slot, attempt, "schedule")
        self._plan_next_slot()

    def _fire_latest(self, due: list[datetime]) -> None:
        """Fire the last of the slots that have come due; the earlier ones are missed."""
        self._enter(due[:-1], "missed")
        if self._is_running():
            self._enter(due[-1:], "skipped_overlap")
        elif self._chance.random() < 0.03:
            self._give_up(due[-1])
        else:
            self._start(due[-1], 0, "schedule")
        self._next_slot = due[-1] + self._interval

    def _account_for_passed(self) -> None:
        """Enter the slots that have passed and that nobody has dealt with."""
        passed = self._passed()
        self._enter(passed, "skipped_retry" if self._pending_retry else "missed")
        if passed:
            self._next_slot = passed[-1] + self._interval

    def _passed(self) -> list[datetime]:
        passed, slot = [], self._next_slot
        while slot <= self._now and not (self._habits.repeats and self._next_run_at is None):
            passed.append(slot)
            slot += self._interval
        # A retry of the last repeat is followed by nothing.
        return [] if self._habits.repeats and self._pending_retry else passed

    def _enter(self, slots: list[datetime], outcome: str) -> None:
        """As one range, or one by one."""
        ranges = [slots] if self._chance.random() < 0.7 else [[slot] for slot in slots]
        for some in filter(None, ranges):
            self.ledger.append(
                LedgerRow(
                    scheduled_job_id=self.id,
                    first_slot=some[0],
                    last_slot=some[-1],
                    slot_count=len(some),
                    outcome=outcome,
                )
            )

    def _give_up(self, slot: datetime) -> None:
        """An execution that ends without having begun."""
        row = self._execution(slot, 0, "schedule")
        self.executions[row.id] = replace(
            row, status="cancelled", started_at=None, finished_at=self._now, token=2, unrun_outcome="missed"
        )

    def _start(self, slot: datetime, attempt: int, trigger: str) -> UUID:
        row = self._execution(slot, attempt, trigger)
        self.executions[row.id] = row
        ends = self._now + timedelta(seconds=self._duration())
        if OUTAGE.began <= ends <= OUTAGE.ended:
            self._at(OUTAGE.ended + timedelta(seconds=0.5), lambda: self._finish(row.id, "lost"))
            self._arrive(row, self._chance.choice((0.005, 0.01)))
        elif trigger == "schedule" and self._chance.random() < 0.1:
            self._hand_back(row, ends)
        else:
            status = self._outcome()
            self._at(ends, lambda: self._finish(row.id, status))
            held_up = 2.5 if status == "timed_out" else 0.0
            self._arrive(row, 0.004 + held_up)
        return row.id

    def _hand_back(self, row: ExecutionRow, ends: datetime) -> None:
        """Another worker goes on with the same execution, and calls again."""
        again = row.started_at if self._chance.random() < 0.5 else self._now + timedelta(seconds=0.02)
        self.executions[row.id] = replace(row, token=2, started_at=again)
        self._arrive(row, 0.004)
        self._arrive(row, 0.03)
        self._at(ends, lambda: self._finish(row.id, "success"))

    def _execution(self, slot: datetime, attempt: int, trigger: str) -> ExecutionRow:
        return ExecutionRow(
            id=self._uuid(),
            scheduled_job_id=self.id,
            trigger=trigger,
            status="running",
            retry_attempt=attempt,
            repeat_number=self._repeats,
            scheduled_for=slot,
            started_at=self._now,
            finished_at=None,
            token=1,
        )

    def _arrive(self, row: ExecutionRow, after: float) -> None:
        self.arrivals.append(
            Arrival(
                at=self._now + timedelta(seconds=after),
                path=self._path,
                schedule_id=self.id,
                execution_id=row.id,
                slot=row.scheduled_for,
                attempt=row.retry_attempt + 1,
                key=f"{self.id}:{row.scheduled_for.isoformat()}",
            )
        )

    def _finish(self, execution_id: UUID, status: str) -> None:
        row = self.executions.get(execution_id)
        if row is None:
            return
        self.executions[execution_id] = replace(row, status=status, finished_at=self._now, token=row.token + 1)
        if row.trigger == "manual":
            return
        if status in FAILURES:
            self._fail(row)
        else:
            self._succeed()

    def _succeed(self) -> None:
        self._runs += 1
        self._repeats += 1
        self._retry = 0
        if self._repeats == self._habits.repeats:
            self._status = "done"
            self._plan_nothing()

    def _fail(self, row: ExecutionRow) -> None:
        self._errors += 1
        if self._retry + 1 > self._fields["max_retries"]:
            if self._status == "active":
                self._account_for_passed()
            self._status = "dead"
            self._plan_nothing()
            return
        self._retry += 1
        if self._status == "active":
            self._pending_retry = (row.scheduled_for, row.retry_attempt + 1)
            self._plan(self._now + timedelta(seconds=min(2 ** (self._retry - 1), 8)))

    # Small things.

    @property
    def _interval(self) -> timedelta:
        return timedelta(seconds=self._fields["interval_seconds"])

    def _duration(self) -> float:
        slow = self._chance.random() < self._habits.slow
        return self._chance.uniform(1, 9) if slow else self._chance.uniform(0.05, 0.4)

    def _outcome(self) -> str:
        return self._chance.choice(FAILURES) if self._chance.random() < self._habits.failing else "success"

    def _is_running(self) -> bool:
        return any(self._is_open(row) for row in self.executions.values())

    def _is_away(self) -> bool:
        return OUTAGE.began <= self._now <= OUTAGE.ended

    @staticmethod
    def _is_open(row: ExecutionRow) -> bool:
        return row.status == "running"

    def _uuid(self) -> UUID:
        return UUID(int=self._chance.getrandbits(128), version=4)

    def _after(self, seconds: float, event: Callable[[], object]) -> None:
        self._at(self._now + timedelta(seconds=seconds), event)

    def _at(self, moment: datetime, event: Callable[[], object]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (moment, self._sequence, event))
