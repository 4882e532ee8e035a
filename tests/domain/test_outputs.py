"""Outputs are bounded, and say what was cut."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain import workflows
from app.domain.workflows import OUTPUT_BYTES, bound_output

LONG = "x" * 200_000
plain = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=200)
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=20), inner, max_size=8)
)


def size(value: Any) -> int:
    """In bytes of JSON."""
    return len(msgspec.json.encode(value))


@pytest.mark.parametrize("value", [None, 1, 2.5, True, "text", [1, 2], {"a": {"b": []}}, "x" * 60_000])
def test_what_fits_stays_as_it_is(value: Any) -> None:
    """The very same value."""
    assert bound_output(value) is value


def test_an_answer_keeps_its_status() -> None:
    """Only the body is cut, and remains a text."""
    found = bound_output({"status": 200, "body": LONG, "truncated": False})
    assert (200, True) == (found["status"], found["truncated"])
    assert set("x") == set(found["body"])
    assert 60_000 < size(found) <= OUTPUT_BYTES


def test_a_list_in_an_object_keeps_its_first_items() -> None:
    """As of schedules."""
    items = [{"id": number, "name": "n" * 1000} for number in range(25_000)]
    found = bound_output({"schedules": items})
    assert items[: len(found["schedules"])] == found["schedules"]
    assert found["truncated"]
    assert 60_000 < size(found) <= OUTPUT_BYTES


@pytest.mark.parametrize(
    "value", [LONG, [LONG], ["x"] * 100_000, "\x01" * 100_000, "\U0001f514" * 100_000, '"\\' * 90_000]
)
def test_all_else_becomes_text(value: Any) -> None:
    """However many bytes a character takes."""
    found = bound_output(value)
    assert {"truncated", "text"} == set(found)
    assert found["truncated"] is True
    beginning = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    assert beginning.startswith(found["text"])
    assert 20_000 < size(found) <= OUTPUT_BYTES


@given(value=values, most=st.integers(100, 1000))
def test_nothing_is_larger_than_the_bound(value: Any, most: int) -> None:
    """Whatever it is; and what was cut says so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workflows, "OUTPUT_BYTES", most)
        found = bound_output(value)
    assert size(found) <= most
    assert found == value or found["truncated"] is True
