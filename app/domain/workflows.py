"""Workflows: the graph and its validation, the trigger node, the order of nodes, and the size limit of outputs."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any

import msgspec

from app.domain.errors import FieldError, NoTriggerError
from app.domain.field_errors import EXPECTED
from app.domain.name_patterns import LONGEST_PATTERN, matches

TRIGGER_TYPE = "trigger_schedule"
# How many trigger nodes an error names.
_MOST_NAMED = 5
# The largest output of a node as JSON: an HTTP response body of 64 kB and the fields around it.
OUTPUT_BYTES = 65 * 1024
# Room for the field names, brackets and the mark ``truncated`` of an output that was cut.
_ENVELOPE_BYTES = 64
_BRACKETS = 2
# The smallest JSON value that a cut one can become.
_SHORTEST = len("null")

_encode = msgspec.json.Encoder().encode


ScheduleId = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})?$(?!\n)",
        extra={EXPECTED: "the id of a schedule (a UUID)"},
    ),
]
NamePattern = Annotated[str, msgspec.Meta(max_length=LONGEST_PATTERN, examples=["report-*"])]


class TriggerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which schedules start runs here: those that match every filter that is given. An empty filter matches all."""

    scheduled_job_id: ScheduleId | None = None
    # A pattern with ``*``, ``?`` and ``[...]`` for the schedule's name.
    name: NamePattern | None = None


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node of a workflow: a trigger, or an action of the catalog with its configuration."""

    id: str
    type: str
    config: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def is_trigger(self) -> bool:
        """Return whether runs start at this node."""
        return self.type == TRIGGER_TYPE


class Edge(msgspec.Struct, frozen=True, rename={"source": "from", "target": "to"}, forbid_unknown_fields=True):
    """An edge of a workflow: its second node runs after its first one."""

    source: str
    target: str


class Workflow(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A workflow with the fields that a run needs."""

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

    @cached_property
    def types(self) -> frozenset[str]:
        """Return the types of all nodes that work."""
        return frozenset(node.type for node in self.nodes if not node.is_trigger)

    def node(self, node_id: str) -> Node:
        """Return the node with this id."""
        return self._by_id[node_id]

    def order_from(self, trigger_id: str) -> "Order":
        """Return the order of the nodes that run from a trigger. It is computed once."""
        if trigger_id not in self._orders:
            before = run_order(self, trigger_id)
            self._orders[trigger_id] = Order(before, frozenset(self._by_id[node_id].type for node_id in before))
        return self._orders[trigger_id]


class Order:
    """The order of the nodes of a run.

    ``first`` can start at once, ``waiting`` is the number of nodes that each node waits for, and ``after`` lists the
    nodes that wait for each node.
    """

    def __init__(self, before: Mapping[str, Collection[str]], types: frozenset[str]) -> None:
        """Take the nodes, each with those that must have ended before it, and the types of all of them."""
        self.types = types
        self.waiting = {node_id: len(others) for node_id, others in before.items()}
        self.first = tuple(node_id for node_id, number in self.waiting.items() if not number)
        self.after: dict[str, list[str]] = defaultdict(list)
        for node_id, others in before.items():
            for other in others:
                self.after[other].append(node_id)


# What stands between the scheme and the end of a host; a template is no host.
_HOST = re.compile(r"https?://(?:[^/@\s\"{}]*@)?([^/:?#\s\"\\{}]+)", re.IGNORECASE)


def target_hosts(nodes: Iterable[Any]) -> str:
    """Return the hosts that nodes name in their configurations, separated by blanks, for searches."""
    text = msgspec.json.encode([node if isinstance(node, dict) else msgspec.to_builtins(node) for node in nodes])
    return " ".join(sorted({host.lower() for host in _HOST.findall(text.decode())}))


def graph_errors(nodes: Iterable[Node], edges: Iterable[Edge], known_types: Collection[str]) -> list[FieldError]:
    """Return every error of a graph, with the field where it is."""
    nodes, edges = tuple(nodes), tuple(edges)
    errors = [*_duplicate_ids(nodes), *_unknown_types(nodes, known_types), *_dangling_edges(nodes, edges)]
    if not errors:
        errors.extend((*_edges_to_triggers(nodes, edges), *_cycles(nodes, edges)))
    return errors


def _duplicate_ids(nodes: tuple[Node, ...]) -> Iterable[FieldError]:
    for node_id, count in Counter(node.id for node in nodes).items():
        if count > 1:
            yield FieldError("nodes", f"The id '{node_id}' is used {count} times. Ids must be unique.")


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
            yield FieldError(
                f"edges[{index}].to", f"'{edge.target}' is a trigger, where runs start: no edge may lead to it."
            )


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
    """Return the trigger node that an event starts: the named one, or the first whose filter matches."""
    if trigger_node_id is not None:
        return _named_trigger(workflow, trigger_node_id, event_data)
    for node in workflow.nodes:
        if node.is_trigger and _matches(node, event_data):
            return node
    raise NoTriggerError(
        f"No {TRIGGER_TYPE} node of workflow '{workflow.name}' matches {_schedule(event_data)}. "
        + _filters([node for node in workflow.nodes if node.is_trigger])
    )


