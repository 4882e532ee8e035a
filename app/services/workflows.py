"""Workflows and their circuit breakers: create, change, delete and read workflows, read and reset breakers."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from app.actions.catalog import Catalog, node_errors
from app.domain.access import Actor, require_graph_editor
from app.domain.audit import AuditAction, ObjectType, Subject, differences
from app.domain.breakers import Transition
from app.domain.errors import FieldError, InvalidError, NotFoundError
from app.domain.executions import PendingRun
from app.domain.field_errors import read_as
from app.domain.limits import Quota
from app.domain.permits import no_such_limit
from app.domain.workflows import Edge, Node, graph_errors
from app.engine import schedule_changes
from app.engine.ringing import Ringer
from app.persistence import audit, breakers, keys, permits, revisions, schedules, workflows
from app.persistence.breakers import StoredBreaker
from app.persistence.database import Connection, Database, database_now
from app.persistence.pagination import Part
from app.persistence.workflows import StoredWorkflow
from app.services.admission import Admission, new_owner, require_owned, require_quota, workflow_is_within
from app.services.inputs import IDS, WorkflowChanges, WorkflowInput, given
from app.services.listing import encode, read_views, visible
from app.services.preconditions import require_absent, require_match, require_present, tag_of
from app.services.schedules import author_of
from app.services.views import (
    BreakerDetail,
    BreakerList,
    BreakerView,
    HistoryList,
    TransitionView,
    ValidationView,
    WorkflowPage,
    WorkflowProblemView,
    WorkflowView,
    history_item,
    workflow_view,
)

# The fields that decide what a workflow does.
GRAPH = ("nodes", "edges")
_NODE = re.compile(r"nodes\[([0-9]{1,4})\]")
# Finds the limits that owners mean by names, and keeps them from being deleted or not.
FindLimits = Callable[[Connection, Collection[tuple[int, str]]], Awaitable[dict[tuple[int, str], int]]]
# Reads a workflow, locked or not.
Read = Callable[[Connection, int], Awaitable[StoredWorkflow | None]]


class WorkflowService:
    """Use cases about workflows."""

    def __init__(self, database: Database, ringer: Ringer, admission: Admission) -> None:
        """Check workflows before they are stored; ring for what a deletion cancels."""
        self._database = database
        self._ringer = ringer
        self._admission = admission

    async def create(self, actor: Actor, workflow: WorkflowInput) -> WorkflowView:
        """Create a workflow of the actor or of a team."""
        values = msgspec.to_builtins(workflow)
        team_id = values.pop("team_id")
        self.check(values)
        async with self._database.transaction() as connection:
            owner = await new_owner(connection, actor, team_id)
            await self.check_secrets(connection, actor, owner.user_profile_id, values)
            await self.check_limits(connection, owner.user_profile_id, values)
            await require_quota(connection, self._admission.limits, Quota.WORKFLOWS, owner.user_profile_id)
            row = await workflows.add(connection, owner, values, author_of(actor))
        return workflow_view(row)

    async def validate(self, actor: Actor, raw: dict[str, Any]) -> ValidationView:
        """Return what is wrong with a workflow that the actor would create. Nothing is stored."""
        try:
            workflow = read_as({"name": "workflow", **raw}, WorkflowInput)
            values = msgspec.to_builtins(workflow)
            self.check(values)
            async with self._database.reading() as connection:
                owner = await new_owner(connection, actor, workflow.team_id)
                await self.check_secrets(connection, actor, owner.user_profile_id, values)
                await self.check_limits(connection, owner.user_profile_id, values, permits.find)
        except InvalidError as error:
            return ValidationView(valid=False, errors=[_problem(raw, found) for found in error.errors])
        except NotFoundError as error:
            return ValidationView(valid=False, errors=[WorkflowProblemView(None, "team_id", str(error))])
        return ValidationView(valid=True, errors=[])

    async def put(self, actor: Actor, key: str, workflow: WorkflowInput) -> tuple[WorkflowView, bool]:
        """Create the workflow of a key, or change it where it differs; return it, and whether it is new."""
        if workflow.key is not None and workflow.key != key:
            raise InvalidError(FieldError("key", f"The path names the key '{key}'. Leave it out of the body."))
        values = {**msgspec.to_builtins(workflow), "key": key}
        team_id = values.pop("team_id")
        self.check(values)
        async with self._database.transaction() as connection:
            owner = await new_owner(connection, actor, team_id)
            await keys.lock(connection, [(owner.user_profile_id, f"workflow {key}")])
            workflow_id = await keys.workflow_of(connection, owner.user_profile_id, key)
            await self.check_secrets(connection, actor, owner.user_profile_id, values)
            await self.check_limits(connection, owner.user_profile_id, values)
            freed: Sequence[PendingRun] = ()
            if workflow_id is None:
                require_present()
                await require_quota(connection, self._admission.limits, Quota.WORKFLOWS, owner.user_profile_id)
                row = await workflows.add(connection, owner, values, author_of(actor))
            else:
                require_absent()
                before = await _changeable(connection, actor, workflow_id)
                row = await workflows.save(connection, before, values, author_of(actor))
                freed = await freed_by_change(connection, before, row)
        await self._ringer.executions(freed)
        return workflow_view(row), workflow_id is None

    async def id_of_key(self, actor: Actor, key: str, team_id: int | None) -> int:
        """Return the id of the workflow of a key; ``NotFoundError`` if there is none."""
        async with self._database.reading() as connection:
            workflow_id = await keys.workflow_of(connection, actor.user_id if team_id is None else team_id, key)
            return (await _owned(connection, actor, workflow_id or 0)).id

    async def list(self, actor: Actor, part: Part, team_id: int | None = None) -> WorkflowPage:
        """Return a page of the workflows that the actor may see, of this team if one is named, newest first."""
        async with self._database.reading() as connection:
            read = partial(workflows.page, connection, await visible(connection, actor, team_id))
            page = await read_views(read, workflow_view, part)
        return WorkflowPage(page.items, page.total, page.total_is_estimate, page.next_cursor)

    async def get(self, actor: Actor, workflow_id: int) -> WorkflowView:
        """Return a workflow."""
        async with self._database.transaction() as connection:
            return workflow_view(await _owned(connection, actor, workflow_id))

    async def change(self, actor: Actor, workflow_id: int, changes: WorkflowChanges) -> WorkflowView:
        """Give a workflow new values; a run that has started keeps the old ones."""
        values = msgspec.to_builtins(given(changes))
        async with self._database.transaction() as connection:
            before = await _changeable(connection, actor, workflow_id)
            if not values.keys().isdisjoint(GRAPH):
                require_graph_editor(actor)
            self.check({"nodes": before.nodes, "edges": before.edges, **values}, checks_config="nodes" in values)
            await self.check_secrets(connection, actor, before.user_profile_id, values)
            await self.check_limits(connection, before.user_profile_id, values)
            after = await workflows.save(connection, before, values, author_of(actor))
            freed = await freed_by_change(connection, before, after)
        await self._ringer.executions(freed)
        return workflow_view(after)

    async def history(self, actor: Actor, workflow_id: int, limit: int, cursor: str | None) -> HistoryList:
        """Return a page of the workflow's revisions, newest first."""
        async with self._database.transaction() as connection:
            await _owned(connection, actor, workflow_id)
            page = await revisions.page_of_workflow(connection, workflow_id, limit, cursor)
        return HistoryList([encode(history_item(revision)) for revision in page.items], page.next_cursor)

    async def delete(self, actor: Actor, workflow_id: int) -> None:
        """Delete a workflow with its schedules and their history, and cancel their runs."""
        async with self._database.transaction() as connection:
            row = await _owned(connection, actor, workflow_id, workflows.lock_to_delete)
            require_match(lambda: tag_of(workflow_view(row)))
            job_ids = await schedules.ids_of_workflow(connection, workflow_id)
            running = await schedule_changes.delete_workflow(connection, row, job_ids, author_of(actor))
        await self._ringer.call_off(running)

    def check(self, values: dict[str, Any], *, checks_config: bool = True) -> None:
        """Refuse nodes and edges that cannot be run.

        Configurations are checked when they are written: those of an earlier release may be refused today, and must
        not stand in the way of another change.
        """
        check_workflow(values, self._admission.catalog, checks_config=checks_config)

    async def check_limits(
        self, connection: Connection, owner_id: int, values: dict[str, Any], find: FindLimits = permits.find_and_keep
    ) -> None:
        """Refuse limits that the workflow's owner may not use."""
        errors = await limit_errors(connection, self._admission.catalog, owner_id, values, find)
        if errors:
            raise InvalidError(*errors)

    async def check_secrets(self, connection: Connection, actor: Actor, owner_id: int, values: dict[str, Any]) -> None:
        """Refuse new nodes with secrets that the workflow's owner may not use, or not send to that host."""
        if "nodes" not in values:
            return
        nodes = msgspec.convert(values["nodes"], list[Node])
        errors = await self._admission.secret_errors(connection, actor, (owner_id, "workflow"), nodes)
        if errors:
            raise InvalidError(*errors)


