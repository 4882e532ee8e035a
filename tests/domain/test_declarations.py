"""What has to be done about what is declared, and how two values differ."""

from typing import Any

import pytest

from app.domain.declarations import (
    ABSENT,
    Act,
    Declared,
    Difference,
    Key,
    Kind,
    Managed,
    Step,
    differences,
    plan,
    same,
    undeclared,
)
from app.domain.schedules import Status

NIGHTLY = Key("shop", Kind.SCHEDULE, "nightly")
REPORT = Key("shop", Kind.WORKFLOW, "report")


def managed(key: Key = NIGHTLY, status: Status | None = Status.ACTIVE, **values: object) -> Managed:
    """What there is."""
    return Managed(key=key, user_profile_id=1, values=values, status=status)


def test_what_is_not_there_is_created() -> None:
    """And nothing else is looked at."""
    other = managed(Key("other", Kind.SCHEDULE, "nightly"), timeout_seconds=1)
    assert [Step(Act.CREATE, NIGHTLY)] == plan([Declared(NIGHTLY, {"timeout_seconds": 2})], {other.key: other})


def test_what_differs_is_changed() -> None:
    """With what differs."""
    (step,) = plan([Declared(NIGHTLY, {"a": 1, "b": [2]})], {NIGHTLY: managed(a=1, b=[1])})
    assert Step(Act.CHANGE, NIGHTLY, (Difference("b[0]", 1, 2),), Status.ACTIVE) == step


@pytest.mark.parametrize(
    ("status", "paused", "act"),
    [
        (Status.ACTIVE, False, Act.KEEP),
        (Status.ACTIVE, True, Act.CHANGE),
        (Status.PAUSED, False, Act.KEEP),
        (Status.PAUSED, True, Act.KEEP),
        (Status.DONE, True, Act.KEEP),
        (Status.DEAD, True, Act.KEEP),
    ],
)
def test_a_file_pauses_and_never_resumes(status: Status, paused: bool, act: Act) -> None:
    """Only what is active can be paused."""
    (step,) = plan([Declared(NIGHTLY, {}, paused)], {NIGHTLY: managed(status=status)})
    assert (act, status) == (step.act, step.status)


@pytest.mark.parametrize(("prune", "act"), [(True, Act.DELETE), (False, Act.LEAVE)])
def test_what_is_no_longer_declared(prune: bool, act: Act) -> None:
    """Schedules go before the workflows that they run; what is declared stays."""
    left = [managed(REPORT, None), managed(Key("shop", Kind.SCHEDULE, "z")), managed(Key("shop", Kind.SCHEDULE, "a"))]
    steps = undeclared([*left, managed()], {NIGHTLY}, prune=prune)
    assert [(act, "a"), (act, "z"), (act, "report")] == [(step.act, step.key.name) for step in steps]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, []),
        ({"a": 1}, {"a": 2}, [("a", 1, 2)]),
        ({"a": 1}, {"a": True}, [("a", 1, True)]),
        ({"a": 0}, {"a": None}, [("a", 0, None)]),
        ({}, {"a": None}, [("a", ABSENT, None)]),
        ({"a": 1}, {}, [("a", 1, ABSENT)]),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, [("a[1].b", 2, 3)]),
        ({"a": [1]}, {"a": [1, 2]}, [("a", [1], [1, 2])]),
        ({"a": {"b": 1}}, {"a": [1]}, [("a", {"b": 1}, [1])]),
        ({"a": ("x",)}, {"a": ["x"]}, []),
        ({"a": 1, "b": 1}, {"b": 2, "a": 2}, [("b", 1, 2), ("a", 1, 2)]),
    ],
)
def test_each_place_is_named(before: Any, after: Any, expected: list[tuple[str, Any, Any]]) -> None:
    """In the order of what comes after."""
    assert [Difference(*one) for one in expected] == list(differences(before, after))
    assert same(before, after) is (not expected)
