"""Users and their tokens."""

from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import structlog

from app import clock
from app.domain.access import (
    Actor,
    OwnerKind,
    Restriction,
    Scope,
    TokenKind,
    highest,
    lesser,
    outlives,
    require_admin,
    scope_of_role,
)
from app.domain.audit import AuditAction, ObjectType, Subject, differences
from app.domain.errors import (
    ConflictError,
    FieldError,
    ForbiddenError,
    InsufficientScopeError,
    InvalidError,
    NotFoundError,
    WrongStateError,
)
from app.domain.trigger_event import rfc3339
from app.persistence import audit, sessions, users
from app.persistence.database import Connection, Database, database_now
from app.persistence.pagination import Part
from app.persistence.users import FreshToken, Token, TokenTerms, User
from app.services.inputs import IDS, RestrictionInput, RotationInput, TokenInput, UserChanges, UserInput, given
from app.services.listing import read_views
from app.services.preconditions import require_match, tag_of
from app.services.removal import Fate, Removal, Remover, pause_all
from app.services.views import (
    CurrentSessionView,
    FreshTokenView,
    TokenList,
    UserList,
    UserView,
    fresh_token_view,
    token_view,
    user_view,
)

# Of one user, those that have ended left out.
MOST_TOKENS = 200

log = structlog.get_logger(__name__)