async def limit_errors(
    connection: Connection,
    catalog: Catalog,
    owner_id: int,
    values: Mapping[str, Any],
    find: FindLimits = permits.find_and_keep,
) -> list[FieldError]:
    """Return the errors of a workflow that names limits, itself or in its nodes, which its owner may not use.

    A name that is filled in by a template is looked up when the node runs.
    """
    nodes = list(enumerate(msgspec.convert(values.get("nodes", ()), list[Node])))
    in_nodes = [(index, node, name) for index, node in nodes if (name := catalog.limit_name(node)) is not None]
    own = values.get("limit")
    names = {name for _, _, name in in_nodes} | ({own} if own is not None else set())
    found = await find(connection, [(owner_id, name) for name in names]) if names else {}
    errors = [no_such_limit(own)] if own is not None and (owner_id, own) not in found else []
    for index, node, name in in_nodes:
        if (owner_id, name) not in found:
            errors += node_errors(index, node, [no_such_limit(name)])
    return errors


async def freed_by_change(
    connection: Connection, before: StoredWorkflow, after: StoredWorkflow
) -> Sequence[PendingRun]:
    """Return the runs that do not wait for the former limit of their workflow any more."""
    return () if before.limit == after.limit else await permits.free_waiting_of_workflow(connection, after.id)


