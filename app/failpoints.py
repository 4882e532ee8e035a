"""Places where a process can be told to die, as by ``kill -9``. For fault suites; nothing happens unless armed.

``CARILLON_FAILPOINTS="after_claim=0.02,before_settle=0.5"`` gives each point that is named the chance with which
reaching it is the end.
"""

import os
import random
import signal
from typing import Final

POINTS: Final = frozenset(
    {f"{when}_{what}" for when in ("before", "after") for what in ("claim", "plan", "send", "settle")}
)

_chances: dict[str, float] = {}


def arm(text: str) -> None:
    """Give points their chances; ``ValueError`` for what cannot be read."""
    chances = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, chance = part.partition("=")
        if name not in POINTS:
            raise ValueError(f"there is no point '{name}'; there are {', '.join(sorted(POINTS))}")
        chances[name] = float(chance or 1)
    _chances.clear()
    _chances.update(chances)


def failpoint(point: str) -> None:
    """Die here, if the environment and chance say so."""
    if _chances and random.random() < _chances.get(point, 0.0):  # noqa: S311 - no secret
        os.kill(os.getpid(), signal.SIGKILL)
