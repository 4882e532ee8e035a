"""Carillon and BullMQ side by side: what one worker of each keeps up with, in turns, on the same servers and sink."""

from statistics import median
from typing import Any

import msgspec

from tests.bench.fires import Fires, saturation
from tests.bench.peers import bullmq
from tests.bench.stand import Stand
from tests.bench.target import calling, http_sink

# More than BullMQ does here: it is measured by what it does of them.
WANTED = 9000


class Rates(msgspec.Struct):
    """Fires a second, round by round."""

    work: str
    carillon: list[float] = []
    bullmq: list[float] = []

    @property
    def ratios(self) -> list[float]:
        """Carillon's rate by that of BullMQ in the same round."""
        return [ours / theirs for ours, theirs in zip(self.carillon, self.bullmq, strict=False) if theirs]

    def line(self) -> str:
        """For people."""
        if not self.bullmq:
            return f"{self.work}: Carillon {_shown(self.carillon)}; BullMQ was not measured"
        ratios = self.ratios
        return (
            f"{self.work}: Carillon {_shown(self.carillon)}, BullMQ {_shown(self.bullmq)}, "
            f"{median(ratios):.2f} times as many (best {max(ratios):.2f})"
        )


def _shown(rates: list[float]) -> str:
    return f"{max(rates, default=0):,.0f} fires/s at best, {median(rates or [0]):,.0f} in the median"


async def measure_side_by_side(stand: Stand, seconds: float, rounds: int, say: Any) -> list[Rates]:
    """Measure both kinds of work in turns."""
    found = [Rates("no-op"), Rates("HTTP calls")]
    async with http_sink() as url:
        for number in range(rounds):
            for rates, target in zip(found, ("", url), strict=True):
                say(f"side by side: {rates.work}, round {number + 1}")
                start = int(0.8 * rates.carillon[-1]) if rates.carillon else 3000
                node = calling(target) if target else None
                rates.carillon.append(kept_up_with(await saturation(stand, seconds, start=start, node=node)))
                peer = await bullmq(stand, WANTED, seconds, target)
                if isinstance(peer, dict):
                    rates.bullmq.append(peer["rate"])
    return found


def kept_up_with(tried: list[Fires]) -> float:
    """Return the most fires a second of which nothing was passed over."""
    return max((one.per_second for one in tried if one.keeps_up), default=0.0)
