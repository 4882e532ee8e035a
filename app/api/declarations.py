"""``/api/v1/apply`` and ``/api/v1/export``: workflows and schedules, calendars and limits as files declare them."""

from typing import Annotated, Any

from litestar import Controller, Response, get, post
from litestar.di import NamedDependency
from litestar.params import JSONBody, QueryParameter

from app.api.requests import Acting, AnyRequest
from app.services.declarations.applying import DeclarationService
from app.services.declarations.exporting import ExportService, as_yaml
from app.services.inputs import ApplyInput, DocumentsInput
from app.services.views import ApplyView, ExportView

YAML, JSON = "application/yaml", "application/json"
NAMESPACE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"


class ApplyController(Controller):
    """Applying documents."""

    path = "/apply"
    tags = ("declarations",)

    @post(
        "/",
        status_code=200,
        opt={"body_schema": ApplyInput, "errors": (409,)},
        summary="Create and change workflows, schedules, calendars and limits as documents declare them, or nothing.",
    )
    async def apply(
        self,
        actor: Acting,
        declaration_service: NamedDependency[DeclarationService],
        data: JSONBody[DocumentsInput],
    ) -> ApplyView:
        return await declaration_service.apply_documents(actor, data)


class ExportController(Controller):
    """Exporting documents."""

    path = "/export"
    tags = ("declarations",)

    @get(
        "/",
        media_type=YAML,
        opt={"errors": (404,), "other_media_types": {JSON: ExportView}},
        summary="Return what documents have declared as YAML, or as JSON if `Accept` asks for it.",
    )
    async def export(
        self,
        request: AnyRequest,
        actor: Acting,
        export_service: NamedDependency[ExportService],
        namespace: Annotated[str | None, QueryParameter(pattern=NAMESPACE_PATTERN)] = None,
    ) -> Response[Any]:
        documents = await export_service.managed_documents(actor, namespace)
        if request.accept.best_match([YAML, JSON], default=YAML) == JSON:
            return Response(ExportView(documents), media_type=JSON)
        return Response(as_yaml(documents), media_type=YAML)
