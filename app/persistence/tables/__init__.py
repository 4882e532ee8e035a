"""The tables. What the design promises stands here as constraints, so that no code path can break it quietly."""

from app.persistence.tables.accounts import ApiToken, UserProfile
from app.persistence.tables.base import IS_ACTIVE_EXECUTION, IS_LIMITED, Base, one_of
from app.persistence.tables.declarations import ManagedScheduleRow, ManagedWorkflowRow
from app.persistence.tables.entities import WebhookRow
from app.persistence.tables.executions import (
    ActiveExecutionRow,
    BackfillRow,
    CallbackRow,
    DeletedHistoryRow,
    UnsuccessfulExecutionRow,
    WorkerRow,
    WorkflowExecutionRow,
)
from app.persistence.tables.notices import DeliveryRow, NotificationRow
from app.persistence.tables.operations import (
    CircuitBreakerRow,
    CircuitBreakerTransitionRow,
    LockRow,
    MishapRow,
    SwitchRow,
)
from app.persistence.tables.schedules import (
    DueTickRow,
    LedgerEntryRow,
    ScheduledJobRow,
    ScheduleRevisionRow,
    WorkflowRevisionRow,
    WorkflowRow,
)
from app.persistence.tables.secrets import SecretRow
from app.persistence.tables.signing import SigningKeyRow

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
