"""All that authors of plugins need, in one place: what they declare, what they are handed, and how to check it.

assert [] == shortcomings(MY_ACTION)
assert [] == scheduler_shortcomings(MyEntityScheduler())
"""

from app.actions.catalog import Action, ActionFailedError, Blocked, Done, Skipped, shortcomings
from app.actions.context import (
    ActionContext,
    LeaseLostError,
    PluginSchedule,
    PluginScheduleChanges,
    PluginScheduleInput,
    PluginSchedulesPort,
    RefusedError,
)
from app.actions.http_client import Answer, CallFailedError
from app.actions.plugins import Capability, Plugin
from app.domain.entities import ScheduledJobConfig
from app.engine.entities import EntityScheduler, scheduler_shortcomings

__all__ = [
    "Action",
    "ActionContext",
    "ActionFailedError",
    "Answer",
    "Blocked",
    "CallFailedError",
    "Capability",
    "Done",
    "EntityScheduler",
    "LeaseLostError",
    "Plugin",
    "PluginSchedule",
    "PluginScheduleChanges",
    "PluginScheduleInput",
    "PluginSchedulesPort",
    "RefusedError",
    "ScheduledJobConfig",
    "Skipped",
    "scheduler_shortcomings",
    "shortcomings",
]
