"""Views of schedules and workflows: the objects, their ledger, previews, explanations, revisions and breakers."""

from collections.abc import Iterable
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from app.domain.access import OwnerKind
from app.domain.breakers import BreakerState
from app.domain.descriptions import describe
from app.domain.edit_plans import EditPlan
from app.domain.health import Health, health_of
from app.domain.revisions import Action
from app.domain.schedules import CatchUp, IfRunning, Reason, ScheduledJob, Status
from app.domain.slot_strips import SpanKind
from app.domain.upcoming import Fire
from app.domain.workflows import Edge, Node
from app.persistence.ledger import StoredEntry
from app.persistence.revisions import StoredRevision
from app.persistence.workflows import StoredWorkflow
from app.services.inputs import Instant
from app.services.listing import Encoded


class ScheduleView(msgspec.Struct, kw_only=True, dict=True):
    """A schedule. Beside its fields, and not shown, it has its last edit (``edit_of``)."""

    id: UUID
    name: str
    description: str
    workflow_id: int
    trigger_node_id: str | None
    user_profile_id: int
    owner_kind: OwnerKind
    owner_id: str
    team_id: int | None
    interval_seconds: int | float | None
    every: str | None
    cron: str | None
    rrule: str | None
    at: Instant | None
    after: str | None
    timezone: str
    jitter_seconds: int
    only_between: str | None
    not_on: list[str]
    exclude_calendars: list[str]
    only_calendars: list[str]
    start_at: Instant | None
    end_at: Instant | None
    spec_description: str
    total_repeats: int
    max_retries: int
    backoff_base_seconds: int | None
    timeout_seconds: int
    catch_up: CatchUp
    misfire_grace_seconds: int
    if_running: IfRunning
    max_queued: int
    delete_after_seconds: int | None
    key: str | None
    labels: dict[str, str]
    limit: str | None
    trigger_payload: dict[str, Any]
    status: Status
    status_reason: Reason
    current_repeat: int
    current_retry: int
    run_count: int
    error_count: int
    last_run_at: Instant | None
    next_run_at: Instant | None
    last_error: str
    last_error_at: Instant | None
    last_outcome: str | None
    last_attempt_at: Instant | None
    last_execution_id: UUID | None
    next_slot: Instant | None
    last_fired_at: Instant | None
    last_success_at: Instant | None
    last_success_execution_id: UUID | None
    dead_at: Instant | None
    paused_until: Instant | None
    created_at: Instant
    updated_at: Instant
    health: Health
    workflow_name: str
    namespace: str | None
    lease_id: int | None


if TYPE_CHECKING:

    class ListedSchedule(msgspec.Struct, kw_only=True):
        """A schedule in a list: its id, and the fields that the request asks for."""

        id: UUID

else:
    # The request says which fields there are beside the id; by default all but the payload.
    ListedSchedule = msgspec.defstruct(
        "ListedSchedule",
        [
            ("id", UUID),
            *((one.name, one.type | UnsetType, UNSET) for one in msgspec.structs.fields(ScheduleView)[1:]),
        ],
        kw_only=True,
        namespace={"__doc__": "A schedule in a list."},
    )


class SchedulePage(msgspec.Struct):
    """A part of the list of schedules."""

    items: list[Encoded[ListedSchedule]]
    total: int
    total_is_estimate: bool
    next_cursor: str | None


class ScheduleList(msgspec.Struct):
    """Schedules that were created together."""

    items: list[ScheduleView]


class WorkflowView(msgspec.Struct, kw_only=True):
    """A workflow."""

    id: int
    user_profile_id: int
    owner_kind: OwnerKind
    owner_id: str
    team_id: int | None
    name: str
    nodes: list[Node]
    edges: list[Edge]
    active: bool
    max_concurrent_runs: int | None
    breaker_threshold: int | None
    breaker_reset_seconds: int | None
    key: str | None
    labels: dict[str, str]
    limit: str | None
    created_at: Instant
    updated_at: Instant


class WorkflowPage(msgspec.Struct):
    """A part of the list of workflows."""

    items: list[Encoded[WorkflowView]]
    total: int
    total_is_estimate: bool
    next_cursor: str | None


# What does not stand in the row of a schedule.
SURROUNDINGS = ("health", "workflow_name", "namespace")
_SHOWN_LISTS = ("not_on", "exclude_calendars", "only_calendars")
_SHOWN_OTHERWISE = {"interval_seconds", "every", "spec_description", "trigger_payload", *_SHOWN_LISTS, *SURROUNDINGS}
_PLAIN_SCHEDULE_FIELDS = tuple(name for name in ScheduleView.__struct_fields__ if name not in _SHOWN_OTHERWISE)


class Surroundings(msgspec.Struct, frozen=True):
    """What is shown of a schedule beside its row."""

    workflow_name: str
    # Of the file that declares it; None if no file does.
    namespace: str | None
    # What ``app.persistence.schedules`` knows the last edit by.
    edit: int | None = None


