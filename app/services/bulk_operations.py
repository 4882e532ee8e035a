"""Operations on many schedules: tried, started, read, paused, cancelled and undone. Workers carry them out."""

from collections import Counter
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import msgspec
from msgspec.structs import replace

from app import clock
from app.domain.access import Actor, require_owner, require_scope
from app.domain.audit import AuditAction, ObjectType, Subject
from app.domain.bulk_operations import (
    NOT_FOUND,
    BulkAction,
    OperationStatus,
    Terms,
    skip_reason,
    with_new_status,
)
from app.domain.errors import CountChangedError, FieldError, InvalidError, NotFoundError, WrongStateError
from app.domain.executions import ExecutionStatus
from app.domain.labels import label_pairs
from app.domain.ledger import LedgerOutcome
from app.domain.limits import Caps
from app.domain.run_ids import operation_id
from app.domain.schedule_input import require_years
from app.domain.schedule_lifecycle import edited
from app.domain.schedules import ScheduledJob, Status
from app.persistence import audit, backfills, executions, operations, schedule_selections, workflows
from app.persistence.audit import current_origin
from app.persistence.database import Connection, Database, database_now
from app.persistence.operations import Operation, Warrant
from app.persistence.pagination import Part
from app.persistence.schedule_filters import Filters
from app.services.admission import workflow_is_within
from app.services.fleet_plans import MOST_READ, Candidate, fleet_plan_view, plan_many, read_candidates
from app.services.inputs import BulkArguments, BulkFilter, BulkInput, given
from app.services.listing import read_views
from app.services.schedules import stored_values
from app.services.views import DryRunView, OperationList, OperationView, operation_view, skipped_views

