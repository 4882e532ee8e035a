"""What a plugin wants of a schedule, and what is stored of it, in one form, so that both can be compared."""

from typing import Any

import msgspec

from app.actions.context import PluginSchedule, PluginScheduleInput
from app.domain.access import Actor
from app.domain.executions import PendingRun
from app.domain.plugin_schedules import FIELDS, NODES
from app.domain.schedule_input import ScheduleInput
from app.domain.schedules import ScheduledJob
from app.domain.specs import KINDS
from app.domain.workflows import TRIGGER_TYPE
from app.persistence.workflows import StoredWorkflow
from app.services.inputs import WorkflowFields
from app.services.schedules import draft, spec_values
from app.services.validation import checked

# For a draft, whose workflow has no id before it is stored.
NO_WORKFLOW_YET = 1
# The node of the workflow that does the work.
WORK = "work"
# Fields of which a plugin's None means "not given".
_SPEC_FIELDS = frozenset({*KINDS, "timezone"})
_SHOWN_OTHERWISE = {"action", "config", "version", "payload", "status", "status_reason"}
_SHOWN = tuple(name for name in PluginSchedule.__struct_fields__ if name not in _SHOWN_OTHERWISE)


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as a plugin wants it: a draft with values in their stored form, and its workflow."""

    name: str
    version: int
    draft: ScheduledJob
    workflow: dict[str, Any]

    @property
    def values(self) -> dict[str, Any]:
        """The values that the plugin decides about, as JSON."""
        return values_of(self.draft, self.workflow)


class Stored(msgspec.Struct, frozen=True):
    """A schedule of the plugin, its workflow, and the executions that may start because of a change."""

    job: ScheduledJob
    workflow: StoredWorkflow | None
    pending: tuple[PendingRun, ...] = ()


def wish_of(actor: Actor, schedule: PluginScheduleInput) -> Wish:
    """Return what a plugin wants in its stored form; ``InvalidError`` names what is wrong with it."""
    values = msgspec.structs.asdict(schedule)
    config, action, version = values.pop("config"), values.pop("action"), values.pop("version")
    values["trigger_payload"] = values.pop("payload")
    wanted = checked(given_values({"workflow_id": NO_WORKFLOW_YET, **values}), ScheduleInput)
    flow = msgspec.to_builtins(checked({"name": schedule.name, **nodes_of(action, config)}, WorkflowFields))
    return Wish(name=schedule.name, version=version, draft=draft(spec_values(wanted), actor), workflow=flow)


def values_of(job: ScheduledJob, workflow: dict[str, Any]) -> dict[str, Any]:
    """Return the values that a plugin decides about, as JSON."""
    values: dict[str, Any] = msgspec.to_builtins({name: getattr(job, name) for name in FIELDS})
    return {**values, NODES: {name: workflow.get(name) for name in ("nodes", "edges")}}


def given_values(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values as a JSON body would have them, without the kinds of spec that are None."""
    shown: dict[str, Any] = msgspec.to_builtins(values)
    seconds = shown.get("interval_seconds")
    if isinstance(seconds, float) and seconds.is_integer():
        shown["interval_seconds"] = int(seconds)
    return {name: value for name, value in shown.items() if value is not None or name not in _SPEC_FIELDS}


def nodes_of(action: str, config: dict[str, Any]) -> dict[str, Any]:
    """Return the nodes and edges of a workflow that runs one action."""
    nodes = [{"id": "start", "type": TRIGGER_TYPE}, {"id": WORK, "type": action, "config": config}]
    return {"nodes": nodes, "edges": [{"from": "start", "to": WORK}]}


def work_of(workflow: StoredWorkflow | None) -> dict[str, Any] | None:
    """Return the node that does the work; None if an admin has changed the workflow so that there is none."""
    nodes: list[dict[str, Any]] = workflow.nodes if workflow else []
    return next((node for node in nodes if node["id"] == WORK), None)


def plugins_view(stored: Stored, version: int) -> PluginSchedule:
    """Return a schedule as its plugin sees it."""
    job, work = stored.job, work_of(stored.workflow) or {"type": "", "config": {}}
    return PluginSchedule(
        action=work["type"],
        config=work.get("config", {}),
        version=version,
        payload=job.trigger_payload,
        status=job.status,
        status_reason=job.status_reason,
        **{name: getattr(job, name) for name in _SHOWN},
    )
