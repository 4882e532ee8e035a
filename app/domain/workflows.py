"""Workflows as graphs: validation, the trigger node, the order of nodes, the size limit of outputs."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec

from app.domain.errors import FieldError, NoTriggerError

TRIGGER_TYPE = "trigger_schedule"


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A step of a workflow: a trigger, or an action of the catalog with its configuration."""

    id: str
    type: str
    config: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def is_trigger(self) -> bool:
        """Whether runs start here."""
        return self.type == TRIGGER_TYPE


class Edge(msgspec.Struct, frozen=True, rename={"source": "from", "target": "to"}, forbid_unknown_fields=True):
    """``target`` runs after ``source``."""

    source: str
    target: str


class Workflow(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What a schedule runs, as far as running it is concerned."""

    id: int
    user_profile_id: int
    name: str
    active: bool
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    @cached_property
    def _by_id(self) -> dict[str, Node]:
        return {node.id: node for node in self.nodes}

    @cached_property
    def _orders(self) -> dict[str, "Order"]:
        return {}

    def node(self, node_id: str) -> Node:
        """The node with this id."""
        return self._by_id[node_id]

    def order_from(self, trigger_id: str) -> "Order":
        """What runs from a trigger, and after what; worked out once."""
        if trigger_id not in self._orders:
            before = run_order(self, trigger_id)
            self._orders[trigger_id] = Order(before, frozenset(self._by_id[node_id].type for node_id in before))
        return self._orders[trigger_id]


class Order:
    """The order of the nodes of a run: which can go at once, and which each one lets go."""

    def __init__(self, before: Mapping[str, Collection[str]], types: frozenset[str]) -> None:
        """From the nodes, each with those that must have ended before it, and the types of them all."""
        self.types = types
        self.waiting = {node_id: len(others) for node_id, others in before.items()}
        self.first = tuple(node_id for node_id, number in self.waiting.items() if not number)
        self.after: dict[str, list[str]] = defaultdict(list)
        for node_id, others in before.items():
            for other in others:
                self.after[other].append(node_id)


def graph_errors(nodes: Iterable[Node], edges: Iterable[Edge], known_types: Collection[str]) -> list[FieldError]:
    """Everything that is wrong with the graph, each named by its place."""
    nodes, edges = tuple(nodes), tuple(edges)
    errors = [*_duplicate_ids(nodes), *_unknown_types(nodes, known_types), *_dangling_edges(nodes, edges)]
    if not errors:
        errors.extend((*_edges_to_triggers(nodes, edges), *_cycles(nodes, edges)))
    return errors


def _duplicate_ids(nodes: tuple[Node, ...]) -> Iterable[FieldError]:
    for node_id, times in Counter(node.id for node in nodes).items():
        if times > 1:
            yield FieldError("nodes", f"The id '{node_id}' is used {times} times.")


def _unknown_types(nodes: tuple[Node, ...], known_types: Collection[str]) -> Iterable[FieldError]:
    for index, node in enumerate(nodes):
        if not node.is_trigger and node.type not in known_types:
            yield FieldError(f"nodes[{index}].type", f"There is no action '{node.type}' (node '{node.id}').")


def _dangling_edges(nodes: tuple[Node, ...], edges: tuple[Edge, ...]) -> Iterable[FieldError]:
    ids = {node.id for node in nodes}
    for index, edge in enumerate(edges):
        for side, node_id in (("from", edge.source), ("to", edge.target)):
            if node_id not in ids:
                yield FieldError(f"edges[{index}].{side}", f"There is no node '{node_id}'.")


def _edges_to_triggers(nodes: tuple[Node, ...], edges: tuple[Edge, ...]) -> Iterable[FieldError]:
    triggers = {node.id for node in nodes if node.is_trigger}
    for index, edge in enumerate(edges):
        if edge.target in triggers:
            yield FieldError(f"edges[{index}].to", f"'{edge.target}' is a trigger: runs start there.")


def _cycles(nodes: tuple[Node, ...], edges: tuple[Edge, ...]) -> Iterable[FieldError]:
    try:
        TopologicalSorter(_predecessors(nodes, edges)).prepare()
    except CycleError as error:
        yield FieldError("edges", f"The nodes form a cycle: {' -> '.join(error.args[1])}.")


def _predecessors(nodes: Iterable[Node], edges: Iterable[Edge]) -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {node.id: set() for node in nodes}
    for edge in edges:
        graph[edge.target].add(edge.source)
    return graph


def resolve_trigger(workflow: Workflow, trigger_node_id: str | None, event_data: Mapping[str, Any]) -> Node:
    """The trigger node that an event starts: the one named, or the first whose filter matches."""
    if trigger_node_id is not None:
        return _named_trigger(workflow, trigger_node_id, event_data)
    for node in workflow.nodes:
        if node.is_trigger and _matches(node, event_data):
            return node
    raise NoTriggerError(f"No trigger_schedule node of workflow '{workflow.name}' matches this schedule.")


def _named_trigger(workflow: Workflow, node_id: str, event_data: Mapping[str, Any]) -> Node:
    for node in workflow.nodes:
        if node.id == node_id and node.is_trigger:
            if _matches(node, event_data):
                return node
            raise NoTriggerError(f"The trigger node '{node_id}' is for another schedule.")
    raise NoTriggerError(f"Workflow '{workflow.name}' has no trigger node '{node_id}'.")


def _matches(node: Node, event_data: Mapping[str, Any]) -> bool:
    wanted = node.config.get("scheduled_job_id")
    return not wanted or str(wanted) == str(event_data.get("scheduled_job_id"))


def run_order(workflow: Workflow, trigger_id: str) -> dict[str, frozenset[str]]:
    """The nodes to run from a trigger, each with the nodes that must have ended before it.

    Only what the trigger reaches takes part; a predecessor outside of that is not waited for.
    """
    successors = defaultdict(set)
    for edge in workflow.edges:
        successors[edge.source].add(edge.target)
    reached, ahead = {trigger_id}, [trigger_id]
    while ahead:
        fresh = successors[ahead.pop()] - reached
        reached |= fresh
        ahead.extend(fresh)
    before = _predecessors(workflow.nodes, workflow.edges)
    # The trigger itself has happened already.
    return {node: frozenset(before[node] & reached - {trigger_id}) for node in reached - {trigger_id}}


# Of an output as JSON: what an HTTP answer may hold, and its surroundings.
OUTPUT_BYTES = 65 * 1024
# For names, brackets and the word that says that something was cut.
_SURROUNDINGS = 64
_BRACKETS = 2
# What nothing is written as takes so many bytes.
_SHORTEST = len("null")

_encode = msgspec.json.Encoder().encode


def bound_output(output: Any) -> Any:
    """The output as it is if it fits, else its first part.

    An object keeps the values that fit, the largest is cut, and ``truncated`` is true. All else becomes
    ``{"truncated": true, "text": ...}`` with the beginning of its text, or of its JSON.
    """
    if output is None or isinstance(output, int | float) or len(_encode(output)) <= OUTPUT_BYTES:
        return output
    output = msgspec.to_builtins(output)
    if isinstance(output, dict):
        return {**_fitting(output, OUTPUT_BYTES - _SURROUNDINGS), "truncated": True}
    text = output if isinstance(output, str) else _encode(output).decode()
    return {"truncated": True, "text": _beginning(text, OUTPUT_BYTES - _SURROUNDINGS)}


def _fitting(values: dict[str, Any], room: int) -> dict[str, Any]:
    """The smallest values as they are, the first that does not fit cut, the others left out; in their own order."""
    sizes = {name: len(_encode(name)) + len(_encode(value)) + 2 for name, value in values.items()}
    kept = {}
    for name in sorted(sizes, key=lambda one: sizes[one]):
        if sizes[name] > room:
            left = room - len(_encode(name)) - 2
            if left >= _SHORTEST:
                kept[name] = _cut(values[name], left)
            break
        kept[name] = values[name]
        room -= sizes[name]
    return {name: kept[name] for name in values if name in kept}


def _cut(value: Any, room: int) -> Any:
    if isinstance(value, str):
        return _beginning(value, room)
    if isinstance(value, list):
        return _first(value, room - _BRACKETS)
    return _fitting(value, room - _BRACKETS) if isinstance(value, dict) else None


def _first(items: list[Any], room: int) -> list[Any]:
    """As many items from the beginning as fit."""
    kept = []
    for item in items:
        room -= len(_encode(item)) + 1
        if room < 0:
            break
        kept.append(item)
    return kept


def _beginning(text: str, room: int) -> str:
    """The beginning of a text that fits as JSON, in which some characters take several bytes."""
    text = text[:room]
    while text and len(_encode(text)) > room:
        text = text[: len(text) * room // (len(_encode(text)) + 1)]
    return text
