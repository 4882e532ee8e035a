"""Preconditions of requests: a client names the version of an object that it knows, and a stale one is refused.

A service asks inside the transaction that has locked the object: nothing comes between the check and the change.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import msgspec

from app.domain.errors import PreconditionFailedError
from app.domain.etags import etag_of, matches
from app.domain.schedules import EDITABLE
from app.services.views import LimitView, ScheduleView, WebhookView, edit_of
from app.services.views.leases import FreshLeaseView, LeaseView

# A schedule's tag changes with what people can edit, and with its status, but not with every tick.
_OF_SCHEDULE = (*EDITABLE, "status", "status_reason", "paused_until")
# What changes by itself.
_MOVING: dict[type[msgspec.Struct], set[str]] = {
    LimitView: {"held", "waiting"},
    # What an agent uses of its lease changes without a person.
    LeaseView: {"used", "left", "schedule_ids", "awaiting_review", "status"},
    WebhookView: {"last_execution_at", "last_status", "next_execution_at", "last_error", "updated_at"},
}


class Precondition(msgspec.Struct, frozen=True):
    """What a request says of the object that it is about; None if it says nothing."""

    # The tags of the versions that the client knows: the header ``If-Match``.
    if_match: str | None = None
    # ``If-None-Match: *``: there must be no such object.
    if_absent: bool = False
    # The tags of the answers that the client has, of a GET: the header ``If-None-Match``.
    if_none_match: str | None = None


PRECONDITION: ContextVar[Precondition] = ContextVar("precondition", default=Precondition())  # noqa: B039 - frozen


def tag_of(view: msgspec.Struct) -> str:
    """Return the entity tag of a single object, by its view."""
    values = msgspec.structs.asdict(view)
    if isinstance(view, ScheduleView):
        return tag_of_edit(tag_of_row(values), edit_of(view), view.namespace)
    moving = _MOVING[LeaseView] | {"token"} if isinstance(view, FreshLeaseView) else _MOVING.get(type(view), set())
    return etag_of({name: value for name, value in values.items() if name not in moving})


def has_moving_parts(view: msgspec.Struct) -> bool:
    """Return whether parts of an object change that its tag does not cover."""
    return isinstance(view, ScheduleView) or type(view) in _MOVING


def tag_of_row(fields: Mapping[str, Any]) -> str:
    """Return the tag of what people can edit of a schedule, and of its status, by what is shown of its row."""
    return etag_of({name: fields[name] for name in _OF_SCHEDULE})


def tag_of_edit(row_tag: str, edit: int | None, namespace: str | None) -> str:
    """Return the entity tag of a schedule: of its values, of its last edit, and of the files that declare it.

    After a pause and a resume, or an edit there and back, the values are the same and the next run is another one.
    """
    return etag_of({"values": row_tag, "edit": edit, "namespace": namespace})


def require_match(tag: Callable[[], str]) -> None:
    """Refuse the request if it names other versions than that of the locked object."""
    expected = PRECONDITION.get().if_match
    if expected is not None and not matches(expected, tag()):
        raise PreconditionFailedError


def require_absent() -> None:
    """Refuse the request if it demands that there is no such object."""
    if PRECONDITION.get().if_absent:
        raise PreconditionFailedError("The object exists, and `If-None-Match: *` demands that it does not.")


def require_present() -> None:
    """Refuse a request that would create an object of which it names a version: it has been deleted since."""
    if PRECONDITION.get().if_match is not None:
        raise PreconditionFailedError("The object does not exist, and `If-Match` demands that it does.")