class UserService:
    """Use cases about users and tokens."""

    def __init__(self, database: Database, remover: Remover | None = None) -> None:
        """Work on this database; commands of operators delete nobody, and need no remover."""
        self._database = database
        self._remover = remover or Remover(database)

    async def me(self, actor: Actor) -> UserView:
        """Return the actor's own user."""
        return await self._get(actor.user_id)

    async def list(self, actor: Actor, part: Part) -> UserList:
        """Return a page of all users."""
        require_admin(actor)
        async with self._database.reading() as connection:
            page = await read_views(partial(users.page, connection), user_view, part)
        return UserList(page.items, page.next_cursor)

    async def get(self, actor: Actor, user_id: int) -> UserView:
        """Return a user."""
        require_admin(actor)
        return await self._get(user_id)

    async def current(self, actor: Actor) -> CurrentSessionView:
        """Return who a request comes from, and how far its token or session reaches."""
        async with self._database.reading() as connection:
            user = await existing_user(connection, actor.user_id)
            ends = await sessions.end_of(connection, actor.session_id) if actor.session_id else actor.ends_at
        scopes = [scope for scope in Scope if actor.scope.includes(scope)]
        return CurrentSessionView(user=user_view(user), role=actor.role, scopes=scopes, expires_at=ends)

    async def change(self, actor: Actor, user_id: int, changes: UserChanges) -> UserView:
        """Change the role or the quotas of a user, or disable or enable one; schedules go on unless told to pause."""
        require_admin(actor)
        given_values = given(changes)
        values: dict[str, Any] = {"role": given_values["role"]} if "role" in given_values else {}
        async with self._database.transaction() as connection:
            before = await existing_user(connection, user_id)
            if given_values.keys() - {"quotas"}:
                _require_other(actor, before, "change the role of, or disable,")
            require_match(lambda: tag_of(user_view(before)))
            if "quotas" in given_values:
                values["quotas"] = given_values["quotas"].given or None
            if "disabled" in given_values:
                now = await database_now(connection)
                values["disabled_at"] = (before.disabled_at or now) if given_values["disabled"] else None
            after = (await users.change(connection, user_id, values) if values else None) or before
            differing = differences(_audited(before), _audited(after))
            pauses = {"schedules": "pause"} if given_values.get("schedules") == "pause" else {}
            if differing or pauses:
                await audit.record(
                    connection, actor, AuditAction.USER_CHANGED, _user(after), changes=differing, details=pauses
                )
        if given_values.get("schedules") == "pause":
            await pause_all(self._database, actor, user_id)
        log.info("user_changed", user=user_id, by=actor.user_id, **{name: str(value) for name, value in values.items()})
        return user_view(after)

    async def delete(self, actor: Actor, user_id: int, schedules: Fate | None, to: int | None) -> None:
        """Delete a user. ``schedules`` says what becomes of what the user has; without it a user with any is kept."""
        require_admin(actor)
        async with self._database.reading() as connection:
            user = await existing_user(connection, user_id)
        _require_other(actor, user, "delete")
        require_match(lambda: tag_of(user_view(user)))
        removal = Removal(
            owner_id=user_id,
            title=f"'{user.username}'",
            fate=schedules,
            to=to,
            action=AuditAction.USER_DELETED,
            subject=_user(user),
        )
        heir = await self._remover.remove(actor, removal)
        log.info("user_deleted", user=user_id, by=actor.user_id, schedules=schedules or "none", to=heir)

    async def create(self, actor: Actor, user: UserInput) -> UserView:
        """Create a user."""
        require_admin(actor)
        async with self._database.transaction() as connection:
            row = await users.add(connection, user.username, user.role)
            if row is None:
                raise ConflictError(f"There is a user '{user.username}' already.")
            details = {"role": row.role}
            await audit.record(connection, actor, AuditAction.USER_CREATED, _user(row), details=details)
        log.info("user_created", user=row.id, role=row.role, by=actor.user_id)
        return user_view(row)

    async def create_token(self, actor: Actor, user_id: int, token: TokenInput) -> FreshTokenView:
        """Create a token for a user; only this answer has its text."""
        require_admin(actor)
        return await self._create_token(actor, user_id, token)

    async def create_own_token(self, actor: Actor, token: TokenInput) -> FreshTokenView:
        """Create a token for oneself, which never reaches further than the one that is used for it."""
        return await self._create_token(actor, actor.user_id, token)

    async def _create_token(self, actor: Actor, user_id: int, token: TokenInput) -> FreshTokenView:
        terms = token_terms(actor, token, clock.now(), is_own=user_id == actor.user_id)
        fresh = users.make_token()
        async with self._database.transaction() as connection:
            owner = await existing_user(connection, user_id)
            row = await _add_token(connection, user_id, terms, fresh)
            await audit.record(connection, actor, AuditAction.TOKEN_CREATED, _token(row), details=_terms(row))
        log.info("token_created", token=row.id, user=user_id, by=actor.user_id)
        return fresh_token_view(row, owner, fresh.token)

    async def create_token_for(self, actor: Actor, username: str, token: TokenInput) -> FreshTokenView:
        """Create a token for the user of a name."""
        require_admin(actor)
        async with self._database.transaction() as connection:
            row = await users.find_by_name(connection, username)
        if row is None:
            raise NotFoundError(f"There is no user '{username}'.")
        return await self.create_token(actor, row.id, token)

    async def rotate_token(self, actor: Actor, token_id: int, rotation: RotationInput) -> FreshTokenView:
        """Replace a token by a new one with the same terms; the old one is accepted for the grace period."""
        fresh = users.make_token()
        async with self._database.transaction() as connection:
            old = await _own_token(connection, actor, token_id)
            _require_not_longer(actor, old)
            now = await database_now(connection)
            await _require_rotatable(connection, old, now)
            owner = await existing_user(connection, old.user_profile_id)
            terms = TokenTerms(
                name=old.name,
                kind=TokenKind(old.kind),
                scopes=old.scopes,
                restriction=old.restriction,
                expires_at=old.expires_at,
                lease_id=old.lease_id,
            )
            if rotation.grace_seconds:
                end = now + timedelta(seconds=rotation.grace_seconds)
                await users.end_replaced_token(connection, token_id, end)
            else:
                await users.delete_token(connection, token_id)
            row = await _add_token(connection, old.user_profile_id, terms, fresh)
            details = {"replaces": token_id, "grace_seconds": rotation.grace_seconds}
            await audit.record(connection, actor, AuditAction.TOKEN_ROTATED, _token(row), details=details)
        log.info("token_rotated", token=row.id, before=token_id, user=owner.id, by=actor.user_id)
        return fresh_token_view(row, owner, fresh.token)

    async def tokens(self, actor: Actor, user_id: int, part: Part) -> TokenList:
        """Return a page of a user's tokens."""
        require_admin(actor)
        return await self._tokens_of(user_id, part)

    async def own_tokens(self, actor: Actor, part: Part) -> TokenList:
        """Return a page of one's own tokens."""
        return await self._tokens_of(actor.user_id, part)

    async def _tokens_of(self, user_id: int, part: Part) -> TokenList:
        async with self._database.reading() as connection:
            owner = await existing_user(connection, user_id)
            read = partial(users.tokens_of, connection, user_id)
            page = await read_views(read, partial(token_view, owner=owner), part)
        return TokenList(page.items, page.next_cursor)

    async def delete_token(self, actor: Actor, token_id: int) -> None:
        """Delete a token, one's own or as an admin any: it is refused from now on."""
        async with self._database.transaction() as connection:
            token = await _own_token(connection, actor, token_id)
            # An admin must be able to end any token, also with one that lives for minutes.
            if not actor.scope.includes(Scope.ADMIN):
                _require_not_longer(actor, token)
            await users.delete_token(connection, token_id)
            await audit.record(connection, actor, AuditAction.TOKEN_DELETED, _token(token))
        log.info("token_deleted", token=token_id, by=actor.user_id)

    async def _get(self, user_id: int) -> UserView:
        async with self._database.transaction() as connection:
            return user_view(await existing_user(connection, user_id))


