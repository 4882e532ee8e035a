"""Servers under another parent: one that is killed, and one that is not root.

Covers app.embedded.launch.
"""

import json
import os
import signal
from pathlib import Path

from tests.embedded.capabilities import ORDINARY_UID
from tests.embedded.processes import is_gone, running, user_of, wait_for

FIRST_LINE = '"visits"'


def test_servers_die_with_a_killed_parent_and_start_again(
    set_up_folder: Path, tmp_path: Path, plain_environment: dict[str, str]
) -> None:
    """After kill -9 of the parent both servers end by themselves, and the next start at once finds the data."""
    visits = []
    for number in range(3):
        with running(tmp_path / f"{number}.log", "both_servers.py", set_up_folder, env=plain_environment) as parent:
            found = json.loads(parent.line(FIRST_LINE))
            os.kill(parent.pid, signal.SIGKILL)
            parent.ends()
        visits.append(found["visits"])
    assert [[1, 1], [2, 2], [3, 3]] == visits
    wait_for(lambda: all(map(is_gone, found["pids"])), "the servers' end")


def test_an_ordinary_user_needs_no_root(folder: Path, tmp_path: Path, plain_environment: dict[str, str]) -> None:
    """The servers run as the user who starts them, and leave no socket behind."""
    if os.geteuid() == 0:
        os.chown(folder, ORDINARY_UID, ORDINARY_UID)
    with running(tmp_path / "log", "both_servers.py", folder, "--ordinary", env=plain_environment) as parent:
        found = json.loads(parent.line(FIRST_LINE))
        users = {found["uid"], *map(user_of, found["pids"])}
        parent.process.send_signal(signal.SIGTERM)
        assert 0 == parent.ends()
    assert {os.geteuid() or ORDINARY_UID} == users
    assert [False, False] == [Path(sockets).exists() for sockets in found["sockets"]]
