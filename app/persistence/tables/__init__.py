"""The tables. What docs/design.md promises is also a constraint here, so that no code path can break it unnoticed."""

from app.persistence.tables.accounts import ApiToken, SecretRow, SigningKeyRow, UserProfile
from app.persistence.tables.base import IS_ACTIVE_EXECUTION, IS_LIMITED, Base, one_of
from app.persistence.tables.executions import (
    ActiveExecutionRow,
    BackfillRow,
    CallbackRow,
    DeletedHistoryRow,
    UnsuccessfulExecutionRow,
    WorkerRow,
    WorkflowExecutionRow,
)
from app.persistence.tables.operations import (
    CircuitBreakerRow,
    CircuitBreakerTransitionRow,
    DeliveryRow,
    LockRow,
    ManagedScheduleRow,
    ManagedWorkflowRow,
    MishapRow,
    NotificationRow,
    SitemapPingRow,
    SwitchRow,
    WebhookRow,
)
from app.persistence.tables.schedules import (
    DueTickRow,
    LedgerEntryRow,
    ScheduledJobRow,
    ScheduleRevisionRow,
    WorkflowRevisionRow,
    WorkflowRow,
)

__all__ = [
    "IS_ACTIVE_EXECUTION",
    "IS_LIMITED",
    "ActiveExecutionRow",
    "ApiToken",
    "BackfillRow",
    "Base",
    "CallbackRow",
    "CircuitBreakerRow",
    "CircuitBreakerTransitionRow",
    "DeletedHistoryRow",
    "DeliveryRow",
    "DueTickRow",
    "LedgerEntryRow",
    "LockRow",
    "ManagedScheduleRow",
    "ManagedWorkflowRow",
    "MishapRow",
    "NotificationRow",
    "ScheduleRevisionRow",
    "ScheduledJobRow",
    "SecretRow",
    "SigningKeyRow",
    "SitemapPingRow",
    "SwitchRow",
    "UnsuccessfulExecutionRow",
    "UserProfile",
    "WebhookRow",
    "WorkerRow",
    "WorkflowExecutionRow",
    "WorkflowRevisionRow",
    "WorkflowRow",
    "one_of",
]
