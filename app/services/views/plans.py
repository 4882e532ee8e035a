"""Views of what changes of many schedules would do."""

from typing import Any
from uuid import UUID

import msgspec

from app.services.inputs import Instant
from app.services.views.operations import RowErrorView, SkippedView
from app.services.views.schedules import EditPlanView


class SchedulePlanView(EditPlanView, kw_only=True):
    """What a change of many schedules would do to one of them."""

    id: UUID
    name: str


class SlotCountsView(msgspec.Struct, kw_only=True):
    """What becomes of the fires of the planned schedules, counted."""

    kept: int
    added: int
    removed: int
    moved: int


class FleetPlanView(msgspec.Struct, kw_only=True):
    """What a change would do to many schedules: counts of those that were planned, and the most changed ones."""

    until: Instant
    schedules: int
    planned: int
    fires_now: int
    slots: SlotCountsView
    items: list[SchedulePlanView]
    refused: list[RowErrorView]


class CalendarPlanView(FleetPlanView, kw_only=True):
    """What a change of a calendar would do to the schedules that use it."""

    changes: dict[str, Any]


class DryRunView(msgspec.Struct, kw_only=True):
    """What an operation would be about."""

    count: int
    would_change: int
    by_status: dict[str, int]
    skipped: list[SkippedView]
    plan: FleetPlanView | None
