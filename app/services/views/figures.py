"""Views of the overview, of figures over time and of workers."""

from typing import Literal
from uuid import UUID

import msgspec

from app.domain.attention import AttentionKind
from app.services.inputs import Instant
from app.services.listing import Encoded


class CountsView(msgspec.Struct, kw_only=True):
    """How many schedules have each status and each health."""

    status: dict[str, int]
    health: dict[str, int]


class AttentionView(msgspec.Struct, kw_only=True):
    """Something that is wrong, in one sentence."""

    kind: AttentionKind
    object_type: str
    id: str | None
    name: str
    since: Instant | None
    sentence: str


class OverviewView(msgspec.Struct, kw_only=True):
    """The state of all that you see, and what needs attention."""

    counts: CountsView
    due: int
    oldest_overdue_seconds: float
    running: int
    workers: int
    mode: Literal["bell", "sweep"]
    schedules_enabled: bool
    attention: list[AttentionView]


class OutcomeStep(msgspec.Struct, kw_only=True):
    """What became of the slots of a step of time."""

    at: Instant
    outcomes: dict[str, int]


class OutcomeFigures(msgspec.Struct):
    """What became of slots, by steps of time."""

    step: int
    items: list[OutcomeStep]


class LatenessStep(msgspec.Struct, kw_only=True):
    """How late the runs of a step of time started."""

    at: Instant
    count: int
    p50_ms: float | None
    p99_ms: float | None


class LatenessFigures(msgspec.Struct):
    """How late runs started, by steps of time."""

    step: int
    items: list[LatenessStep]


class WorkerView(msgspec.Struct, kw_only=True):
    """A worker: its lease, and how many executions it runs."""

    id: UUID
    name: str
    started_at: Instant
    lease_expires_at: Instant
    is_live: bool
    running: int


class WorkerList(msgspec.Struct):
    """A page of workers."""

    items: list[Encoded[WorkerView]]
    next_cursor: str | None


class PulseView(msgspec.Struct, kw_only=True):
    """What changes from second to second."""

    at: Instant
    due: int
    oldest_overdue_seconds: float
    running: int
    workers: int
    mode: Literal["bell", "sweep"]
    schedules_enabled: bool
    open_breakers: int
    # Of the last minute that is over.
    outcomes: dict[str, int]
    p50_ms: float | None
    p99_ms: float | None
    # The newest change that you see; it moves whenever something is changed.
    version: str | None
