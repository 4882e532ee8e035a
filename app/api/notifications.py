"""``/api/v1/notifications`` and ``/api/v1/webhooks``."""

from litestar import Controller, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from app.api.requests import Acting, Cursor, Id, Limit, Offset, OptionalBody, TeamFilter, listed
from app.services.inputs import NotificationChanges, NotificationInput, WebhookChanges, WebhookInput
from app.services.notifications import NotificationService
from app.services.views import DeliveryList, NotificationList, NotificationView, WebhookPage, WebhookView
from app.services.webhooks import WebhookService

Notifications = NamedDependency[NotificationService]


class NotificationController(Controller):
    """Notifications about events of schedules and workflows."""

    path = "/notifications"
    tags = ("notifications",)

    @post(
        "/",
        opt={"errors": (404, 409)},
        summary="Subscribe a URL to the events of a schedule, of a workflow, or of everything you own.",
    )
    async def create(
        self, actor: Acting, notification_service: Notifications, data: JSONBody[NotificationInput]
    ) -> NotificationView:
        return await notification_service.create(actor, data)

    @get("/", summary="List notifications, newest first.")
    async def list_all(
        self,
        actor: Acting,
        notification_service: Notifications,
        team_id: TeamFilter = None,
        limit: Limit = 500,
        cursor: Cursor = None,
    ) -> NotificationList:
        return await notification_service.list(actor, listed(limit, cursor, counts=False), team_id)

    @get("/{notification_id:int}", summary="Return one notification.")
    async def read(self, actor: Acting, notification_service: Notifications, notification_id: Id) -> NotificationView:
        return await notification_service.get(actor, notification_id)

    @patch(
        "/{notification_id:int}",
        summary="Change some fields of a notification.",
    )
    async def change(
        self,
        actor: Acting,
        notification_service: Notifications,
        notification_id: Id,
        data: OptionalBody[NotificationChanges],
    ) -> NotificationView:
        return await notification_service.change(actor, notification_id, data)

    @delete("/{notification_id:int}", summary="Delete a notification. Its events are no longer sent.")
    async def remove(self, actor: Acting, notification_service: Notifications, notification_id: Id) -> None:
        await notification_service.delete(actor, notification_id)

    @get("/{notification_id:int}/deliveries", summary="List the deliveries of a notification, newest first.")
    async def deliveries(
        self,
        actor: Acting,
        notification_service: Notifications,
        notification_id: Id,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> DeliveryList:
        part = listed(limit, cursor, counts=False)
        return await notification_service.deliveries(actor, notification_id, part)


Webhooks = NamedDependency[WebhookService]


class WebhookController(Controller):
    """URLs that are called by a cadence of their own."""

    path = "/webhooks"
    tags = ("webhooks",)

    @post(
        "/",
        opt={"errors": (404, 409)},
        summary="Create a webhook: a URL that is called by a cron expression or every N minutes.",
    )
    async def create(self, actor: Acting, webhook_service: Webhooks, data: JSONBody[WebhookInput]) -> WebhookView:
        return await webhook_service.create(actor, data)

    @get("/", summary="List webhooks, newest first.")
    async def list_all(
        self,
        actor: Acting,
        webhook_service: Webhooks,
        team_id: TeamFilter = None,
        limit: Limit = 50,
        offset: Offset = 0,
        cursor: Cursor = None,
    ) -> WebhookPage:
        return await webhook_service.list(actor, listed(limit, cursor, offset), team_id)

    @get(
        "/{webhook_id:int}",
        summary="Return one webhook. To list its runs, filter executions by `entity_type` and `entity_id`.",
    )
    async def read(self, actor: Acting, webhook_service: Webhooks, webhook_id: Id) -> WebhookView:
        return await webhook_service.get(actor, webhook_id)

    @patch(
        "/{webhook_id:int}",
        summary="Change some fields of a webhook. A changed interval counts from now.",
    )
    async def change(
        self,
        actor: Acting,
        webhook_service: Webhooks,
        webhook_id: Id,
        data: OptionalBody[WebhookChanges],
    ) -> WebhookView:
        return await webhook_service.change(actor, webhook_id, data)

    @delete("/{webhook_id:int}", summary="Delete a webhook and its history.")
    async def remove(self, actor: Acting, webhook_service: Webhooks, webhook_id: Id) -> None:
        await webhook_service.delete(actor, webhook_id)
