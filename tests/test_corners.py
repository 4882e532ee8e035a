"""The table of corners in docs/design.md: every row has a test that names it."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
MARK = re.compile(r'^@pytest\.mark\.corner\("(.*)"\)$', re.MULTILINE)


def corners() -> list[str]:
    """Return the first column of the table of corners, in its order."""
    section = (ROOT / "docs" / "design.md").read_text().partition("## The corners\n")[2].partition("\n## ")[0]
    rows = [line.removeprefix("| ").split(" | ", 1) for line in section.splitlines() if line.startswith("| ")]
    return [name for name, _ in rows if name != "corner"]


def test_every_corner_has_a_test() -> None:
    """Each row is named by a mark, and no mark names a corner that is not in the table."""
    named = {row for path in (ROOT / "tests").rglob("test_*.py") for row in MARK.findall(path.read_text())}
    assert set(corners()) == named


def test_the_table_is_found_and_names_each_corner_once() -> None:
    """A heading that moves, or a row that stands twice, is noticed."""
    assert 25 == len(corners()) == len(set(corners()))
