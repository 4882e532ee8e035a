"""What the values of enums mean, for the OpenAPI document."""

from collections.abc import Mapping

from app.domain.access import OwnerKind, Role, Scope, TeamRole
from app.domain.agent_leases import AtEnd, LeaseStatus, Review
from app.domain.audit import ObjectType, Via
from app.domain.breakers import BreakerState
from app.domain.bulk_operations import BulkAction, OperationStatus
from app.domain.declarations import Act
from app.domain.executions import ExecutionStatus, Trigger
from app.domain.health import Health
from app.domain.ledger import QUEUED, LedgerOutcome
from app.domain.notifications import NoticeEvent
from app.domain.permits import WAITING_FOR_LIMIT
from app.domain.revisions import Action
from app.domain.schedules import CatchUp, IfRunning, Reason, Status
from app.domain.slot_strips import EXPECTED, SpanKind
from app.persistence.schedule_filters import Kind
from app.persistence.schedule_lists import Sort

Texts = Mapping[str, str]

STATUSES: Texts = {
    Status.ACTIVE: "its slots fire",
    Status.PAUSED: "nothing fires until it is resumed",
    Status.DONE: "it has no further slots",
    Status.DEAD: "its retries are used up, and nothing fires until `revive/`",
}
REASONS: Texts = {
    Reason.MANUAL: "paused by a request",
    Reason.INVALID_SPEC: "paused, because the stored spec is no longer valid",
    Reason.POISONED: "paused, because it could not be handled or three runs of one slot lost their workers",
    Reason.REPEAT_LIMIT: "done, all of `total_repeats` are complete",
    Reason.EXHAUSTED: "done, the only slot of `at` or `after` has its outcome",
    Reason.END_REACHED: "done, no slot is left before `end_at`",
    Reason.AWAITING_REVIEW: "made by an agent, and a person has to approve it; paused until then if the lease says so",
    Reason.LEASE_EXPIRED: "paused, the lease that it was made with has expired",
    Reason.LEASE_REVOKED: "paused, the lease that it was made with was revoked",
    Reason.MAX_RETRIES: "dead, a run failed and no retry was left",
}
WAYS: Texts = {
    Via.API: "a request with a token",
    Via.CONSOLE: "a request with the session of a browser",
    Via.CLI: "a command",
    Via.MCP: "an agent",
    Via.FILE: "a file that was applied",
    Via.PLUGIN: "a plugin",
    Via.ENGINE: "Carillon itself",
}
OBJECT_TYPES: Texts = {
    ObjectType.USER: "a user",
    ObjectType.TEAM: "a team",
    ObjectType.TOKEN: "a token",
    ObjectType.LEASE: "the lease of an agent",
    ObjectType.SESSION: "a session of a browser",
    ObjectType.SECRET: "a secret",
    ObjectType.SIGNING_KEY: "a signing key",
    ObjectType.OIDC_KEY: "a key that signs the tokens of calls",
    ObjectType.SETTINGS: "the settings",
    ObjectType.OPERATION: "an operation on many schedules",
    ObjectType.SCHEDULE: "a schedule; starts and cancellations of its runs too",
    ObjectType.WORKFLOW: "a workflow, or its breaker",
    ObjectType.EXECUTION: "a run of an entity",
    ObjectType.WEBHOOK: "a webhook",
    ObjectType.LIMIT: "a limit",
    ObjectType.NOTIFICATION: "a notification",
    ObjectType.CALENDAR: "a calendar",
    ObjectType.ADDRESS: "the address of a client that was refused",
}
HEALTHS: Texts = {
    Health.HEALTHY: "its last run succeeded",
    Health.LATE: "its tick is overdue by more than 5 s",
    Health.FAILING: "its last run that ended did not succeed",
    Health.SILENT: "its tick is overdue by three intervals, and 30 s at least: nothing fires it",
    Health.NEVER_RAN: "no slot has come yet",
    Health.PAUSED: "it is paused",
    Health.DEAD: "its retries are used up",
    Health.INVALID: "its spec is not valid any more",
    Health.DONE: "no slot is left",
}
KINDS: Texts = {
    Kind.INTERVAL: "`interval_seconds`, or `every` with a duration",
    Kind.CRON: "`cron`",
    Kind.ONCE: "`at` or `after`",
    Kind.MONTHLY: "`every: monthly`",
    Kind.RRULE: "`rrule`",
}
ORDERS: Texts = {
    Sort.NEWEST: "newest first",
    Sort.OLDEST: "oldest first",
    Sort.NAME: "by name",
    Sort.NAME_DESCENDING: "by name, from the end",
    Sort.NEXT_RUN: "what is due next first",
    Sort.NEXT_RUN_DESCENDING: "what is due last first",
    Sort.LAST_ATTEMPT: "what was attempted last first",
    Sort.LAST_ATTEMPT_ASCENDING: "what was attempted longest ago first",
}
IF_RUNNING: Texts = {
    IfRunning.SKIP: "the slot does not fire",
    IfRunning.QUEUE: "its run waits for the active ones, see `max_queued`",
    IfRunning.CANCEL: "the active run is cancelled, then the new one starts",
    IfRunning.ALLOW: "both run side by side",
}
CATCH_UP: Texts = {
    CatchUp.SKIP: "they do not run",
    CatchUp.RUN_ONCE: "the latest one runs, the others are `coalesced`",
    CatchUp.RUN_ALL: "the newest 100 run one after another",
}
RUN_STATUSES: Texts = {
    ExecutionStatus.PENDING: "it waits for its turn, for a limit or for a worker",
    ExecutionStatus.RUNNING: "it is under way, also while it sleeps or waits for a callback",
    ExecutionStatus.SUCCESS: "it is done",
    ExecutionStatus.SKIPPED: "there was nothing to do",
    ExecutionStatus.BLOCKED: "a configuration cannot be used; it is not retried",
    ExecutionStatus.FAILED: "an action failed",
    ExecutionStatus.TIMED_OUT: "it took longer than `timeout_seconds`",
    ExecutionStatus.CANCELLED: "it was called off",
    ExecutionStatus.LOST: "its worker died",
}
TRIGGERS: Texts = {
    Trigger.SCHEDULE: "a slot of the schedule",
    Trigger.CATCH_UP: "a missed slot that is made up for",
    Trigger.CRON: "a slot that a ping of `/api/cron/run` found due",
    Trigger.BACKFILL: "a past slot that a backfill runs",
    Trigger.MANUAL: "a request, an action or a plugin",
    Trigger.ENTITY: "the time of a webhook or of a plugin's entity",
}
OUTCOMES: Texts = {
    QUEUED: "its run waits for its turn or for a limit",
    LedgerOutcome.SKIPPED_OVERLAP: "another run of the schedule was active",
    LedgerOutcome.SKIPPED_GUARD: "`max_concurrent_runs` of the workflow were under way",
    LedgerOutcome.SKIPPED_BREAKER: "the workflow's breaker was open",
    LedgerOutcome.SKIPPED_QUEUE_FULL: "`max_queued` runs were waiting already",
    LedgerOutcome.SKIPPED_RETRY: "a retry of an earlier slot held the schedule",
    LedgerOutcome.SKIPPED_REQUEST: "somebody asked to leave it out",
    LedgerOutcome.MISSED: "nothing could fire it in time, or schedules were switched off",
    LedgerOutcome.COALESCED: "a later missed slot ran instead",
}
FIRED: Texts = {"fired": "a run was created", **OUTCOMES}
SHOWN: Texts = {**FIRED, EXPECTED: "it is still to come"}
SPANS: Texts = {SpanKind.PAUSED: "the schedule was paused", SpanKind.DISABLED: "all schedules were switched off"}
EXPLAINED: Texts = {
    **FIRED,
    "expected": "it is still to come",
    WAITING_FOR_LIMIT: "its run waits for a limit",
    "due": "no worker has taken it up yet",
    "not_expected": "the schedule has no such slot",
    "unknown": "its record is gone",
}
ACTS: Texts = {
    Act.CREATE: "it was created",
    Act.CHANGE: "it was changed",
    Act.KEEP: "it is as declared already",
    Act.DELETE: "it is not declared any more, and was deleted",
    Act.LEAVE: "it is not declared any more, and was left, as `prune` was not asked for",
}
REVIEWS: Texts = {
    Review.NONE: "nobody has to look at what the agent makes",
    Review.AFTER: "it runs, with `status_reason` `awaiting_review` until it is approved",
    Review.BEFORE: "it is paused until it is approved, and again after each change by the agent",
}
LEASE_ENDS: Texts = {AtEnd.PAUSE: "they are paused", AtEnd.DELETE: "they are deleted"}
LEASE_STATUSES: Texts = {
    LeaseStatus.ACTIVE: "the agent can use it",
    LeaseStatus.EXPIRED: "its time is over; it can be extended",
    LeaseStatus.REVOKED: "it was ended for good",
}
BULK_ACTIONS: Texts = {
    BulkAction.PAUSE: "pause active ones, `until` a time if one is given",
    BulkAction.RESUME: "resume paused ones",
    BulkAction.RUN: "run them now, unless a run is active and `if_running` is `skip` or `cancel`",
    BulkAction.REVIVE: "make dead ones active again",
    BulkAction.DELETE: "delete them",
    BulkAction.LABEL: "add and remove `labels`",
    BulkAction.SET: "change `fields`",
    BulkAction.MOVE: "run another workflow, `workflow_id`",
}
OPERATION_ACTIONS: Texts = {
    **BULK_ACTIONS,
    BulkAction.BACKFILL: "run past slots of one schedule",
    BulkAction.UNDO: "restore what another operation has changed",
}
OPERATION_STATUSES: Texts = {
    OperationStatus.RUNNING: "workers carry it out, or will",
    OperationStatus.PAUSED: "it waits to be resumed",
    OperationStatus.DONE: "all schedules were handled",
    OperationStatus.CANCELLED: "it was ended before all schedules were handled",
    OperationStatus.FAILED: "it could not go on, or no schedule could be changed",
}
BREAKER_STATES: Texts = {
    BreakerState.CLOSED: "all runs start",
    BreakerState.OPEN: "no scheduled run starts",
    BreakerState.HALF_OPEN: "one run tries whether the workflow succeeds again",
}
EVENTS: Texts = {
    NoticeEvent.RUN_FAILED: "an attempt of a run failed",
    NoticeEvent.SCHEDULE_DEAD: "the last attempt failed and the schedule is dead",
    NoticeEvent.RUN_GIVEN_UP: "the last attempt of an entity's run failed",
    NoticeEvent.SCHEDULE_RECOVERED: "a run succeeded after failed ones",
    NoticeEvent.SLOTS_MISSED: "slots did not fire",
    NoticeEvent.BREAKER_OPENED: "a circuit breaker opened",
    NoticeEvent.LEASE_EXPIRED: "the lease of an agent has expired",
    NoticeEvent.LEASE_EXHAUSTED: "an agent was refused something, as its lease is used up; once an hour",
}
CHANGES: Texts = {
    Action.CREATED: "the object is new",
    Action.CHANGED: "fields were changed",
    Action.PAUSED: "the schedule was paused",
    Action.RESUMED: "it is active again",
    Action.REVIVED: "a dead schedule is active again",
    Action.FINISHED: "it is done",
    Action.DIED: "its retries are used up",
}
ROLES: Texts = {Role.ADMIN: "sees and changes everything", Role.MEMBER: "sees and changes their own objects"}
SCOPES: Texts = {
    Scope.READ: "read",
    Scope.OPERATE: "pause, resume, revive, run, cancel and reset",
    Scope.WRITE: "create, change and delete",
    Scope.ADMIN: "users, settings, tokens of others",
}
TEAM_ROLES: Texts = {
    TeamRole.VIEWER: "sees what the team has",
    TeamRole.OPERATOR: "also pauses, resumes, revives, runs, cancels and resets",
    TeamRole.EDITOR: "also creates, changes and deletes",
    TeamRole.OWNER: "also decides who belongs to the team",
}
OWNER_KINDS: Texts = {OwnerKind.USER: "a person or a service", OwnerKind.PLUGIN: "an installed plugin"}


def with_values(sentence: str, values: Texts) -> str:
    """Return a description that ends with what each value means."""
    return f"{sentence} " + "; ".join(f"`{value}`: {meaning}" for value, meaning in values.items()) + "."
