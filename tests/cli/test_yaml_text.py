"""YAML as declarations are read and written.

Covers app.services.declarations.yaml_text.
"""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.services.declarations import yaml_text
from app.services.declarations.yaml_text import YamlProblemError, read_documents, write_documents
from tests.support.hypothesis_examples import examples

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
TEXTS = [
    "on",
    "1e3",
    "0600",
    "12:30:00",
    "2026-01-01T00:00:00Z",
    "~",
    "",
    "=",
    "<<",
    "* * * * *",
    "a: b",
    "1_000",
    "\x85",
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("2026-01-01", "2026-01-01"),
        ("yes", "yes"),
        ("off", "off"),
        ("12:30", "12:30"),
        ("0600", "0600"),
        ("1_000", "1_000"),
        (".5", ".5"),
        (".nan", ".nan"),
        ("0 9 * * mon-fri", "0 9 * * mon-fri"),
        ("!!str 5", "5"),
        ("true", True),
        ("null", None),
        ("", None),
        ("5", 5),
        ("-5.5", -5.5),
        ("1e3", 1000.0),
    ],
)
def test_plain_values_are_those_of_json(text: str, expected: Any) -> None:
    """All else is text, as it was written."""
    (document,) = read_documents(f"on: {text}\n")
    assert [("on", expected)] == list(document.value.items())


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb:\n\tc: 2\n", 3, "Indent with spaces, not with tabs."),
        ("a: 1\ncron: */5 * * * *\n", 2, "needs quotes"),
        ("a: 1\ncron: @daily\n", 2, "needs quotes"),
        ("a: 1\nb: 2\na: 3\n", 3, "'a' is given twice, first on line 1."),
        ("a: {b: 1, b: 1}\n", 1, "given twice"),
        ("a:\n  1: x\n", 2, "A key has to be text"),
        ("a:\n  [x]: y\n", 2, "A key has to be text"),
        ("a: 1\n  b: 2\n", 2, "This is not YAML"),
        ("a: 1\nb: !!timestamp 2026-01-01\n", 2, "means nothing here"),
        ("a: 1\nb: !!python/object:os.system x\n", 2, "means nothing here"),
        ("a: 1\nb: 1e999\n", 2, "no number that can be stored"),
        ("a: 1\nb: &b [*b]\n", 2, "nested too deeply"),
        ("a: " + "[" * 900, 1, "nested too deeply"),
        ("a: 1\nb: \x07\n", 2, "The character 0x7 may not stand here."),
    ],
)
def test_what_cannot_be_read_is_named_by_its_line(text: str, line: int, words: str) -> None:
    """With a hint where one mistake is common."""
    with pytest.raises(YamlProblemError) as caught:
        read_documents(text)
    assert (line, True) == (caught.value.line, words in caught.value.message), caught.value.message


def test_few_words_cannot_become_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aliases of aliases end at a bound."""
    monkeypatch.setattr(yaml_text, "MOST_VALUES", 5000)
    layers = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))
    with pytest.raises(YamlProblemError, match="repeated too often"):
        read_documents(f"a0: &a0 [x]\n{layers}")


def test_places_have_lines() -> None:
    """A place that is not there has the line of what it would be in."""
    (document,) = read_documents("---\n---\na:\n  - b: 1\n    c: {d: 2}\n    e.f[0]: 3\n")
    places = {"a": 3, "a[0]": 4, "a[0].c.d": 5, "a[0].c.x[...].y": 5, "a[0].e.f[0]": 6, "a[0].z": 4, "z": 3, "": 3}
    assert places == {place: document.line_of(place) for place in places}


@examples(50)
@given(st.lists(st.dictionaries(st.text(), json_values | st.sampled_from(TEXTS), max_size=3), min_size=1, max_size=2))
def test_what_is_written_reads_as_the_same(documents: list[dict[str, Any]]) -> None:
    """Here, and for any other reader."""
    text = write_documents(documents)
    assert documents == [document.value for document in read_documents(text)]
    assert documents == list(yaml.safe_load_all(text))
