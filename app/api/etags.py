"""Entity tags: versions of single objects in responses, and what requests say of the version that they know."""

from typing import Any

from litestar import Response
from litestar.connection import ASGIConnection

from app.api.json_answers import JsonAnswer
from app.domain.etags import matches
from app.services.preconditions import PRECONDITION, Precondition, has_moving_parts, tag_of
from app.services.views import (
    BreakerDetail,
    CalendarView,
    ExecutionDetail,
    ExecutionView,
    LimitView,
    MemberView,
    NotificationView,
    OperationView,
    ScheduleView,
    SecretView,
    SettingsView,
    TeamView,
    UserView,
    WebhookView,
    WorkflowView,
)
from app.services.views.leases import FreshLeaseView, LeaseView

ETAG = "ETag"
# The option of a handler that obeys ``If-Match``, beside all that change or delete an object with a tag.
IF_MATCH = "if_match"
NOT_MODIFIED = 304
# The views of single objects, each of which has a tag.
TAGGED = (
    *(ScheduleView, WorkflowView, LimitView, WebhookView, NotificationView, SecretView, CalendarView),
    *(UserView, TeamView, MemberView, BreakerDetail, ExecutionView, ExecutionDetail, OperationView, SettingsView),
    *(LeaseView, FreshLeaseView),
)


def note_precondition(connection: ASGIConnection[Any, Any, Any, Any]) -> None:
    """Let services know which version of an object the request is about, if it says so."""
    if_match, if_none_match = connection.headers.get("if-match"), connection.headers.get("if-none-match")
    if if_match is not None or if_none_match is not None:
        known = if_none_match if connection.scope.get("method") == "GET" else None
        PRECONDITION.set(Precondition(if_match, (if_none_match or "").strip() == "*", known))


async def add_etag(response: Response[Any]) -> Response[Any]:
    """Add the tag of a single object to a response, or return 304 if the client has exactly this answer.

    An object with moving parts is always sent: its tag does not tell whether they have moved.
    """
    view = response.content
    if not isinstance(view, TAGGED) or ETAG in response.headers:
        return response
    tag = tag_of(view)
    if not has_moving_parts(view) and _is_known(tag):
        return _not_modified(tag)
    response.headers[ETAG] = tag
    return response


def unless_known(view: Any, tag: str, *, is_stable: bool) -> Response[Any]:
    """Return a view with its tag, or 304 if the client has exactly this answer."""
    return _not_modified(tag) if is_stable and _is_known(tag) else JsonAnswer(view, headers={ETAG: tag})


def _is_known(tag: str) -> bool:
    known = PRECONDITION.get().if_none_match
    return known is not None and matches(known, tag)


def _not_modified(tag: str) -> Response[Any]:
    return Response(None, status_code=NOT_MODIFIED, headers={ETAG: tag})
