"""The hostile clients of ``make attack``, shorter, all at once, and without a bound on speed."""

import asyncio

from tests.attack.measuring import measured
from tests.attack.members import SCENARIOS
from tests.attack.scenarios import SHORT, Scale, Told
from tests.attack.target import Target


async def all_at_once(target: Target, scale: Scale) -> Told:
    """Every scenario beside the others."""
    told = await asyncio.gather(*(attack(target, scale) for attack in SCENARIOS.values()))
    broken = [f"{name}: {words}" for name, one in zip(SCENARIOS, told, strict=True) for words in one.broken]
    return Told("everything", broken)


async def test_hostile_clients_cost_little_and_break_nothing() -> None:
    """They are refused and cut off; the processes live, within their memory; good clients see no error."""
    async with Target() as target:
        row = await measured("all at once", all_at_once, target, SHORT)
    assert [] == row.broken