# The argument that an action needs, or may have.
_ARGUMENTS = {BulkAction.LABEL: "labels", BulkAction.SET: "fields", BulkAction.MOVE: "workflow_id"}
_OPTIONAL = {BulkAction.PAUSE: "until"}
# The actions that can change when schedules fire and leave them, with the status that a schedule must have.
_PLANNED = {
    BulkAction.SET: None,
    BulkAction.PAUSE: Status.ACTIVE,
    BulkAction.RESUME: Status.PAUSED,
    BulkAction.REVIVE: Status.DEAD,
}


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an operation, checked."""

    actor: Actor
    action: BulkAction
    filters: Filters
    terms: Terms
    # The new values in the types of the columns, by which schedules count as unchanged.
    wanted: dict[str, Any]


class BulkService:
    """Use cases about operations on many schedules."""

    def __init__(self, database: Database, caps: Caps) -> None:
        """Refuse values beyond ``caps``."""
        self._database = database
        self._caps = caps

    async def try_out(self, actor: Actor, request: BulkInput) -> DryRunView:
        """Return what an operation would be about, and which schedules it would leave alone; nothing is stored."""
        order = self._order(actor, request)
        async with self._database.transaction() as connection:
            await _require_workflow(connection, order)
            counts = await schedule_selections.count_states(
                connection, order.actor.usable(), order.filters, order.action, order.wanted
            )
            candidates, now = await _candidates(connection, order), await database_now(connection)
        by_status, skipped = Counter[str](), Counter[str]()
        for found in counts:
            by_status[found.state.status] += found.count
            skipped[skip_reason(order.action, found.state)] += found.count
        would_change = skipped.pop("", 0)
        if request.ids is not None and len(set(request.ids)) > by_status.total():
            skipped[NOT_FOUND] = len(set(request.ids)) - by_status.total()
        _require_count(request, by_status.total())
        plan = await plan_many(candidates, now, change=partial(self._changed, order)) if candidates else None
        return DryRunView(
            count=by_status.total(),
            would_change=would_change,
            by_status=dict(by_status),
            skipped=skipped_views(skipped),
            plan=None if plan is None else fleet_plan_view(plan, would_change),
        )

    def _changed(self, order: Order, job: ScheduledJob, active_runs: int, now: datetime) -> ScheduledJob:
        """Return a schedule as an operation would make it."""
        if order.action is BulkAction.SET:
            return edited(job, order.wanted, active_runs, now, self._caps)
        return with_new_status(order.action, job, active_runs, now, order.terms.until)

    async def start(self, actor: Actor, request: BulkInput) -> OperationView:
        """Store an operation with the schedules that match now; a worker begins at once."""
        order = self._order(actor, request)
        until = request.arguments.until
        require_years({"arguments.until": until})
        if until is not None and until <= clock.now():
            raise InvalidError(FieldError("arguments.until", "The time is past. Choose a later one."))
        new = new_operation(actor, order.action, _selection(request), request.note, terms=order.terms)
        async with self._database.transaction() as connection:
            await _require_workflow(connection, order)
            await operations.add(connection, new)
            total = await schedule_selections.select_for_operation(
                connection, new.id, order.actor.usable(), order.filters
            )
            _require_count(request, total)
            await operations.change(connection, new.id, total=total)
            await record_operation(connection, actor, AuditAction.OPERATION_STARTED, replace(new, total=total))
            return operation_view(await stored_operation(connection, new.id))

    def _order(self, actor: Actor, request: BulkInput) -> Order:
        action = BulkAction(request.action)
        require_scope(actor, action.needs)
        _require_arguments(action, request.arguments)
        terms, wanted = self._terms(request.arguments)
        return Order(
            actor=replace(actor, needs=action.needs),
            action=action,
            filters=_filters(request),
            terms=terms,
            wanted=wanted,
        )

    def _terms(self, arguments: BulkArguments) -> tuple[Terms, dict[str, Any]]:
        labels, fields = arguments.labels, arguments.fields
        if labels is not None:
            terms = Terms(labels_added=labels.add, labels_removed=tuple(labels.remove))
            return terms, {"labels_added": terms.labels_added, "labels_removed": terms.labels_removed}
        if fields is not None:
            values = stored_values(given(fields))
            errors = self._caps.errors(values)
            if errors:
                raise InvalidError(*(FieldError(f"arguments.fields.{one.field}", one.message) for one in errors))
            return Terms(fields=msgspec.to_builtins(values)), values
        if arguments.workflow_id is not None:
            return Terms(workflow_id=arguments.workflow_id), {"workflow_id": arguments.workflow_id}
        return Terms(until=None if arguments.until is None else arguments.until.astimezone(UTC)), {}

    async def list(self, actor: Actor, part: Part) -> OperationList:
        """Return a page of the operations that the actor has started, for an admin of all, newest first."""
        async with self._database.reading() as connection:
            page = await read_views(partial(operations.page, connection, actor.owner_filter), operation_view, part)
        return OperationList(page.items, page.next_cursor)

    async def get(self, actor: Actor, wanted: UUID) -> OperationView:
        """Return an operation."""
        async with self._database.reading() as connection:
            return operation_view(_visible(actor, await operations.get(connection, wanted)))

    async def pause(self, actor: Actor, wanted: UUID) -> OperationView:
        """Stop an operation before its next batch, until it is resumed."""
        return await self._turn(actor, wanted, OperationStatus.RUNNING, OperationStatus.PAUSED)

    async def resume(self, actor: Actor, wanted: UUID) -> OperationView:
        """Let a paused operation go on."""
        return await self._turn(actor, wanted, OperationStatus.PAUSED, OperationStatus.RUNNING)

    async def _turn(self, actor: Actor, wanted: UUID, before: OperationStatus, after: OperationStatus) -> OperationView:
        is_pause = after is OperationStatus.PAUSED
        async with self._database.transaction() as connection:
            operation = _visible(actor, await operations.get(connection, wanted, lock=True))
            if operation.status is not before:
                verb = "pause" if is_pause else "resume"
                raise WrongStateError(f"Cannot {verb} operation with status '{operation.status}'.")
            await operations.change(connection, operation.id, status=after)
            action = AuditAction.OPERATION_PAUSED if is_pause else AuditAction.OPERATION_RESUMED
            await record_operation(connection, actor, action, operation)
            return operation_view(await stored_operation(connection, wanted))

    async def cancel(self, actor: Actor, wanted: UUID) -> OperationView:
        """End an operation after the batch that is under way. What it has changed stays changed."""
        async with self._database.transaction() as connection:
            operation = _visible(actor, await operations.get(connection, wanted, lock=True))
            if operation.status.has_ended:
                raise WrongStateError(f"Cannot cancel operation with status '{operation.status}'.")
            await operations.end(connection, operation.id, OperationStatus.CANCELLED)
            await _cancel_waiting_runs(connection, operation)
            await record_operation(connection, actor, AuditAction.OPERATION_CANCELLED, operation)
            return operation_view(await stored_operation(connection, wanted))

    async def undo(self, actor: Actor, wanted: UUID) -> OperationView:
        """Start the operation that restores what another one has changed, but for what was changed since."""
        async with self._database.transaction() as connection:
            operation = _visible(actor, await operations.get(connection, wanted, lock=True))
            require_scope(actor, operation.action.needs)
            if not operation.can_be_undone:
                raise WrongStateError(_why_not(operation))
            selection = {"action": operation.action}
            new = new_operation(actor, BulkAction.UNDO, selection, f"Undo of operation {wanted}", undo_of=wanted)
            await operations.add(connection, new)
            total = await operations.select_changed(connection, new.id, wanted)
            await operations.change(connection, new.id, total=total)
            await operations.change(connection, wanted, undone_by=new.id)
            await record_operation(connection, actor, AuditAction.OPERATION_STARTED, replace(new, total=total))
            return operation_view(await stored_operation(connection, new.id))


async def _candidates(connection: Connection, order: Order) -> list[Candidate]:
    """Return some of the schedules that an operation is about, if it can change when they fire."""
    if order.action not in _PLANNED:
        return []
    reach, wanted = order.actor.usable(), order.wanted
    ids = await schedule_selections.some_to_change(
        connection, reach, order.filters, order.action, wanted, _PLANNED[order.action], MOST_READ
    )
    return await read_candidates(connection, ids, order.wanted)


async def _cancel_waiting_runs(connection: Connection, operation: Operation) -> None:
    """End the runs of a backfill that have not begun; those that are under way go on."""
    if operation.action is BulkAction.BACKFILL:
        runs = await backfills.open_runs(connection, operation.id)
        waiting = [run.execution_id for run in runs if run.status == ExecutionStatus.PENDING and not run.has_begun]
        reasons = dict.fromkeys(waiting, "Cancelled before it ran: the backfill was cancelled.")
        await executions.cancel(connection, reasons, await database_now(connection), LedgerOutcome.MISSED)


def _why_not(operation: Operation) -> str:
    if not operation.status.has_ended:
        return f"Cannot undo operation with status '{operation.status}'. Cancel it first."
    if operation.undone_by is not None:
        return f"The operation is undone by the operation {operation.undone_by}."
    if operation.action in {BulkAction.RUN, BulkAction.BACKFILL, BulkAction.UNDO}:
        return f"An operation with the action '{operation.action}' cannot be undone."
    return "The operation has changed nothing."


def _visible(actor: Actor, operation: Operation | None) -> Operation:
    """Return an operation that the actor may see: their own, and with a restricted token only those of equal ones."""
    require_owner(replace(actor, restriction=None), operation.user_profile_id if operation else None, "operation")
    if operation is None or (actor.restriction and actor.restriction != operation.warrant.restriction):
        raise NotFoundError("There is no such operation.")
    if not actor.sees_all and operation.user_profile_id != actor.user_id:
        raise NotFoundError("There is no such operation.")
    return operation


async def stored_operation(connection: Connection, wanted: UUID) -> Operation:
    """Return an operation that this transaction has written."""
    operation = await operations.get(connection, wanted)
    if operation is None:
        raise AssertionError(f"operation {wanted} is not visible in the transaction that wrote it")
    return operation


def new_operation(
    actor: Actor,
    action: BulkAction,
    selection: dict[str, Any],
    note: str,
    *,
    terms: Terms | None = None,
    undo_of: UUID | None = None,
) -> Operation:
    """Return an operation that the actor starts now."""
    now = clock.now()
    return Operation(
        id=operation_id(now, uuid4().hex),
        user_profile_id=actor.user_id,
        username=actor.username,
        warrant=Warrant(scope=actor.token_scope, restriction=actor.restriction, origin=current_origin()),
        action=action,
        terms=terms or Terms(),
        selection=selection,
        note=note,
        undo_of=undo_of,
        created_at=now,
    )


async def record_operation(connection: Connection, actor: Actor, action: AuditAction, operation: Operation) -> None:
    """Add an event about an operation to the audit log."""
    subject = Subject(ObjectType.OPERATION, str(operation.id), operation.action, operation.user_profile_id)
    details = {"selection": operation.selection, "total": operation.total}
    if operation.undo_of is not None:
        details["undo_of"] = str(operation.undo_of)
    await audit.record(connection, actor, action, subject, details=details, note=operation.note)


def _require_arguments(action: BulkAction, arguments: BulkArguments) -> None:
    """Refuse arguments that do not belong to the action, and an action without its argument."""
    needed = _ARGUMENTS.get(action)
    allowed = {needed, _OPTIONAL.get(action)}
    errors = [
        FieldError(f"arguments.{name}", f"The action `{action}` does not take this argument.")
        for name in arguments.__struct_fields__
        if getattr(arguments, name) is not None and name not in allowed
    ]
    if needed is not None and not _is_given(arguments, needed):
        errors.append(FieldError(f"arguments.{needed}", f"The action `{action}` needs this argument."))
    if errors:
        raise InvalidError(*errors)


def _is_given(arguments: BulkArguments, name: str) -> bool:
    if name == "labels":
        return arguments.labels is not None and bool(arguments.labels.add or arguments.labels.remove)
    if name == "fields":
        return arguments.fields is not None and bool(given(arguments.fields))
    return getattr(arguments, name) is not None


def _filters(request: BulkInput) -> Filters:
    if request.ids is not None:
        return Filters(ids=tuple(dict.fromkeys(request.ids)))
    return filters_of(request.filter)


def filters_of(given_filter: BulkFilter | None) -> Filters:
    """Return the filters of a list that a body names; none for None."""
    filters = given_filter or BulkFilter()
    values = {name: getattr(filters, name) for name in filters.__struct_fields__ if name not in {"label", "ids"}}
    ids = None if filters.ids is None else tuple(dict.fromkeys(filters.ids))
    return Filters(labels=label_pairs(filters.label), ids=ids, **values)


def _selection(request: BulkInput) -> dict[str, Any]:
    """Return what is shown of the schedules that a request names."""
    if request.ids is not None:
        return {"ids": len(set(request.ids))}
    named = msgspec.to_builtins(request.filter)
    return {"filter": {name: value for name, value in named.items() if value not in (None, [])}}


def _require_count(request: BulkInput, count: int) -> None:
    if request.expect_count is not None and request.expect_count != count:
        raise CountChangedError(
            f"{count} schedules match, and `expect_count` is {request.expect_count}. Repeat the dry run."
        )


async def _require_workflow(connection: Connection, order: Order) -> None:
    """Refuse a workflow to move to that the actor may not see."""
    target = order.terms.workflow_id
    if target is not None:
        owners = await workflows.owners(connection, {target})
        is_within = await workflow_is_within(connection, order.actor, target)
        require_owner(order.actor, owners.get(target), "workflow", is_within=is_within)
