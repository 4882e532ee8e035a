"""Sessions of browsers: a token or a one-time code is exchanged for a cookie, which no script can read."""

import secrets
from datetime import timedelta

import msgspec
import structlog
from msgspec.structs import replace

from app.domain.access import Actor, Scope, require_kind
from app.domain.audit import AuditAction, ObjectType, Subject
from app.domain.errors import (
    ConflictError,
    FieldError,
    InvalidError,
    NotFoundError,
    OutsideLeaseError,
    UnauthenticatedError,
)
from app.domain.trigger_event import rfc3339
from app.persistence import audit, sessions, users
from app.persistence.database import Connection, Database, database_now
from app.persistence.pagination import Part
from app.persistence.sessions import CODE_SECONDS, LONGEST_SECONDS, Credential, NewSession, Session
from app.services.authentication import Authenticator, hash_secret
from app.services.inputs import IDS, SessionInput
from app.services.listing import read_views
from app.services.views import SessionCodeView, SessionList, SessionView

SECRET_BYTES = 32
CODE_BYTES = 16
# Of one user, those that have ended left out.
MOST_SESSIONS = 100
# Of a browser's name no more is stored.
MOST_AGENT_CHARACTERS = 300

log = structlog.get_logger(__name__)


class Browser(msgspec.Struct, frozen=True):
    """The browser that logs in."""

    address: str
    user_agent: str


class SessionService:
    """Use cases about sessions."""

    def __init__(self, database: Database, authenticator: Authenticator) -> None:
        """Accept the tokens that the authenticator accepts."""
        self._database = database
        self._authenticator = authenticator

    async def login(self, given: SessionInput, browser: Browser) -> str:
        """Exchange a token or a code for a session. Return its secret, which is the cookie."""
        if (given.token is None) == (given.code is None):
            raise InvalidError(FieldError("token", "Exactly one of `token` and `code` is needed."))
        owner = None if given.token is None else await self._authenticator.by_token(given.token)
        if owner is not None:
            require_kind(owner, reads_feeds=False)
            if owner.grant is not None:
                raise OutsideLeaseError("The token of an agent cannot begin a session of a browser.")
        async with self._database.transaction("login") as connection:
            credential = _credential_of(owner) if owner else await self._by_code(connection, given.code or "")
            secret, new = await _new_session(connection, credential, browser)
            session = await _begin(connection, new, by := "token" if owner else "code")
        log.info("session_begun", session=session.id, user=credential.user_id, by=by)
        return secret

    async def login_as(self, user_id: int, browser: Browser) -> str:
        """Begin a session of a user whom the identity provider has just authenticated. Return its secret.

        Nothing but the session itself bounds it: the user logged in, and can do so again.
        """
        async with self._database.transaction("login") as connection:
            secret, new = await _new_session(connection, Credential(user_id=user_id), browser)
            session = await _begin(connection, new, "oidc")
        log.info("session_begun", session=session.id, user=user_id, by="oidc")
        return secret

    async def _by_code(self, connection: Connection, code: str) -> Credential:
        credential = await sessions.take_code(connection, hash_secret(code))
        if credential is None:
            raise UnauthenticatedError("The code is not valid: it was used, or is too old. Ask for a new one.")
        return credential

    async def create_code(self, actor: Actor) -> SessionCodeView:
        """Create a code that can be exchanged for a session of the actor once, within ten minutes."""
        code = secrets.token_urlsafe(CODE_BYTES)
        async with self._database.transaction() as connection:
            expires_at = await database_now(connection) + timedelta(seconds=CODE_SECONDS)
            await sessions.add_code(connection, hash_secret(code), _credential_of(actor), expires_at)
            subject = Subject(ObjectType.SESSION, None, owner_id=actor.user_id)
            details = {"expires_at": rfc3339(expires_at)}
            await audit.record(connection, actor, AuditAction.SESSION_CODE_CREATED, subject, details=details)
        return SessionCodeView(code=code, expires_at=expires_at)

    async def list(self, actor: Actor, part: Part) -> SessionList:
        """Return a page of the actor's sessions, newest first."""

        def view(session: Session) -> SessionView:
            return SessionView(
                id=session.id,
                is_current=session.id == actor.session_id,
                address=session.address,
                user_agent=session.user_agent,
                created_at=session.created_at,
                seen_at=session.seen_at,
                expires_at=session.expires_at,
            )

        async with self._database.reading() as connection:
            page = await read_views(lambda one: sessions.page(connection, actor.user_id, one), view, part)
        return SessionList(page.items, page.next_cursor)

    async def end(self, actor: Actor, session_id: int) -> None:
        """End a session of the actor, or as an admin anybody's."""
        of_all = actor.scope.includes(Scope.ADMIN)
        async with self._database.transaction() as connection:
            mine = None if of_all else actor.user_id
            owner_id = await sessions.remove(connection, session_id, mine) if session_id in IDS else None
            if owner_id is None:
                raise NotFoundError("There is no such session.")
            subject = Subject(ObjectType.SESSION, str(session_id), owner_id=owner_id)
            await audit.record(connection, actor, AuditAction.SESSION_ENDED, subject)
        log.info("session_ended", session=session_id, by=actor.user_id)

    async def logout(self, actor: Actor) -> None:
        """End the session that the request came with, if it came with one."""
        if actor.session_id is not None:
            await self.end(actor, actor.session_id)


def _credential_of(actor: Actor) -> Credential:
    return Credential(user_id=actor.user_id, token_id=actor.token_id, ends_at=actor.ends_at)


async def _begin(connection: Connection, new: NewSession, by: str) -> Session:
    """Store a session, unless its user has too many, and who has logged in by what."""
    await users.lock(connection, new.user_profile_id)
    if await sessions.count_live(connection, new.user_profile_id) >= MOST_SESSIONS:
        raise ConflictError(f"The user has {MOST_SESSIONS} sessions already. End one first: DELETE sessions/ID/.")
    session = await sessions.add(connection, new)
    user = await users.get(connection, session.user_profile_id)
    if user is not None:
        actor = replace(users.to_actor(user), token_id=session.token_id, session_id=session.id)
        subject = Subject(ObjectType.SESSION, str(session.id), owner_id=user.id)
        await audit.record(connection, actor, AuditAction.SESSION_BEGUN, subject, details={"by": by})
    return session


async def _new_session(connection: Connection, credential: Credential, browser: Browser) -> tuple[str, NewSession]:
    """Return the secret of a new session, and its row. It ends no later than the token that it is made from."""
    longest = await database_now(connection) + timedelta(seconds=LONGEST_SECONDS)
    secret = secrets.token_urlsafe(SECRET_BYTES)
    new = NewSession(
        secret_hash=hash_secret(secret),
        user_profile_id=credential.user_id,
        token_id=credential.token_id,
        address=browser.address,
        user_agent=browser.user_agent[:MOST_AGENT_CHARACTERS],
        expires_at=min(longest, credential.ends_at or longest),
        credential_ends_at=credential.ends_at,
    )
    return secret, new
