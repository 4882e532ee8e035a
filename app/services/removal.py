"""Removal of owners: delete a user or a team with what it has, or hand that over."""

from contextlib import suppress
from typing import Literal

import msgspec
from msgspec.structs import replace

from app.domain.access import Actor, OwnerKind, require_owner
from app.domain.audit import AuditAction, Subject
from app.domain.errors import ConflictError, FieldError, InvalidError, NotFoundError, WrongStateError
from app.domain.limits import require_room
from app.engine import schedule_changes
from app.engine.ringing import Ringer
from app.persistence import audit, ownership, teams, users
from app.persistence.database import Connection, Database, database_now
from app.services.admission import NO_QUOTAS, Limits
from app.services.schedules import author_of

Fate = Literal["pause", "delete", "transfer"]
PAUSED_AT_ONCE = 100
OWNER_GONE = "Their owner was disabled or deleted."


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """The deletion of a user or a team, and what becomes of what it has."""

    owner_id: int
    # As messages name the owner, in the middle of a sentence.
    title: str
    fate: Fate | None
    # Who gets what the owner has, if it is not deleted too; by default the actor.
    to: int | None
    # What the audit log says.
    action: AuditAction
    subject: Subject


class Remover:
    """Deletes users and teams."""

    def __init__(self, database: Database, ringer: Ringer | None = None, limits: Limits = NO_QUOTAS) -> None:
        """Call off the runs of what is deleted; the new owner keeps to the quotas."""
        self._database = database
        self._ringer = ringer
        self._limits = limits

    async def remove(self, actor: Actor, removal: Removal) -> int | None:
        """Delete an owner: pause the schedules if asked to, hand everything over if there is an heir.

        Return the heir. Everything is checked again once the owner is locked: no object that was created meanwhile is
        lost.
        """
        if removal.fate == "pause":
            async with self._database.transaction() as connection:
                await self._choose_heir(connection, actor, removal)
                await _require_removable(connection, removal)
                await _disable(connection, actor, removal)
            await pause_all(self._database, actor, removal.owner_id)
        async with self._database.transaction() as connection:
            heir = await self._choose_heir(connection, actor, removal)
            if not await ownership.lock(connection, removal.owner_id):
                raise NotFoundError(f"Another request has deleted {removal.title}.")
            await _require_removable(connection, removal)
            if removal.fate == "pause":
                while await _pause_some(connection, actor, removal.owner_id):
                    pass
            await _record_objects(connection, actor, removal, heir)
            if heir is not None:
                await ownership.hand_over(connection, removal.owner_id, heir)
            running = await ownership.delete_user(connection, removal.owner_id)
            details = {"schedules": removal.fate, "to": heir}
            await audit.record(connection, actor, removal.action, removal.subject, details=details)
        if self._ringer is not None:
            await self._ringer.call_off(running)
        return heir

    async def _choose_heir(self, connection: Connection, actor: Actor, removal: Removal) -> int | None:
        """Return who gets what the owner has, and cannot be deleted meanwhile; None if everything is deleted.

        Where there are quotas, nobody creates anything for the two of them until the transaction ends.
        """
        heir = _heir(actor, removal)
        await self._require_quotas(connection, actor, removal, heir)
        if heir is not None:
            await _require_fit(connection, heir)
        return heir

    async def _require_quotas(self, connection: Connection, actor: Actor, removal: Removal, heir: int | None) -> None:
        """Refuse to hand over more than the heir may have. Admins may."""
        owners = {removal.owner_id, *([] if heir is None else [heir])}
        quotas = await self._limits.quotas.refreshed(connection)
        for quota in users.COUNTED:
            used = await users.lock_and_count(connection, quota, owners)
            added = used[removal.owner_id]
            if heir is not None and added and not actor.sees_all:
                require_room(quota, quotas.limit_of(quota, heir), used[heir], added)


def _heir(actor: Actor, removal: Removal) -> int | None:
    """Return the id of the user or the team that gets what the owner has; None if it is deleted too."""
    if removal.fate == "transfer" and removal.to is None:
        raise InvalidError(FieldError("to", "Name the user or the team that gets the schedules."))
    if removal.fate not in {"transfer", "pause"}:
        return None
    heir = actor.user_id if removal.to is None else removal.to
    if heir == removal.owner_id:
        raise InvalidError(FieldError("to", "The schedules cannot go to whom is deleted. Name another user or team."))
    require_owner(actor, heir, "user")
    return heir


async def _require_fit(connection: Connection, heir: int) -> None:
    """Lock the heir; refuse one who is disabled, and a plugin."""
    user = await users.get(connection, heir) if await ownership.keep(connection, heir) else None
    if user is None or user.kind != OwnerKind.USER:
        raise NotFoundError("There is no such user.")
    if user.disabled_at is not None:
        raise InvalidError(FieldError("to", f"'{user.username}' is disabled. Name another user or team."))


async def _require_removable(connection: Connection, removal: Removal) -> None:
    """Refuse to delete, without a word, what somebody would miss, and to leave a team without an owner."""
    holdings = await ownership.holdings(connection, removal.owner_id)
    if removal.fate in {None, "delete"} and holdings.foreign_schedules:
        raise ConflictError(
            f"Schedules of others use workflows of {removal.title}: {holdings.foreign_schedules}. They would be "
            "deleted too. Hand the workflows over by `schedules=transfer` with `to`, or let the others delete theirs."
        )
    if removal.fate in {None, "delete"} and holdings.foreign_calendar_uses:
        raise ConflictError(
            f"Schedules of others use calendars of {removal.title}: {holdings.foreign_calendar_uses}. Hand the "
            "calendars over by `schedules=transfer` with `to`, or let the others change their schedules."
        )
    if removal.fate is None and (holdings.schedules or holdings.webhooks):
        kind = "schedules" if holdings.schedules else "webhooks"
        raise ConflictError(
            f"There are {kind} of {removal.title}. Say what becomes of them: `schedules=pause`, `schedules=delete`, or "
            "`schedules=transfer` with `to`."
        )
    team = await teams.only_owned_by(connection, removal.owner_id)
    if team is not None:
        raise ConflictError(f"The only owner of the team '{team}' is {removal.title}. Make another its owner first.")


async def _disable(connection: Connection, actor: Actor, removal: Removal) -> None:
    """Disable a user who is to be deleted, so that nothing is created or resumed while the schedules are paused."""
    user = await users.get(connection, removal.owner_id)
    if user is not None and users.is_person(user) and user.disabled_at is None:
        await users.change(connection, user.id, {"disabled_at": await database_now(connection)})
        changes = {"disabled": {"from": False, "to": True}}
        await audit.record(connection, actor, AuditAction.USER_CHANGED, removal.subject, changes=changes)


async def _record_objects(connection: Connection, actor: Actor, removal: Removal, heir: int | None) -> None:
    """Add an event for each object that is deleted with its owner, or handed over to the heir, who sees it then."""
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
            paused = await _pause_some(connection, actor, owner_id)


async def _pause_some(connection: Connection, actor: Actor, owner_id: int) -> bool:
    """Pause some active schedules of an owner; return False if there is none left."""
    ids = await ownership.active_schedules(connection, owner_id, PAUSED_AT_ONCE)
    for job_id in ids:
        # Somebody else may have paused or deleted it, or it may have ended, since it was found.
        with suppress(WrongStateError, NotFoundError):
            await schedule_changes.pause_scheduled_job(connection, job_id, author_of(actor), OWNER_GONE)
    return bool(ids)
