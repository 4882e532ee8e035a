"""Creating and rotating the keys that sign the tokens of calls. Of several processes that try, one succeeds."""

import asyncio
from datetime import timedelta
from uuid import uuid4

import structlog
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from jwt.algorithms import RSAAlgorithm

from app.domain.call_tokens import ALGORITHM, newest_key, successor_activates_at
from app.domain.trigger_event import rfc3339
from app.persistence import oidc_keys
from app.persistence.database import Connection, Database, database_now
from app.persistence.oidc_keys import NewKey, OidcKey

KEY_BITS = 2048
PUBLIC_EXPONENT = 65_537

log = structlog.get_logger(__name__)


def new_key() -> NewKey:
    """Return a new RSA key. It takes some tens of milliseconds: call it in a thread."""
    private = rsa.generate_private_key(PUBLIC_EXPONENT, KEY_BITS)
    kid = uuid4().hex
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    jwk = RSAAlgorithm.to_jwk(private.public_key(), as_dict=True)
    public = {"kty": jwk["kty"], "kid": kid, "use": "sig", "alg": ALGORITHM, "n": jwk["n"], "e": jwk["e"]}
    return NewKey(kid, pem, public)


async def ensure_key(database: Database) -> None:
    """Create the first key, unless another process has just done so."""
    key = await asyncio.to_thread(new_key)
    async with database.transaction("add_oidc_key") as connection:
        is_added = await oidc_keys.add_first(connection, key)
    if is_added:
        log.info("oidc_key_created", key=key.kid)


async def rotate_if_due(database: Database) -> None:
    """Delete keys that no verifier needs any more, and publish a successor if the newest key is old."""
    async with database.transaction("keep_oidc_keys") as connection:
        await oidc_keys.remove_unpublished(connection)
        is_due = successor_activates_at(await oidc_keys.read(connection), await database_now(connection)) is not None
    if is_due:
        await _replace_newest(database, ahead=None)


async def rotate(database: Database, ahead: timedelta) -> OidcKey:
    """Publish a new key that signs after ``ahead``, and return the newest key."""
    await ensure_key(database)
    await _replace_newest(database, ahead)
    async with database.transaction() as connection:
        newest = newest_key(await oidc_keys.read(connection))
    if newest is None:
        raise AssertionError("the newest key is never deleted")
    return newest


async def _replace_newest(database: Database, ahead: timedelta | None) -> None:
    key = await asyncio.to_thread(new_key)
    async with database.transaction("rotate_oidc_key") as connection:
        is_added = await _add_successor(connection, key, ahead)
    if is_added:
        log.info("oidc_key_rotated", key=key.kid, activates_at=is_added)


async def _add_successor(connection: Connection, key: NewKey, ahead: timedelta | None) -> str:
    """Store the successor; return when it activates, or "" if another process was first."""
    keys, now = await oidc_keys.read(connection), await database_now(connection)
    activates_at = successor_activates_at(keys, now) if ahead is None else now + ahead
    newest = newest_key(keys)
    if newest is None or activates_at is None:
        return ""
    return rfc3339(activates_at) if await oidc_keys.add_successor(connection, newest.kid, key, activates_at) else ""
