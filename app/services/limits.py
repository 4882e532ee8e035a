"""Named limits: create, change, delete and list them. A changed limit acts at once on the runs that wait for it."""

from typing import Any

import msgspec

from app.domain.access import Actor, Owner, owner_for, require_admin
from app.domain.audit import AuditAction, ObjectType, Subject
from app.domain.audited_changes import shown_differences
from app.domain.errors import ConflictError, InvalidError, NotFoundError
from app.domain.permits import bounds_errors
from app.domain.revisions import Author
from app.engine.limit_gate import LimitGate
from app.persistence import audit, limits
from app.persistence.database import Connection, Database
from app.persistence.limits import Limit, LimitState
from app.persistence.pagination import Part
from app.services.admission import new_owner, require_owned
from app.services.inputs import LimitChanges, LimitInput, given
from app.services.listing import encode, visible
from app.services.preconditions import require_match, tag_of
from app.services.schedules import author_of
from app.services.views import LimitList, LimitView

MOST_LIMITS = 1000
_EDITABLE = ("public", "max_concurrent", "rate", "burst")
_NO_STATE = LimitState()


class LimitService:
    """Use cases about limits."""

    def __init__(self, database: Database, gate: LimitGate) -> None:
        """Give the permits that a changed limit allows by this gate."""
        self._database = database
        self._gate = gate

    async def list(self, actor: Actor, part: Part, team_id: int | None = None) -> LimitList:
        """Return a page of the limits that the actor may use, of this team alone if one is named, newest first."""
        async with self._database.reading() as connection:
            owners = (await visible(connection, actor, team_id)).owners
            page = await limits.page(connection, owners, part, with_public=team_id is None)
            states = await limits.states(connection, [row.id for row in page.items])
        return LimitList([encode(_view(row, states.get(row.id))) for row in page.items], page.next_cursor)

    async def create(self, actor: Actor, limit: LimitInput) -> LimitView:
        """Create a limit of the actor or of a team; only admins create public ones."""
        values = msgspec.structs.asdict(limit)
        team_id = values.pop("team_id")
        _require_sound(values)
        async with self._database.transaction() as connection:
            owner = await new_owner(connection, actor, team_id)
            row = await add_limit(connection, actor, owner, values, author_of(actor))
        return _view(row)

    async def get(self, actor: Actor, name: str, team_id: int | None = None) -> LimitView:
        """Return the limit that the actor means by a name: an own one, one of a team, or a public one."""
        async with self._database.reading() as connection:
            row = await _meant(connection, actor, name, team_id)
            states = await limits.states(connection, [row.id])
        return _view(row, states.get(row.id))

    async def change(self, actor: Actor, name: str, changes: LimitChanges, team_id: int | None = None) -> LimitView:
        """Give a limit other bounds. Runs that wait for it start at once if these allow it."""
        values = given(changes)
        if "public" in values:
            require_admin(actor)
        async with self._database.transaction() as connection:
            row = await _locked(connection, actor, name, team_id)
            require_match(lambda: tag_of(_view(row)))
            after = await change_limit(connection, actor, row, values, author_of(actor))
            if after is not row:
                await limits.begin_anew(connection, [row.id])
            buckets = await limits.buckets_of(connection, row.id) if after is not row else []
            states = await limits.states(connection, [row.id])
        await self._gate.look_at(buckets)
        return _view(after, states.get(row.id))

    async def delete(self, actor: Actor, name: str, team_id: int | None = None) -> None:
        """Delete a limit that nothing uses."""
        async with self._database.transaction() as connection:
            row = await _locked(connection, actor, name, team_id)
            require_match(lambda: tag_of(_view(row)))
            await remove_limit(connection, row, author_of(actor))


async def add_limit(
    connection: Connection, actor: Actor, owner: Owner, values: dict[str, Any], author: Author
) -> Limit:
    """Create a limit within a transaction; only admins create public ones."""
    if values["public"]:
        require_admin(actor)
    row = await _add(connection, owner, values)
    await audit.record_by(connection, author, AuditAction.LIMIT_CREATED, [_subject(row)], details=_editable(row))
    return row


async def change_limit(
    connection: Connection, actor: Actor, before: Limit, values: dict[str, Any], author: Author
) -> Limit:
    """Give a limit other bounds within a transaction; equal values change nothing."""
    values = {name: value for name, value in values.items() if name in _EDITABLE and getattr(before, name) != value}
    if not values:
        return before
    if "public" in values:
        require_admin(actor)
    _require_sound(_editable(before) | values)
    differing = shown_differences(_editable(before), _editable(before) | values)
    after = await limits.save(connection, before.id, values)
    await audit.record_by(connection, author, AuditAction.LIMIT_CHANGED, [_subject(after)], changes=differing)
    return after


async def remove_limit(connection: Connection, row: Limit, author: Author) -> None:
    """Delete a limit that nothing uses, within a transaction."""
    if await limits.is_used(connection, row):
        raise ConflictError(f"Schedules or workflows name the limit '{row.name}'. Let them name another one first.")
    await audit.record_by(connection, author, AuditAction.LIMIT_DELETED, [_subject(row)])
    await limits.remove(connection, row.id)


async def _add(connection: Connection, owner: Owner, values: dict[str, Any]) -> Limit:
    who = "You have" if owner.team_id is None else "The team has"
    if await limits.count_of(connection, owner.user_profile_id) >= MOST_LIMITS:
        raise ConflictError(f"{who} {MOST_LIMITS} limits already. Delete one first.")
    row = await limits.add(connection, owner, values)
    if row is None:
        name = values["name"]
        raise ConflictError(f"{who} a limit '{name}' already. PATCH /api/v1/limits/{name}/ changes it.")
    return row


async def _meant(connection: Connection, actor: Actor, name: str, team_id: int | None) -> Limit:
    """Return the limit that the actor means by a name, or that of a team."""
    if team_id is None:
        row = await limits.meant_by(connection, actor.user_id, name)
    else:
        row = await limits.of_owner(connection, owner_for(actor, team_id).user_profile_id, name)
    if row is not None and row.public:
        return row
    return require_owned(actor, row, "limit")


async def _locked(connection: Connection, actor: Actor, name: str, team_id: int | None) -> Limit:
    """Lock a limit that the actor may change."""
    meant = await _meant(connection, actor, name, team_id)
    row = await limits.lock(connection, require_owned(actor, meant, "limit").id)
    if row is None:
        raise NotFoundError("There is no such limit.")
    return row


def _require_sound(values: dict[str, Any]) -> None:
    errors = bounds_errors(values["max_concurrent"], values["rate"], values["burst"])
    if errors:
        raise InvalidError(*errors)


def _editable(row: Limit) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _EDITABLE}


def _subject(row: Limit) -> Subject:
    return Subject(ObjectType.LIMIT, str(row.id), row.name, row.user_profile_id)


def _view(row: Limit, state: LimitState | None = None) -> LimitView:
    shown = state or _NO_STATE
    return LimitView(
        name=row.name,
        user_profile_id=row.user_profile_id,
        team_id=row.team_id,
        public=row.public,
        max_concurrent=row.max_concurrent,
        rate=row.rate,
        burst=row.burst,
        held=shown.held,
        waiting=shown.waiting,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
