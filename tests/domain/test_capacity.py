"""The capacity model agrees with what the bench has measured.

Covers app.domain.capacity.
"""

import pytest

from app.domain.capacity import POSTGRES, WORKER, Work, needs_of

# Readings of docs/performance.md: fires a second, CPU seconds of worker and Postgres and kB of WAL for 1,000 fires.
READINGS = [
    (Work.NOOP, 100, 1.426, 1.277, 1493),
    (Work.NOOP, 1000, 0.428, 0.403, 1419),
    (Work.NOOP, 3000, 0.216, 0.172, 1405),
    (Work.HTTP, 100, 1.987, 2.169, 2564),
    (Work.HTTP, 1000, 0.556, 0.529, 2461),
    (Work.HTTP, 2000, 0.373, 0.246, 2461),
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
    """A reading of its own: 2,000 no-ops a second by two workers, each with half of them."""
    assert 2 * needs_of(1000, Work.NOOP).worker_cores == pytest.approx(0.339 * 2, rel=MOST_WRONG)


def test_a_worker_is_not_planned_full() -> None:
    """One process for little, more before a core is used up; nothing fires for nothing but what rests."""
    assert 1 == needs_of(1, Work.HTTP).workers
    assert 2 == needs_of(4000, Work.HTTP).workers
    assert (WORKER[Work.HTTP].idle, POSTGRES[Work.HTTP].idle) == (
        needs_of(0, Work.HTTP).worker_cores,
        needs_of(0, Work.HTTP).postgres_cores,
    )
