"""Views of schedules: encoded and cached by the versions of their rows, or of schedules that were just changed."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast
from uuid import UUID

import msgspec

from app import clock
from app.cache import RowCache
from app.domain.health import HealthFacts, health_facts
from app.domain.schedules import ScheduledJob
from app.persistence import schedules
from app.persistence.database import Connection
from app.services.listing import Encoded
from app.services.preconditions import tag_of_row
from app.services.views import ScheduleView, Surroundings, row_fields, schedule_view

# Of each cache of views.
MOST_VIEWS = 5_000
MOST_VIEW_BYTES = 16 * 1024 * 1024

_encode = msgspec.json.Encoder().encode


async def views_of(connection: Connection, jobs: Sequence[ScheduledJob]) -> list[ScheduleView]:
    """Return the views of schedules in the transaction that has changed them."""
    around = await schedules.surroundings(connection, [job.id for job in jobs])
    now = clock.now()
    nothing = ("", None)
    return [schedule_view(job, Surroundings(*around.get(job.id, nothing)), now) for job in jobs]


class CachedView(msgspec.Struct, frozen=True):
    """What is shown of a schedule's row, encoded, without the closing brace; and what its health depends on."""

    text: bytes
    facts: HealthFacts
    # Of the row's values, and only of whole views.
    tag: str = ""

    def whole(self, around: Surroundings, now: datetime) -> Encoded[Any]:
        """Return the view of the schedule at a moment."""
        rest = _encode(
            {"health": self.facts.at(now), "workflow_name": around.workflow_name, "namespace": around.namespace}
        )
        return cast("Encoded[Any]", msgspec.Raw(b"%b,%b" % (self.text, rest[1:])))


class ViewCache:
    """The encoded views of schedules by the versions of their rows."""

    def __init__(self, *, whole: bool) -> None:
        """Start empty; payloads are read only if the views shall be ``whole``."""
        self._whole = whole
        self._views: RowCache[UUID, CachedView] = RowCache(MOST_VIEWS, MOST_VIEW_BYTES)

    def clear(self) -> None:
        """Remove all entries: the server has changed, so versions stand for other contents."""
        self._views.clear()

    async def read(self, connection: Connection, versions: Sequence[tuple[UUID, int]]) -> dict[UUID, CachedView]:
        """Return the views of these schedules in these versions, or newer; deleted ones are left out."""
        cached = {job_id: self._views.at_version(job_id, version) for job_id, version in versions}
        views = {job_id: view for job_id, view in cached.items() if view is not None}
        missing = [job_id for job_id, view in cached.items() if view is None]
        for version, job in await schedules.many(connection, missing, whole=self._whole) if missing else []:
            fields = row_fields(job, whole=self._whole)
            tag = tag_of_row(fields) if self._whole else ""
            view = CachedView(_encode(fields)[:-1], health_facts(job), tag)
            views[job.id] = view
            self._views.keep(job.id, version, view, len(view.text))
        return views