def _problem(raw: dict[str, Any], error: FieldError) -> WorkflowProblemView:
    """Return an error with the id of the node that it is about, if it is about one that has an id."""
    index = _NODE.match(error.field)
    nodes = raw.get("nodes")
    node = nodes[int(index[1])] if index and isinstance(nodes, list) and int(index[1]) < len(nodes) else None
    node_id = node.get("id") if isinstance(node, dict) else None
    return WorkflowProblemView(node_id if isinstance(node_id, str) else None, error.field, error.message)


def check_workflow(values: dict[str, Any], catalog: Catalog, *, checks_config: bool = True) -> None:
    """Refuse nodes and edges that cannot be run with the actions of a catalog."""
    nodes = msgspec.convert(values["nodes"], list[Node])
    edges = msgspec.convert(values["edges"], list[Edge])
    errors = graph_errors(nodes, edges, catalog.names)
    if checks_config:
        errors += catalog.config_errors(nodes)
    if errors:
        raise InvalidError(*errors)


async def _owned(connection: Connection, actor: Actor, workflow_id: int, read: Read = workflows.get) -> StoredWorkflow:
    row = await read(connection, workflow_id) if workflow_id in IDS else None
    is_within = row is not None and await workflow_is_within(connection, actor, workflow_id)
    return require_owned(actor, row, "workflow", is_within=is_within)


async def _changeable(connection: Connection, actor: Actor, workflow_id: int) -> StoredWorkflow:
    """Lock a workflow of the actor, and refuse a request that knows another version of it."""
    row = await _owned(connection, actor, workflow_id, workflows.lock_to_change)
    require_match(lambda: tag_of(workflow_view(row)))
    return row


class BreakerService:
    """Use cases about the breakers of workflows."""

    def __init__(self, database: Database) -> None:
        """Work on this database. Workers notice a reset at their next tick."""
        self._database = database

    async def list(self, actor: Actor, part: Part, team_id: int | None = None) -> BreakerList:
        """Return a page of the breakers that the actor may see, of this team if one is named."""
        async with self._database.reading() as connection:
            reach = await visible(connection, actor, team_id)
            page = await read_views(partial(breakers.page, connection, reach), _view, part)
        return BreakerList(page.items, page.next_cursor)

    async def get(self, actor: Actor, workflow_id: int, limit: int) -> BreakerDetail:
        """Return a breaker with its latest transitions."""
        async with self._database.transaction() as connection:
            row = await _owned_breaker(connection, actor, workflow_id)
            return await _detail(connection, row, limit)

    async def reset(self, actor: Actor, workflow_id: int, limit: int) -> BreakerDetail:
        """Close a breaker by hand."""
        async with self._database.transaction() as connection:
            await _owned_breaker(connection, actor, workflow_id)
            await workflows.lock_to_change(connection, workflow_id)
            row = await _owned_breaker(connection, actor, workflow_id)
            if row.state is not None:
                now = await database_now(connection)
                closed = breakers.to_breaker(row).closed(f"reset by {actor.username}", now)
                await breakers.save_breakers(connection, [closed])
                subject = Subject(ObjectType.WORKFLOW, str(workflow_id), row.workflow_name, row.user_profile_id)
                changes = differences({"state": row.state}, {"state": closed.state})
                await audit.record(connection, actor, AuditAction.BREAKER_RESET, subject, changes=changes)
            return await _detail(connection, await _owned_breaker(connection, actor, workflow_id), limit)


async def _owned_breaker(connection: Connection, actor: Actor, workflow_id: int) -> StoredBreaker:
    row = await breakers.of_workflow(connection, workflow_id) if workflow_id in IDS else None
    is_within = row is not None and await workflow_is_within(connection, actor, workflow_id)
    return require_owned(actor, row, "workflow", is_within=is_within)


async def _detail(connection: Connection, row: StoredBreaker, limit: int) -> BreakerDetail:
    changes = await breakers.transitions(connection, row.workflow_id, limit)
    return BreakerDetail(**_fields(row), transitions=[_transition(change) for change in changes])


def _view(row: StoredBreaker) -> BreakerView:
    return BreakerView(**_fields(row))


def _fields(row: StoredBreaker) -> dict[str, Any]:
    breaker = breakers.to_breaker(row)
    return {
        "workflow_id": row.workflow_id,
        "workflow_name": row.workflow_name,
        "state": breaker.state,
        "failure_count": breaker.failure_count,
        "opened_at": breaker.opened_at,
        "half_opens_at": breaker.half_opens_at,
        "probe_execution_id": breaker.probe_execution_id,
        "breaker_threshold": row.breaker_threshold,
        "breaker_reset_seconds": row.breaker_reset_seconds,
    }


def _transition(transition: Transition) -> TransitionView:
    return TransitionView(
        at=transition.at,
        from_state=transition.from_state,
        to_state=transition.to_state,
        reason=transition.reason,
        execution_id=transition.execution_id,
    )
