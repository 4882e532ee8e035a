"""Secrets and signing keys: create, share, replace and delete them. No answer has the value of a secret."""

from collections.abc import Mapping
from typing import Any

import structlog

from app.domain.access import Actor, require_admin
from app.domain.audit import AuditAction, ObjectType, Subject
from app.domain.errors import ConflictError, FieldError, InvalidError, NotFoundError
from app.domain.secrets import EVERYBODY, host_problem
from app.persistence import audit, secrets, users
from app.persistence.database import Connection, Database
from app.persistence.pagination import Part
from app.persistence.secrets import SecretInfo
from app.services.inputs import IDS, SecretChanges, SecretInput, given
from app.services.views import PreviousKeyView, SecretPage, SecretView, SigningKeyView

MOST_SECRETS = 1000

log = structlog.get_logger(__name__)


class SecretService:
    """Use cases about secrets."""

    def __init__(self, database: Database) -> None:
        """Work on this database. Workers send the secrets."""
        self._database = database

    async def list(self, actor: Actor, part: Part) -> SecretPage:
        """Return a page of the secrets that the actor owns or may use, newest first; admins see all names."""
        async with self._database.transaction() as connection:
            page = await secrets.page(connection, actor, part)
        return SecretPage([_view(actor, row) for row in page.items], page.next_cursor)

    async def create(self, actor: Actor, secret: SecretInput) -> SecretView:
        """Create a secret of the actor."""
        values = {"value": secret.value, "allowed_hosts": secret.allowed_hosts, "shared_with": secret.shared_with}
        async with self._database.transaction() as connection:
            await _require_sound(connection, values)
            view = _view(actor, await _add(connection, actor, secret.name, values))
            await _record(connection, actor, AuditAction.SECRET_CREATED, secret.name, values)
        log.info("secret_saved", secret=secret.name, by=actor.user_id)
        return view

    async def put(self, actor: Actor, name: str, changes: SecretChanges) -> tuple[SecretView, bool]:
        """Change the actor's secret of this name, or create it; return it, and whether it is new.

        Fields that are left out keep their values. Without a value, an admin creates a secret that lends the one which
        the environment has under this name.
        """
        values = given(changes)
        async with self._database.transaction() as connection:
            await _require_sound(connection, values)
            before = await secrets.lock(connection, actor.user_id, name)
            if before is not None:
                row = await _changed(connection, actor, before, values)
            else:
                row = await _create(connection, actor, name, values)
            if values or before is None:
                action = AuditAction.SECRET_CREATED if before is None else AuditAction.SECRET_CHANGED
                await _record(connection, actor, action, name, values)
        log.info("secret_saved", secret=name, by=actor.user_id)
        return _view(actor, row), before is None

    async def delete(self, actor: Actor, name: str, owner_id: int | None) -> None:
        """Delete a secret. Workers may use it for a few seconds more, from their caches."""
        if owner_id is not None and owner_id != actor.user_id:
            require_admin(actor)
        async with self._database.transaction() as connection:
            if not await secrets.remove(connection, owner_id or actor.user_id, name):
                raise NotFoundError("There is no such secret.")
            subject = Subject(ObjectType.SECRET, None, name, owner_id or actor.user_id)
            await audit.record(connection, actor, AuditAction.SECRET_DELETED, subject)
        log.info("secret_deleted", secret=name, by=actor.user_id)


async def _record(
    connection: Connection, actor: Actor, action: AuditAction, name: str, values: Mapping[str, Any]
) -> None:
    """Add an event that names the secret and the fields that were given, and none of their values."""
    subject = Subject(ObjectType.SECRET, None, name, actor.user_id)
    await audit.record(connection, actor, action, subject, details={"fields": sorted(values)})


async def _create(connection: Connection, actor: Actor, name: str, values: dict[str, Any]) -> SecretInfo:
    has_value = "value" in values
    if not has_value and not actor.sees_all:
        raise NotFoundError("There is no such secret. Give a `value` to create it.")
    # A secret that lends one of the environment, and names no hosts, has the hosts that the environment names.
    return await _add(
        connection, actor, name, {"shared_with": [], "allowed_hosts": [] if has_value else None, **values}
    )


async def _add(connection: Connection, actor: Actor, name: str, values: dict[str, Any]) -> SecretInfo:
    if await secrets.count_of(connection, actor.user_id) >= MOST_SECRETS:
        raise ConflictError(f"You have {MOST_SECRETS} secrets already. Delete one first.")
    row = await secrets.add(connection, actor.user_id, name, values)
    if row is None:
        raise ConflictError(f"You have a secret '{name}' already. PUT /api/v1/secrets/{name}/ changes it.")
    return row


async def _changed(connection: Connection, actor: Actor, before: SecretInfo, values: dict[str, Any]) -> SecretInfo:
    if not values:
        return before
    if "value" in values and before.allowed_hosts is None:
        values = {"allowed_hosts": [], **values}
    return await secrets.save(connection, actor.user_id, before.name, values)


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
            FieldError(f"shared_with[{index}]", f"There is no user {user_id}.")
            for index, user_id in enumerate(shared)
            if user_id not in known
        ]
    if errors:
        raise InvalidError(*errors)


def _view(actor: Actor, row: SecretInfo) -> SecretView:
    is_own = row.owner_id == actor.user_id
    shared = row.shared_with
    if not is_own and not actor.sees_all and shared != EVERYBODY:
        # Only the owner and admins see with whom else it is shared.
        shared = [actor.user_id]
    return SecretView(
        name=row.name,
        owner=row.owner_id,
        shared_to_you=not is_own and (row.shared_with == EVERYBODY or actor.user_id in row.shared_with),
        allowed_hosts=row.allowed_hosts,
        shared_with=shared,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


class SigningKeyService:
    """Use cases about signing keys. Each user has one, and sees no other."""

    def __init__(self, database: Database) -> None:
        """Work on this database. Workers sign."""
        self._database = database

    async def get(self, actor: Actor) -> SigningKeyView:
        """Return the actor's key; create one if there is none."""
        async with self._database.transaction() as connection:
            is_new = await secrets.ensure_signing_key(connection, actor.user_id)
            view = await _key_view(connection, actor)
            if is_new:
                await audit.record(connection, actor, AuditAction.SIGNING_KEY_CREATED, _signing_key(actor, view))
        if is_new:
            log.info("signing_key_created", key=view.key_id, by=actor.user_id)
        return view

    async def rotate(self, actor: Actor) -> SigningKeyView:
        """Create a new key for the actor; for a while, calls are signed with the old one too."""
        async with self._database.transaction() as connection:
            await secrets.rotate_signing_key(connection, actor.user_id)
            view = await _key_view(connection, actor)
            await audit.record(connection, actor, AuditAction.SIGNING_KEY_ROTATED, _signing_key(actor, view))
        log.info("signing_key_rotated", key=view.key_id, by=actor.user_id)
        return view


def _signing_key(actor: Actor, view: SigningKeyView) -> Subject:
    return Subject(ObjectType.SIGNING_KEY, view.key_id, owner_id=actor.user_id)


async def _key_view(connection: Connection, actor: Actor) -> SigningKeyView:
    current, *retiring = await secrets.signing_keys_of(connection, actor.user_id)
    previous = [
        PreviousKeyView(key_id=old.key_id, key=old.key, retires_at=old.retires_at) for old in retiring if old.retires_at
    ]
    return SigningKeyView(key_id=current.key_id, key=current.key, previous=next(iter(previous), None))
