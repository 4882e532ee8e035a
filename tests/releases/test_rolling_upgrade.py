"""An upgrade and a roll back of a busy deployment, within the suite. Longer: ``make rolling``."""

from tests.releases.release import Release
from tests.releases.rolling import upgrade


async def test_nothing_is_lost_or_done_twice(previous: Release, following: Release) -> None:
    """Two releases on one database and one Redis: a slot has one outcome, a run one call, a request its answer."""
    outcome = await upgrade(previous, following, apis=1, workers=2)
    assert outcome.ok, "\n".join(outcome.lines())
