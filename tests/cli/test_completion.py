"""``carillon completion``: names are completed by the shell.

Covers app.cli.names.
"""

import shutil
import subprocess
from asyncio import to_thread

import pytest

from tests.support.carillon import Carillon
from tests.support.command_line import CommandLine


async def test_names_are_completed(cli: CommandLine, standing: Carillon) -> None:
    """Asked from the server once, then from the cache; a server that is away completes nothing, silently."""
    await standing.schedule(name="completed-one")
    words = ("__complete", "schedule", "get", "completed-")
    assert "completed-one" == (await cli(*words)).out.splitlines()[-1]
    await standing.schedule(name="completed-two")
    assert "completed-two" not in (await cli(*words)).out
    away = await cli(*words, environ={"CARILLON_URL": "http://127.0.0.1:1"})
    assert (0, "", False) == (away.code, away.err, "completed-one" in away.out)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
async def test_the_script_is_valid(cli: CommandLine) -> None:
    """For bash, which reads it without an error."""
    done = await cli("completion", "bash")
    checked = await to_thread(
        subprocess.run, ["bash", "-n"], input=done.out, text=True, capture_output=True, check=False
    )
    assert (0, "") == (checked.returncode, checked.stderr)
