"""What lasts is said at once, then every few seconds, and when it is over."""

import pytest
import structlog
from structlog.testing import capture_logs

from app import clock
from app.observability.logs import LOG_AGAIN_SECONDS, LogThrottle, Outage


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds on the clock, to be changed."""
    seconds = [100.0]
    monkeypatch.setattr(clock, "monotonic", lambda: seconds[0])
    return seconds


def test_an_outage_is_said_now_and_then_however_many_suffer(later: list[float]) -> None:
    """It is over when all who missed it have it again."""
    outage = Outage(structlog.get_logger(), away="thing_away", back="thing_back")
    with capture_logs() as said:
        for _ in range(int(LOG_AGAIN_SECONDS) + 1):
            outage.report("one", "gone")
            outage.report("other", "gone")
            later[0] += 1
        outage.clear("one")
        outage.clear("one")
        outage.clear("a third")
        assert ["thing_away", "thing_away"] == [line["event"] for line in said]
        outage.clear("other")
    assert [0, LOG_AGAIN_SECONDS] == [line["seconds"] for line in said[:2]]
    assert ("thing_back", LOG_AGAIN_SECONDS + 1) == (said[2]["event"], said[2]["seconds"])


def test_what_comes_and_goes_is_not_said_more_often(later: list[float]) -> None:
    """Within a few seconds once, with its end."""
    outage = Outage(structlog.get_logger(), away="thing_away", back="thing_back")
    with capture_logs() as said:
        for _ in range(4):
            outage.report("one", "gone")
            outage.clear("one")
            later[0] += 1
    assert ["thing_away", "thing_back"] == [line["event"] for line in said]


def test_each_kind_has_turns_of_its_own(later: list[float]) -> None:
    """The first time at once."""
    seldom = LogThrottle()
    assert [True, True, False] == [seldom.should_log("a"), seldom.should_log("b"), seldom.should_log("a")]
    later[0] += LOG_AGAIN_SECONDS
    assert [True, False] == [seldom.should_log("b"), seldom.should_log("b")]
