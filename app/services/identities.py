"""Users of identity providers: verified tokens, and the users that they stand for."""

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import msgspec
import structlog

from app import clock
from app.cache import ExpiringCache
from app.domain.access import Actor, Role
from app.domain.audit import AuditAction, ObjectType, Subject
from app.domain.errors import UnauthenticatedError, UnavailableError
from app.domain.identity_tokens import (
    CLOCK_SKEW,
    ClaimRules,
    Identity,
    IdentityToken,
    TokenRefusedError,
    read_token,
    teams_of,
    usernames_for,
)
from app.micro_batcher import MicroBatcher
from app.observability.logs import LogThrottle
from app.persistence import audit, identities, teams, users
from app.persistence.database import Connection, Database
from app.persistence.identities import Key, KnownIdentity
from app.services.identity_providers import IdentityProvider
from app.services.teams import MOST_TEAMS

MOST_CACHED_TOKENS = 10_000
# A verified token is verified again after this time, so that a key that the provider has withdrawn ends its tokens.
VERIFIED_SECONDS = 300.0
# The time of the claims of a user whose first token does not say when it was issued.
BEFORE_ALL_CLAIMS = datetime(1970, 1, 1, tzinfo=UTC)
# What the audit log and the log call a change of a membership, by whether the user was and is a member.
_MEMBER_EVENTS = {
    (False, True): (AuditAction.TEAM_MEMBER_ADDED, "team_member_added"),
    (True, True): (AuditAction.TEAM_MEMBER_CHANGED, "team_member_changed"),
    (True, False): (AuditAction.TEAM_MEMBER_REMOVED, "team_member_removed"),
}

log = structlog.get_logger(__name__)


class TrustedIssuer(msgspec.Struct, frozen=True, kw_only=True):
    """An issuer whose tokens are accepted, and what its claims mean here."""

    provider: IdentityProvider
    audience: str
    groups_claim: str = "groups"
    # Its members are admins, others are not. Blank: claims do not decide on roles.
    admin_group: str = ""
    # Groups that begin so name teams.
    team_prefix: str = ""

    @property
    def name(self) -> str:
        """Return the issuer as its tokens name it."""
        return self.provider.address.issuer

    def rules(self) -> ClaimRules:
        """Return what the claims of a bearer token must say."""
        return ClaimRules(issuer=self.name, audience=self.audience, groups_claim=self.groups_claim)

    def role_of(self, identity: Identity) -> Role | None:
        """Return the role that the claims give, or None if they do not decide on it."""
        if not self.admin_group:
            return None
        return Role.ADMIN if self.admin_group in identity.groups else Role.MEMBER


