"""What the requests alone let one expect of a scheduler: slots, values and manual runs.

It shares no code with the scheduler. It walks through the requests of one schedule in order, keeps every cadence that
is or may be going on, and writes the slots out one by one.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from tests.chaos.evidence import BESIDE, Ack, Fault, Request, Verb

# How long after its end, or after the end of the fault that swallowed its answer, a request may still take effect.
STRAGGLE_SECONDS = 5.0
# How far a first slot may lie beside "one interval after a moment of the request".
ANCHOR_TOLERANCE_SECONDS = 0.1
# What a client writes and reads back. The status is added by the verbs.
FIELDS = ("name", "interval_seconds", "max_retries", "trigger_payload")
# The states that a schedule reaches by its runs, not by a request.
FINISHED = frozenset({"dead", "done"})
POISONED = "poisoned"


class Span(msgspec.Struct, frozen=True):
    """A stretch of time, both ends included."""

    first: datetime
    last: datetime

    def holds(self, moment: datetime) -> bool:
        """Whether a moment lies in it."""
        return self.first <= moment <= self.last


class ManualRun(msgspec.Struct, frozen=True):
    """A run that somebody asked for: when it may have been made, its id if that was answered."""

    when: Span
    execution_id: UUID | None
    # The call said itself what to do if another run is under way.
    overrides: bool


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """What the requests about one schedule promise, and what they merely allow."""

    # Slots that come due while the schedule is certainly active.
    required: list[datetime]
    # Slots that may be accounted for: these, and those that depend on when or whether a request took effect.
    possible: list[datetime]
    # Times in which a cadence of unknown phase may go on, so that any slot is possible.
    unknown: list[Span]
    # Every value that a field may have at the end; fields that nobody wrote or read are not here.
    values: dict[str, list[Any]]
    # Whether it must be there at the end; None if that depends on a request without an answer.
    exists: bool | None
    manual_runs: list[ManualRun]
    # Slots that certainly are to be skipped, and the spans of backfills that were or may have been started.
    skipped: list[datetime] = []
    backfills: list[Span] = []
    # Answers that contradict what had been acknowledged before.
    broken: list[str]
    # States that no request explains: the schedule must have paused by itself.
    surprises: list[str]


def last_effect(request: Request, faults: Sequence[Fault]) -> datetime:
    """The last moment at which a request may take effect."""
    if request.ack is Ack.YES:
        return request.answered
    patience = timedelta(seconds=STRAGGLE_SECONDS)
    swallowing = [
        fault.ended for fault in faults if fault.began <= request.answered + patience and request.asked <= fault.ended
    ]
    return max([request.answered, *swallowing]) + patience


def expect_all(
    requests: Sequence[Request], faults: Sequence[Fault], *, required_until: datetime, possible_until: datetime
) -> dict[UUID, Expectation]:
    """What to expect of every schedule that a request was about."""
    by_schedule: dict[UUID, list[Request]] = defaultdict(list)
    for request in requests:
        by_schedule[request.schedule_id].append(request)
    return {
        schedule_id: expect(own, faults, required_until=required_until, possible_until=possible_until)
        for schedule_id, own in by_schedule.items()
    }


def expect(
    requests: Sequence[Request], faults: Sequence[Fault], *, required_until: datetime, possible_until: datetime
) -> Expectation:
    """What to expect of one schedule, from the requests about it."""
    cadences, values = CadenceReader(faults), ValueReader(faults)
    happened = [request for request in sorted(requests, key=_asked) if request.ack is not Ack.NO]
    for request in happened:
        if request.verb not in BESIDE:
            cadences.read(request)
            values.read(request)
    return Expectation(
        required=cadences.required(required_until),
        possible=cadences.possible(possible_until),
        unknown=cadences.unknown(possible_until),
        values=values.allowed,
        exists=values.exists,
        manual_runs=[_manual_run(request, faults) for request in happened if request.verb is Verb.RUN],
        skipped=[
            datetime.fromisoformat(slot)
            for request in happened
            if request.verb is Verb.SKIP
            for slot in (request.answer or {}).get("skipped", ())
        ],
        backfills=[
            Span(datetime.fromisoformat(request.body["from"]), datetime.fromisoformat(request.body["to"]))
            for request in happened
            if request.verb is Verb.BACKFILL
        ],
        broken=[*values.broken, *cadences.broken],
        surprises=cadences.surprises,
    )


class Cadence(msgspec.Struct):
    """Slots at equal distances. They are certain for a while, possible for longer."""

    first: datetime
    interval: timedelta
    # From when on its slots are certain, if ever; before when; and after when they are not even possible.
    sure_from: datetime | None
    sure_before: datetime | None = None
    until: datetime | None = None

    def doubt(self, since: datetime) -> None:
        """Take nothing for certain any more from a moment on."""
        self.sure_before = since if self.sure_before is None else min(self.sure_before, since)

    def stop(self, since: datetime, until: datetime) -> None:
        """End it some time between two moments."""
        self.doubt(since)
        self.until = until

    def slots(self, horizon: datetime) -> Iterator[datetime]:
        """The slots that may come due, one by one."""
        last = horizon if self.until is None else min(self.until, horizon)
        slot = self.first
        while slot <= last:
            yield slot
            slot += self.interval

    def sure_slots(self, horizon: datetime) -> Iterator[datetime]:
        """The slots that certainly come due, one by one."""
        for slot in self.slots(horizon):
            if self.is_sure_of(slot):
                yield slot

    def meets(self, slot: datetime, interval: timedelta) -> bool:
        """Whether this is the cadence of a slot. Moments in whole seconds may meet by chance, and prove nothing."""
        return self.interval == interval and not (slot - self.first) % interval and bool(slot.microsecond)

    def is_sure_of(self, slot: datetime) -> bool:
        """Whether a slot is certain."""
        begun = self.sure_from is not None and slot >= self.sure_from
        return begun and (self.sure_before is None or slot < self.sure_before)


class CadenceReader:
    """Follows the cadences of one schedule from request to request."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = faults
        self._cadences: list[Cadence] = []
        # The intervals that the schedule may have.
        self._intervals: set[float] = set()
        # Until when requests without an answer may take effect; None while the state is known.
        self._doubt_until: datetime | None = None
        # Since when a cadence of unknown phase may be going on.
        self._unknown_since: datetime | None = None
        self._unknown: list[Span] = []
        # When an answer last showed the state for certain.
        self._confirmed: datetime | None = None
        self.broken: list[str] = []
        self.surprises: list[str] = []

    def required(self, horizon: datetime) -> list[datetime]:
        """The certain slots, in order."""
        return sorted({slot for cadence in self._cadences for slot in cadence.sure_slots(horizon)})

    def possible(self, horizon: datetime) -> list[datetime]:
        """All slots of known phase that may come due, in order."""
        return sorted({slot for cadence in self._cadences for slot in cadence.slots(horizon)})

    def unknown(self, horizon: datetime) -> list[Span]:
        """The times in which any slot is possible."""
        if self._unknown_since is None:
            return self._unknown
        return [*self._unknown, Span(self._unknown_since, horizon)]

    def read(self, request: Request) -> None:
        """Go on to the next request that has happened or may have happened."""
        if request.ack is Ack.UNKNOWN:
            self._read_unanswered(request)
        elif request.verb is Verb.DELETE:
            self._stop(request)
            self._be_certain(request)
        else:
            self._read_answered(request, request.answer or {})

    def _read_unanswered(self, request: Request) -> None:
        """Doubt what was certain, and allow for the cadence that the request may begin."""
        interval = request.body.get("interval_seconds")
        # The interval that it has already is no exception: another may have been set by the time this is written.
        if request.verb is Verb.PATCH and interval is None:
            return
        if interval is not None:
            self._intervals.add(interval)
        for cadence in self._running():
            cadence.doubt(request.asked)
        self._doubt(last_effect(request, self._faults))
        if request.verb in {Verb.CREATE, Verb.PATCH, Verb.RESUME}:
            self._allow_anything(request.asked + timedelta(seconds=min(self._intervals, default=0)))

    def _read_answered(self, request: Request, answer: dict[str, Any]) -> None:
        """Take the state from an answer."""
        status = answer.get("status")
        if status in FINISHED:
            return
        self._note_surprise(request, status)
        if request.verb is Verb.PAUSE or status == "paused":
            self._stop(request)
        elif self._begins_anew(request):
            self._begin(request, answer)
        elif self._doubt_until is not None or not self._running():
            self._take_up(request, answer)
        self._learn(request, answer)

    def _note_surprise(self, request: Request, status: str | None) -> None:
        """Say so if it was not active although it should have been, and doubt it since it was last seen so."""
        not_active = request.verb is Verb.RESUME or (request.verb is Verb.PATCH and status == "paused")
        if not not_active or self._doubt_until is not None or not self._running():
            return
        self.surprises.append(f"it was not active at {request.asked.isoformat()}, and nobody had paused it")
        for cadence in self._running():
            cadence.doubt(self._confirmed or request.asked)

    def _begins_anew(self, request: Request) -> bool:
        """Whether a request certainly begins a cadence of its own."""
        if request.verb in {Verb.CREATE, Verb.RESUME}:
            return True
        interval = request.body.get("interval_seconds")
        known = self._doubt_until is None and bool(self._running())
        return known and interval is not None and self._intervals != {interval}

    def _begin(self, request: Request, answer: dict[str, Any]) -> None:
        """Begin the cadence whose first slot was answered."""
        slot, interval = _next_slot(answer), _interval(request, answer)
        self._stop(request)
        if slot is None or interval is None:
            self._lose_track(request)
            return
        first = _first_slot(request, answer, slot, interval)
        self._check_anchor(request, first - interval)
        sure_from = first if self._is_certain(request) else None
        self._cadences.append(Cadence(first=first, interval=interval, sure_from=sure_from))

    def _take_up(self, request: Request, answer: dict[str, Any]) -> None:
        """Go on with the cadence that an answer shows: its phase is known, not since when it goes on."""
        slot, interval = _next_slot(answer), _interval(request, answer)
        if slot is None or interval is None or _may_be_retried(slot, request, answer):
            self._lose_track(request)
            return
        if self._went_on(slot, interval, request):
            return
        self._stop(request)
        first = slot + interval * (1 + (request.asked - slot) // interval)
        sure_from = request.answered if self._is_certain(request) else None
        self._cadences.append(Cadence(first=first, interval=interval, sure_from=sure_from))

    def _went_on(self, slot: datetime, interval: timedelta, request: Request) -> bool:
        """Whether a cadence that was doubted is going on: any pause or change would have given it another phase."""
        going_on = [cadence for cadence in self._running() if cadence.sure_from and cadence.meets(slot, interval)]
        if not going_on:
            return False
        for cadence in self._running():
            if cadence not in going_on:
                cadence.stop(request.asked, request.answered)
            elif self._is_certain(request):
                cadence.sure_before = None
        return True

    def _check_anchor(self, request: Request, anchor: datetime) -> None:
        """A new cadence is anchored at the moment at which its request took effect."""
        tolerance = timedelta(seconds=ANCHOR_TOLERANCE_SECONDS)
        if not request.asked - tolerance <= anchor <= request.answered + tolerance:
            self.broken.append(
                f"{request.verb} at {request.asked.isoformat()} was answered with a cadence anchored"
                f" at {anchor.isoformat()}, which is no moment of the request"
            )

    def _lose_track(self, request: Request) -> None:
        """Allow for anything: the answer does not show what comes next."""
        self._doubt(request.answered)
        self._allow_anything(request.asked)

    def _learn(self, request: Request, answer: dict[str, Any]) -> None:
        """Note the interval, and that the state is known again if nothing may still take effect."""
        interval = answer.get("interval_seconds", request.body.get("interval_seconds"))
        certain = self._is_certain(request)
        if interval is not None:
            self._intervals = {interval} if certain else {*self._intervals, interval}
        if certain:
            self._be_certain(request)

    def _is_certain(self, request: Request) -> bool:
        """Whether everything asked before a request had taken effect, or never will."""
        return self._doubt_until is None or request.asked > self._doubt_until

    def _be_certain(self, request: Request) -> None:
        """Know the state again."""
        if self._unknown_since is not None and self._unknown_since <= request.answered:
            self._unknown.append(Span(self._unknown_since, request.answered))
        self._unknown_since = None
        self._doubt_until = None
        self._confirmed = request.answered

    def _running(self) -> list[Cadence]:
        """The cadences that go on, or may go on."""
        return [cadence for cadence in self._cadences if cadence.until is None]

    def _stop(self, request: Request) -> None:
        """End all cadences while a request is answered."""
        for cadence in self._running():
            cadence.stop(request.asked, request.answered)

    def _doubt(self, until: datetime) -> None:
        """Take nothing for known before a moment has passed and an answer has come."""
        self._doubt_until = until if self._doubt_until is None else max(until, self._doubt_until)

    def _allow_anything(self, since: datetime) -> None:
        """Take any slot for possible from a moment on."""
        self._unknown_since = since if self._unknown_since is None else min(since, self._unknown_since)


class _Straggler(msgspec.Struct, frozen=True):
    """A value that a request without an answer may still write."""

    field: str
    value: Any
    until: datetime


class ValueReader:
    """Follows what one schedule's fields may hold, and whether it is there, from request to request."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = faults
        self._stragglers: list[_Straggler] = []
        # Until when a deletion or creation without an answer may take effect.
        self._unsure_until: datetime | None = None
        self._deleted = False
        self.allowed: dict[str, list[Any]] = {}
        self.exists: bool | None = False
        self.broken: list[str] = []

    def read(self, request: Request) -> None:
        """Go on to the next request that has happened or may have happened."""
        if request.ack is Ack.UNKNOWN:
            self._read_unanswered(request)
        elif request.verb is Verb.DELETE:
            self.exists, self.allowed, self._deleted = False, {}, True
        else:
            self._read_answered(request)

    def _read_unanswered(self, request: Request) -> None:
        """Allow for what the request may write."""
        until = last_effect(request, self._faults)
        if request.verb in {Verb.CREATE, Verb.DELETE}:
            self.exists, self._unsure_until = None, until
        for field, value in _writes(request).items():
            self.allowed.setdefault(field, []).append(value)
            self._stragglers.append(_Straggler(field, value, until))

    def _read_answered(self, request: Request) -> None:
        """Allow only what was written, or may still be written, and compare it with the answer."""
        if self._deleted:
            self.broken.append(f"it was there at {request.asked.isoformat()}, after its acknowledged deletion")
        if self._unsure_until is None or request.asked > self._unsure_until:
            self.exists = True
        for field, value in _writes(request).items():
            self.allowed[field] = [value, *self._straggling(field, request)]
        for field, value in _shown(request.answer or {}).items():
            self._compare(field, value, request)

    def _compare(self, field: str, value: Any, request: Request) -> None:
        """Note an answer that shows what nobody wrote; what it shows is known from then on."""
        if field in self.allowed and value not in self.allowed[field]:
            self.broken.append(
                f"{field} was {value!r} at {request.asked.isoformat()}, not {_alternatives(self.allowed[field])}"
            )
        self.allowed[field] = [value, *self._straggling(field, request)]

    def _straggling(self, field: str, request: Request) -> list[Any]:
        """The values that may still be written into a field after a request."""
        return [late.value for late in self._stragglers if late.field == field and late.until >= request.asked]


def _asked(request: Request) -> datetime:
    return request.asked


def _alternatives(values: list[Any]) -> str:
    return " or ".join(repr(value) for value in values)


def _writes(request: Request) -> dict[str, Any]:
    """What a request writes."""
    written = {field: request.body[field] for field in FIELDS if field in request.body}
    status = {Verb.CREATE: "active", Verb.RESUME: "active", Verb.PAUSE: "paused"}.get(request.verb)
    return written if status is None else {**written, "status": status}


def _shown(answer: dict[str, Any]) -> dict[str, Any]:
    """What an answer shows of what clients write: a status that the schedule came to by itself is not theirs."""
    shown = {field: answer[field] for field in FIELDS if field in answer}
    by_itself = answer.get("status") in FINISHED or answer.get("status_reason") == POISONED
    return shown if by_itself or "status" not in answer else {**shown, "status": answer["status"]}


def _next_slot(answer: dict[str, Any]) -> datetime | None:
    value = answer.get("next_slot")
    return None if value is None else msgspec.convert(value, datetime)


def _may_be_retried(slot: datetime, request: Request, answer: dict[str, Any]) -> bool:
    """Whether a slot may be that of a pending retry, which says nothing of the present cadence."""
    return slot <= request.asked and bool(answer.get("current_retry"))


def _first_slot(request: Request, answer: dict[str, Any], slot: datetime, interval: timedelta) -> datetime:
    """The first slot of a new cadence; a creation that was found out later shows a later one."""
    if request.verb is not Verb.CREATE or "created_at" not in answer:
        return slot
    created = msgspec.convert(answer["created_at"], datetime)
    return slot - interval * max(0, (slot - created) // interval - 1)


def _interval(request: Request, answer: dict[str, Any]) -> timedelta | None:
    """The interval after a request; None for one that would not move on."""
    seconds = answer.get("interval_seconds", request.body.get("interval_seconds"))
    return timedelta(seconds=seconds) if seconds else None


def _manual_run(request: Request, faults: Sequence[Fault]) -> ManualRun:
    """The run that a request made or may have made."""
    answered = (request.answer or {}).get("id")
    return ManualRun(
        when=Span(request.asked, last_effect(request, faults)),
        execution_id=None if answered is None else msgspec.convert(answered, UUID),
        overrides=bool(request.body.get("if_running")),
    )
