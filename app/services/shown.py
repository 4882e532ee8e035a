"""Schedules as they are shown, in bytes: what has not changed since it was last shown is not made again."""

from collections.abc import Sequence
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cache import BoundedCache
from app.persistence import schedules
from app.services.views import listed_view, schedule_view

MOST_KEPT = 10_000
MOST_KEPT_BYTES = 32 * 1024 * 1024

_encode = msgspec.json.Encoder().encode


class ShownSchedules:
    """The views of schedules by the versions of their rows, with and without their payloads."""

    def __init__(self) -> None:
        """Nothing has been shown yet."""
        self._kept: BoundedCache[tuple[UUID, bool], tuple[int, msgspec.Raw]] = BoundedCache(MOST_KEPT, MOST_KEPT_BYTES)

    def clear(self) -> None:
        """Forget everything: the versions of rows mean something else now."""
        self._kept.clear()

    async def of(
        self, connection: AsyncConnection, wanted: Sequence[tuple[UUID, int]], *, whole: bool
    ) -> dict[UUID, msgspec.Raw]:
        """The encoded views of these schedules in these versions, or newer; what is gone meanwhile is missing.

        Without their payloads, unless they are wanted ``whole``.
        """
        shown: dict[UUID, msgspec.Raw] = {}
        unknown: list[UUID] = []
        for job_id, version in wanted:
            kept = self._kept.get((job_id, whole))
            if kept is None or kept[0] != version:
                unknown.append(job_id)
            else:
                shown[job_id] = kept[1]
        for version, job in await schedules.many(connection, unknown, whole=whole) if unknown else []:
            view = _encode(schedule_view(job) if whole else listed_view(job))
            shown[job.id] = msgspec.Raw(view)
            self._kept.keep((job.id, whole), (version, shown[job.id]), len(view))
        return shown
