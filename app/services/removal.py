"""Removal of owners: delete a user or a team with what it has, or hand that over."""

from typing import Literal

import msgspec
from msgspec.structs import replace

from app.domain.access import Actor
from app.domain.audit import AuditAction, Subject
from app.engine import schedule_changes
from app.engine.ringing import Ringer
from app.persistence import audit, ownership
from app.persistence.database import Connection, Database
from app.services.schedules import author_of

Fate = Literal["pause", "delete", "transfer"]
PAUSED_AT_ONCE = 100
OWNER_GONE = "Their owner was disabled or deleted."


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """The deletion of a user or a team, and what becomes of what it has."""

    owner_id: int
    fate: Fate | None
    # Who gets what the owner has; None if it is deleted too.
    heir: int | None
    # What the audit log says.
    action: AuditAction
    subject: Subject


async def remove_owner(database: Database, ringer: Ringer | None, actor: Actor, removal: Removal) -> None:
    """Delete a user or a team: pause the schedules if asked to, hand everything over if there is an heir."""
    if removal.fate == "pause":
        await pause_all(database, actor, removal.owner_id)
    async with database.transaction() as connection:
        await _record_objects(connection, actor, removal)
        if removal.heir is not None:
            await ownership.hand_over(connection, removal.owner_id, removal.heir)
        running = await ownership.delete_user(connection, removal.owner_id)
        details = {"schedules": removal.fate, "to": removal.heir}
        await audit.record(connection, actor, removal.action, removal.subject, details=details)
    if ringer is not None:
        await ringer.call_off(running)


async def _record_objects(connection: Connection, actor: Actor, removal: Removal) -> None:
    """Add an event for each object that is deleted with its owner, or handed over to the heir, who sees it then."""
    heir = removal.heir
    subjects = await ownership.owned(connection, removal.owner_id, with_others=heir is None)
    changes = None if heir is None else {"user_profile_id": {"from": removal.owner_id, "to": heir}}
    for kind in dict.fromkeys(subject.type for subject in subjects):
        action = AuditAction(f"{kind}_{'deleted' if heir is None else 'changed'}")
        told = [replace(one, owner_id=heir or one.owner_id) for one in subjects if one.type is kind]
        await audit.record_by(connection, author_of(actor), action, told, changes=changes)


async def pause_all(database: Database, actor: Actor, owner_id: int) -> None:
    """Pause all active schedules of an owner, some in each transaction, so that none of them waits long."""
    paused = True
    while paused:
        async with database.transaction() as connection:
            paused = bool(ids := await ownership.active_schedules(connection, owner_id, PAUSED_AT_ONCE))
            for job_id in ids:
                await schedule_changes.pause_scheduled_job(connection, job_id, author_of(actor), OWNER_GONE)
