"""What a worker remembers of Postgres; whether it is still true is seen when something is written."""

from datetime import datetime, timedelta
from uuid import UUID

from app import clock
from app.domain.schedules import ScheduledJob

MOST_REMEMBERED = 20_000
# The database's clock is asked again after so long.
HEARD_SECONDS = 1.0


class Memory:
    """Schedules as they were last written here, each with the version of its row, and what the database's clock shows.

    The oldest are forgotten.
    """

    def __init__(self) -> None:
        """Nothing is remembered yet."""
        self._jobs: dict[UUID, tuple[int, ScheduledJob]] = {}
        self._heard: tuple[datetime, float] | None = None

    def recall(self, job_id: UUID) -> tuple[int, ScheduledJob] | None:
        """The schedule in the version that is remembered."""
        return self._jobs.get(job_id)

    def keep(self, job: ScheduledJob, version: int) -> None:
        """Remember a schedule in this version."""
        self._jobs.pop(job.id, None)
        while len(self._jobs) >= MOST_REMEMBERED:
            del self._jobs[next(iter(self._jobs))]
        self._jobs[job.id] = (version, job)

    def hear(self, moment: datetime) -> None:
        """The database has just shown this time."""
        self._heard = (moment, clock.monotonic())

    def now(self) -> datetime | None:
        """What the database's clock shows at least; None if that was not heard for long."""
        if self._heard is None:
            return None
        moment, at = self._heard
        passed = clock.monotonic() - at
        return moment + timedelta(seconds=passed) if passed < HEARD_SECONDS else None
