"""A schedule as a value: what to run, when, and the state it is in."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from app.domain.access import OwnerKind
from app.domain.calendars import NO_CALENDARS, CalendarRules
from app.domain.local_time import hours
from app.domain.recurrence import Evenly, Recurrence
from app.domain.specs import KINDS, Cadence, Spec


class Status(StrEnum):
    """The states of a schedule."""

    ACTIVE = "active"
    PAUSED = "paused"
    DONE = "done"
    DEAD = "dead"


# Which state may follow which.
TRANSITIONS: dict[Status, frozenset[Status]] = {
    Status.ACTIVE: frozenset({Status.PAUSED, Status.DONE, Status.DEAD}),
    Status.PAUSED: frozenset({Status.ACTIVE, Status.DONE, Status.DEAD}),
    # An edit that leaves a finished schedule something to do makes it active again.
    Status.DONE: frozenset({Status.ACTIVE}),
    Status.DEAD: frozenset({Status.ACTIVE}),
}


class Reason(StrEnum):
    """The reasons for a schedule's state: stable codes for ``status_reason``."""

    NONE = ""
    MANUAL = "manual"
    REPEAT_LIMIT = "repeat_limit"
    EXHAUSTED = "exhausted"
    END_REACHED = "end_reached"
    MAX_RETRIES = "max_retries"
    INVALID_SPEC = "invalid_spec"
    POISONED = "poisoned"
    AWAITING_REVIEW = "awaiting_review"
    LEASE_EXPIRED = "lease_expired"
    LEASE_REVOKED = "lease_revoked"


class IfRunning(StrEnum):
    """What a due slot does while another run of its schedule is pending or running."""

    SKIP = "skip"
    QUEUE = "queue"
    CANCEL = "cancel"
    ALLOW = "allow"


class CatchUp(StrEnum):
    """What to do about slots that were missed, for example during an outage."""

    SKIP = "skip"
    RUN_ONCE = "run_once"
    RUN_ALL = "run_all"


