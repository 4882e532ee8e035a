"""Which user a request comes from: by a bearer token of ours or of an identity provider, or by a browser's session."""

import asyncio
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime

import msgspec

from app import clock
from app.domain.access import Actor
from app.domain.client_addresses import UNKNOWN, counted_as
from app.domain.errors import UnauthenticatedError, UnavailableError
from app.domain.identity_tokens import looks_like_jwt
from app.micro_batcher import MicroBatcher
from app.persistence import audit, identities, sessions, users
from app.persistence.audit import MOST_ADDRESSES, current_origin
from app.persistence.database import Database
from app.persistence.sessions import Login
from app.services.identities import Identities

# The shape of a session's secret: 32 random bytes in URL-safe base64.
SECRET_LENGTH = 43


def hash_secret(secret: str) -> bytes:
    """Return the hash of a session's secret or of a code. A fast hash is enough: they are random."""
    return hashlib.sha256(secret.encode()).digest()


class Addresses(msgspec.Struct):
    """From where tokens or users came, by id: the last minute for each address, and some addresses at most."""

    seen: dict[int, dict[str, datetime]] = msgspec.field(default_factory=dict)

    def note(self, subject_id: int, address: str | None, minute: datetime) -> None:
        """Note an address, unless it is unknown, or there were too many since the last were stored."""
        client = UNKNOWN if address is None else counted_as(address)
        known = self.seen.setdefault(subject_id, {})
        if client != UNKNOWN and (client in known or len(known) < MOST_ADDRESSES):
            known[client] = minute

    def by_pair(self) -> dict[tuple[int, str], datetime]:
        """Return the minutes by id and address."""
        return {(key, client): minute for key, known in self.seen.items() for client, minute in known.items()}

    def with_earlier(self, earlier: "Addresses") -> "Addresses":
        """Return these and earlier ones, which could not be stored."""
        for (key, client), minute in self.by_pair().items():
            earlier.note(key, client, minute)
        return earlier


class Uses(msgspec.Struct):
    """When and from where tokens, sessions and users were last seen, to the minute; what is not stored yet."""

    tokens: dict[int, datetime] = msgspec.field(default_factory=dict)
    sessions: dict[int, datetime] = msgspec.field(default_factory=dict)
    token_addresses: Addresses = msgspec.field(default_factory=Addresses)
    # Of users who came without a stored token.
    user_addresses: Addresses = msgspec.field(default_factory=Addresses)

    def with_earlier(self, earlier: "Uses") -> "Uses":
        """Return these and earlier ones, which could not be stored."""
        return Uses(
            earlier.tokens | self.tokens,
            earlier.sessions | self.sessions,
            self.token_addresses.with_earlier(earlier.token_addresses),
            self.user_addresses.with_earlier(earlier.user_addresses),
        )


def _this_minute() -> datetime:
    return clock.now().replace(second=0, microsecond=0)


class Authenticator:
    """Finds out who a request comes from. All requests of one moment share a query.

    Nothing is cached, so that what was revoked, has expired or was disabled is refused at once.
    """

    def __init__(self, database: Database, admin_token: str, identity_users: Identities | None = None) -> None:
        """Accept ``admin_token`` for the built-in admin; a blank one is never accepted."""
        self._database = database
        self._identities = identity_users or Identities(database)
        self._admin_token = admin_token.encode()
        self._tokens = MicroBatcher("authenticate", self._owners, shared=(UnavailableError,))
        self._sessions = MicroBatcher("find_session", self._logins, shared=(UnavailableError,))
        self._uses = Uses()

    async def by_token(self, token: str) -> Actor:
        """Return the owner of a token. A text that cannot be a token is refused without a query."""
        actor = await self._by_token(token)
        minute, address = _this_minute(), current_origin().address
        if actor.token_id is None:
            self._uses.user_addresses.note(actor.user_id, address, minute)
        else:
            self._uses.tokens[actor.token_id] = minute
            self._uses.token_addresses.note(actor.token_id, address, minute)
        return actor

    async def _by_token(self, token: str) -> Actor:
        if not self._is_admins(token) and not users.may_be_token(token):
            if looks_like_jwt(token):
                return await self._identities.by_token(token)
            raise UnauthenticatedError
        actor = await self._tokens.ask(token)
        if actor is None:
            raise UnauthenticatedError
        return actor

    async def by_session(self, secret: str) -> Login:
        """Return the session that a cookie's secret stands for."""
        login = await self._sessions.ask(hash_secret(secret)) if len(secret) == SECRET_LENGTH else None
        if login is None:
            raise UnauthenticatedError("The session has ended. Log in again.")
        self._uses.sessions[login.session_id] = clock.now()
        self._uses.user_addresses.note(login.actor.user_id, current_origin().address, _this_minute())
        return login

    async def check(self, token: str | None, secret: str | None) -> Actor:
        """Return whom a token or a session stands for now, without noting a use: nobody has asked for anything."""
        if secret is not None:
            login = await self._sessions.ask(hash_secret(secret))
            actor = None if login is None else login.actor
        elif token is not None and not self._is_admins(token) and looks_like_jwt(token):
            return await self._identities.by_token(token)
        else:
            actor = await self._tokens.ask(token or "")
        if actor is None:
            raise UnauthenticatedError
        return actor

    async def store_uses(self) -> None:
        """Store when, and from where, tokens, sessions and identities were used; after a failure, the next time."""
        used, self._uses = self._uses, Uses()
        seen, self._identities.uses = self._identities.uses, {}
        if used == Uses() and not seen:
            return
        try:
            async with self._database.transaction("store_uses") as connection:
                await users.note_use(connection, used.tokens)
                await sessions.note_use(connection, used.sessions)
                await identities.note_use(connection, seen)
                await audit.note_addresses(connection, used.token_addresses.by_pair())
                await audit.note_user_addresses(connection, used.user_addresses.by_pair())
        except UnavailableError:
            self._put_back(used, seen)
        except asyncio.CancelledError:
            # The process ends, and stores once more.
            self._put_back(used, seen)
            raise

    def _put_back(self, used: Uses, seen: dict[int, datetime]) -> None:
        self._identities.uses = seen | self._identities.uses
        self._uses = self._uses.with_earlier(used)

    async def _owners(self, tokens: Sequence[str]) -> list[Actor | None]:
        others = [token for token in dict.fromkeys(tokens) if not self._is_admins(token)]
        async with self._database.reading() as connection:
            owners = dict(zip(others, await users.find_by_tokens(connection, others) if others else (), strict=True))
            admin = await users.built_in_admin(connection) if any(token not in owners for token in tokens) else None
        return [owners.get(token, admin) for token in tokens]

    async def _logins(self, hashes: Sequence[bytes]) -> list[Login | None]:
        async with self._database.reading() as connection:
            found = await sessions.find(connection, hashes)
        return [found.get(one) for one in hashes]

    def _is_admins(self, token: str) -> bool:
        return bool(self._admin_token) and hmac.compare_digest(self._admin_token, token.encode())
