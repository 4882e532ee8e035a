"""Patterns for names."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.domain.name_patterns import LONGEST_PATTERN, matches

# Tokens instead of characters: brackets that close are rare among characters.
TOKENS = st.sampled_from(
    ["a", "b", "*", "?", "[ab]", "[!a]", "[a-c]", "[]a]", "[!]]", "[", "]", "-", "[a-", "[-a]", "\\", "."]
)


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("report", "report", True),
        ("report", "Report", False),
        ("report", "report-1", False),
        ("report-*", "report-", True),
        ("*-nightly", "a-nightly-nightly", True),
        ("*", "", True),
        ("?", "", False),
        ("?", "ä", True),
        ("v[0-9]", "v5", True),
        ("v[!0-9]", "v5", False),
        ("[*]", "*", True),
        ("[*]", "a", False),
        ("a[b", "a[b", True),
        ("[z-a]", "m", False),
        ("[!z-a]", "m", True),
        ("a\nb*", "a\nbc", True),
    ],
)
def test_what_a_pattern_matches(pattern: str, name: str, expected: bool) -> None:
    """The whole name, case-sensitively."""
    assert expected is matches(pattern, name)


@given(st.lists(TOKENS, max_size=8).map("".join), st.text("abc*?[]!-\\.", max_size=10))
def test_the_rules_are_those_of_the_standard_library(pattern: str, name: str) -> None:
    """Without the ranges that have no members, of which it makes something else."""
    assume("]-" not in pattern)
    assert fnmatchcase(name, pattern) is matches(pattern, name)


@pytest.mark.parametrize(
    "pattern",
    [
        "*a" * (LONGEST_PATTERN // 2) + "b",
        "*" * (LONGEST_PATTERN - 1) + "b",
        "*" + "a" * (LONGEST_PATTERN // 2) + "b",
        "*[!b]" * (LONGEST_PATTERN // 6) + "b",
        "*?" * (LONGEST_PATTERN // 2) + "b",
    ],
    ids=lambda pattern: str(pattern[:8]),
)
def test_a_hostile_pattern_costs_little(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most the product of both lengths, in comparisons: a regular expression would not end."""
    from app.domain import name_patterns

    comparisons = 0
    accepts = name_patterns._Characters.accepts

    def counted(self: name_patterns._Characters, character: str) -> bool:
        nonlocal comparisons
        comparisons += 1
        return accepts(self, character)

    monkeypatch.setattr(name_patterns._Characters, "accepts", counted)
    assert len(pattern) <= LONGEST_PATTERN
    assert not matches(pattern, "a" * 255)
    assert comparisons <= 255 * LONGEST_PATTERN
