"""``/api/v1/audit``: who did what."""

from typing import Annotated

from litestar import Controller, get
from litestar.di import NamedDependency
from litestar.params import QueryParameter

from app.api.requests import Acting, Cursor, Limit, Since, TextFilter, Until, listed
from app.domain.audit import AuditAction, ObjectType, Via
from app.persistence.audit import EventFilter
from app.services.audit import AuditService
from app.services.inputs import Span
from app.services.validation import checked
from app.services.views import AuditList


class AuditController(Controller):
    """The audit log."""

    path = "/audit"
    tags = ("audit",)

    @get(
        "/",
        summary="List events of the audit log, newest first. Members see what they did and what concerns them.",
    )
    async def list_all(  # noqa: PLR0913 - the filters
        self,
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
    ) -> AuditList:
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
        return await audit_service.list(actor, wanted, listed(limit, cursor, counts=False))
