"""Views of forecasts."""

from typing import Any
from uuid import UUID

import msgspec

from app.services.inputs import Instant


class BucketView(msgspec.Struct):
    """A stretch of time: how much fires in it, and how long that will be busy."""

    at: Instant
    fires: int
    busy_seconds: float


class ForecastGroupView(msgspec.Struct, kw_only=True):
    """The part of a schedule, a workflow, an owner or a host."""

    key: int | str | None
    name: str
    fires: int
    busy_seconds: float
    buckets: list[int]


class PeakView(msgspec.Struct):
    """The bucket with the most fires."""

    at: Instant
    fires: int


class QuietView(msgspec.Struct, rename={"first": "from", "last": "to"}):
    """A span in which little fires."""

    first: Instant
    last: Instant


class ClosedView(msgspec.Struct, rename={"since": "from", "until": "to"}):
    """A span in which a calendar leaves slots out."""

    since: Instant
    until: Instant
    calendar: str
    entry: str


class ForecastView(msgspec.Struct, kw_only=True):
    """The load to come."""

    buckets: list[BucketView]
    groups: list[ForecastGroupView]
    peak: PeakView
    quiet: list[QuietView]
    closed: list[ClosedView]
    is_estimate: bool


class SpreadChangeView(msgspec.Struct, kw_only=True):
    """A change of a schedule that is proposed."""

    id: UUID
    name: str
    set: dict[str, Any]


class SpreadView(msgspec.Struct, kw_only=True):
    """How changes would flatten the peak of the next day."""

    before: PeakView
    after: PeakView
    changes: list[SpreadChangeView]
    is_estimate: bool
