"""Health and metrics over HTTP, on one socket for both address families.

The servers run in a network namespace of their own, where only loopback exists.
"""

import asyncio
import os
import shutil
import sys

import pytest

from app.config import Settings
from tests.support.skip_reports import leave_untested

# Brings loopback up, starts a server as a child or in its own loop, and asks it by both addresses.
IN_THE_NAMESPACE = """
import asyncio, fcntl, socket, struct, sys, time, urllib.request
from app.observability.serving import ALL_ADDRESSES, Health, OwnAnswers, serving

with socket.socket() as any_socket:
    # SIOCSIFFLAGS with IFF_UP and IFF_RUNNING.
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x41))

def statuses():
    urls = [f"http://{host}:8000/health/live" for host in ("127.0.0.1", "[::1]")]
    return [urllib.request.urlopen(url, timeout=5).status for url in urls]

async def worker():
    async with serving((ALL_ADDRESSES, 8000), OwnAnswers(lambda: Health(is_ready=True, body=b"{}"))):
        print(await asyncio.to_thread(statuses))

def api():
    import subprocess
    process = subprocess.Popen([sys.executable, "-m", "app.cli", "api"])
    try:
        for _ in range(120):
            try:
                return print(statuses())
            except OSError:
                time.sleep(0.5)
    finally:
        process.terminate()
        process.wait()

asyncio.run(worker()) if sys.argv[1] == "worker" else api()
"""


@pytest.mark.parametrize("process", ["worker", "api"])
async def test_both_families_are_answered(settings: Settings, process: str) -> None:
    """A worker's probes and the API's clients reach it by IPv4 and by IPv6."""
    unshare = shutil.which("unshare")
    if unshare is None or await _run(unshare, "-rn", "true") != (0, ""):
        leave_untested("both address families: this machine allows no network namespaces.", curable=False)
    given = {"DATABASE_URL": settings.database_url, "REDIS_URL": settings.redis_url, "PORT": "8000", "HOST": "::"}
    environ = {f"CARILLON_{name}": value for name, value in given.items()}
    code, said = await _run(unshare, "-rn", sys.executable, "-c", IN_THE_NAMESPACE, process, **environ)
    assert 0 == code, said
    assert "[200, 200]" in said


async def _run(*command: str, **environ: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **environ},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode, said.decode()
