"""Stores that fail over, with real servers and real processes, within the suite."""

from tests.chaos.failover import fail_over


async def test_nothing_is_lost_when_both_stores_fail_over() -> None:
    """With synchronous commit. The longer version is a part of ``make chaos``."""
    report = await fail_over()
    assert report.ok, "\n".join(report.lines())
    assert report.counts.fired