class Identities:
    """Finds the users that tokens of identity providers stand for; the first valid token creates the user.

    Verified tokens are cached, users are not: who is disabled is refused at once. All requests of one moment share a
    query.
    """

    def __init__(self, database: Database, issuers: Sequence[TrustedIssuer] = ()) -> None:
        """Accept the tokens of these issuers alone."""
        self._database = database
        self._issuers = {issuer.name: issuer for issuer in issuers}
        self._verified: ExpiringCache[bytes, Identity] = ExpiringCache(MOST_CACHED_TOKENS)
        self._known = MicroBatcher("find_identity", self._find, shared=(UnavailableError,))
        self._throttle = LogThrottle()
        # When identities were last seen, by id, to the minute; what is not stored yet.
        self.uses: dict[int, datetime] = {}

    async def by_token(self, text: str) -> Actor:
        """Return the user that an identity token stands for. Why a token is refused is logged, not answered."""
        identity = await self._verified_identity(text)
        return msgspec.structs.replace(await self.user_of(identity), ends_at=identity.expires_at)

    async def user_of(self, identity: Identity) -> Actor:
        """Return the user of a verified identity; create the user, or change the role, if its claims are new."""
        key = (identity.issuer, identity.subject)
        known = await self._known.ask(key)
        if known is None or _is_newer(identity, known):
            known = await self._apply(key, identity)
        if known.is_disabled:
            self._refused("disabled")
            raise UnauthenticatedError
        self.uses[known.id] = clock.now().replace(second=0, microsecond=0)
        return known.actor

    async def _verified_identity(self, text: str) -> Identity:
        digest = sha256(text.encode()).digest()
        cached = self._verified.fresh(digest, clock.monotonic())
        if cached is not None:
            return cached
        try:
            token = read_token(text)
            issuer = self._issuer_of(token)
            identity = await issuer.provider.verify(token, issuer.rules())
        except TokenRefusedError as refusal:
            self._refused(refusal.reason)
            raise UnauthenticatedError from None
        left = (identity.expires_at + CLOCK_SKEW - clock.now()).total_seconds()
        self._verified.keep(digest, identity, clock.monotonic() + min(left, VERIFIED_SECONDS))
        return identity

    def _issuer_of(self, token: IdentityToken) -> TrustedIssuer:
        issuer = self._issuers.get(token.issuer)
        if issuer is None:
            raise TokenRefusedError("unknown_issuer")
        return issuer

    def _refused(self, reason: str) -> None:
        if self._throttle.should_log(reason):
            log.warning("identity_token_refused", reason=reason)

    async def _find(self, keys: Sequence[Key]) -> list[KnownIdentity | None]:
        async with self._database.reading() as connection:
            found = await identities.find(connection, keys)
        return [found.get(key) for key in keys]

    async def _apply(self, key: Key, identity: Identity) -> KnownIdentity:
        """Create the user of a new identity, or apply the role and the teams that newer claims give."""
        issuer = self._issuers[identity.issuer]
        async with self._database.transaction("apply_identity") as connection:
            # Two first requests at once would create two users.
            await identities.lock(connection, key)
            known = (await identities.find(connection, [key])).get(key)
            if known is None:
                user = await _create_user(connection, identity, issuer.role_of(identity) or Role.MEMBER)
                await identities.add(connection, key, user.user_id, identity.issued_at or BEFORE_ALL_CLAIMS)
                await _apply_teams(connection, user, issuer, identity)
            elif identity.issued_at and await identities.take_claims(connection, known.id, identity.issued_at):
                await _apply_role(connection, known.actor, issuer, identity)
                await _apply_teams(connection, known.actor, issuer, identity)
            return (await identities.find(connection, [key]))[key]


def _is_newer(identity: Identity, known: KnownIdentity) -> bool:
    """Return whether claims are newer than those that were applied; an old token may leave out when it was issued."""
    return identity.issued_at is not None and identity.issued_at > known.claims_at


async def _apply_role(connection: Connection, user: Actor, issuer: TrustedIssuer, identity: Identity) -> None:
    role = issuer.role_of(identity)
    if role is None or not await identities.set_role(connection, user.user_id, role):
        return
    changes = {"role": {"from": user.role, "to": role}}
    await _record(connection, AuditAction.USER_CHANGED, user, identity, changes=changes)
    log.info("identity_role_changed", user=user.user_id, role=role, issuer=identity.issuer)


async def _apply_teams(connection: Connection, user: Actor, issuer: TrustedIssuer, identity: Identity) -> None:
    wanted = teams_of(identity.groups, issuer.team_prefix)
    for change in await teams.apply_claims(connection, user.user_id, wanted, MOST_TEAMS):
        action, event = _MEMBER_EVENTS[change.before is not None, change.after is not None]
        subject = Subject(ObjectType.TEAM, str(change.team.id), change.team.name, change.team.id)
        details = {"user_id": user.user_id, "username": user.username, "role": change.after, "issuer": identity.issuer}
        roles = {"role": {"from": change.before, "to": change.after}}
        await audit.record(connection, user, action, subject, changes=roles, details=details)
        log.info(event, team=change.team.id, user=user.user_id, role=change.after, by=identity.issuer)


async def _record(
    connection: Connection, action: AuditAction, user: Actor, identity: Identity, changes: dict[str, Any] | None = None
) -> None:
    """Add an event of a user whose provider has vouched for them."""
    subject = Subject(ObjectType.USER, str(user.user_id), user.username, user.user_id)
    details = {"issuer": identity.issuer, "role": user.role}
    await audit.record(connection, user, action, subject, changes=changes, details=details)


async def _create_user(connection: Connection, identity: Identity, role: Role) -> Actor:
    for name in usernames_for(identity):
        row = await users.add(connection, name, role)
        if row is not None:
            user = users.to_actor(row)
            await _record(connection, AuditAction.USER_CREATED, user, identity)
            log.info("identity_user_created", user=user.user_id, role=user.role, issuer=identity.issuer)
            return user
    log.error("identity_names_taken", issuer=identity.issuer)
    raise UnauthenticatedError
