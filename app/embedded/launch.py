"""The last step before a child's own program: become its account, die with the parent, then exec.

Run as a script by the path of this file, so it may import nothing but the standard library. It is a process of its
own because code between fork and exec cannot be trusted once there are threads, and because the kernel forgets the
death signal when the account changes: it has to be asked for afterwards.
"""

import ctypes
import fcntl
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
NO_CHANGE = -1
# A server that lost its parent is given this long to finish writing and let go of its folder.
PREDECESSOR_SECONDS = 30.0
POLL_SECONDS = 0.05
# Python ignores these, or the shell did, and exec would pass that on.
RESTORED_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT)


def main(arguments: list[str]) -> None:
    """Arguments: the parent's pid, death signal, uid, gid, whether to hold the folder, then the command."""
    parent, death_signal, uid, gid, exclusive = map(int, arguments[:5])
    become(uid, gid)
    die_with(parent, death_signal)
    if exclusive:
        hold_folder()
    for number in RESTORED_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    execute(arguments[5:])


def become(uid: int, gid: int) -> None:
    """Give up root for good: groups first, since afterwards there is no right to."""
    if uid != NO_CHANGE:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)


def die_with(parent: int, death_signal: int) -> None:
    """Have the kernel send the signal when the parent dies, and look once whether it is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, death_signal)
    if os.getppid() != parent:
        sys.exit("the parent is gone")


def hold_folder() -> None:
    """Lock the current folder. The server and every process it forks inherit the lock, and the last one releases it."""
    folder = os.open(".", os.O_RDONLY)
    os.set_inheritable(folder, True)
    deadline = time.monotonic() + PREDECESSOR_SECONDS
    while not locked(folder):
        if time.monotonic() > deadline:
            sys.exit(f"another server still works in {os.getcwd()}")  # noqa: PTH109 - pathlib would double the start-up time
        time.sleep(POLL_SECONDS)


def locked(folder: int) -> bool:
    """Try to take the lock."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def execute(command: list[str]) -> None:
    """Become the program."""
    try:
        os.execv(command[0], command)  # noqa: S606 - our own command, and no shell on purpose
    except OSError as error:
        sys.exit(f"{command[0]} cannot be run: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
