"""Users and tokens, and which user a request comes from."""

import hmac
from collections.abc import Sequence
from functools import partial

import structlog

from app.domain.access import Actor, require_admin
from app.domain.errors import ConflictError, NotFoundError, UnauthenticatedError, UnavailableError
from app.micro_batcher import MicroBatcher
from app.persistence import users
from app.persistence.database import Database
from app.persistence.pagination import Part
from app.persistence.users import Token
from app.services.inputs import IDS, TokenInput, UserInput
from app.services.listing import read_views
from app.services.views import FreshTokenView, TokenList, TokenView, UserList, UserView, user_view

log = structlog.get_logger(__name__)


class UserService:
    """Use cases about users and tokens."""

    def __init__(self, database: Database, admin_token: str) -> None:
        """Accept ``admin_token`` for the built-in admin; a blank one is never accepted."""
        self._database = database
        self._admin_token = admin_token.encode()
        self._tokens = MicroBatcher("authenticate", self._owners, shared=(UnavailableError,))

    async def authenticate(self, token: str) -> Actor:
        """Return the owner of a token. A text that cannot be a token is refused without a query."""
        if not self._is_admins(token) and not users.may_be_token(token):
            raise UnauthenticatedError
        actor = await self._tokens.ask(token)
        if actor is None:
            raise UnauthenticatedError
        return actor

    async def _owners(self, tokens: Sequence[str]) -> list[Actor | None]:
        """Return the owners of these tokens, or None.

        Tokens are not cached, so that a revoked one is refused at once; all requests of one moment share a query.
        """
        built_in = [self._is_admins(token) for token in tokens]
        async with self._database.reading() as connection:
            admin = await users.built_in_admin(connection) if any(built_in) else None
            others = [token for token, is_admins in zip(tokens, built_in, strict=True) if not is_admins]
            owners = iter(await users.find_by_tokens(connection, others) if others else [])
        return [admin if is_admins else next(owners) for is_admins in built_in]

    def _is_admins(self, token: str) -> bool:
        return bool(self._admin_token) and hmac.compare_digest(self._admin_token, token.encode())

    async def me(self, actor: Actor) -> UserView:
        """Return the actor's own user."""
        return await self._get(actor.user_id)

    async def list(self, actor: Actor, part: Part) -> UserList:
        """Return a page of all users."""
        require_admin(actor)
        async with self._database.reading() as connection:
            page = await read_views(partial(users.page, connection), user_view, part)
        return UserList(page.items, page.next_cursor)

    async def create(self, actor: Actor, user: UserInput) -> UserView:
        """Create a user."""
        require_admin(actor)
        async with self._database.transaction() as connection:
            row = await users.add(connection, user.username, user.role)
        if row is None:
            raise ConflictError(f"There is a user '{user.username}' already.")
        log.info("user_created", user=row.id, role=row.role, by=actor.user_id)
        return user_view(row)

    async def create_token(self, actor: Actor, user_id: int, token: TokenInput) -> FreshTokenView:
        """Create a token for a user; only this answer has its text."""
        require_admin(actor)
        await self._get(user_id)
        fresh = users.make_token()
        async with self._database.transaction() as connection:
            row = await users.add_token(connection, user_id, token.name, fresh)
        log.info("token_created", token=row.id, user=user_id, by=actor.user_id)
        return FreshTokenView(id=row.id, name=row.name, prefix=row.prefix, created_at=row.created_at, token=fresh.token)

    async def create_token_for(self, actor: Actor, username: str, token: TokenInput) -> FreshTokenView:
        """Create a token for the user of a name."""
        require_admin(actor)
        async with self._database.transaction() as connection:
            row = await users.find_by_name(connection, username)
        if row is None:
            raise NotFoundError(f"There is no user '{username}'.")
        return await self.create_token(actor, row.id, token)

    async def tokens(self, actor: Actor, user_id: int, part: Part) -> TokenList:
        """Return a page of a user's tokens."""
        require_admin(actor)
        await self._get(user_id)
        async with self._database.reading() as connection:
            page = await read_views(partial(users.tokens_of, connection, user_id), _token_view, part)
        return TokenList(page.items, page.next_cursor)

    async def delete_token(self, actor: Actor, token_id: int) -> None:
        """Delete a token: it is refused from now on."""
        require_admin(actor)
        if token_id not in IDS:
            raise NotFoundError("There is no such token.")
        async with self._database.transaction() as connection:
            if not await users.delete_token(connection, token_id):
                raise NotFoundError("There is no such token.")
        log.info("token_deleted", token=token_id, by=actor.user_id)

    async def _get(self, user_id: int) -> UserView:
        if user_id not in IDS:
            raise NotFoundError("There is no such user.")
        async with self._database.transaction() as connection:
            row = await users.get(connection, user_id)
        if row is None:
            raise NotFoundError("There is no such user.")
        return user_view(row)


def _token_view(token: Token) -> TokenView:
    return TokenView(id=token.id, name=token.name, prefix=token.prefix, created_at=token.created_at)
