"""``carillon up`` with the stand-in for ``carillon``; the argument is its folder for notes."""

import runpy
import signal
import sys
from pathlib import Path

from app.embedded import stack

FAKE = Path(__file__).with_name("fake_carillon.py")
# By its path: as a module it would bring along all other commands, which takes longer than a test.
COMMAND = Path(__file__).parents[2] / "app/cli/processes.py"

if __name__ == "__main__":
    # Below `nohup` a hang-up is ignored, here too, as it shall be; the test sends one that counts.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    setattr(stack, "carillon_program", lambda: (sys.executable, str(FAKE), sys.argv[1]))  # noqa: B010 - a stand-in
    runpy.run_path(str(COMMAND))["up"]()
