"""Stores that fail over during an upgrade, with real servers and real processes, within the suite."""

from tests.chaos.failover import fail_over
from tests.releases.release import Release


async def test_nothing_is_lost_when_both_stores_fail_over(following: Release) -> None:
    """With synchronous commit. The longer version is a part of ``make chaos`` and ``make rolling``."""
    report = await fail_over(following)
    assert report.ok, "\n".join(report.lines())
    assert report.counts.fired
