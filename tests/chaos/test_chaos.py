"""A minute of chaos within the suite: short leases, real processes, every slot accounted for."""

from tests.chaos.run import chaos

SECONDS = 20
SEED = 7


async def test_nothing_is_lost_and_nothing_happens_twice() -> None:
    """Whatever breaks. The longer version is ``make chaos``."""
    outcome = await chaos(SECONDS, SEED, clients=4, herd=300, calm=12)
    assert outcome.ok, "\n".join(outcome.lines())
    assert len({fault.name for fault in outcome.evidence.faults}) > 5
