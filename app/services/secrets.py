"""Secrets and signing keys: create, share, replace and delete them. No answer has the value of a secret."""

from collections.abc import Mapping
from typing import Any

import structlog

from app.domain.access import Actor, Owner, owner_for, require_admin
from app.domain.audit import AuditAction, ObjectType, Subject, differences
from app.domain.errors import ConflictError, FieldError, InvalidError, NotFoundError
from app.domain.secrets import EVERYBODY, host_problem
from app.persistence import audit, secrets, users
from app.persistence.database import Connection, Database
from app.persistence.pagination import Part
from app.persistence.secrets import SecretInfo
from app.services.admission import new_owner
from app.services.inputs import IDS, SecretChanges, SecretInput, given
from app.services.listing import visible
from app.services.preconditions import require_absent, require_match, require_present, tag_of
from app.services.views import PreviousKeyView, SecretPage, SecretView, SigningKeyView

MOST_SECRETS = 1000

log = structlog.get_logger(__name__)


class SecretService:
    """Use cases about secrets."""

    def __init__(self, database: Database) -> None:
        """Work on this database. Workers send the secrets."""
        self._database = database

    async def list(self, actor: Actor, part: Part, team_id: int | None = None) -> SecretPage:
        """Return a page of the secrets that the actor or a team of the actor owns or may use; admins see all names."""
        async with self._database.transaction() as connection:
            page = await secrets.page(connection, (await visible(connection, actor, team_id)).owners, part)
        return SecretPage([_view(actor, row) for row in page.items], page.next_cursor)

    async def create(self, actor: Actor, secret: SecretInput) -> SecretView:
        """Create a secret of the actor or of a team."""
        values = {"value": secret.value, "allowed_hosts": secret.allowed_hosts, "shared_with": secret.shared_with}
        async with self._database.transaction() as connection:
            await _require_sound(connection, values)
            owner = await new_owner(connection, actor, secret.team_id)
            row = await _add(connection, owner, secret.name, values)
            await _record(connection, actor, None, row, values)
        log.info("secret_saved", secret=secret.name, by=actor.user_id)
        return _view(actor, row)

    async def put(self, actor: Actor, name: str, changes: SecretChanges) -> tuple[SecretView, bool]:
        """Change the secret of this name that the actor or a team has, or create it; return it, and whether it is new.

        Fields that are left out keep their values. Without a value, an admin creates a secret that lends the one which
        the environment has under this name.
        """
        values = given(changes)
        team_id = values.pop("team_id", None)
        async with self._database.transaction() as connection:
            await _require_sound(connection, values)
            owner = await new_owner(connection, actor, team_id)
            before = await secrets.lock(connection, owner.user_profile_id, name)
            if before is not None:
                require_absent()
                require_match(lambda: tag_of(_view(actor, before)))
                row = await _changed(connection, before, values)
            else:
                require_present()
                may_lend = actor.sees_all and team_id is None
                row = await _create(connection, owner, name, values, may_lend=may_lend)
            if values or before is None:
                await _record(connection, actor, before, row, values)
        log.info("secret_saved", secret=name, by=actor.user_id)
        return _view(actor, row), before is None

    async def delete(self, actor: Actor, name: str, owner_id: int | None, team_id: int | None = None) -> None:
        """Delete a secret. Workers may use it for a few seconds more, from their caches."""
        if owner_id is not None and owner_id != actor.user_id:
            require_admin(actor)
        owner = owner_for(actor, team_id).user_profile_id
        async with self._database.transaction() as connection:
            before = await secrets.lock(connection, owner_id or owner, name)
            if before is None:
                raise NotFoundError("There is no such secret.")
            require_match(lambda: tag_of(_view(actor, before)))
            await secrets.remove(connection, owner_id or owner, name)
            subject = Subject(ObjectType.SECRET, None, name, owner_id or owner)
            await audit.record(connection, actor, AuditAction.SECRET_DELETED, subject)
        log.info("secret_deleted", secret=name, by=actor.user_id)


async def _record(
    connection: Connection, actor: Actor, before: SecretInfo | None, after: SecretInfo, values: Mapping[str, Any]
) -> None:
    """Add an event that names the fields that were given, and says where the secret may go; never its value."""
    subject = Subject(ObjectType.SECRET, None, after.name, after.owner_id)
    fields = {"fields": sorted(values)}
    if before is None:
        details = {**fields, **_audited(after)}
        await audit.record(connection, actor, AuditAction.SECRET_CREATED, subject, details=details)
    else:
        changes = differences(_audited(before), _audited(after))
        await audit.record(connection, actor, AuditAction.SECRET_CHANGED, subject, changes=changes, details=fields)


def _audited(secret: SecretInfo) -> dict[str, Any]:
    """Return the hosts to which a secret may go, and with whom it is shared."""
    return {"allowed_hosts": secret.allowed_hosts, "shared_with": secret.shared_with}


