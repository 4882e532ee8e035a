"""``carillon apply`` and ``POST /apply/``: store what files declare, each file in one transaction."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.actions.catalog import Catalog
from app.domain.access import Actor, require_admin
from app.domain.declarations import Act, Key, Kind, Step, plan, undeclared
from app.domain.errors import FieldError, InvalidError, UnavailableError
from app.domain.executions import PendingRun
from app.domain.field_errors import MOST_ERRORS
from app.domain.limits import Quota
from app.domain.schedules import ScheduledJob
from app.domain.workflows import Node
from app.engine.calendar_replans import CalendarReplanner
from app.engine.ringing import Ringer
from app.engine.schedule_changes import Changed
from app.persistence import declarations, limits, schedules, users
from app.persistence.database import Connection, Database, Unit, database_now
from app.services.admission import Admission, quota_refusal
from app.services.declarations.exporting import Inventory, take_inventory, with_adopted
from app.services.declarations.files import (
    BadFileError,
    DeclaredFile,
    Item,
    Place,
    Problem,
    Source,
    read_files,
    read_values,
    workflow_of,
)
from app.services.declarations.writing import (
    Applier,
    Work,
    adoptable,
    drafts,
    prune,
    work,
    write_calendars,
    write_limits,
    write_schedules,
    write_workflows,
)
from app.services.fleet_plans import MOST_PLANNED, Candidate, as_candidates, plan_many
from app.services.inputs import DocumentsInput
from app.services.views import ApplyView, apply_view
from app.services.workflows import limit_errors

# The field of a request that has a whole file as text.
YAML_FIELD = "yaml"


class ApplyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of new objects, whether to delete what is no longer declared, and whether to only show the steps."""

    owner: str = users.BUILT_IN_ADMIN
    prune: bool = False
    dry_run: bool = False


class Report(msgspec.Struct, frozen=True):
    """The steps or the problems of a file; without a name, those of objects that no file declares any more."""

    file: str
    steps: tuple[Step, ...] = ()
    problems: tuple[Problem, ...] = ()


class Rings(msgspec.Struct, frozen=True, kw_only=True):
    """What to ring for after the commit, and which executions to cancel."""

    changed: tuple[Changed, ...] = ()
    # Runs that wait for no limit any more.
    freed: tuple[PendingRun, ...] = ()
    called_off: tuple[UUID, ...] = ()
    # Limits whose rates begin anew.
    limits: tuple[int, ...] = ()
    # Whether a calendar was written, so that the schedules that use it have to be planned again.
    replans: bool = False


# Called with each report as soon as it is complete.
Tell = Callable[[Report], None]


class DeclarationService:
    """Applies declaration files."""

    def __init__(self, database: Database, ringer: Ringer | None, admission: Admission) -> None:
        """Work without Redis if there is no ringer: the workers then find new schedules in Postgres."""
        self._database = database
        self._ringer = ringer
        self._admission = admission
        self._replanner = None if ringer is None else CalendarReplanner(database, ringer)

    async def apply(self, actor: Actor, sources: Iterable[Source], request: ApplyRequest, tell: Tell) -> None:
        """Create and change what the files declare, file by file. A bad file does not stop the others, only pruning."""
        require_admin(actor)
        files = read_files(sources, self._admission.catalog)
        async with self._transactions(request) as unit:
            async with unit() as connection:
                owner = await users.owner(connection, request.owner)
            applying = _Applying(unit, actor, owner, files, self._admission, prune=request.prune)
            all_good = True
            for file in files:
                rings, report = await applying.one(file)
                await self._ring(rings, request)
                tell(report)
                all_good = all_good and not report.problems
            if all_good:
                rings, report = await applying.rest()
                await self._ring(rings, request)
                tell(report)

    async def apply_documents(self, actor: Actor, request: DocumentsInput) -> ApplyView:
        """Create and change what documents declare, as objects of the actor; all of it or nothing."""
        file = await asyncio.to_thread(_read_documents, request, self._admission.catalog)
        _require_sound(file.problems)
        units = self._database.rehearsal if request.dry_run else self._database.together
        rings: list[Rings] = []
        steps: list[Step] = []
        fleet: list[Candidate] = []
        async with units() as unit:
            applying = _Applying(unit, actor, actor, [file], self._admission, prune=request.prune)
            for carry_out in (partial(applying.one, file), applying.rest):
                ring, report = await carry_out()
                # Raised inside of the transaction, which is rolled back as a whole.
                _require_sound(report.problems)
                rings.append(ring)
                steps += report.steps
            if request.dry_run:
                async with unit() as connection:
                    fleet = await as_candidates(connection, list(applying.written.values())[:MOST_PLANNED])
                    now = await database_now(connection)
        for ring in rings:
            await self._ring(ring, ApplyRequest(dry_run=request.dry_run))
        plans = {job.id: plan for job, plan in (await plan_many(fleet, now)).plans} if fleet else {}
        of_keys = {key: plans[after.id] for key, (_, after) in applying.written.items() if after.id in plans}
        return apply_view(steps, of_keys, dry_run=request.dry_run)

    @asynccontextmanager
    async def _transactions(self, request: ApplyRequest) -> AsyncIterator[Unit]:
        """Yield the transactions to work in; those of a dry run are rolled back in the end."""
        if not request.dry_run:
            yield self._database.transaction
            return
        async with self._database.rehearsal() as unit:
            yield unit

    async def _ring(self, rings: Rings, request: ApplyRequest) -> None:
        if request.dry_run:
            return
        if rings.limits:
            # Not in the transaction of the files, which may take long.
            async with self._database.transaction("begin_rates_anew") as connection:
                await limits.begin_anew(connection, rings.limits)
        if self._ringer is None:
            return
        await self._ringer.ticks(changed.job for changed in rings.changed)
        await self._ringer.executions([*(run for changed in rings.changed for run in changed.pending), *rings.freed])
        await self._ringer.call_off(rings.called_off)
        if rings.replans and self._replanner is not None:
            # Workers do what fails here, as the change itself is stored.
            with suppress(UnavailableError):
                await self._replanner.run()


