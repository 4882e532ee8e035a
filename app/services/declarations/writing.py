"""Creates, changes and deletes declared objects within a transaction.

Lock order: workflows, schedules, the names of calendars. An edit of a schedule holds its row when it waits for these.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.domain.access import Actor, owner_for
from app.domain.audit import Via
from app.domain.declarations import Act, Key, Kind, Step
from app.domain.errors import CarillonError, ConflictError, InvalidError, UnavailableError
from app.domain.limits import Caps
from app.domain.revisions import Author
from app.domain.schedules import ScheduledJob, Status
from app.engine import schedule_changes
from app.engine.schedule_changes import Changed
from app.persistence import calendars, declarations, schedules, workflows
from app.persistence.audit import current_origin
from app.persistence.calendars import StoredCalendar
from app.persistence.database import Connection
from app.services.calendars import add_calendar, change_calendar, remove_calendar
from app.services.declarations.exporting import Inventory
from app.services.declarations.files import BadFileError, Item, Place, Problem, workflow_of
from app.services.schedules import draft, sound

PAUSED_NOTE = "declared as paused"
GONE = "It was deleted in the meantime."
# For the check of a draft, whose workflow has no id before it is stored.
NO_WORKFLOW_YET = 1


class Work(msgspec.Struct, frozen=True):
    """The items of one kind that are to be created and changed."""

    new: list[Item]
    changed: list[Item]


def work(items: Sequence[Item], steps: Iterable[Step], kind: Kind) -> Work:
    """Return the items that the steps create and change."""
    acts = {step.key: step.act for step in steps if step.key.kind is kind}
    by_act = {act: [item for item in items if acts.get(item.key) is act] for act in (Act.CREATE, Act.CHANGE)}
    return Work(by_act[Act.CREATE], by_act[Act.CHANGE])


def drafts(items: Iterable[Item], owner: Actor, caps: Caps) -> dict[Key, ScheduledJob]:
    """Return the new schedules. To be called before any lock is held, as the search for first slots may take long."""
    jobs: dict[Key, ScheduledJob] = {}
    problems: list[Problem] = []
    for item in items:
        try:
            jobs[item.key] = sound(draft(_values(item, NO_WORKFLOW_YET), owner), caps)
        except InvalidError as error:
            problems += item.place.problems(error)
    if problems:
        raise BadFileError(*problems)
    return jobs


class Applier(msgspec.Struct, frozen=True):
    """Who applies files, and the owner of what is new."""

    actor: Actor
    owner: Actor

    def author(self, namespace: str) -> Author:
        """Return the author of changes by files. No user has such a name, as user names have no colon."""
        origin = replace(current_origin(), via=Via.FILE)
        owner = None if self.owner.username == self.actor.username else self.owner.username
        return Author(None, f"apply:{namespace}", self.actor, origin, on_behalf_of=owner)


async def write_workflows(connection: Connection, flows: Work, by: Applier, there: Inventory) -> dict[Key, int]:
    """Create and change workflows; return the ids of all workflows of the namespaces."""
    for item in sorted(flows.changed, key=lambda item: there.workflow_ids[item.key]):
        before = await workflows.lock_to_change(connection, there.workflow_ids[item.key])
        if before is None:
            raise BadFileError(item.place.problem("", GONE))
        await workflows.save(connection, before, item.declared.values, by.author(item.key.namespace))
    new = {}
    for item in flows.new:
        author = by.author(item.key.namespace)
        row = await workflows.add(connection, owner_for(by.owner, None), item.declared.values, author)
        new[item.key] = row.id
    await declarations.add_workflows(connection, new)
    return {**there.workflow_ids, **new}


async def adoptable_calendars(
    connection: Connection, items: Iterable[Item], owner: Actor, there: Inventory
) -> dict[Key, StoredCalendar]:
    """Return the declared calendars that the owner has already and that no file declares.

    A name stands for one calendar of an owner, so that a second one cannot be created beside it.
    """
    found: dict[Key, StoredCalendar] = {}
    problems: list[Problem] = []
    for item in items:
        if item.key.kind is not Kind.CALENDAR or item.key in there.calendars:
            continue
        row = await calendars.of_owner(connection, owner.user_id, item.key.name)
        namespace = None if row is None else await declarations.namespace_of_calendar(connection, row.id)
        if namespace is not None:
            problems.append(item.place.problem("name", f"The namespace '{namespace}' declares it already."))
        elif row is not None:
            found[item.key] = row
    if problems:
        raise BadFileError(*problems)
    return found


async def write_calendars(connection: Connection, dates: Work, by: Applier, there: Inventory) -> dict[Key, int]:
    """Create and change calendars; return the ids of the new ones."""
    created: dict[Key, int] = {}
    problems: list[Problem] = []
    if dates.new or dates.changed:
        await calendars.lock_names(connection)
    for item in (*dates.new, *dates.changed):
        author, before = by.author(item.key.namespace), there.calendars.get(item.key)
        try:
            if before is None:
                owner = owner_for(by.owner, None)
                row = await add_calendar(connection, by.actor, owner, item.declared.values, author)
                created[item.key] = row.id
            else:
                await change_calendar(connection, by.actor, before, item.declared.values, author)
        except UnavailableError:
            raise
        except CarillonError as error:
            problems += item.place.problems(error)
    if problems:
        raise BadFileError(*problems)
    return created


async def write_schedules(  # noqa: PLR0913 - what is declared, what is there, and who declares it
    connection: Connection,
    jobs: Work,
    by: Applier,
    new: Mapping[Key, ScheduledJob],
    workflow_ids: Mapping[Key, int],
    there: Inventory,
    caps: Caps,
) -> dict[Key, Changed]:
    """Create and change schedules; return them as they are now."""
    await _require_workflows(connection, (*jobs.new, *jobs.changed), workflow_ids)
    await schedules.lock(connection, [there.schedule_ids[item.key] for item in jobs.changed])
    written: dict[Key, Changed] = {}
    problems: list[Problem] = []
    for item in jobs.changed:
        values = _values(item, workflow_ids[workflow_of(item.declared)])
        try:
            written[item.key] = await _change(connection, item, by, there.schedule_ids[item.key], values, caps)
        except UnavailableError:
            raise
        except CarillonError as error:
            problems += item.place.problems(error)
    if problems:
        raise BadFileError(*problems)
    return {**written, **await _create(connection, jobs.new, by, new, workflow_ids)}


async def _require_workflows(connection: Connection, items: Iterable[Item], workflow_ids: Mapping[Key, int]) -> None:
    """Refuse schedules whose workflow was deleted. The others cannot be deleted before the transaction ends."""
    used = [(item, workflow_ids[workflow_of(item.declared)]) for item in items]
    present = await workflows.owners(connection, {number for _, number in used})
    problems = [item.place.problem("workflow", GONE) for item, number in used if number not in present]
    if problems:
        raise BadFileError(*problems)


async def _create(
    connection: Connection,
    items: Iterable[Item],
    by: Applier,
    new: Mapping[Key, ScheduledJob],
    workflow_ids: Mapping[Key, int],
) -> dict[Key, Changed]:
    """Create the new schedules of each namespace, and pause those that are declared as paused."""
    by_namespace: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        by_namespace[item.key.namespace].append(item)
    created = {}
    for namespace, members in by_namespace.items():
        jobs = [replace(new[item.key], workflow_id=workflow_ids[workflow_of(item.declared)]) for item in members]
        author = by.author(namespace)
        refused = await schedule_changes.limit_refusals(connection, jobs)
        refused |= await schedule_changes.calendar_refusals(connection, jobs)
        problems = [
            problem
            for item, job in zip(members, jobs, strict=True)
            if job.id in refused
            for problem in item.place.problems(refused[job.id])
        ]
        if problems:
            raise BadFileError(*problems)
        started = await schedule_changes.start_scheduled_jobs(connection, [(job, author) for job in jobs])
        await declarations.add_schedules(
            connection, {item.key: job.id for item, job in zip(members, jobs, strict=True)}
        )
        for item, job in zip(members, started, strict=True):
            created[item.key] = await _paused(connection, item, by, Changed(job))
    return created


async def _change(
    connection: Connection, item: Item, by: Applier, job_id: UUID, values: dict[str, object], caps: Caps
) -> Changed:
    """Change a schedule as a PATCH does."""
    author = by.author(item.key.namespace)
    changed = await schedule_changes.edit_scheduled_job(connection, job_id, values, author, caps)
    return await _paused(connection, item, by, changed)


async def _paused(connection: Connection, item: Item, by: Applier, changed: Changed) -> Changed:
    """Pause a schedule if that is declared and it is active; return it."""
    if not item.declared.paused or changed.job.status is not Status.ACTIVE:
        return changed
    author = by.author(item.key.namespace)
    paused = await schedule_changes.pause_scheduled_job(connection, changed.job.id, author, PAUSED_NOTE)
    return replace(paused, pending=(*changed.pending, *paused.pending))


def _values(item: Item, workflow_id: int) -> dict[str, object]:
    values = {name: value for name, value in item.declared.values.items() if name != "workflow"}
    return {**values, "workflow_id": workflow_id}


MOST_NAMES = 10


async def prune(
    connection: Connection, by: Applier, steps: Iterable[Step], there: Inventory, places: Mapping[str, Place]
) -> list[UUID]:
    """Delete objects with their history; return their active executions. Problems are placed by ``places``."""
    keys = [step.key for step in steps]
    flows = {there.workflow_ids[key]: key for key in keys if key.kind is Kind.WORKFLOW}
    job_ids = [there.schedule_ids[key] for key in keys if key.kind is Kind.SCHEDULE]
    rows = [await workflows.lock_to_delete(connection, workflow_id) for workflow_id in sorted(flows)]
    await _require_unused(connection, flows, set(job_ids), places)
    deleted = await schedules.lock_deletable(connection, by.actor, job_ids)
    author = by.author(", ".join(sorted({key.namespace for key in keys})))
    running = await schedule_changes.delete_scheduled_jobs(connection, deleted, author)
    for row in rows:
        if row is not None:
            await schedule_changes.delete_workflow(connection, row, [], by.author(flows[row.id].namespace))
    await _prune_calendars(connection, by, [key for key in keys if key.kind is Kind.CALENDAR], there, places)
    return running


async def _prune_calendars(
    connection: Connection, by: Applier, keys: Sequence[Key], there: Inventory, places: Mapping[str, Place]
) -> None:
    """Delete calendars; refuse it if schedules that stay use one."""
    problems: list[Problem] = []
    if keys:
        await calendars.lock_names(connection)
    for key in keys:
        try:
            await remove_calendar(connection, there.calendars[key], by.author(key.namespace))
        except ConflictError as error:
            message = f"The calendar '{key.name}' is no longer declared. {error.detail}"
            problems.append(places[key.namespace].problem("namespace", message))
    if problems:
        raise BadFileError(*problems)


async def _require_unused(
    connection: Connection, flows: Mapping[int, Key], deleted: set[UUID], places: Mapping[str, Place]
) -> None:
    """Refuse to delete workflows that other schedules run: these would be deleted too."""
    users: dict[int, list[str]] = defaultdict(list)
    for job in await schedules.of_workflows(connection, flows):
        if job.id not in deleted:
            users[job.workflow_id].append(f"'{job.name}'")
    problems = [
        places[flows[workflow_id].namespace].problem("namespace", _still_used(flows[workflow_id].name, names))
        for workflow_id, names in users.items()
    ]
    if problems:
        raise BadFileError(*problems)


def _still_used(workflow: str, names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    listed = ", ".join(names[:MOST_NAMES])
    return f"The workflow '{workflow}' is no longer declared, but schedules that stay run it: {listed}{more}."