class ScheduleDefinition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The fields of a schedule that people can change, each with its default.

    A field that is written here can be changed, declared in a file, exported, and found in the history: all of these
    lists are derived from this struct. ``docs/development.md`` lists what else a new field needs.
    """

    name: str
    description: str = ""
    workflow_id: int
    trigger_node_id: str | None = None
    trigger_payload: dict[str, Any] = msgspec.field(default_factory=dict)
    interval_seconds: float | None = None
    every: str | None = None
    cron: str | None = None
    rrule: str | None = None
    at: datetime | None = None
    after: str | None = None
    timezone: str = "UTC"
    jitter_seconds: int = 0
    only_between: str | None = None
    not_on: tuple[str, ...] = ()
    # Names of calendars: slots that one of the first has, or none of the second, are left out.
    exclude_calendars: tuple[str, ...] = ()
    only_calendars: tuple[str, ...] = ()
    start_at: datetime | None = None
    end_at: datetime | None = None
    total_repeats: int = 0
    max_retries: int = 3
    backoff_base_seconds: int | None = None
    timeout_seconds: int = 600
    catch_up: CatchUp = CatchUp.SKIP
    misfire_grace_seconds: int = 60
    if_running: IfRunning = IfRunning.SKIP
    max_queued: int = 1
    # How long after it is done it is deleted; 0 is never, None as the settings say.
    delete_after_seconds: int | None = None
    # A name that is unique for the owner, by which tools create and change the schedule.
    key: str | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    # The name of the limit that its runs need a permit of.
    limit: str | None = None


EDITABLE = ScheduleDefinition.__struct_fields__
# The values of fields that a caller leaves out. ``name`` and ``workflow_id`` have no default: they are always given.
DEFAULTS = ScheduleDefinition(name="", workflow_id=0)


class ScheduledJob(ScheduleDefinition, frozen=True, kw_only=True, gc=False):
    """A schedule with its state: one row of ``scheduled_jobs``.

    ``generation`` grows whenever the pending tick changes, so that a message about an earlier tick matches nothing.
    """

    id: UUID
    user_profile_id: int
    owner_kind: OwnerKind = OwnerKind.USER
    owner_id: str = ""

    status: Status = Status.ACTIVE
    status_reason: Reason = Reason.NONE
    generation: int = 0
    # The moment from which slots are counted. It is itself a slot only if it is ``start_at``, or of a one-shot.
    anchor_at: datetime
    # The next slot of the cadence that has no outcome yet; None while no further slot is expected.
    cadence_slot: datetime | None = None
    # The pending tick: its slot, when it is due, and which attempt at the slot it will be (0 is the first).
    next_slot: datetime | None = None
    next_run_at: datetime | None = None
    next_attempt: int = 0
    # The latest slot that has an outcome. A one-shot cannot be moved to this time or to an earlier one.
    last_slot: datetime | None = None

    current_repeat: int = 0
    current_retry: int = 0
    run_count: int = 0
    error_count: int = 0
    last_error: str = ""
    last_error_at: datetime | None = None
    # The outcome of ``last_slot``: a word of the ledger, or the status of its run. None before the first outcome.
    last_outcome: str | None = None
    # When a slot was last fired, retried or accounted for.
    last_attempt_at: datetime | None = None
    # The last run of the newest slot that fired.
    last_execution_id: UUID | None = None
    last_run_at: datetime | None = None
    last_fired_at: datetime | None = None
    last_success_at: datetime | None = None
    last_success_execution_id: UUID | None = None
    dead_at: datetime | None = None
    # When a pause ends by itself; None if the schedule is not paused, or until it is resumed.
    paused_until: datetime | None = None
    # Whether slots to come are to be skipped. Only then a tick reads which.
    has_skips: bool = False
    # The trace of the request that created or changed the schedule last.
    trace_context: str | None = None
    created_at: datetime
    updated_at: datetime
    # The owner's id again if the owner is a team.
    team_id: int | None = None
    # The lease of the agent that made the schedule, when it ends, and the runs that are charged to it: first attempts
    # that have fired, however they ended.
    lease_id: int | None = None
    lease_ends_at: datetime | None = None
    lease_runs: int = 0
    # For each stored calendar that is named, which calendar it is and its contents; None if there is no such calendar.
    calendar_versions: dict[str, str | None] = msgspec.field(default_factory=dict)
    # The calendars in these versions. No column: whoever reads a schedule adds them.
    calendars: CalendarRules = NO_CALENDARS

    @property
    def unknown_value(self) -> str:
        """Return the first stored value that this release does not know, as ``field=value``, or an empty string.

        While releases are mixed, a newer one may have stored a value of an enum that this one lacks. Such a schedule is
        left to newer workers: it is neither fired nor quarantined here.
        """
        if type(self.if_running) is IfRunning and type(self.catch_up) is CatchUp and type(self.status) is Status:
            return ""
        kinds = {"if_running": IfRunning, "catch_up": CatchUp, "status": Status}
        values = {name: (getattr(self, name), kind) for name, kind in kinds.items()}
        return next(f"{name}={value}" for name, (value, kind) in values.items() if type(value) is not kind)

    @property
    def spec(self) -> Spec:
        """Return the fields that say when the schedule is due."""
        return Spec(
            interval_seconds=self.interval_seconds,
            every=self.every,
            cron=self.cron,
            rrule=self.rrule,
            at=self.at,
            after=self.after,
            timezone=self.timezone,
            only_between=self.only_between,
            not_on=self.not_on,
            calendars=self.calendars,
        )

    @property
    def spec_problem(self) -> str:
        """Return why the stored spec is no longer valid (a time zone was removed, say), or an empty string.

        Every tick asks, so the most frequent spec is answered without compiling it.
        """
        is_plain = self.timezone == "UTC" and not self.only_between and not self.not_on
        if self.interval_seconds is not None and is_plain and self.calendars is NO_CALENDARS:
            return ""
        return self.spec.problem

    @property
    def names_calendars(self) -> bool:
        """Return whether the schedule names any calendar."""
        return bool(self.exclude_calendars or self.only_calendars)

    @property
    def kind(self) -> str:
        """Return the name of the field that says when the schedule is due."""
        return next((name for name in KINDS if getattr(self, name) is not None), KINDS[0])

    @property
    def cadence(self) -> Cadence:
        """Return the slots that this schedule expects, between its first moment and its end."""
        return Cadence(self._slots, self.first_moment, self.end_at)

    @property
    def _slots(self) -> Recurrence:
        if self.interval_seconds is None or self.calendars is not NO_CALENDARS:
            return self.spec.slots_from(self.anchor_at, self.start_at)
        # The most frequent kind, and asked for at every tick: it does not go through ``Spec``.
        allowed = hours(self.timezone, self.only_between, self.not_on)
        return Evenly(self.anchor_at, timedelta(seconds=self.interval_seconds), allowed)

    @property
    def is_one_shot(self) -> bool:
        """Return whether the schedule has a single slot."""
        return self.at is not None or self.after is not None

    @property
    def first_moment(self) -> datetime:
        """Return the earliest moment that can be a slot: nothing before the anchor was ever expected."""
        if self.is_one_shot or self.anchor_at == self.start_at:
            return self.anchor_at
        return self.anchor_at + timedelta.resolution

    @property
    def is_limited(self) -> bool:
        """Return whether ``total_repeats`` ends the schedule; a one-shot ends after its slot anyway."""
        return self.total_repeats > 0 and not self.is_one_shot

    @property
    def limit_reached(self) -> bool:
        """Return whether all repeats are completed."""
        return self.is_limited and self.current_repeat >= self.total_repeats

    def expects_more(self, active_runs: int) -> bool:
        """Return whether another slot is needed if all active runs count as repeats."""
        if not self.is_limited:
            return True
        if self.lease_id is not None and self.lease_runs >= self.total_repeats:
            return False
        return self.current_repeat + active_runs < self.total_repeats

    @property
    def ends_with_lease(self) -> bool:
        """Return whether the end of its lease is what ends the schedule."""
        return self.lease_ends_at is not None and self.end_at == self.lease_ends_at and not self.is_one_shot


class PlannedTick(msgspec.Struct, frozen=True, gc=False):
    """The columns of a schedule that are needed to ring for its pending tick, or to claim it."""

    id: UUID
    user_profile_id: int
    generation: int
    next_run_at: datetime
    current_repeat: int
    current_retry: int


def with_status(job: ScheduledJob, status: Status, reason: Reason) -> ScheduledJob:
    """Return the schedule in another state; the transition table must allow it. The end of a pause is forgotten."""
    if status not in TRANSITIONS[job.status]:
        raise AssertionError(f"no transition from {job.status} to {status}")
    return msgspec.structs.replace(job, status=status, status_reason=reason, paused_until=None)
