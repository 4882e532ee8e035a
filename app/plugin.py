"""The public API for plugin authors: what a plugin declares, what its actions get, and how to check them.

assert [] == shortcomings(MY_ACTION)
assert [] == scheduler_shortcomings(MyEntityScheduler())
"""

from app.actions.catalog import Action, ActionFailedError, Blocked, Done, Skipped
from app.actions.context import (
    ActionContext,
    LeaseLostError,
    PluginRun,
    PluginSchedule,
    PluginScheduleChanges,
    PluginScheduleInput,
    PluginSchedulesPort,
    RefusedError,
)
from app.actions.http_client import Answer, CallFailedError
from app.actions.plugins import Capability, Plugin
from app.actions.shortcomings import shortcomings
from app.domain.entity_jobs import ScheduledJobConfig
from app.domain.plugin_schedules import EnsureMode
from app.domain.schedules import CatchUp, IfRunning
from app.engine.entity_schedulers import EntityScheduler, StoppedJobs, scheduler_shortcomings

__all__ = [
    "Action",
    "ActionContext",
    "ActionFailedError",
    "Answer",
    "Blocked",
    "CallFailedError",
    "Capability",
    "CatchUp",
    "Done",
    "EnsureMode",
    "EntityScheduler",
    "IfRunning",
    "LeaseLostError",
    "Plugin",
    "PluginRun",
    "PluginSchedule",
    "PluginScheduleChanges",
    "PluginScheduleInput",
    "PluginSchedulesPort",
    "RefusedError",
    "ScheduledJobConfig",
    "Skipped",
    "StoppedJobs",
    "scheduler_shortcomings",
    "shortcomings",
]