def edit_of(view: ScheduleView) -> int | None:
    """Return what the last edit of a schedule is known by."""
    edit: int | None = view.__dict__.get("edit")
    return edit


def schedule_view(job: ScheduledJob, around: Surroundings, now: datetime) -> ScheduleView:
    """Return a schedule as callers see it."""
    view = ScheduleView(
        **row_fields(job, whole=True),
        health=health_of(job, now),
        workflow_name=around.workflow_name,
        namespace=around.namespace,
    )
    view.__dict__["edit"] = around.edit
    return view


def row_fields(job: ScheduledJob, *, whole: bool) -> dict[str, Any]:
    """Return what is shown of a schedule's row; the payload only of a ``whole`` one."""
    plain = {name: getattr(job, name) for name in _PLAIN_SCHEDULE_FIELDS}
    plain |= {name: list(getattr(job, name)) for name in _SHOWN_LISTS}
    if whole:
        plain["trigger_payload"] = job.trigger_payload
    seconds = job.interval_seconds
    return dict(
        interval_seconds=int(seconds) if seconds is not None and seconds.is_integer() else seconds,
        every=job.spec.spelled_every,
        spec_description=describe(
            job.spec, start_at=job.start_at, end_at=job.end_at, jitter_seconds=job.jitter_seconds
        ),
        **plain,
    )


def workflow_view(workflow: StoredWorkflow) -> WorkflowView:
    """Return the view of a workflow."""
    return msgspec.convert(workflow, WorkflowView, from_attributes=True)


class LedgerItem(msgspec.Struct, kw_only=True, omit_defaults=True, rename={"first": "from", "last": "to"}):
    """A slot and what became of it; or, with ``from``, ``to`` and ``count``, a range of them."""

    slot: Instant
    outcome: str
    reason: str
    execution_id: UUID | None
    first: Instant | None = None
    last: Instant | None = None
    count: int | None = None
    former_outcome: str | None = None


class LedgerList(msgspec.Struct):
    """The account of the latest slots."""

    items: list[Encoded[LedgerItem]]
    next_cursor: str | None


class SlotItem(msgspec.Struct, kw_only=True, gc=False, rename={"first": "from", "last": "to"}):
    """A slot and what became of it, or will; or, with ``from``, ``to`` and ``count``, a range of them."""

    slot: Instant
    outcome: str
    status: str | None = None
    reason: str = ""
    lateness_ms: int | None = None
    duration_ms: int | None = None
    attempts: int = 0
    execution_id: UUID | None = None
    trigger: str | None = None
    first: Instant | UnsetType = UNSET
    last: Instant | UnsetType = UNSET
    count: int | UnsetType = UNSET
    former_outcome: str | UnsetType = UNSET


class SpanView(msgspec.Struct, kw_only=True, rename={"first": "from", "last": "to"}):
    """A span in which a schedule could not fire."""

    kind: SpanKind
    first: Instant
    last: Instant | None
    by: str
    note: str


class SkippedSlots(msgspec.Struct):
    """Slots that are left out."""

    skipped: list[Instant]


class SlotStrip(msgspec.Struct):
    """The newest slots of a schedule, and the spans in which it could not fire."""

    items: list[SlotItem]
    spans: list[SpanView]


class SlotList(SlotStrip):
    """A page of the slots of a schedule."""

    next_cursor: str | None


class SlotStrips(msgspec.Struct):
    """The newest slots of several schedules, by the ids of the schedules."""

    schedules: dict[str, SlotStrip]


class UpcomingItem(msgspec.Struct, kw_only=True):
    """A coming fire: when it is due, and its slot, which differs by the jitter."""

    at: Instant
    slot: Instant
    schedule_id: UUID
    schedule_name: str
    workflow_id: int
    workflow_name: str
    timezone: str


class UpcomingList(msgspec.Struct):
    """Coming fires, in the order of their due times."""

    items: list[UpcomingItem]
    is_complete: bool


class FireView(msgspec.Struct):
    """A fire: when it is due, and its slot, which differs by the jitter."""

    at: Instant
    slot: Instant


class MovedFireView(msgspec.Struct, rename={"before": "from", "after": "to"}):
    """A fire that an edit moves."""

    before: FireView
    after: FireView


class PlannedSlotsView(msgspec.Struct, kw_only=True):
    """What becomes of the fires of the next days."""

    until: Instant
    kept: int
    added: list[FireView]
    removed: list[FireView]
    moved: list[MovedFireView]


class NextRunsView(msgspec.Struct, rename={"before": "from", "after": "to"}):
    """The next run before and after an edit."""

    before: Instant | None
    after: Instant | None


class LossesView(msgspec.Struct, kw_only=True):
    """What an edit gives up beside single fires."""

    repeats: int
    retry: bool
    days: list[date]


class EditPlanView(msgspec.Struct, kw_only=True):
    """What an edit of a schedule would do."""

    changes: dict[str, Any]
    fires_now: bool
    status: Status
    next_run_at: NextRunsView
    slots: PlannedSlotsView
    lost: LossesView
    warnings: list[str]