def _user(user: User) -> Subject:
    """Return a user as the subject of an event, which the user may see."""
    return Subject(ObjectType.USER, str(user.id), user.username, user.id)


def _audited(user: User) -> dict[str, Any]:
    """Return the fields of a user that can be changed."""
    return {"role": user.role, "disabled": user.disabled_at is not None, "quotas": user.quotas or {}}


def _token(token: Token) -> Subject:
    return Subject(ObjectType.TOKEN, str(token.id), token.name, token.user_profile_id)


def _terms(token: Token) -> dict[str, Any]:
    """Return the kind of a token, its scopes (null: those of the role), its restriction, and when it ends."""
    return {
        "kind": token.kind,
        "scopes": token.scopes,
        "restrict": msgspec.to_builtins(token.restriction),
        "expires_at": None if token.expires_at is None else rfc3339(token.expires_at),
    }


def _require_other(actor: Actor, user: User, what: str) -> None:
    """Refuse what would lock everybody out: nobody does this to themselves or to the built-in admin."""
    if user.id == actor.user_id or user.username == users.BUILT_IN_ADMIN:
        raise ConflictError(f"You cannot {what} yourself or the built-in admin.")
    if user.kind != OwnerKind.USER:
        raise ConflictError(f"You cannot {what} a plugin.")


def token_terms(actor: Actor, token: TokenInput, now: datetime, *, is_own: bool) -> TokenTerms:
    """Return the terms of a new token; refuse those that reach further than the actor's own token."""
    errors = []
    if token.expires_at is not None and token.expires_at <= now:
        errors.append(FieldError("expires_at", "The time is past. Choose a later one."))
    scopes = token.scopes
    if token.kind is TokenKind.FEED and scopes not in (None, [Scope.READ]):
        errors.append(FieldError("scopes", "A token of the kind `feed` has the scope `read` alone."))
    if token.restrict is not None and _restriction(token.restrict) == Restriction():
        errors.append(FieldError("restrict", "Name workflows, labels or a namespace, or leave it out."))
    if errors:
        raise InvalidError(*errors)
    if is_own and scopes is not None and not actor.scope.includes(wanted := highest(scopes)):
        raise InsufficientScopeError(
            wanted,
            f"A token with the scope `{wanted}` can be made only with one that has it. You have `{actor.scope}`.",
        )
    if is_own and scopes is None and actor.token_scope is not Scope.ADMIN:
        # Scopes of its own, also where they are those of the role: the role may get more.
        scopes = [actor.scope]
    restriction = None if token.restrict is None else _restriction(token.restrict)
    return TokenTerms(
        name=token.name,
        kind=token.kind,
        scopes=[Scope.READ] if token.kind is TokenKind.FEED else scopes,
        # A restricted token makes tokens with the same restriction only.
        restriction=actor.restriction if is_own and actor.restriction else restriction,
        # Also for others: a token of theirs would be as good as one's own.
        expires_at=actor.ends_at if outlives(token.expires_at, actor.ends_at) else token.expires_at,
    )


