"""``/api/v1/audit``: who did what."""

from typing import Annotated, Any

from litestar import Controller, Response, get
from litestar.di import NamedDependency
from litestar.params import QueryParameter
from litestar.response import Stream
from msgspec.structs import replace

from app import clock
from app.api.requests import Acting, AnyRequest, Cursor, Limit, Since, TextFilter, Until, listed
from app.domain.access import Actor
from app.domain.audit import AuditAction, ObjectType, Via
from app.domain.errors import FieldError, InvalidError
from app.persistence.audit import EventFilter
from app.services.audit import AuditService
from app.services.inputs import Span
from app.services.validation import checked
from app.services.views import AuditList

JSON_LINES = "application/x-ndjson"


class AuditController(Controller):
    """The audit log."""

    path = "/audit"
    tags = ("audit",)

    @get(
        "/",
        opt={"other_media_types": {JSON_LINES: str}},
        summary="List events of the audit log, newest first. Members see what they did and what concerns them. "
        f"With `Accept: {JSON_LINES}` all events since `from`, one a line.",
    )
    async def list_all(  # noqa: PLR0913 - the filters
        self,
        request: AnyRequest,
        actor: Acting,
        audit_service: NamedDependency[AuditService],
        by: Annotated[str | None, QueryParameter(name="actor", max_length=255, pattern=r"^[^\x00]*$")] = None,
        via: Annotated[Via | None, QueryParameter()] = None,
        object_type: Annotated[ObjectType | None, QueryParameter()] = None,
        object_id: TextFilter = None,
        action: Annotated[AuditAction | None, QueryParameter()] = None,
        since: Since = None,
        until: Until = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> Response[AuditList]:
        span = checked({"from": since, "to": until}, Span)
        wanted = EventFilter(
            actor=by,
            via=via,
            object_type=object_type,
            object_id=object_id,
            action=action,
            since=span.since,
            until=span.until,
        )
        if JSON_LINES in request.headers.get("accept", ""):
            return _exported(actor, audit_service, wanted)
        return Response(await audit_service.list(actor, wanted, listed(limit, cursor, counts=False)))


def _exported(actor: Actor, audit_service: AuditService, wanted: EventFilter) -> Response[Any]:
    """Return all events of a span of time as a stream of lines. What happens meanwhile is left out."""
    if wanted.since is None:
        raise InvalidError(FieldError("from", f"An export as {JSON_LINES} needs `from`, the time of the first event."))
    bounded = replace(wanted, until=wanted.until or clock.now())
    return Stream(audit_service.export(actor, bounded), media_type=JSON_LINES)
