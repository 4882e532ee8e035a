"""``/api/v1/notifications`` and ``/api/v1/webhooks``."""

from litestar import Controller, delete, get, patch, post
from litestar.di import NamedDependency

from app.api.requests import Acting, AnyRequest, Cursor, Id, Limit, Offset, body, listed
from app.services.inputs import NotificationChanges, NotificationInput, WebhookChanges, WebhookInput
from app.services.notifications import NotificationService
from app.services.views import DeliveryList, NotificationList, NotificationView, WebhookPage, WebhookView
from app.services.webhooks import WebhookService

Notifications = NamedDependency[NotificationService]


class NotificationController(Controller):
    """Webhooks on events of schedules and workflows."""

    path = "/notifications"
    tags = ("notifications",)

    @post("/", opt={"body": NotificationInput, "errors": (404, 409)})
    async def create(self, request: AnyRequest, actor: Acting, notification_service: Notifications) -> NotificationView:
        """Be told of events: of a schedule, of a workflow, or of all that is yours."""
        return await notification_service.create(actor, await body(request, NotificationInput))

    @get("/")
    async def list_all(
        self, actor: Acting, notification_service: Notifications, limit: Limit = 500, cursor: Cursor = None
    ) -> NotificationList:
        """List what is asked for, newest first."""
        return await notification_service.list(actor, listed(limit, cursor, counts=False))

    @get("/{notification_id:int}")
    async def read(self, actor: Acting, notification_service: Notifications, notification_id: Id) -> NotificationView:
        """Read one."""
        return await notification_service.get(actor, notification_id)

    @patch("/{notification_id:int}", opt={"body": NotificationChanges, "body_optional": True})
    async def change(
        self, request: AnyRequest, actor: Acting, notification_service: Notifications, notification_id: Id
    ) -> NotificationView:
        """Change some fields."""
        return await notification_service.change(actor, notification_id, await body(request, NotificationChanges))

    @delete("/{notification_id:int}")
    async def remove(self, actor: Acting, notification_service: Notifications, notification_id: Id) -> None:
        """Be told no more."""
        await notification_service.delete(actor, notification_id)

    @get("/{notification_id:int}/deliveries")
    async def deliveries(
        self,
        actor: Acting,
        notification_service: Notifications,
        notification_id: Id,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> DeliveryList:
        """The log of deliveries, newest first."""
        part = listed(limit, cursor, counts=False)
        return await notification_service.deliveries(actor, notification_id, part)


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