class _Applying:
    """One call of ``apply``."""

    def __init__(
        self,
        unit: Unit,
        actor: Actor,
        owner: Actor,
        files: Sequence[DeclaredFile],
        admission: Admission,
        *,
        prune: bool,
    ) -> None:
        self._secret_checks = admission.secrets
        self._catalog = admission.catalog
        self._limits = admission.limits
        self._unit = unit
        self._by = Applier(actor, owner)
        self._owner = owner
        self._declared = {key for file in files for key in file.declared}
        self._places = {namespace: place for file in files for namespace, place in file.namespaces.items()}
        # A file that cannot be read may declare what would be deleted.
        self._prune = prune and not any(file.problems for file in files)
        # The schedules that were created and changed, before and after.
        self.written: dict[Key, tuple[ScheduledJob | None, ScheduledJob]] = {}

    async def one(self, file: DeclaredFile) -> tuple[Rings, Report]:
        """Apply a whole file, or nothing of it."""
        if file.problems:
            return Rings(), Report(file.name, problems=file.problems)
        try:
            async with self._unit() as connection:
                steps, rings = await self._written(connection, file)
        except BadFileError as error:
            return Rings(), Report(file.name, problems=error.problems)
        return rings, Report(file.name, tuple(steps))

    async def rest(self) -> tuple[Rings, Report]:
        """Delete, or only report, what the files do not declare any more."""
        try:
            async with self._unit() as connection:
                await declarations.lock(connection, self._places)
                there = await take_inventory(connection, self._places)
                steps = _with_ids(undeclared(there.managed.values(), self._declared, prune=self._prune), there.ids)
                called_off = await prune(connection, self._by, steps, there, self._places) if self._prune else []
        except BadFileError as error:
            return Rings(), Report("", problems=error.problems)
        return Rings(called_off=tuple(called_off)), Report("", tuple(steps))

    async def _written(self, connection: Connection, file: DeclaredFile) -> tuple[list[Step], Rings]:
        await declarations.lock(connection, file.namespaces)
        there = await take_inventory(connection, file.namespaces)
        await self._require_owner(connection, file, there)
        adopted = await adoptable(connection, file.items, self._owner, there)
        there = with_adopted(there, adopted)
        self._require_workflows(file, there)
        steps = plan((item.declared for item in file.items), there.managed)
        kinds = (Kind.WORKFLOW, Kind.SCHEDULE, Kind.CALENDAR, Kind.LIMIT)
        flows, jobs, dates, bounds = (work(file.items, steps, kind) for kind in kinds)
        await self._require_secrets(connection, flows)
        new_limits = await write_limits(connection, bounds, self._by, there)
        await declarations.add_limits(connection, {key: row.id for key, row in adopted.limits.items()} | new_limits)
        await self._require_limits(connection, flows)
        new = drafts(jobs.new, self._owner, self._limits.caps)
        await self._require_quota(connection, Quota.WORKFLOWS, flows.new)
        await self._require_quota(connection, Quota.SCHEDULES, jobs.new)
        stored = await write_workflows(connection, flows, self._by, there)
        await schedules.lock(connection, [there.schedules[item.key].id for item in jobs.changed])
        created = await write_calendars(connection, dates, self._by, there)
        await declarations.add_calendars(connection, {key: row.id for key, row in adopted.calendars.items()} | created)
        written = await write_schedules(connection, jobs, self._by, new, stored.ids, there, self._limits.caps)
        self.written |= {key: (there.schedules.get(key), changed.job) for key, changed in written.items()}
        schedule_ids = {key: changed.job.id for key, changed in written.items()}
        ids = {**there.ids, **new_limits, **stored.ids, **created, **schedule_ids}
        done = [replace(step, status=written[step.key].job.status) if step.key in written else step for step in steps]
        replans = any(step.key.kind is Kind.CALENDAR and step.act is not Act.KEEP for step in steps)
        rings = Rings(
            changed=tuple(written.values()),
            freed=stored.freed,
            limits=tuple(there.limits[item.key].id for item in bounds.changed),
            replans=replans,
        )
        return _with_ids(done, ids), rings

    async def _require_quota(self, connection: Connection, quota: Quota, new: Sequence[Item]) -> None:
        over = await quota_refusal(connection, self._limits, quota, self._owner.user_id, len(new)) if new else None
        if over is not None:
            raise BadFileError(*new[0].place.problems(over))

    async def _require_owner(self, connection: Connection, file: DeclaredFile, there: Inventory) -> None:
        """Refuse a namespace whose objects belong to another owner."""
        owners = {managed.key.namespace: managed.user_profile_id for managed in there.managed.values()}
        foreign = {namespace: owner for namespace, owner in owners.items() if owner != self._owner.user_id}
        if foreign:
            names = await users.names(connection, set(foreign.values()))
            raise BadFileError(
                *(
                    _foreign_namespace(file.namespaces[namespace], names[owner], self._owner)
                    for namespace, owner in foreign.items()
                )
            )

    async def _require_secrets(self, connection: Connection, flows: Work) -> None:
        """Refuse secrets that the owner may not use, or not send to that host."""
        problems: list[Problem] = []
        for item in (*flows.new, *flows.changed):
            nodes = msgspec.convert(item.declared.values["nodes"], list[Node])
            errors = await self._secret_checks.errors(connection, self._owner, nodes, f"'{self._owner.username}'")
            problems += item.place.problems(InvalidError(*errors)) if errors else []
        if problems:
            raise BadFileError(*problems)

    async def _require_limits(self, connection: Connection, flows: Work) -> None:
        """Refuse workflows that name a limit which the owner may not use."""
        problems: list[Problem] = []
        for item in (*flows.new, *flows.changed):
            values = item.declared.values
            errors = await limit_errors(connection, self._catalog, self._owner.user_id, values)
            problems += item.place.problems(InvalidError(*errors)) if errors else []
        if problems:
            raise BadFileError(*problems)

    def _require_workflows(self, file: DeclaredFile, there: Inventory) -> None:
        """Refuse schedules whose workflow does not exist, or would be pruned."""
        known = {key for key in there.workflow_ids if not self._prune or key in self._declared} | set(file.declared)
        missing = [
            item.place.problem("workflow", f"The namespace has no workflow '{item.declared.values['workflow']}'.")
            for item in file.items
            if item.key.kind is Kind.SCHEDULE and workflow_of(item.declared) not in known
        ]
        if missing:
            raise BadFileError(*missing)


def _with_ids(steps: Iterable[Step], ids: Mapping[Key, UUID | int]) -> list[Step]:
    return [replace(step, object_id=ids.get(step.key)) for step in steps]


def _read_documents(request: DocumentsInput, catalog: Catalog) -> DeclaredFile:
    """Read the documents of a request. It may take long for a large text."""
    if request.yaml is None:
        return read_values(request.documents or (), catalog)
    (file,) = read_files([Source(YAML_FIELD, request.yaml.encode())], catalog)
    return file


def _require_sound(problems: Sequence[Problem]) -> None:
    if problems:
        raise InvalidError(*(_field_error(problem) for problem in problems[:MOST_ERRORS]))


def _field_error(problem: Problem) -> FieldError:
    line = f"line {problem.line}: " if problem.file == YAML_FIELD else ""
    return FieldError(problem.file, f"{line}{problem.message}")


def _foreign_namespace(place: Place, owner: str, applied_for: Actor) -> Problem:
    # Members do not learn the names of others.
    whose = f"the user '{owner}', not to '{applied_for.username}'" if applied_for.sees_all else "another user"
    return place.problem("namespace", f"It belongs to {whose}.")
