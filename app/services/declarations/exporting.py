"""``carillon export``: stored objects in the form of declaration files."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.domain.access import Actor, require_admin
from app.domain.declarations import ABSENT, Key, Kind, Managed, same
from app.domain.errors import FieldError, InvalidError, NotFoundError
from app.domain.schedules import EDITABLE, Reason, ScheduledJob, Status
from app.persistence import declarations, users, workflows
from app.persistence.calendars import StoredCalendar
from app.persistence.database import Connection, Database, read_one_moment
from app.persistence.limits import Limit
from app.persistence.workflows import StoredWorkflow
from app.services.declarations.yaml_text import write_documents
from app.services.inputs import (
    CalendarFields,
    DeclarationInput,
    DeclaredScheduleInput,
    Input,
    LimitFields,
    WorkflowFields,
)
from app.services.validation import checked

_FIRST = ("name", "workflow")
_NOT_OF_ROW = {"workflow", "paused", "interval_seconds", "every"}


def workflow_entry(name: str, row: StoredWorkflow) -> dict[str, Any]:
    """Return a workflow as the entry of a file, under this name."""
    values = {field: getattr(row, field) for field in WorkflowFields.__struct_fields__}
    nodes = [{part: value for part, value in node.items() if part != "config" or value} for node in row.nodes]
    edges = [{"from": edge["from"], "to": edge["to"]} for edge in row.edges]
    return _said({**values, "name": name, "nodes": nodes, "edges": edges}, WorkflowFields)


def schedule_entry(name: str, workflow: str, job: ScheduledJob) -> dict[str, Any]:
    """Return a schedule as the entry of a file, under this name and with the name of its workflow."""
    fields = [field for field in DeclaredScheduleInput.__struct_fields__ if field not in _NOT_OF_ROW]
    values = {
        **{field: getattr(job, field) for field in fields},
        "name": name,
        "workflow": workflow,
        # Only this spelling can express an interval with a fraction of a second.
        "every": job.spec.spelled_every,
        "paused": job.status is Status.PAUSED and job.status_reason is Reason.MANUAL,
    }
    return _said(values, DeclaredScheduleInput)


def calendar_entry(row: StoredCalendar) -> dict[str, Any]:
    """Return a calendar as the entry of a file."""
    return _said({field: getattr(row, field) for field in CalendarFields.__struct_fields__}, CalendarFields)


def limit_entry(row: Limit) -> dict[str, Any]:
    """Return a limit as the entry of a file."""
    return _said({field: getattr(row, field) for field in LimitFields.__struct_fields__}, LimitFields)


def _said(values: dict[str, Any], form: type[Input]) -> dict[str, Any]:
    """Return the values that differ from the defaults, as JSON values, names first."""
    plain: dict[str, Any] = msgspec.to_builtins(values)
    defaults = msgspec.to_builtins(_defaults(form))
    order = sorted(plain, key=lambda field: (field not in _FIRST, form.__struct_fields__.index(field)))
    return {field: plain[field] for field in order if not same(plain[field], defaults.get(field, ABSENT))}


def _defaults(form: type[Input]) -> dict[str, Any]:
    defaults = {}
    for field in msgspec.structs.fields(form):
        if field.default is not msgspec.NODEFAULT:
            defaults[field.name] = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            defaults[field.name] = field.default_factory()
    return defaults


HEADING = "# Workflows and schedules of Carillon, and what they use. To apply them: carillon apply -f FILE\n"


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which objects to export: those that files declare, of one namespace or of all; or those that no file declares.

    The latter are written for a new namespace, ``for_namespace``.
    """

    namespace: str | None = None
    owner: str | None = None
    for_namespace: str | None = None