def _restriction(given: RestrictionInput) -> Restriction:
    return Restriction(
        labels=tuple(sorted(given.labels.items())),
        namespace=given.namespace or "",
        workflow_ids=tuple(dict.fromkeys(given.workflow_ids)),
    )


async def _add_token(connection: Connection, user_id: int, terms: TokenTerms, fresh: FreshToken) -> Token:
    """Store a token, unless its user has too many."""
    await users.lock(connection, user_id)
    if await users.count_live_tokens(connection, user_id) >= MOST_TOKENS:
        raise ConflictError(f"The user has {MOST_TOKENS} tokens already. Delete one first.")
    return await users.add_token(connection, user_id, terms, fresh)


async def existing_user(connection: Connection, user_id: int) -> User:
    """Return a user or a plugin; ``NotFoundError`` if there is none, or it is a team."""
    row = await users.get(connection, user_id) if user_id in IDS else None
    if row is None or users.is_team(row):
        raise NotFoundError("There is no such user.")
    return row


async def _own_token(connection: Connection, actor: Actor, token_id: int) -> Token:
    """Lock a token of the actor, or for an admin anybody's; others are reported as if they did not exist.

    A token that reaches further than the one in use cannot be touched: rotating it would hand out its rights.
    """
    token = await users.lock_token(connection, token_id) if token_id in IDS else None
    if token is None or (token.user_profile_id != actor.user_id and not actor.scope.includes(Scope.ADMIN)):
        raise NotFoundError("There is no such token.")
    _require_not_wider(actor, token)
    if actor.token_id not in {None, token.id} and await users.is_replaced(connection, actor.token_id):
        raise ForbiddenError("The token in use was replaced. Use the new one.")
    return token


def _require_not_wider(actor: Actor, token: Token) -> None:
    """Refuse to touch a token that reaches further than the one in use, now or after its user got another role."""
    reach = Scope.ADMIN if token.scopes is None else highest(token.scopes)
    today = lesser(scope_of_role(actor.role), reach)
    is_elsewhere = actor.restriction is not None and token.restriction != actor.restriction
    if is_elsewhere or not actor.token_scope.includes(today):
        raise InsufficientScopeError(today)
    if not actor.token_scope.includes(reach):
        raise ForbiddenError("The token has the scopes of the role, the one in use has fixed ones. Use one without.")


async def _require_rotatable(connection: Connection, token: Token, now: datetime) -> None:
    """Refuse to replace a token that has ended, or was replaced: the new one would end with it."""
    if await users.is_replaced(connection, token.id):
        raise WrongStateError("The token was replaced already. Rotate the new one.")
    if token.expires_at is not None and token.expires_at <= now:
        raise WrongStateError("The token has ended. Make a new one: POST /api/v1/tokens/.")


def _require_not_longer(actor: Actor, token: Token) -> None:
    """Refuse to touch a token that ends later than the one in use."""
    if outlives(token.expires_at, actor.ends_at):
        raise ForbiddenError("The token ends later than the one in use. Use one that ends no sooner.")