class PlanView(EditPlanView, kw_only=True):
    """The plan of an edit, to which a PATCH can refer until it expires."""

    plan_id: UUID
    expires_at: Instant


class TimezoneView(msgspec.Struct):
    """A time zone, and how far its clocks are ahead of UTC now."""

    name: str
    offset_seconds: int


class TimezoneList(msgspec.Struct):
    """A page of the time zones, by name."""

    items: list[TimezoneView]
    next_cursor: str | None


class WorkflowProblemView(msgspec.Struct):
    """What is wrong with a workflow: with which node, if it is about one, and with which field."""

    node: str | None
    field: str
    message: str


class ValidationView(msgspec.Struct):
    """Whether a workflow could be created, and what stands in the way."""

    valid: bool
    errors: list[WorkflowProblemView]


class PreviewRun(msgspec.Struct):
    """A run that would come: when, and what is special about it."""

    at: Instant
    note: str


class PreviewView(msgspec.Struct):
    """A spec in plain words, what may surprise about it, and its next runs."""

    description: str
    warnings: list[str]
    next_runs: list[PreviewRun]


class CheckView(msgspec.Struct):
    """One of the checks that a slot goes through."""

    check: str
    passed: bool
    detail: str


class ScheduleThenView(msgspec.Struct, kw_only=True):
    """A schedule as it was at the time of a slot, by its history."""

    since: Instant
    by: str
    note: str
    spec_description: str
    timezone: str
    status: Status
    changes: dict[str, Any]


class ExplanationView(msgspec.Struct, kw_only=True):
    """Why a schedule did, or did not, run at some time."""

    slot: Instant | None
    outcome: str
    sentence: str
    execution_id: UUID | None
    checks: list[CheckView]
    # None if the history begins later.
    then: ScheduleThenView | None = None


class HistoryItem(msgspec.Struct, kw_only=True):
    """A change of a schedule or a workflow: by whom, when, and what it was before and after."""

    at: Instant
    by: str
    user_profile_id: int | None
    action: Action
    changes: dict[str, Any]
    note: str


class HistoryList(msgspec.Struct):
    """The latest changes."""

    items: list[Encoded[HistoryItem]]
    next_cursor: str | None


class BreakerView(msgspec.Struct, kw_only=True):
    """The breaker of a workflow."""

    workflow_id: int
    workflow_name: str
    state: BreakerState
    failure_count: int
    opened_at: Instant | None
    half_opens_at: Instant | None
    probe_execution_id: UUID | None
    breaker_threshold: int | None
    breaker_reset_seconds: int | None


class TransitionView(msgspec.Struct, kw_only=True):
    """A change of a breaker's state, and why."""

    at: Instant
    from_state: BreakerState
    to_state: BreakerState
    reason: str
    execution_id: UUID | None


class BreakerDetail(BreakerView, kw_only=True):
    """The breaker of a workflow, with its latest transitions, newest first."""

    transitions: list[TransitionView]


class BreakerList(msgspec.Struct):
    """The breakers of all workflows that have one."""

    items: list[Encoded[BreakerView]]
    next_cursor: str | None


def history_item(revision: StoredRevision) -> HistoryItem:
    """Return the view of a revision."""
    return HistoryItem(
        at=revision.at,
        by=revision.author,
        user_profile_id=revision.user_profile_id,
        # Shown unchecked: during an upgrade a newer release may have written one that this one does not know.
        action=cast("Action", revision.action),
        changes=revision.changes,
        note=revision.note,
    )


def ledger_item(entry: StoredEntry) -> LedgerItem:
    """Return the view of a ledger entry."""
    item = LedgerItem(slot=entry.last_slot, outcome=entry.outcome, reason=entry.reason, execution_id=entry.execution_id)
    if entry.slot_count > 1:
        item.first, item.last, item.count = entry.first_slot, entry.last_slot, entry.slot_count
    return item


def edit_plan_fields(plan: EditPlan) -> dict[str, Any]:
    """Return the fields of the view of a plan."""
    return {
        "changes": plan.changes,
        "fires_now": plan.fires_now,
        "status": plan.status[1],
        "next_run_at": NextRunsView(*plan.next_run_at),
        "slots": PlannedSlotsView(
            until=plan.fires.until,
            kept=plan.fires.kept,
            added=_fire_views(plan.fires.added),
            removed=_fire_views(plan.fires.removed),
            moved=[MovedFireView(*_fire_views((pair.before, pair.after))) for pair in plan.fires.moved],
        ),
        "lost": LossesView(repeats=plan.lost.repeats, retry=plan.lost.retry, days=list(plan.lost.days)),
        "warnings": list(plan.warnings),
    }


def _fire_views(fires: Iterable[Fire]) -> list[FireView]:
    return [FireView(fire.at, fire.slot) for fire in fires]
