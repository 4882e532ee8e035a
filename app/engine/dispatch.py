"""From an event to the trigger node that it starts."""

from collections.abc import Mapping
from typing import Any

import msgspec

from app.domain.access import Actor
from app.domain.errors import NoTriggerError
from app.domain.executions import Entity
from app.domain.workflows import TRIGGER_TYPE, Edge, Node, Order, Workflow, resolve_trigger

EVENT_TYPE = "schedule"


class Dispatched(msgspec.Struct, frozen=True):
    """A workflow that is to run from one of its triggers."""

    workflow: Workflow
    trigger: Node
    event_data: Mapping[str, Any]
    # The actor whose rights its actions have: see ``app.domain.access.lesser``.
    user: Actor

    @property
    def graph(self) -> dict[str, Any]:
        """What a run that is put aside goes on with, whatever becomes of the workflow meanwhile."""
        flow = self.workflow
        graph: dict[str, Any] = msgspec.to_builtins(
            {"name": flow.name, "nodes": flow.nodes, "edges": flow.edges, "trigger": self.trigger.id}
        )
        return graph

    @property
    def order(self) -> Order:
        """The nodes that the trigger reaches, and which waits for which."""
        return self.workflow.order_from(self.trigger.id)


def dispatch_event(
    event_type: str,
    event_data: Mapping[str, Any],
    user: Actor | None,
    workflow: Workflow | None,
    trigger_node_id: str | None,
) -> Dispatched:
    """Find what an event starts; what stands in the way is a ``NoTriggerError`` that says so."""
    if event_type != EVENT_TYPE:
        raise NoTriggerError(f"There is no trigger for events of type '{event_type}'.")
    if user is None:
        raise NoTriggerError("The user who owns the schedule no longer exists.")
    if workflow is None:
        raise NoTriggerError("The workflow no longer exists.")
    if not workflow.active:
        raise NoTriggerError(f"The workflow '{workflow.name}' is not active.")
    return Dispatched(workflow, resolve_trigger(workflow, trigger_node_id, event_data), event_data, user)


def dispatch_again(
    graph: Mapping[str, Any], event_data: Mapping[str, Any], user: Actor | None, workflow: Workflow | None
) -> Dispatched:
    """A run that was put aside, with the graph that it began with; the workflow as it is now says whose it is."""
    if user is None or workflow is None:
        raise NoTriggerError("The workflow, or the user who owns the schedule, no longer exists.")
    kept = {"name": graph["name"], "nodes": graph["nodes"], "edges": graph["edges"]}
    began_with = msgspec.convert({**msgspec.to_builtins(workflow), **kept, "active": True}, Workflow)
    return Dispatched(began_with, began_with.node(graph["trigger"]), event_data, user)


def dispatch_entity(entity: Entity, event_data: Mapping[str, Any], user: Actor | None) -> Dispatched:
    """What an entity wants done, as a workflow of one node."""
    if user is None:
        raise NoTriggerError("The user who owns the entity no longer exists.")
    trigger = Node("start", TRIGGER_TYPE)
    work = Node("work", entity.work.action, entity.work.config)
    workflow = Workflow(
        id=0,
        user_profile_id=user.user_id,
        name=entity.work.name,
        active=True,
        nodes=(trigger, work),
        edges=(Edge(trigger.id, work.id),),
    )
    return Dispatched(workflow, trigger, event_data, user)
