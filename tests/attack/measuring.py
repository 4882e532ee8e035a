"""Runs scenarios and makes a row of each: what was sent, what good clients saw, what it cost, and the verdict."""

import asyncio
from typing import Any

import msgspec

from tests.attack.good_clients import Fared, good_clients
from tests.attack.scenarios import Scale, Scenario
from tests.attack.target import Target, is_alive, peak_megabytes

# By how much the API and the worker may grow during one scenario.
GROWTH_MEGABYTES = 100.0
P99_MS = 100.0


class Row(msgspec.Struct):
    """One line of the table."""

    name: str
    sent: str
    good: Fared
    api_megabytes: float
    worker_megabytes: float
    # Promises that hold on every machine; and that of speed, which a busy machine breaks by itself.
    broken: list[str]
    too_slow: bool

    @property
    def verdict(self) -> str:
        """In a few words."""
        return "; ".join([*self.broken, *(["good clients waited too long"] if self.too_slow else [])]) or "ok"


async def measured(name: str, attack: Scenario, target: Target, scale: Scale) -> Row:
    """Run one scenario beside good clients."""
    errors = len(target.errors())
    before = {"API": target.api.megabytes(), "worker": target.worker.megabytes()}
    over = asyncio.Event()
    peaks = [asyncio.create_task(peak_megabytes(process, over)) for process in (target.api, target.worker)]
    async with good_clients(target.port) as clients:
        told = await attack(target, scale)
    over.set()
    after = dict(zip(before, await asyncio.gather(*peaks), strict=True))
    said = target.errors()[errors:]
    broken = [*told.broken, *_broken(target, before, after, clients.fared)]
    broken += [f"{len(said)} errors in the log, the first: {said[0][:300]}"] if said else []
    return Row(name, told.sent, clients.fared, after["API"], after["worker"], broken, clients.fared.p99_ms > P99_MS)


def _broken(target: Target, before: dict[str, float], after: dict[str, float], fared: Fared) -> list[str]:
    found = [
        f"the {name} grew by {after[name] - before[name]:.0f} MB"
        for name in before
        if after[name] - before[name] > GROWTH_MEGABYTES
    ]
    found += [f"the {name} died" for name, process in _processes(target).items() if not is_alive(process)]
    if fared.errors or not fared.requests:
        found.append(f"good clients: {fared.errors} errors in {fared.requests} requests")
    return found


def _processes(target: Target) -> dict[str, Any]:
    return {"API": target.api, "worker": target.worker}
