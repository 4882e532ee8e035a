"""Becoming an ordinary user in a test that root runs.

The interpreter may lie under root's 0700 home, where an ordinary user's would not. So this user keeps the one right to
pass through such folders, and is in all else an ordinary one.
"""

import ctypes
import os

PR_SET_KEEPCAPS = 8
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAP_DAC_OVERRIDE = 1
CAPABILITY_VERSION_3 = 0x20080522
ORDINARY_UID = 65534


def become_ordinary() -> None:
    """Change the user of this process for good."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setgid(ORDINARY_UID)
    os.setuid(ORDINARY_UID)
    kept = 1 << CAP_DAC_OVERRIDE
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    # Effective, permitted, inheritable: once for the low half of the capabilities, once for the high.
    sets = (ctypes.c_uint32 * 6)(kept, kept, kept, 0, 0, 0)
    if libc.capset(header, sets) or libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE, 0, 0):
        raise OSError(ctypes.get_errno(), "the right to read everything could not be kept")
