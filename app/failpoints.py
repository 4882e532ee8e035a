"""Failpoints: places in the code where the process kills itself, as by ``kill -9``. For fault tests only.

Nothing happens unless they are armed: ``CARILLON_FAILPOINTS="after_claim=0.02,before_settle=0.5"`` gives each named
point the probability with which reaching it kills the process.
"""

import os
import random
import signal
from typing import Final

POINTS: Final = frozenset(
    {f"{when}_{step}" for when in ("before", "after") for step in ("claim", "plan", "send", "settle")}
)

_probabilities: dict[str, float] = {}


def arm(text: str) -> None:
    """Set the probabilities of all points; raise ``ValueError`` if the text cannot be parsed."""
    probabilities = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, probability = part.partition("=")
        if name not in POINTS:
            raise ValueError(f"there is no failpoint '{name}'; the failpoints are {', '.join(sorted(POINTS))}")
        probabilities[name] = float(probability or 1)
    _probabilities.clear()
    _probabilities.update(probabilities)


def failpoint(name: str) -> None:
    """Kill this process with the probability that the point is armed with."""
    if _probabilities and random.random() < _probabilities.get(name, 0.0):  # noqa: S311 - not for secrets
        os.kill(os.getpid(), signal.SIGKILL)