class ExportService:
    """Writes the text of declaration files."""

    def __init__(self, database: Database) -> None:
        """Read from this database."""
        self._database = database

    async def export(self, actor: Actor, selection: Selection) -> str:
        """Return the text of a file that declares the selected objects."""
        require_admin(actor)
        if selection.for_namespace is not None:
            checked({"namespace": selection.for_namespace}, DeclarationInput)
            if selection.namespace is not None:
                raise InvalidError(
                    FieldError("namespace", "Managed objects already have a namespace. Leave one of the two out.")
                )
        async with self._database.transaction() as connection:
            await read_one_moment(connection)
            owner = None if selection.owner is None else (await users.owner(connection, selection.owner)).user_id
            if selection.for_namespace is None:
                documents = await _managed(connection, selection.namespace, owner)
            else:
                documents = [await _unmanaged(connection, selection.for_namespace, owner)]
        return as_yaml(_filled(documents))

    async def managed_documents(self, actor: Actor, namespace: str | None) -> list[dict[str, Any]]:
        """Return what files declare, of one namespace or of all, as documents; for a member, what is theirs."""
        async with self._database.transaction() as connection:
            await read_one_moment(connection)
            documents = await _managed(connection, namespace, actor.owner_filter)
        return _filled(documents) if documents or namespace is not None else []


def as_yaml(documents: Sequence[dict[str, Any]]) -> str:
    """Return the text of a file with these documents."""
    return HEADING + write_documents(documents)


