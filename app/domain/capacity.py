"""The capacity model: what a rate of fires costs in cores, WAL and disk, by figures that the bench has measured."""

from enum import StrEnum
from math import ceil

import msgspec

SECONDS_PER_DAY = 86_400
# A core is not planned full: ticks would be late at every peak.
LARGEST_SHARE = 0.7


class Work(StrEnum):
    """What runs do."""

    NOOP = "noop"
    HTTP = "http"


class Cost(msgspec.Struct, frozen=True):
    """The CPU of a process: at rest, for each batch of fires, and for each fire of a batch.

    Fires that come at the same moment share a batch, so that few of them cost more each than many.
    """

    # Cores.
    idle: float
    # CPU seconds.
    batch: float
    fire: float
    # Beyond this rate batches grow instead of becoming more.
    most_batches_per_second: float

    def cores(self, fires_per_second: float) -> float:
        """Return the cores that a rate needs."""
        batches = min(fires_per_second, self.most_batches_per_second)
        return self.idle + batches * self.batch + fires_per_second * self.fire


# Fitted to the bench on two cores, with everything on one machine; `tests/domain/test_capacity.py` has the readings. On
# a machine that is full, batches are larger than here and fires cost less: the model says what keeps ticks on time.
WORKER = {
    Work.NOOP: Cost(idle=0.011, batch=0.00121, fire=0.000110, most_batches_per_second=216),
    Work.HTTP: Cost(idle=0.011, batch=0.00170, fire=0.000188, most_batches_per_second=210),
}
POSTGRES = {
    Work.NOOP: Cost(idle=0.008, batch=0.00114, fire=0.000056, most_batches_per_second=297),
    Work.HTTP: Cost(idle=0.008, batch=0.00206, fire=0.000030, most_batches_per_second=224),
}
WAL_BYTES_PER_FIRE = {Work.NOOP: 1430, Work.HTTP: 2480}
# A row of the history with its index entries; answers of targets come on top.
HISTORY_BYTES_PER_FIRE = 930


class Needs(msgspec.Struct, frozen=True):
    """What a rate of fires needs."""

    fires_per_second: float
    worker_cores: float
    # Processes: one uses one core.
    workers: int
    postgres_cores: float
    wal_bytes_per_second: float
    history_bytes_per_day: float


def needs_of(fires_per_second: float, work: Work) -> Needs:
    """Return what a rate of fires needs, spread evenly over each second."""
    worker_cores = WORKER[work].cores(fires_per_second)
    return Needs(
        fires_per_second=fires_per_second,
        worker_cores=worker_cores,
        workers=max(1, ceil(worker_cores / LARGEST_SHARE)),
        postgres_cores=POSTGRES[work].cores(fires_per_second),
        wal_bytes_per_second=fires_per_second * WAL_BYTES_PER_FIRE[work],
        history_bytes_per_day=fires_per_second * SECONDS_PER_DAY * HISTORY_BYTES_PER_FIRE,
    )