async def _create(
    connection: Connection, owner: Owner, name: str, values: dict[str, Any], *, may_lend: bool
) -> SecretInfo:
    has_value = "value" in values
    if not has_value and not may_lend:
        raise NotFoundError("There is no such secret. Give a `value` to create it.")
    # A secret that lends one of the environment, and names no hosts, has the hosts that the environment names.
    return await _add(
        connection, owner, name, {"shared_with": [], "allowed_hosts": [] if has_value else None, **values}
    )


async def _add(connection: Connection, owner: Owner, name: str, values: dict[str, Any]) -> SecretInfo:
    who = "You have" if owner.team_id is None else "The team has"
    if await secrets.count_of(connection, owner.user_profile_id) >= MOST_SECRETS:
        raise ConflictError(f"{who} {MOST_SECRETS} secrets already. Delete one first.")
    row = await secrets.add(connection, owner, name, values)
    if row is None:
        raise ConflictError(f"{who} a secret '{name}' already. PUT /api/v1/secrets/{name}/ changes it.")
    return row


async def _changed(connection: Connection, before: SecretInfo, values: dict[str, Any]) -> SecretInfo:
    if not values:
        return before
    if "value" in values and before.allowed_hosts is None:
        values = {"allowed_hosts": [], **values}
    return await secrets.save(connection, before.owner_id, before.name, values)


async def _require_sound(connection: Connection, values: dict[str, Any]) -> None:
    """Refuse hosts that cannot be parsed, and users that do not exist: a later user could get such an id."""
    errors = [
        FieldError(f"allowed_hosts[{index}]", problem)
        for index, entry in enumerate(values.get("allowed_hosts") or ())
        if (problem := host_problem(entry))
    ]
    shared = values.get("shared_with", EVERYBODY)
    if shared != EVERYBODY:
        known = await users.names(connection, {user_id for user_id in shared if user_id in IDS})
        errors += [
            FieldError(f"shared_with[{index}]", f"There is no user or team {user_id}.")
            for index, user_id in enumerate(shared)
            if user_id not in known
        ]
    if errors:
        raise InvalidError(*errors)


def _view(actor: Actor, row: SecretInfo) -> SecretView:
    teams = [team for team, _ in actor.teams]
    shared = row.shared_with
    if row.owner_id not in {actor.user_id, *teams} and not actor.sees_all and shared != EVERYBODY:
        # Only the owner and admins see with whom else it is shared.
        shared = [one for one in shared if one in {actor.user_id, *teams}]
    return SecretView(
        name=row.name,
        owner=row.owner_id,
        team_id=row.team_id,
        shared_to_you=_is_shared_to(row, actor.user_id),
        shared_to_teams=[team for team in teams if _is_shared_to(row, team)],
        allowed_hosts=row.allowed_hosts,
        shared_with=shared,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _is_shared_to(row: SecretInfo, owner_id: int) -> bool:
    """Return whether workflows of this owner may use the secret of another one."""
    return row.owner_id != owner_id and (row.shared_with == EVERYBODY or owner_id in row.shared_with)


class SigningKeyService:
    """Use cases about signing keys. Each user and each team has one."""

    def __init__(self, database: Database) -> None:
        """Work on this database. Workers sign."""
        self._database = database

    async def get(self, actor: Actor, team_id: int | None = None) -> SigningKeyView:
        """Return the key of the actor, or of a team in which the actor may write; create one if there is none."""
        async with self._database.transaction() as connection:
            owner = await new_owner(connection, actor, team_id)
            is_new = await secrets.ensure_signing_key(connection, owner.user_profile_id)
            view = await _key_view(connection, owner)
            if is_new:
                await audit.record(connection, actor, AuditAction.SIGNING_KEY_CREATED, _signing_key(owner, view))
        if is_new:
            log.info("signing_key_created", key=view.key_id, by=actor.user_id)
        return view

    async def rotate(self, actor: Actor, team_id: int | None = None) -> SigningKeyView:
        """Create a new key for the actor or a team; for a while, calls are signed with the old one too."""
        async with self._database.transaction() as connection:
            owner = await new_owner(connection, actor, team_id)
            await secrets.rotate_signing_key(connection, owner.user_profile_id)
            view = await _key_view(connection, owner)
            await audit.record(connection, actor, AuditAction.SIGNING_KEY_ROTATED, _signing_key(owner, view))
        log.info("signing_key_rotated", key=view.key_id, by=actor.user_id)
        return view


def _signing_key(owner: Owner, view: SigningKeyView) -> Subject:
    return Subject(ObjectType.SIGNING_KEY, view.key_id, owner_id=owner.user_profile_id)


async def _key_view(connection: Connection, owner: Owner) -> SigningKeyView:
    current, *retiring = await secrets.signing_keys_of(connection, owner.user_profile_id)
    previous = [
        PreviousKeyView(key_id=old.key_id, key=old.key, retires_at=old.retires_at) for old in retiring if old.retires_at
    ]
    return SigningKeyView(key_id=current.key_id, key=current.key, previous=next(iter(previous), None))
