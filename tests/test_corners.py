"""The design's table of corners: every row has a test that names it."""

import re
from pathlib import Path

ROWS = {
    "last repeat in flight",
    "retry and its slot",
    "slots that pass while a retry holds the schedule",
    "retry blocked by breaker or guard",
    "pause",
    "resume",
    "PATCH",
    "DELETE",
    "manual run",
    "several slots due at once",
    "one-shots",
    "run_all",
    "queue",
    "allow",
    "repeat_number",
    "cancel",
    "lost",
    "drain",
    "ping without workers",
    "switched off globally",
}
MARK = re.compile(r'^@pytest\.mark\.corner\("(.*)"\)$', re.MULTILINE)


def test_every_corner_has_a_test() -> None:
    """By its mark; and no mark names a corner that is none."""
    named = {row for path in Path(__file__).parent.rglob("test_*.py") for row in MARK.findall(path.read_text())}
    assert ROWS == named
