"""Creates, changes and deletes declared objects within a transaction.

Lock order: limits, workflows, schedules, the names of calendars. An edit of a schedule holds its row when it waits for
the latter; it shares a limit with those who change its bounds.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.domain.access import Actor, owner_for
from app.domain.audit import Via
from app.domain.declarations import Act, Key, Kind, Step
from app.domain.errors import CarillonError, ConflictError, InvalidError, UnavailableError
from app.domain.executions import PendingRun
from app.domain.limits import Caps
from app.domain.revisions import Author
from app.domain.schedules import ScheduledJob, Status
from app.engine import schedule_changes
from app.engine.schedule_changes import Changed
from app.persistence import calendars, declarations, limits, schedules, workflows
from app.persistence.audit import current_origin
from app.persistence.calendars import StoredCalendar
from app.persistence.database import Connection
from app.persistence.limits import Limit
from app.services.calendars import add_calendar, change_calendar, remove_calendar
from app.services.declarations.exporting import Adopted, Inventory
from app.services.declarations.files import BadFileError, Item, Place, Problem, workflow_of
from app.services.limits import add_limit, change_limit, remove_limit
from app.services.schedules import draft, sound
from app.services.workflows import freed_by_change

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


class WrittenWorkflows(msgspec.Struct, frozen=True):
    """The ids of all workflows of the namespaces, and the runs that wait for no limit any more."""

    ids: dict[Key, int]
    freed: tuple[PendingRun, ...]


async def write_workflows(connection: Connection, flows: Work, by: Applier, there: Inventory) -> WrittenWorkflows:
    """Create and change workflows."""
    freed: list[PendingRun] = []
    for item in sorted(flows.changed, key=lambda item: there.workflow_ids[item.key]):
        before = await workflows.lock_to_change(connection, there.workflow_ids[item.key])
        if before is None:
            raise BadFileError(item.place.problem("", GONE))
        after = await workflows.save(connection, before, item.declared.values, by.author(item.key.namespace))
        freed += await freed_by_change(connection, before, after)
    new = {}
    for item in flows.new:
        author = by.author(item.key.namespace)
        row = await workflows.add(connection, owner_for(by.owner, None), item.declared.values, author)
        new[item.key] = row.id
    await declarations.add_workflows(connection, new)
    return WrittenWorkflows({**there.workflow_ids, **new}, tuple(freed))


async def adoptable(connection: Connection, items: Iterable[Item], owner: Actor, there: Inventory) -> Adopted:
    """Return the declared calendars and limits that the owner has already and that no file declares.

    A name stands for one calendar and one limit of an owner, so that a second one cannot be created beside it.
    """
    found = Adopted({}, {})
    problems: list[Problem] = []
    for item in items:
        if item.key in there.managed or item.key.kind in {Kind.WORKFLOW, Kind.SCHEDULE}:
            continue
        namespace = await _adopt(connection, item.key, owner, found)
        if namespace is not None:
            problems.append(item.place.problem("name", f"The namespace '{namespace}' declares it already."))
    if problems:
        raise BadFileError(*problems)
    return found


async def _adopt(connection: Connection, key: Key, owner: Actor, found: Adopted) -> str | None:
    """Add what the owner has under a name to what is found; return the namespace that declares it, if one does."""
    if key.kind is Kind.CALENDAR:
        calendar = await calendars.of_owner(connection, owner.user_id, key.name)
        if calendar is not None:
            found.calendars[key] = calendar
            return await declarations.namespace_of_calendar(connection, calendar.id)
    elif key.kind is Kind.LIMIT:
        limit = await limits.of_owner(connection, owner.user_id, key.name)
        if limit is not None:
            found.limits[key] = limit
            return await declarations.namespace_of_limit(connection, limit.id)
    return None


async def write_calendars(connection: Connection, dates: Work, by: Applier, there: Inventory) -> dict[Key, int]:
    """Create and change calendars; return the ids of the new ones."""
    if dates.new or dates.changed:
        await calendars.lock_names(connection)
    current = await calendars.by_ids(connection, [there.calendars[item.key].id for item in dates.changed])

    async def write(item: Item, author: Author) -> StoredCalendar:
        known = there.calendars.get(item.key)
        if known is not None:
            before = current.get(known.id)
            if before is None:
                raise ConflictError(GONE)
            return await change_calendar(connection, by.actor, before, item.declared.values, author)
        return await add_calendar(connection, by.actor, owner_for(by.owner, None), item.declared.values, author)

    return await _write_named(dates, by, write)


async def write_limits(connection: Connection, bounds: Work, by: Applier, there: Inventory) -> dict[Key, int]:
    """Create and change limits; return the ids of the new ones. Workers soon give the permits of a higher bound."""
    changed = sorted(there.limits[item.key].id for item in bounds.changed)
    current = {limit_id: await limits.lock_to_change(connection, limit_id) for limit_id in changed}

    async def write(item: Item, author: Author) -> Limit:
        known = there.limits.get(item.key)
        if known is not None:
            before = current[known.id]
            if before is None:
                raise ConflictError(GONE)
            return await change_limit(connection, by.actor, before, item.declared.values, author)
        return await add_limit(connection, by.actor, owner_for(by.owner, None), item.declared.values, author)

    return await _write_named(bounds, by, write)


async def _write_named(
    named: Work, by: Applier, write: Callable[[Item, Author], Awaitable[StoredCalendar | Limit]]
) -> dict[Key, int]:
    """Write objects that have a name; return the ids of the new ones, or name what is refused."""
    written: dict[Key, int] = {}
    problems: list[Problem] = []
    for item in (*named.new, *named.changed):
        try:
            written[item.key] = (await write(item, by.author(item.key.namespace))).id
        except UnavailableError:
            raise
        except CarillonError as error:
            problems += item.place.problems(error)
    if problems:
        raise BadFileError(*problems)
    return {item.key: written[item.key] for item in named.new}


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
    for limit_id in sorted(there.limits[key].id for key in keys if key.kind is Kind.LIMIT):
        await limits.lock(connection, limit_id)
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
    if any(key.kind is Kind.CALENDAR for key in keys):
        await calendars.lock_names(connection)
    await _prune_named(connection, by, keys, there, places)
    return running


async def _prune_named(
    connection: Connection, by: Applier, keys: Iterable[Key], there: Inventory, places: Mapping[str, Place]
) -> None:
    """Delete calendars and limits; refuse it if something that stays uses one."""
    problems: list[Problem] = []
    for key in keys:
        author = by.author(key.namespace)
        try:
            if key.kind is Kind.CALENDAR:
                await remove_calendar(connection, there.calendars[key], author)
            elif key.kind is Kind.LIMIT:
                await remove_limit(connection, there.limits[key], author)
        except ConflictError as error:
            message = f"The {key.kind} '{key.name}' is no longer declared. {error.detail}"
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
