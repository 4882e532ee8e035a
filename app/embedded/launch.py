"""The launcher of every child: change the account, die with the parent, lock the folder, then exec the program.

Run as a script by its path, so it may import only the standard library. It is a process of its own for two reasons:
code between fork and exec is not safe in a process with threads, and the kernel clears the death signal when the
account changes, so that it has to be requested after that.
"""

import ctypes
import fcntl
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
NO_CHANGE = -1
# How long a server whose parent died may take to finish writing and release its folder.
PREDECESSOR_SECONDS = 30.0
POLL_SECONDS = 0.05
# Python ignores the first two, and a shell may ignore SIGINT; exec would pass that on to the program.
RESTORED_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT)


def main(arguments: list[str]) -> None:
    """Run a command. Arguments: parent's pid, death signal, uid, gid, whether to lock the folder, then the command."""
    parent, death_signal, uid, gid, exclusive = map(int, arguments[:5])
    change_account(uid, gid)
    die_with(parent, death_signal)
    if exclusive:
        lock_folder()
    for number in RESTORED_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    execute(arguments[5:])


def change_account(uid: int, gid: int) -> None:
    """Give up root permanently: groups first, because afterwards the process may no longer change them."""
    if uid != NO_CHANGE:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)


def die_with(parent: int, death_signal: int) -> None:
    """Have the kernel send the signal when the parent dies; exit if the parent is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, death_signal)
    if os.getppid() != parent:
        sys.exit("the parent process has exited")


def lock_folder() -> None:
    """Lock the current folder. The server and all processes it forks inherit the lock; the last one releases it."""
    folder = os.open(".", os.O_RDONLY)
    os.set_inheritable(folder, True)
    deadline = time.monotonic() + PREDECESSOR_SECONDS
    while not try_lock(folder):
        if time.monotonic() > deadline:
            path = os.getcwd()  # noqa: PTH109 - importing pathlib would double the start-up time
            sys.exit(f"another server is still running in {path}: stop it and start again")
        time.sleep(POLL_SECONDS)


def try_lock(folder: int) -> bool:
    """Take the lock if it is free; return whether it was taken."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def execute(command: list[str]) -> None:
    """Replace this process by the program."""
    try:
        os.execv(command[0], command)  # noqa: S606 - our own command, and no shell on purpose
    except OSError as error:
        sys.exit(f"{command[0]} cannot be run: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
