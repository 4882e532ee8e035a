"""What differs between two values, and where."""

from typing import Any

import pytest

from app.domain.declarations import ABSENT, Difference, differences, same


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
