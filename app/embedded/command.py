"""What a child process is, as a value, and the signals that end it."""

import os
import sys
from pathlib import Path
from signal import SIGKILL, Signals

import msgspec

from app.embedded.account import Account

LAUNCHER = Path(__file__).with_name("launch.py")
UNCHANGED_ACCOUNT = Account(-1, -1)


class StopStep(msgspec.Struct, frozen=True):
    """One signal and how long it may take before the next, harsher one."""

    signal: Signals
    seconds: float


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A program with its arguments and surroundings."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path | None = None
    account: Account | None = None
    # What the kernel sends it when our process is gone, even by kill -9.
    death_signal: Signals = SIGKILL
    # Whether it shall wait for, and then hold, the lock of its folder.
    exclusive: bool = False

    def launcher_argv(self) -> list[str]:
        """The command by way of the launcher. To be run by our main thread: the death signal watches that one."""
        account = self.account or UNCHANGED_ACCOUNT
        numbers = (os.getpid(), self.death_signal, account.uid, account.gid, self.exclusive)
        return [sys.executable, "-IS", str(LAUNCHER), *(str(int(number)) for number in numbers), *self.argv]
