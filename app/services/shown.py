"""Schedules as they are shown, in bytes: what has not changed since it was last shown is not made again."""

from collections.abc import Sequence
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.persistence import schedules
from app.services.views import ScheduleView, schedule_view

MOST_KEPT = 10_000

_encode = msgspec.json.Encoder().encode


class ShownSchedules:
    """The views of schedules by the versions of their rows. The oldest are forgotten."""

    def __init__(self) -> None:
        """Nothing has been shown yet."""
        self._kept: dict[UUID, tuple[int, msgspec.Raw]] = {}

    async def of(self, connection: AsyncConnection, wanted: Sequence[tuple[UUID, int]]) -> dict[UUID, ScheduleView]:
        """The views of these schedules in these versions, or newer; what is gone meanwhile is missing.

        They are views already encoded, which is all that becomes of them.
        """
        shown: dict[UUID, msgspec.Raw] = {}
        unknown: list[UUID] = []
        for job_id, version in wanted:
            kept = self._kept.get(job_id)
            if kept is None or kept[0] != version:
                unknown.append(job_id)
            else:
                shown[job_id] = kept[1]
        for version, job in await schedules.many(connection, unknown) if unknown else []:
            shown[job.id] = self._keep(job.id, version, msgspec.Raw(_encode(schedule_view(job))))
        return shown  # type: ignore[return-value]  # a view, in bytes

    def _keep(self, job_id: UUID, version: int, view: msgspec.Raw) -> msgspec.Raw:
        self._kept.pop(job_id, None)
        while len(self._kept) >= MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[job_id] = (version, view)
        return view
