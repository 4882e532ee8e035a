"""Points where a fault suite kills a process: named, armed by their chance, and harmless otherwise."""

import subprocess
import sys
from signal import SIGKILL

import pytest

from app import failpoints

REACH = "import sys; from app import failpoints as f; f.arm(sys.argv[1]); f.failpoint('after_claim'); print('survived')"


@pytest.mark.parametrize(
    ("armed", "ended"),
    [
        ("", (0, "survived\n")),
        ("after_claim", (-SIGKILL, "")),
        ("after_claim=1", (-SIGKILL, "")),
        ("after_claim=0", (0, "survived\n")),
        ("before_settle=1, after_send", (0, "survived\n")),
    ],
)
def test_an_armed_point_kills_the_process(armed: str, ended: tuple[int, str]) -> None:
    """As ``kill -9`` does, and only at the points that were armed."""
    process = subprocess.run([sys.executable, "-c", REACH, armed], capture_output=True, text=True, check=False)
    assert ended == (process.returncode, process.stdout)


@pytest.mark.parametrize("armed", ["no_such_point=1", "after_claim=often"])
def test_what_cannot_be_read_is_refused(armed: str) -> None:
    """A suite with a misspelt point would test nothing."""
    with pytest.raises(ValueError, match=r"no_such_point|often"):
        failpoints.arm(armed)
