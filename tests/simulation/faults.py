"""What goes wrong, when: by chance from a seed, or at one chosen point."""

from enum import StrEnum
from random import Random
from typing import ClassVar


class Fault(StrEnum):
    """What may happen to a process at a point where it waits for something."""

    # As by kill -9: the process is gone, what it had not committed is undone, nothing is cleaned up.
    KILL = "kill"
    # The store cannot be reached. Where the point lies after the deed: it was done, and the answer got lost.
    AWAY = "away"
    # It takes so long that others overtake it.
    SLOW = "slow"
    # Somebody else holds the row that a claim is about.
    HELD = "held"


class Calm:
    """Nothing goes wrong."""

    def at(self, _number: int, _where: str) -> Fault | None:
        """What happens at this point."""
        return None


class Storm:
    """Each point has its chance."""

    WEIGHTS: ClassVar = {Fault.KILL: 0.25, Fault.AWAY: 0.4, Fault.SLOW: 0.25, Fault.HELD: 0.1}

    def __init__(self, random: Random, chance: float) -> None:
        self._random = random
        self._chance = chance

    def at(self, _number: int, _where: str) -> Fault | None:
        """What happens at this point."""
        if self._random.random() >= self._chance:
            return None
        return self._random.choices([*self.WEIGHTS], [*self.WEIGHTS.values()])[0]


class OneFault:
    """Exactly one thing goes wrong, at the point of this number; all points are noted."""

    def __init__(self, number: int = 0, fault: Fault = Fault.KILL) -> None:
        self._number = number
        self._fault = fault
        self.points: list[str] = []

    def at(self, number: int, where: str) -> Fault | None:
        """What happens at this point."""
        self.points.append(where)
        return self._fault if number == self._number else None


Faults = Calm | Storm | OneFault
