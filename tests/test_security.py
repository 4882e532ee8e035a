"""What SECURITY.md promises is kept by tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
PROMISE = re.compile(r"^\| (?!promise|---)(.+?) \| (.*) \|$")


def promises() -> dict[str, list[tuple[str, str]]]:
    """The tests that each promise names."""
    text = (ROOT / "SECURITY.md").read_text()
    promised = text.partition("## What is promised")[2].partition("## What is not promised")[0]
    found = (PROMISE.match(line) for line in promised.splitlines())
    return {row[1]: NAMED.findall(row[2]) for row in found if row}


def test_every_promise_names_a_test() -> None:
    """One at least."""
    assert len(promises()) > 30
    assert [] == [promise for promise, tests in promises().items() if not tests]


def test_the_tests_that_are_named_exist() -> None:
    """By file and by name."""
    missing = [
        f"{path}::{name}"
        for tests in promises().values()
        for path, name in tests
        if not (ROOT / path).exists() or (name and f"def {name}(" not in (ROOT / path).read_text())
    ]
    assert [] == missing
