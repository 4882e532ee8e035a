"""Workflow graphs: what is refused, which trigger an event starts, in which order nodes run."""

import pytest

from app.domain.errors import NoTriggerError
from app.domain.workflows import Edge, Node, Workflow, graph_errors, resolve_trigger, run_order

KNOWN = {"core.noop"}
EVENT = {"scheduled_job_id": "mine", "scheduled_job_name": "nightly-1"}


def node(node_id: str, kind: str = "core.noop", **config: object) -> Node:
    """A node."""
    return Node(node_id, kind, config)


def trigger(node_id: str = "start", **config: object) -> Node:
    """A trigger node."""
    return node(node_id, "trigger_schedule", **config)


def workflow(nodes: list[Node], edges: list[tuple[str, str]] | None = None) -> Workflow:
    """A workflow."""
    return Workflow(
        id=1,
        user_profile_id=1,
        name="w",
        active=True,
        nodes=tuple(nodes),
        edges=tuple(Edge(*pair) for pair in edges or []),
    )


@pytest.mark.parametrize(
    ("nodes", "edges", "fields", "words"),
    [
        ([trigger(), node("a"), node("a")], [], ["nodes"], "'a' is used 2 times"),
        ([trigger(), node("a", "no.such")], [], ["nodes[1].type"], "There is no action 'no.such'"),
        ([trigger()], [("start", "ghost")], ["edges[0].to"], "There is no node 'ghost'"),
        ([trigger()], [("ghost", "start")], ["edges[0].from"], "There is no node 'ghost'"),
        ([trigger(), node("a"), node("b")], [("a", "b"), ("b", "a")], ["edges"], "cycle"),
        ([trigger(), node("a")], [("a", "a")], ["edges"], "cycle"),
        ([trigger(), node("a")], [("a", "start")], ["edges[0].to"], "is a trigger"),
    ],
)
def test_a_bad_graph_is_refused_by_name(
    nodes: list[Node], edges: list[tuple[str, str]], fields: list[str], words: str
) -> None:
    """Duplicate ids, unknown types, dangling edges and cycles."""
    errors = graph_errors(nodes, [Edge(*pair) for pair in edges], KNOWN)
    assert fields == [error.field for error in errors]
    assert words in errors[0].message


def test_a_good_graph_has_no_errors() -> None:
    """A diamond."""
    nodes = [trigger(), node("a"), node("b"), node("c")]
    edges = [Edge("start", "a"), Edge("start", "b"), Edge("a", "c"), Edge("b", "c")]
    assert [] == graph_errors(nodes, edges, KNOWN)


def test_a_cycle_is_named_in_the_direction_of_its_edges() -> None:
    """So that it can be found."""
    edges = [Edge("a", "b"), Edge("b", "c"), Edge("c", "a")]
    (error,) = graph_errors([node("a"), node("b"), node("c")], edges, KNOWN)
    assert any(path in error.message for path in ("a -> b -> c -> a", "b -> c -> a -> b", "c -> a -> b -> c"))


@pytest.mark.parametrize(
    ("nodes", "named", "expected"),
    [
        ([trigger("t")], None, "t"),
        ([trigger("t", scheduled_job_id="other"), trigger("u")], None, "u"),
        ([trigger("t", scheduled_job_id="mine"), trigger("u")], None, "t"),
        ([trigger("t", scheduled_job_id="")], None, "t"),
        ([trigger("t"), trigger("u")], "u", "u"),
        ([trigger("t", name="weekly-*"), trigger("u", name="nightly-?")], None, "u"),
        ([trigger("t", name="NIGHTLY-1"), trigger("u", name="")], None, "u"),
        ([trigger("t", scheduled_job_id="MINE", name="n[a-i]*")], None, "t"),
        ([trigger("t", scheduled_job_id="other", name="*"), trigger("u", name=None)], None, "u"),
        # Stored by a release that did not check what it was given.
        ([trigger("t", scheduled_job="other", name=5)], None, "t"),
    ],
)
def test_the_trigger_is_the_one_named_or_the_first_that_matches(
    nodes: list[Node], named: str | None, expected: str
) -> None:
    """An empty filter matches every schedule."""
    assert expected == resolve_trigger(workflow(nodes), named, EVENT).id


@pytest.mark.parametrize(
    ("nodes", "named", "words"),
    [
        ([node("a")], None, "No trigger_schedule node"),
        ([trigger("t", scheduled_job_id="other")], None, "No trigger_schedule node"),
        ([trigger("t")], "ghost", "has no trigger node 'ghost'"),
        ([trigger("t"), node("a")], "a", "has no trigger node 'a'"),
        ([trigger("t", scheduled_job_id="other")], "t", "is for another schedule"),
        ([trigger("t", name="weekly")], "t", r"'nightly-1' \(mine\). 't' wants name 'weekly'."),
        (
            [trigger("t", scheduled_job_id="other", name="x*"), trigger("u", name="[")],
            None,
            r"'nightly-1' \(mine\). 't' wants scheduled_job_id 'other' and name 'x\*', 'u' wants name '\['.",
        ),
        ([trigger(str(number), name="x") for number in range(9)], None, "'4' wants name 'x' and 4 more."),
    ],
)
def test_no_trigger_is_a_clear_error(nodes: list[Node], named: str | None, words: str) -> None:
    """It ends up in last_error."""
    with pytest.raises(NoTriggerError, match=words):
        resolve_trigger(workflow(nodes), named, EVENT)


def test_only_what_the_trigger_reaches_runs() -> None:
    """A predecessor outside of that is not waited for."""
    flow = workflow(
        [trigger("t"), trigger("u"), node("a"), node("b"), node("c"), node("alone")],
        [("t", "a"), ("a", "b"), ("a", "c"), ("u", "c")],
    )
    expected = {"a": frozenset(), "b": frozenset({"a"}), "c": frozenset({"a"})}
    assert expected == run_order(flow, "t")
    assert {"c": frozenset()} == run_order(flow, "u")
