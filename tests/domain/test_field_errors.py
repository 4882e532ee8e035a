"""What is wrong with a body, field by field."""

import inspect
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.actions.builtin import BUILTIN
from app.domain.errors import InvalidError
from app.domain.field_errors import MOST_ERRORS, field_errors, read_as
from app.domain.schedule_input import Input, ScheduleInput
from app.domain.workflows import TriggerConfig
from app.services import inputs
from app.services.views import ScheduleView, WorkflowView

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


class Circle(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="shape", tag="circle"):
    """A shape."""

    radius: Annotated[float, msgspec.Meta(gt=0)]


class Square(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="shape", tag="square"):
    """Another shape, with a rule of its own."""

    side: int
    corners: int = 4

    def __post_init__(self) -> None:
        """Refuse a square with other than four corners."""
        if self.corners != 4:
            raise ValueError("a square has 4 corners")


class Picture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shapes."""

    title: Annotated[str, msgspec.Meta(min_length=2)]
    shapes: Annotated[list[Circle | Square], msgspec.Meta(max_length=3)] = []
    mode: Literal["line", "fill"] = "line"
    sizes: dict[Annotated[str, msgspec.Meta(max_length=3)], int] = {}


def told(raw: Any, kind: Any = Picture) -> dict[str, str]:
    """The errors by field."""
    return {error.field: error.message for error in field_errors(raw, kind)}


def test_a_rule_that_is_a_sentence_keeps_its_one_full_stop() -> None:
    """Rules of our own types may end with a full stop; msgspec's complaints do not."""
    assert {"": "Exactly one of `ids` and `filter` is needed."} == told({"action": "pause"}, inputs.BulkInput)


@pytest.mark.parametrize(
    ("kind", "view"),
    [(ScheduleInput, ScheduleView), (inputs.WorkflowInput, WorkflowView)],
    ids=["schedule", "workflow"],
)
def test_fields_that_are_shown_but_not_written_are_called_read_only(kind: Any, view: Any) -> None:
    """To say that there is no such field would be wrong: every response shows it."""
    shown, writable = set(view.__struct_fields__), set(kind.__struct_fields__)
    assert shown - writable == kind.READ_ONLY
    for changes in (kind, inputs.ScheduleChanges if kind is ScheduleInput else inputs.WorkflowChanges):
        errors = told(dict.fromkeys(kind.READ_ONLY, 1), changes)
        assert {"This field is read-only. Leave it out."} == {errors[name] for name in kind.READ_ONLY}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"title": "ok"}, {}),
        ({}, {"title": "This field is required."}),
        ([], {"": "Expected an object, got an array."}),
        ({"title": None}, {"title": "Expected a string of at least 2 characters, got null."}),
        ({"title": "x"}, {"title": "Expected a string of at least 2 characters."}),
        ({"title": "ok", "mod": 1}, {"mod": "There is no field 'mod'. Did you mean 'mode'?"}),
        ({"title": "ok", "zzz": 1}, {"zzz": "There is no field 'zzz'."}),
        ({"title": "ok", "mode": "dots"}, {"mode": "Expected one of 'fill', 'line'."}),
        ({"title": "ok", "mode": True}, {"mode": "Expected one of 'fill', 'line', got a boolean."}),
        ({"title": "ok", "sizes": {"a": "b"}}, {"sizes.a": "Expected an integer, got a string."}),
        (
            {"title": "ok", "sizes": {"long": 1}},
            {"sizes": "The name 'long' is not valid. Expected a string of at most 3 characters."},
        ),
        ({"title": "ok", "shapes": [{}]}, {"shapes[0].shape": "This field is required."}),
        (
            {"title": "ok", "shapes": [{"shape": "dot"}]},
            {"shapes[0].shape": "Expected one of 'circle', 'square'."},
        ),
        (
            {"title": "ok", "shapes": [{"shape": "circle", "radius": 0}, {"shape": "square", "radius": 1}]},
            {
                "shapes[0].radius": "Expected a number greater than 0.",
                "shapes[1].radius": "There is no field 'radius'.",
                "shapes[1].side": "This field is required.",
            },
        ),
        (
            {"title": "ok", "shapes": [{"shape": "square", "side": 1, "corners": 5}]},
            {"shapes[0]": "A square has 4 corners."},
        ),
        (
            {"title": "ok", "shapes": [{"shape": "circle", "radius": 10**400}]},
            {"shapes[0].radius": "The number is too large."},
        ),
        (
            {"title": "ok", "shapes": [{"shape": "square", "side": 1}] * 4},
            {"shapes": "Expected an array of at most 3 items."},
        ),
        (
            {"title": 5, "mode": 6, "extra": 7},
            {
                "title": "Expected a string of at least 2 characters, got an integer.",
                "mode": "Expected one of 'fill', 'line', got an integer.",
                "extra": "There is no field 'extra'.",
            },
        ),
    ],
)
def test_every_error_names_its_field_and_what_is_expected(raw: Any, expected: dict[str, str]) -> None:
    """In plain words, all at once."""
    assert expected == told(raw)


