"""The capacity model agrees with what the bench has measured.

Covers app.domain.capacity.
"""

import pytest

from app.domain.capacity import POSTGRES, WORKER, Work, needs_of

# Readings of docs/performance.md: fires a second, CPU seconds of worker and Postgres and kB of WAL for 1,000 fires.
READINGS = [
    (Work.NOOP, 100, 0.786, 1.047, 2501),
    (Work.NOOP, 1000, 0.222, 0.252, 2397),
    (Work.NOOP, 3000, 0.124, 0.119, 2376),
    (Work.HTTP, 100, 1.158, 1.158, 2571),
    (Work.HTTP, 1000, 0.324, 0.249, 2511),
    (Work.HTTP, 3000, 0.220, 0.120, 2494),
]
MOST_WRONG = 0.15


@pytest.mark.parametrize(("work", "rate", "worker", "postgres", "wal"), READINGS)
def test_the_model_is_near_the_readings(work: Work, rate: int, worker: float, postgres: float, wal: float) -> None:
    """Within 15 %, at an ordinary rate, a high one and a very high one."""
    needs = needs_of(rate, work)
    assert needs.worker_cores == pytest.approx(worker * rate / 1000, rel=MOST_WRONG)
    assert needs.postgres_cores == pytest.approx(postgres * rate / 1000, rel=MOST_WRONG)
    assert needs.wal_bytes_per_second == pytest.approx(wal * rate, rel=MOST_WRONG)


def test_two_workers_share_a_rate() -> None:
    """A reading that nothing was fitted to: 6,000 no-ops a second by two workers, each with half of them."""
    assert 2 * needs_of(3000, Work.NOOP).worker_cores == pytest.approx(0.122 * 6, rel=MOST_WRONG)


def test_a_worker_is_not_planned_full() -> None:
    """One process for little, more before a core is used up; nothing fires for nothing but what rests."""
    assert 1 == needs_of(1, Work.HTTP).workers
    assert 2 == needs_of(4000, Work.HTTP).workers
    assert (WORKER[Work.HTTP].idle, POSTGRES.idle) == (
        needs_of(0, Work.HTTP).worker_cores,
        needs_of(0, Work.HTTP).postgres_cores,
    )
