"""``/api/v1/webhooks``."""

from litestar import Controller, delete, get, patch, post
from litestar.di import NamedDependency

from app.api.parameters import Cursor, Id, Limit, Offset, listed
from app.api.requests import Acting, AnyRequest, body
from app.services.inputs import WebhookChanges, WebhookInput
from app.services.views import WebhookPage, WebhookView
from app.services.webhooks import WebhookService

Webhooks = NamedDependency[WebhookService]


class WebhookController(Controller):
    """Addresses that are called at times of their own."""

    path = "/webhooks"
    tags = ("webhooks",)

    @post("/", opt={"body": WebhookInput, "errors": (409,)})
    async def create(self, request: AnyRequest, actor: Acting, webhook_service: Webhooks) -> WebhookView:
        """Have an address called, by a cron expression or every so many minutes."""
        return await webhook_service.create(actor, await body(request, WebhookInput))

    @get("/")
    async def list_all(
        self, actor: Acting, webhook_service: Webhooks, limit: Limit = 50, offset: Offset = 0, cursor: Cursor = None
    ) -> WebhookPage:
        """List webhooks, newest first."""
        return await webhook_service.list(actor, listed(limit, cursor, offset))

    @get("/{webhook_id:int}")
    async def read(self, actor: Acting, webhook_service: Webhooks, webhook_id: Id) -> WebhookView:
        """Read one. Its runs are among the executions, by entity_type and entity_id."""
        return await webhook_service.get(actor, webhook_id)

    @patch("/{webhook_id:int}", opt={"body": WebhookChanges, "body_optional": True})
    async def change(
        self, request: AnyRequest, actor: Acting, webhook_service: Webhooks, webhook_id: Id
    ) -> WebhookView:
        """Change some fields; changed times are counted from now."""
        return await webhook_service.change(actor, webhook_id, await body(request, WebhookChanges))

    @delete("/{webhook_id:int}")
    async def remove(self, actor: Acting, webhook_service: Webhooks, webhook_id: Id) -> None:
        """Delete one, with its history."""
        await webhook_service.delete(actor, webhook_id)
