"""What a worker remembers of Postgres; whether it is still true is seen when something is written."""

from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from app import clock
from app.cache import BoundedCache
from app.domain.schedules import ScheduledJob

MOST_REMEMBERED = 20_000
# Of payloads, as JSON, and of the long texts; as values they take several times as much.
MOST_BYTES = 16 * 1024 * 1024
# The database's clock is asked again after so long.
HEARD_SECONDS = 1.0

_encode = msgspec.json.Encoder().encode


class Memory:
    """Schedules as they were last written here, each with the version of its row, and what the database's clock shows.

    The oldest are forgotten.
    """

    def __init__(self) -> None:
        """Nothing is remembered yet."""
        self._jobs: BoundedCache[UUID, tuple[int, ScheduledJob, int]] = BoundedCache(MOST_REMEMBERED, MOST_BYTES)
        self._heard: tuple[datetime, float] | None = None
        # How often all of it was forgotten: a version from before says nothing any more.
        self.epoch = 0

    def recall(self, job_id: UUID) -> tuple[int, ScheduledJob] | None:
        """The schedule in the version that is remembered."""
        found = self._jobs.get(job_id)
        return None if found is None else found[:2]

    def keep(self, job: ScheduledJob, version: int) -> None:
        """Remember a schedule in this version."""
        payload_bytes = self._payload_bytes(job)
        weight = payload_bytes + len(job.description) + len(job.last_error)
        self._jobs.keep(job.id, (version, job, payload_bytes), weight)

    def clear(self) -> None:
        """Forget everything: the versions of rows mean something else now."""
        self._jobs.clear()
        self._heard = None
        self.epoch += 1

    def _payload_bytes(self, job: ScheduledJob) -> int:
        """The size of the payload; a tick leaves it as it is, so that it is measured once."""
        if not job.trigger_payload:
            return 0
        known = self._jobs.get(job.id)
        if known is not None and known[1].trigger_payload is job.trigger_payload:
            return known[2]
        return len(_encode(job.trigger_payload))

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
