"""Notifications: which events are delivered to which URL, and the log of deliveries."""

from functools import partial
from typing import Any

import msgspec

from app.domain.access import Actor, Owner, require_owner
from app.domain.audit import AuditAction, ObjectType, Subject
from app.domain.audited_changes import shown_differences
from app.domain.errors import FieldError, InvalidError
from app.domain.limits import Quota
from app.persistence import audit, notifications, workflows
from app.persistence.database import Connection, Database
from app.persistence.notifications import LoggedDelivery, Notification
from app.persistence.pagination import Part
from app.services.admission import NO_QUOTAS, Limits, new_owner, require_owned, require_quota
from app.services.inputs import IDS, NotificationChanges, NotificationInput, given, require_url
from app.services.listing import read_views, visible
from app.services.preconditions import require_match, tag_of
from app.services.schedules import owned_schedule
from app.services.views import DeliveryList, DeliveryView, NotificationList, NotificationView


class NotificationService:
    """Use cases about notifications."""

    def __init__(self, database: Database, limits: Limits = NO_QUOTAS) -> None:
        """Work on this database. Workers deliver."""
        self._limits = limits
        self._database = database

    async def create(self, actor: Actor, notification: NotificationInput) -> NotificationView:
        """Create a notification of the actor or of a team: events from now on are delivered."""
        values = msgspec.structs.asdict(notification)
        values["scheduled_job_id"] = values.pop("schedule_id")
        team_id = values.pop("team_id")
        require_url(notification.url)
        async with self._database.transaction() as connection:
            owner = await new_owner(connection, actor, team_id)
            await require_quota(connection, self._limits, Quota.NOTIFICATIONS, owner.user_profile_id)
            await _require_deliverable(connection, actor, owner, values)
            owned = {"user_profile_id": owner.user_profile_id, "team_id": owner.team_id}
            row = await notifications.add(connection, {**values, **owned})
            details = {"events": row.events}
            await audit.record(connection, actor, AuditAction.NOTIFICATION_CREATED, _subject(row), details=details)
        return _view(row)

    async def list(self, actor: Actor, part: Part, team_id: int | None = None) -> NotificationList:
        """Return a page of the notifications that the actor may see, of this team if one is named, newest first."""
        async with self._database.reading() as connection:
            owners = (await visible(connection, actor, team_id)).owners
            page = await read_views(partial(notifications.page, connection, owners), _view, part)
        return NotificationList(page.items, page.next_cursor)

    async def get(self, actor: Actor, notification_id: int) -> NotificationView:
        """Return a notification."""
        async with self._database.transaction() as connection:
            return _view(await _owned(connection, actor, notification_id))

    async def change(self, actor: Actor, notification_id: int, changes: NotificationChanges) -> NotificationView:
        """Give a notification new values."""
        values = given(changes)
        if "url" in values:
            require_url(values["url"])
        async with self._database.transaction() as connection:
            row = await _owned(connection, actor, notification_id)
            require_match(lambda: tag_of(_view(row)))
            after = await notifications.save(connection, notification_id, values) if values else row
            differing = shown_differences(_editable(row), _editable(after))
            if differing:
                action = AuditAction.NOTIFICATION_CHANGED
                await audit.record(connection, actor, action, _subject(after), changes=differing)
            return _view(after)

    async def delete(self, actor: Actor, notification_id: int) -> None:
        """Delete a notification with its deliveries."""
        async with self._database.transaction() as connection:
            row = await _owned(connection, actor, notification_id)
            require_match(lambda: tag_of(_view(row)))
            await audit.record(connection, actor, AuditAction.NOTIFICATION_DELETED, _subject(row))
            await notifications.remove(connection, notification_id)

    async def deliveries(self, actor: Actor, notification_id: int, part: Part) -> DeliveryList:
        """Return a page of a notification's deliveries, newest first."""
        async with self._database.reading() as connection:
            await _owned(connection, actor, notification_id)
            read = partial(notifications.deliveries_of, connection, notification_id)
            page = await read_views(read, _delivery_view, part)
        return DeliveryList(page.items, page.next_cursor)


async def _owned(connection: Connection, actor: Actor, notification_id: int) -> Notification:
    row = await notifications.get(connection, notification_id) if notification_id in IDS else None
    return require_owned(actor, row, "notification")


def _subject(row: Notification) -> Subject:
    """Return a notification as what an event is about; it has no name, and its URL may hold a key."""
    return Subject(ObjectType.NOTIFICATION, str(row.id), owner_id=row.user_profile_id)


def _editable(row: Notification) -> dict[str, Any]:
    return {name: getattr(row, name) for name in NotificationChanges.__struct_fields__}


async def _require_deliverable(connection: Connection, actor: Actor, owner: Owner, values: dict[str, Any]) -> None:
    """Refuse a schedule or a workflow that the actor may not see, or whose events would not be delivered.

    Events are delivered to the owner of the workflow, who sees what they say, and to admins.
    """
    named: dict[str, int] = {}
    if values["scheduled_job_id"] is not None:
        named["schedule_id"] = (await owned_schedule(connection, actor, values["scheduled_job_id"])).workflow_id
    if values["workflow_id"] is not None:
        named["workflow_id"] = values["workflow_id"]
    owners = await workflows.owners(connection, set(named.values())) if named else {}
    if values["workflow_id"] is not None:
        require_owner(actor, owners.get(values["workflow_id"]), "workflow")
    if actor.sees_all and owner.user_profile_id == actor.user_id:
        return
    errors = [
        FieldError(field, _not_delivered(actor, workflow_owner))
        for field, workflow_id in named.items()
        if (workflow_owner := owners.get(workflow_id)) != owner.user_profile_id
    ]
    if errors:
        raise InvalidError(*errors)


def _not_delivered(actor: Actor, workflow_owner: int | None) -> str:
    if workflow_owner in dict(actor.teams):
        return f"The workflow belongs to a team: create the notification with `team_id`: {workflow_owner}."
    return "The workflow belongs to another owner: events of it are delivered to notifications of that owner only."


def _delivery_view(row: LoggedDelivery) -> DeliveryView:
    return DeliveryView(**{name: getattr(row, name) for name in DeliveryView.__struct_fields__})


def _view(row: Notification) -> NotificationView:
    return NotificationView(
        id=row.id,
        user_profile_id=row.user_profile_id,
        team_id=row.team_id,
        url=row.url,
        events=row.events,
        schedule_id=row.scheduled_job_id,
        workflow_id=row.workflow_id,
        active=row.active,
        created_at=row.created_at,
    )