def _filled(documents: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    filled = [document for document in documents if len(document) > 1]
    if not filled:
        raise NotFoundError("There is nothing to export.")
    return filled


async def _managed(connection: Connection, namespace: str | None, owner: int | None) -> list[dict[str, Any]]:
    namespaces = None if namespace is None else {namespace}
    flows = _of_owner(await declarations.managed_workflows(connection, namespaces), owner)
    jobs = _of_owner(await declarations.managed_schedules(connection, namespaces), owner)
    dates = _of_owner(await declarations.managed_calendars(connection, namespaces), owner)
    bounds = _of_owner(await declarations.managed_limits(connection, namespaces), owner)
    return [
        await _document(
            connection,
            name,
            _Objects(
                {key.name: row for key, row in flows.items() if key.namespace == name},
                {key.name: job for key, job in jobs.items() if key.namespace == name},
                [row for key, row in sorted(dates.items(), key=_by_name) if key.namespace == name],
                [row for key, row in sorted(bounds.items(), key=_by_name) if key.namespace == name],
            ),
            owner,
        )
        for name in sorted({key.namespace for key in (*flows, *jobs, *dates, *bounds)})
    ]


def _by_name(item: tuple[Key, Any]) -> str:
    return item[0].name


class _Objects(msgspec.Struct, frozen=True):
    """What a document has."""

    workflows: dict[str, StoredWorkflow]
    schedules: dict[str, ScheduledJob]
    calendars: list[StoredCalendar]
    limits: list[Limit]


async def _unmanaged(connection: Connection, namespace: str, owner: int | None) -> dict[str, Any]:
    """Return what no file declares, without finished schedules: applied, they would be refused or start again."""
    rows = await declarations.unmanaged_workflows(connection, owner)
    jobs = [job for job in await declarations.unmanaged_schedules(connection, owner) if job.status is not Status.DONE]
    dates = await declarations.unmanaged_calendars(connection, owner)
    bounds = await declarations.unmanaged_limits(connection, owner)
    return await _document(connection, namespace, _Objects(_named(rows), _named(jobs), dates, bounds))


async def _document(
    connection: Connection, namespace: str, objects: _Objects, owner: int | None = None
) -> dict[str, Any]:
    """Return the document of a namespace, with all workflows that its schedules run.

    With an owner, schedules that run the workflow of another one are left out.
    """
    flows, jobs = objects.workflows, objects.schedules
    missing = {job.workflow_id for job in jobs.values()} - {row.id for row in flows.values()}
    rows = await workflows.rows(connection, missing)
    used = {number: row for number, row in rows.items() if owner is None or row.user_profile_id == owner}
    jobs = {name: job for name, job in jobs.items() if job.workflow_id not in missing or job.workflow_id in used}
    flows = flows | _named((used[number] for number in sorted(used)), taken=set(flows))
    names = {row.id: name for name, row in flows.items()}
    document: dict[str, Any] = {"namespace": namespace}
    if objects.calendars:
        document["calendars"] = [calendar_entry(row) for row in objects.calendars]
    if objects.limits:
        document["limits"] = [limit_entry(row) for row in objects.limits]
    if flows:
        document["workflows"] = [workflow_entry(name, row) for name, row in sorted(flows.items())]
    if jobs:
        document["schedules"] = [
            schedule_entry(name, names[jobs[name].workflow_id], jobs[name]) for name in sorted(jobs)
        ]
    return document


def _of_owner(objects: dict[Key, Any], owner: int | None) -> dict[Key, Any]:
    return {key: value for key, value in objects.items() if owner is None or value.user_profile_id == owner}


def _named(objects: Iterable[Any], taken: set[str] | None = None) -> dict[str, Any]:
    """Return objects by name; a number is added to a name that is taken."""
    named: dict[str, Any] = {}
    for value in objects:
        name, number = value.name, 1
        while name in named or name in (taken or ()):
            number += 1
            name = f"{value.name[:240]} ({number})"
        named[name] = value
    return named


_OF_WORKFLOW = WorkflowFields.__struct_fields__
_OF_CALENDAR = CalendarFields.__struct_fields__
_OF_LIMIT = LimitFields.__struct_fields__
_OF_SCHEDULE = tuple(name for name in EDITABLE if name != "workflow_id")


class Inventory(msgspec.Struct, frozen=True):
    """The stored objects of some namespaces by key."""

    managed: dict[Key, Managed]
    workflow_ids: dict[Key, int]
    schedules: dict[Key, ScheduledJob]
    calendars: dict[Key, StoredCalendar]
    limits: dict[Key, Limit]

    @property
    def schedule_ids(self) -> dict[Key, UUID]:
        """Return the ids of the schedules."""
        return {key: job.id for key, job in self.schedules.items()}

    @property
    def ids(self) -> dict[Key, UUID | int]:
        """Return the ids of all objects."""
        dates = {key: row.id for key, row in self.calendars.items()}
        bounds = {key: row.id for key, row in self.limits.items()}
        return {**self.workflow_ids, **self.schedule_ids, **dates, **bounds}


async def take_inventory(connection: Connection, namespaces: Collection[str]) -> Inventory:
    """Read the objects of these namespaces."""
    flows = await declarations.managed_workflows(connection, namespaces)
    jobs = await declarations.managed_schedules(connection, namespaces)
    dates = await declarations.managed_calendars(connection, namespaces)
    bounds = await declarations.managed_limits(connection, namespaces)
    names = {row.id: key for key, row in flows.items()}
    managed = {key: _workflow(key, row) for key, row in flows.items()}
    managed |= {key: _schedule(key, job, names) for key, job in jobs.items()}
    managed |= _managed_rows(dates) | _managed_rows(bounds)
    workflow_ids = {key: row.id for key, row in flows.items()}
    return Inventory(managed, workflow_ids, jobs, dates, bounds)


class Adopted(msgspec.Struct, frozen=True):
    """Calendars and limits that the owner has, and that no file declared so far."""

    calendars: dict[Key, StoredCalendar]
    limits: dict[Key, Limit]


def with_adopted(there: Inventory, adopted: Adopted) -> Inventory:
    """Return an inventory with calendars and limits that no file declared so far."""
    managed = there.managed | _managed_rows(adopted.calendars) | _managed_rows(adopted.limits)
    dates, bounds = {**there.calendars, **adopted.calendars}, {**there.limits, **adopted.limits}
    return replace(there, managed=managed, calendars=dates, limits=bounds)


def _managed_rows(rows: Mapping[Key, StoredCalendar] | Mapping[Key, Limit]) -> dict[Key, Managed]:
    managed = {}
    for key, row in rows.items():
        fields = _OF_CALENDAR if key.kind is Kind.CALENDAR else _OF_LIMIT
        values = {name: getattr(row, name) for name in fields}
        managed[key] = Managed(key=key, user_profile_id=row.user_profile_id, values=values)
    return managed


def _workflow(key: Key, row: StoredWorkflow) -> Managed:
    values = {name: getattr(row, name) for name in _OF_WORKFLOW}
    return Managed(key=key, user_profile_id=row.user_profile_id, values=values)


def _schedule(key: Key, job: ScheduledJob, names: Mapping[int, Key]) -> Managed:
    values = {name: getattr(job, name) for name in _OF_SCHEDULE}
    values["workflow"] = _name(names.get(job.workflow_id), key, job.workflow_id)
    return Managed(key=key, user_profile_id=job.user_profile_id, values=values, status=job.status)


def _name(workflow: Key | None, schedule: Key, workflow_id: int) -> str:
    """Return the name of a schedule's workflow in its namespace; ``id N`` if an edit gave it one from elsewhere."""
    if workflow is None or workflow.namespace != schedule.namespace:
        return f"id {workflow_id}"
    return workflow.name