@pytest.mark.parametrize("kind", [inputs.BulkInput, inputs.ForecastChange, inputs.DocumentsInput])
def test_a_rule_of_several_fields_is_one_sentence(kind: type[Input]) -> None:
    """The words of the type itself end with one full stop."""
    raw = {"action": "pause"} if kind is inputs.BulkInput else {}
    (error,) = field_errors(raw, kind)
    assert error.message.startswith("Exactly one of ")
    assert error.message.endswith(" is needed.")


def test_open_values_are_left_for_later() -> None:
    """Wherever they stand, with the rules that need them; all else is checked."""

    def is_open(value: Any) -> bool:
        return isinstance(value, str) and value == "?"

    raw = {"title": "?", "shapes": [{"shape": "square", "side": "?", "corners": 5}, {"shape": "?"}, "?"], "mode": 1}
    assert ["mode"] == [error.field for error in field_errors(raw, Picture, is_open)]


def test_a_long_list_of_errors_ends() -> None:
    """A body could have thousands."""
    assert MOST_ERRORS == len(field_errors({str(number): 1 for number in range(5000)}, Picture))


@given(JSON | st.fixed_dictionaries({}, optional=dict.fromkeys(ScheduleInput.__struct_fields__, JSON)))
def test_errors_are_found_exactly_where_the_type_refuses(raw: Any) -> None:
    """Whatever comes: no error without a refusal, no refusal without an error, none in the words of the library."""
    errors = field_errors(raw, ScheduleInput)
    assert not any(error.message.startswith(("Object", "Expected `")) or "regex" in error.message for error in errors)
    if errors:
        with pytest.raises(InvalidError) as caught:
            read_as(raw, ScheduleInput)
        assert tuple(errors) == caught.value.errors
    else:
        read_as(raw, ScheduleInput)


def structs() -> Iterator[type[msgspec.Struct]]:
    """Return the bodies of the API, and the configurations of nodes."""
    for kind in vars(inputs).values():
        if inspect.isclass(kind) and issubclass(kind, Input):
            yield kind
    yield TriggerConfig
    for action in BUILTIN:
        if isinstance(action.config, type):
            yield action.config


def patterns(info: msgspec.inspect.Type, words: str = "") -> Iterator[tuple[str, str]]:
    """Return the patterns in a type, each with the words for it."""
    match info:
        case msgspec.inspect.Metadata():
            yield from patterns(info.type, str((info.extra or {}).get("expected", "")))
        case msgspec.inspect.StrType():
            if info.pattern:
                yield info.pattern, words
        case msgspec.inspect.UnionType():
            for option in info.types:
                yield from patterns(option)
        case msgspec.inspect.ListType():
            yield from patterns(info.item_type)
        case msgspec.inspect.DictType():
            yield from (*patterns(info.key_type), *patterns(info.value_type))


def test_every_pattern_has_words() -> None:
    """Nobody has to read a regular expression to learn what a field takes."""
    fields = [field for struct in structs() for field in msgspec.structs.fields(struct)]
    found = {pattern: words for field in fields for pattern, words in patterns(msgspec.inspect.type_info(field.type))}
    assert len(found) > 5
    assert [] == [pattern for pattern, words in found.items() if not re.match(r"[a-z1]", words)]
