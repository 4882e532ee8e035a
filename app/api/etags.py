"""Entity tags: versions of single objects in responses, and what requests say of the version that they know."""

from typing import Any

import msgspec
from litestar import Request, Response
from litestar.connection import ASGIConnection

from app.domain.etags import matches
from app.services.preconditions import PRECONDITION, Precondition, has_moving_parts, tag_of
from app.services.views import (
    BreakerDetail,
    ExecutionDetail,
    LimitView,
    MemberView,
    NotificationView,
    ScheduleView,
    SecretView,
    SettingsView,
    TeamView,
    UserView,
    WebhookView,
    WorkflowView,
)

ETAG = "ETag"
NOT_MODIFIED = 304
# The views of single objects, each of which has a tag.
TAGGED = (
    *(ScheduleView, WorkflowView, LimitView, WebhookView, NotificationView, SecretView),
    *(UserView, TeamView, MemberView, BreakerDetail, ExecutionDetail, SettingsView),
)


def note_precondition(connection: ASGIConnection[Any, Any, Any, Any]) -> None:
    """Let services know which version of an object the request is about, if it says so."""
    if_match = connection.headers.get("if-match")
    if_absent = connection.headers.get("if-none-match", "").strip() == "*"
    if if_match is not None or if_absent:
        PRECONDITION.set(Precondition(if_match, if_absent))


async def add_etag(response: Response[Any]) -> Response[Any]:
    """Add the tag of a single object to a response."""
    if isinstance(response.content, TAGGED) and ETAG not in response.headers:
        response.headers[ETAG] = tag_of(response.content)
    return response


def unless_known(request: Request[Any, Any, Any], view: Any, tag: str, *, is_stable: bool) -> Response[Any]:
    """Return a view with its tag, or 304 if the client has exactly this answer."""
    known = request.headers.get("if-none-match")
    if known is not None and is_stable and matches(known, tag):
        return Response(None, status_code=NOT_MODIFIED, headers={ETAG: tag})
    return Response(view, headers={ETAG: tag})


def shown(request: Request[Any, Any, Any], view: msgspec.Struct) -> Response[Any]:
    """Return a single object, or 304 if the client has it. An object with moving parts is always sent."""
    return unless_known(request, view, tag_of(view), is_stable=not has_moving_parts(view))
