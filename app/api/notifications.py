"""``/api/v1/notifications``."""

from litestar import Controller, delete, get, patch, post
from litestar.di import NamedDependency

from app.api.parameters import Cursor, Id, Limit, listed
from app.api.requests import Acting, AnyRequest, body
from app.services.inputs import NotificationChanges, NotificationInput
from app.services.notifications import NotificationService
from app.services.views import DeliveryList, NotificationList, NotificationView

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
