"""Backoff: exponential, capped."""

import pytest

from app.domain.backoff import DEFAULT_BACKOFF, DELIVERY_BACKOFF, schedule_backoff
from tests.support.domain_builders import schedule


@pytest.mark.parametrize(
    ("interval", "base", "expected"),
    [
        (300, None, [300, 600, 1200, 2400, 3000, 3000]),
        (60, None, [60, 120, 240, 480, 600, 600]),
        (300, 5, [5, 10, 20, 40, 80, 160]),
        (1, 50_000, [50_000, 86_400, 86_400, 86_400, 86_400, 86_400]),
    ],
)
def test_delays_double_up_to_the_cap(interval: int, base: int | None, expected: list[int]) -> None:
    """10 intervals cap where the interval is the base, a day where it is not."""
    job = schedule(interval_seconds=interval, backoff_base_seconds=base)
    assert expected == [schedule_backoff(job).delay(retry).total_seconds() for retry in range(1, 7)]


def test_a_great_number_of_retries_stays_at_the_cap() -> None:
    """However many retries are allowed, the numbers stay small."""
    assert 3000 == schedule_backoff(schedule()).delay(2**31 - 1).total_seconds()


def test_entities_and_deliveries_have_backoffs_of_their_own() -> None:
    """A minute for entities, five seconds for deliveries, both doubled up to a cap."""
    assert [60, 120, 240] == [DEFAULT_BACKOFF.delay(retry).total_seconds() for retry in (1, 2, 3)]
    assert [5, 10, 3600] == [DELIVERY_BACKOFF.delay(retry).total_seconds() for retry in (1, 2, 12)]
