"""Views of what was applied."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from app.domain.declarations import Act, Difference, Key, Step
from app.domain.edit_plans import EditPlan
from app.domain.schedules import Status
from app.services.views.schedules import EditPlanView, edit_plan_fields


class DifferenceView(msgspec.Struct, rename={"before": "from", "after": "to"}):
    """A value that differs; a side that has no value is left out."""

    path: str
    before: Any | UnsetType = UNSET
    after: Any | UnsetType = UNSET


class StepView(msgspec.Struct, kw_only=True):
    """What was done to one object, or would be."""

    act: Act
    kind: Literal["workflow", "schedule", "calendar", "limit"]
    namespace: str
    name: str
    id: UUID | int | None
    differences: list[DifferenceView]
    status: Status | None
    plan: EditPlanView | None


class ApplyView(msgspec.Struct, kw_only=True):
    """What was done, or would be."""

    dry_run: bool
    counts: dict[str, int]
    steps: list[StepView]


class ExportView(msgspec.Struct):
    """Documents that declare workflows and schedules, and what they use."""

    documents: list[dict[str, Any]]


def apply_view(steps: Sequence[Step], plans: Mapping[Key, EditPlan], *, dry_run: bool) -> ApplyView:
    """Return the view of the steps of an apply, with the plans of some schedules."""
    counts = Counter(str(step.act) for step in steps)
    # What a dry run creates is rolled back, and its ids with it.
    known = (replace(step, object_id=None) if dry_run and step.act is Act.CREATE else step for step in steps)
    views = [_step_view(step, plans.get(step.key)) for step in known]
    return ApplyView(dry_run=dry_run, counts=dict(counts), steps=views)


def _step_view(step: Step, plan: EditPlan | None) -> StepView:
    return StepView(
        act=step.act,
        kind=step.key.kind.value,
        namespace=step.key.namespace,
        name=step.key.name,
        id=step.object_id,
        differences=[_difference_view(one) for one in step.differences],
        status=step.status,
        plan=None if plan is None else EditPlanView(**edit_plan_fields(plan)),
    )


def _difference_view(difference: Difference) -> DifferenceView:
    """Return the view of a difference; of an iCalendar file only how long it is."""
    if difference.path != "ics":
        return DifferenceView(difference.path, difference.before, difference.after)
    before, after = (f"{len(text)} characters" if text else text for text in (difference.before, difference.after))
    return DifferenceView("ics", before, after)
