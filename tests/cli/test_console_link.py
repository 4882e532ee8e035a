"""``carillon console``: a link that logs in once.

Covers app.cli.console_link, app.embedded.console_link.
"""

import os
import subprocess
import sys
from asyncio import to_thread
from pathlib import Path

import pytest

from app.embedded.console_link import LinkRefused, console_link, console_url
from tests.support.carillon import ADMIN_TOKEN, Carillon

PROGRAM = Path(sys.executable).with_name("carillon")


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command with nothing but these settings."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("CARILLON_")}
    command = [str(PROGRAM), "console", *arguments]
    return subprocess.run(command, env={**own, **environ}, capture_output=True, text=True, timeout=60, check=False)


def test_the_code_is_in_the_fragment() -> None:
    """A fragment is sent to no server."""
    assert "https://host/console/#code=abc" == console_url("https://host/", "abc")
    assert "http://host:8000/console/" == console_url("http://host:8000")


async def test_the_link_of_the_own_machine_needs_no_argument(standing: Carillon, tmp_path: Path) -> None:
    """Host, port and the admin's token come from the settings; the code can be exchanged once."""
    port = str(standing._client.base_url.port)
    done = await to_thread(run, CARILLON_PORT=port, CARILLON_ADMIN_TOKEN=ADMIN_TOKEN, CARILLON_DATA_DIR=str(tmp_path))
    link, _, code = done.stdout.strip().partition("#code=")
    assert (0, f"http://127.0.0.1:{port}/console/") == (done.returncode, link)
    answers = [await standing.raw("POST", "/api/v1/session/", json={"code": code}) for _ in range(2)]
    assert [204, 401] == [answer.status_code for answer in answers]


async def test_the_token_of_the_data_folder_is_used(standing: Carillon, tmp_path: Path) -> None:
    """As `carillon up` stores it; but it is never sent to a server that is named."""
    (tmp_path / "admin-token").write_text(f"{ADMIN_TOKEN}\n")
    port = str(standing._client.base_url.port)
    done = await to_thread(run, CARILLON_PORT=port, CARILLON_DATA_DIR=str(tmp_path))
    assert "/console/#code=" in done.stdout
    refused = await to_thread(run, "--server", f"http://127.0.0.1:{port}", CARILLON_DATA_DIR=str(tmp_path))
    assert (4, True) == (refused.returncode, "No token is known." in refused.stderr)


async def test_a_refusal_is_one_line(standing: Carillon) -> None:
    """A wrong token, and a server that does not answer."""
    server = str(standing._client.base_url)
    done = await to_thread(run, "--server", server, "--token", "wrong")
    assert (1, 1) == (done.returncode, len(done.stderr.strip().splitlines()))
    assert "answers 401" in done.stderr
    with pytest.raises(LinkRefused, match="does not answer"):
        console_link("http://127.0.0.1:1", "t")
