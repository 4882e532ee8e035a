"""What verifiers of Carillon's tokens read, and the rotation of the keys."""

import asyncio
from hashlib import sha256

import msgspec

from app import clock
from app.domain.access import Actor, require_admin
from app.domain.audit import AuditAction, ObjectType, Subject
from app.domain.call_tokens import ALGORITHM, PUBLISHED_BEFORE, SHORTEST_PUBLISHED_BEFORE
from app.domain.errors import NotFoundError, UnavailableError
from app.engine import oidc_keys as key_rotation
from app.persistence import audit, oidc_keys
from app.persistence.database import Connection, Database, database_now
from app.persistence.oidc_keys import OidcKey
from app.services.views import IssuerView, JwksView, JwkView, OidcKeyView

REFRESH_SECONDS = 5.0
JWKS_PATH = "/.well-known/jwks.json"
CLAIMS = (
    *("iss", "sub", "aud", "iat", "exp", "jti"),
    *("owner", "owner_id", "workflow_id", "execution_id", "schedule_name"),
)


class PublishedKeys(msgspec.Struct, frozen=True):
    """The list of keys, and the entity tag of this version of it."""

    view: JwksView
    etag: str
    read_at: float


class IssuerService:
    """Publishes the keys from memory: they are read from Postgres every few seconds at most, however many ask."""

    def __init__(self, database: Database, issuer: str) -> None:
        """Publish for this issuer; a blank one publishes nothing."""
        self._database = database
        self._issuer = issuer
        self._published: PublishedKeys | None = None
        self._reading = asyncio.Lock()

    def configuration(self) -> IssuerView:
        """Return what OpenID Connect Discovery says of the issuer."""
        self._require_issuer()
        return IssuerView(
            issuer=self._issuer,
            jwks_uri=self._issuer + JWKS_PATH,
            id_token_signing_alg_values_supported=[ALGORITHM],
            response_types_supported=["id_token"],
            subject_types_supported=["public"],
            claims_supported=list(CLAIMS),
        )

    async def keys(self) -> PublishedKeys:
        """Return the public keys; during an outage those that were read last."""
        self._require_issuer()
        published = self._published
        if published is not None and clock.monotonic() - published.read_at < REFRESH_SECONDS:
            return published
        async with self._reading:
            if self._published is published or self._published is None:
                try:
                    self._published = await self._read()
                except UnavailableError:
                    if published is None:
                        raise
                    self._published = msgspec.structs.replace(published, read_at=clock.monotonic())
            return self._published

    def _require_issuer(self) -> None:
        if not self._issuer:
            raise NotFoundError("Carillon issues no tokens here: CARILLON_PUBLIC_URL is not set.")

    async def _read(self) -> PublishedKeys:
        keys = await self._read_keys()
        if not keys:
            # A verifier that cached an empty list would refuse the first tokens.
            await key_rotation.ensure_key(self._database)
            keys = await self._read_keys()
        view = JwksView(keys=[JwkView(**key.public_key) for key in keys])
        etag = sha256(msgspec.json.encode(view)).hexdigest()[:32]
        return PublishedKeys(view, f'"{etag}"', clock.monotonic())

    async def _read_keys(self) -> list[OidcKey]:
        async with self._database.reading("read_oidc_keys") as connection:
            return await _published(connection)


async def _published(connection: Connection) -> list[OidcKey]:
    now = await database_now(connection)
    return [key for key in await oidc_keys.read(connection) if key.is_published_at(now)]


class OidcKeyService:
    """Use cases of operators about the keys."""

    def __init__(self, database: Database) -> None:
        """Work on this database. All processes see a new key within seconds."""
        self._database = database

    async def rotate(self, actor: Actor, *, soon: bool = False) -> OidcKeyView:
        """Publish a new key. It signs a day later, or, if ``soon``, as soon as all processes have published it."""
        require_admin(actor)
        key = await key_rotation.rotate(self._database, SHORTEST_PUBLISHED_BEFORE if soon else PUBLISHED_BEFORE)
        async with self._database.transaction() as connection:
            subject = Subject(ObjectType.OIDC_KEY, key.kid)
            await audit.record(connection, actor, AuditAction.OIDC_KEY_ROTATED, subject)
        return OidcKeyView(key_id=key.kid, activates_at=key.activates_at)
