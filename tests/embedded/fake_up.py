"""``carillon up`` with the stand-in for ``carillon``; the argument is its folder for notes."""

import sys
from pathlib import Path

from app.cli.up import up
from app.embedded import stack

FAKE = Path(__file__).with_name("fake_carillon.py")

if __name__ == "__main__":
    setattr(stack, "carillon_program", lambda: (sys.executable, str(FAKE), sys.argv[1]))  # noqa: B010 - a stand-in
    up()