def _named_trigger(workflow: Workflow, node_id: str, event_data: Mapping[str, Any]) -> Node:
    for node in workflow.nodes:
        if node.id == node_id and node.is_trigger:
            if _matches(node, event_data):
                return node
            raise NoTriggerError(
                f"The trigger node '{node_id}' is for another schedule than {_schedule(event_data)}. {_filters([node])}"
            )
    raise NoTriggerError(f"Workflow '{workflow.name}' has no trigger node '{node_id}'.")


def _matches(node: Node, event_data: Mapping[str, Any]) -> bool:
    """Return whether an event passes the filters of a trigger. Unknown fields of nodes stored long ago do not count."""
    job_id, pattern = node.config.get("scheduled_job_id"), node.config.get("name")
    if job_id and str(job_id).lower() != str(event_data.get("scheduled_job_id")).lower():
        return False
    return not pattern or not isinstance(pattern, str) or matches(pattern, str(event_data.get("scheduled_job_name")))


def _schedule(event_data: Mapping[str, Any]) -> str:
    return f"the schedule '{event_data.get('scheduled_job_name')}' ({event_data.get('scheduled_job_id')})"


def _filters(triggers: list[Node]) -> str:
    """Return the filters of trigger nodes in a sentence, for people who look for the one that is wrong."""
    if not triggers:
        return "It has none."
    fields = TriggerConfig.__struct_fields__
    shown = [
        f"'{node.id}' wants {' and '.join(f'{name} {node.config[name]!r}' for name in fields if node.config.get(name))}"
        for node in triggers[:_MOST_NAMED]
    ]
    others = f" and {len(triggers) - _MOST_NAMED} more" if len(triggers) > _MOST_NAMED else ""
    return f"{', '.join(shown)}{others}."


def run_order(workflow: Workflow, trigger_id: str) -> dict[str, frozenset[str]]:
    """Return the nodes to run from a trigger, each with the nodes that must have ended before it.

    Only nodes that the trigger reaches take part; predecessors that it does not reach are not waited for.
    """
    successors = defaultdict(set)
    for edge in workflow.edges:
        successors[edge.source].add(edge.target)
    reached, open_ids = {trigger_id}, [trigger_id]
    while open_ids:
        new_ids = successors[open_ids.pop()] - reached
        reached |= new_ids
        open_ids.extend(new_ids)
    before = _predecessors(workflow.nodes, workflow.edges)
    # The trigger itself does not run.
    return {node: frozenset(before[node] & reached - {trigger_id}) for node in reached - {trigger_id}}


def bound_output(output: Any) -> Any:
    """Return an output unchanged if it fits into ``OUTPUT_BYTES``, else cut.

    A cut object keeps the values that fit, and gets ``"truncated": true``. Anything else becomes
    ``{"truncated": true, "text": ...}`` with the beginning of its text, or of its JSON.
    """
    if output is None or isinstance(output, int | float) or len(_encode(output)) <= OUTPUT_BYTES:
        return output
    output = msgspec.to_builtins(output)
    if isinstance(output, dict):
        return {**_fit_object(output, OUTPUT_BYTES - _ENVELOPE_BYTES), "truncated": True}
    text = output if isinstance(output, str) else _encode(output).decode()
    return {"truncated": True, "text": _fit_text(text, OUTPUT_BYTES - _ENVELOPE_BYTES)}


def _fit_object(values: dict[str, Any], room: int) -> dict[str, Any]:
    """Return the smallest values unchanged, the first that does not fit cut, and none of the larger ones."""
    sizes = {name: len(_encode(name)) + len(_encode(value)) + 2 for name, value in values.items()}
    fitting = {}
    for name in sorted(sizes, key=lambda name: sizes[name]):
        if sizes[name] > room:
            value_room = room - len(_encode(name)) - 2
            if value_room >= _SHORTEST:
                fitting[name] = _cut_value(values[name], value_room)
            break
        fitting[name] = values[name]
        room -= sizes[name]
    return {name: fitting[name] for name in values if name in fitting}


def _cut_value(value: Any, room: int) -> Any:
    if isinstance(value, str):
        return _fit_text(value, room)
    if isinstance(value, list):
        return _fit_list(value, room - _BRACKETS)
    return _fit_object(value, room - _BRACKETS) if isinstance(value, dict) else None


def _fit_list(items: list[Any], room: int) -> list[Any]:
    """Return as many items from the beginning as fit."""
    fitting = []
    for item in items:
        room -= len(_encode(item)) + 1
        if room < 0:
            break
        fitting.append(item)
    return fitting


def _fit_text(text: str, room: int) -> str:
    """Return the beginning of a text that fits as JSON, where some characters take several bytes."""
    text = text[:room]
    while text and len(_encode(text)) > room:
        text = text[: len(text) * room // (len(_encode(text)) + 1)]
    return text
