"""Workflows and schedules in the form in which files declare them: what a file need not say is left out."""

from typing import Any

import msgspec
from sqlalchemy import Row

from app.domain.differences import ABSENT, same
from app.domain.schedules import Reason, ScheduledJob, Status
from app.services.inputs import DeclaredScheduleInput, Input, WorkflowInput

_FIRST = ("name", "workflow")
_NOT_OF_ROW = {"workflow", "paused", "interval_seconds", "every"}


def workflow_entry(name: str, row: Row[Any]) -> dict[str, Any]:
    """A workflow under a name."""
    values = {field: getattr(row, field) for field in WorkflowInput.__struct_fields__}
    nodes = [{part: value for part, value in node.items() if part != "config" or value} for node in row.nodes]
    edges = [{"from": edge["from"], "to": edge["to"]} for edge in row.edges]
    return _said({**values, "name": name, "nodes": nodes, "edges": edges}, WorkflowInput)


def schedule_entry(name: str, workflow: str, job: ScheduledJob) -> dict[str, Any]:
    """A schedule under a name; its workflow goes by one too."""
    fields = [field for field in DeclaredScheduleInput.__struct_fields__ if field not in _NOT_OF_ROW]
    values = {
        **{field: getattr(job, field) for field in fields},
        "name": name,
        "workflow": workflow,
        # An interval may have fractions, which only this spelling can say.
        "every": job.spec.spelled_every,
        "paused": job.status is Status.PAUSED and job.status_reason is Reason.MANUAL,
    }
    return _said(values, DeclaredScheduleInput)


def _said(values: dict[str, Any], form: type[Input]) -> dict[str, Any]:
    """What differs from the defaults, as JSON values, names first."""
    plain: dict[str, Any] = msgspec.to_builtins(values)
    defaults = msgspec.to_builtins(_defaults(form))
    order = sorted(plain, key=lambda field: (field not in _FIRST, form.__struct_fields__.index(field)))
    return {field: plain[field] for field in order if not same(plain[field], defaults.get(field, ABSENT))}


def _defaults(form: type[Input]) -> dict[str, Any]:
    found = {}
    for field in msgspec.structs.fields(form):
        if field.default is not msgspec.NODEFAULT:
            found[field.name] = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            found[field.name] = field.default_factory()
    return found
