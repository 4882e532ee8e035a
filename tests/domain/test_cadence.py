"""Slots: anchored, even, never drifting."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from app.domain.cadence import Cadence
from tests.domain.builders import T0, after


def test_the_slots_after_a_moment_are_the_anchor_plus_multiples_of_the_interval() -> None:
    """The sequence from any moment on is the same as from the beginning."""
    cadence = Cadence(anchor=T0, interval=timedelta(seconds=300))
    slots = [T0]
    while len(slots) < 5:
        following = cadence.first_after(slots[-1])
        assert following is not None
        slots.append(following)
    assert [after(0), after(300), after(600), after(900), after(1200)] == slots


def test_before_the_anchor_the_anchor_is_next() -> None:
    """Nothing is due before the first slot."""
    cadence = Cadence(anchor=T0, interval=timedelta(seconds=300))
    assert T0 == cadence.first_after(after(-1))
    assert cadence.latest_at(after(-1)) is None


def test_the_end_is_included_and_nothing_comes_after_it() -> None:
    """A slot at end_at counts, the one after it does not exist."""
    cadence = Cadence(anchor=T0, interval=timedelta(seconds=300), end_at=after(600))
    assert after(600) == cadence.first_after(after(300))
    assert cadence.first_after(after(600)) is None
    assert after(600) == cadence.latest_at(after(10_000))


@given(
    interval=st.integers(1, 100_000),
    offset=st.integers(0, 10**12),
)
def test_first_after_and_latest_at_agree(interval: int, offset: int) -> None:
    """They are neighbours: no slot lies between the last one and the next one."""
    cadence = Cadence(anchor=T0, interval=timedelta(seconds=interval))
    moment = T0 + timedelta(microseconds=offset)
    latest, following = cadence.latest_at(moment), cadence.first_after(moment)
    assert latest is not None
    assert following is not None
    assert latest <= moment < following
    assert cadence.interval == following - latest
    assert timedelta(0) == (latest - T0) % cadence.interval
    assert cadence.count(T0, latest) == (latest - T0) // cadence.interval + 1
