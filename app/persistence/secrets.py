"""Secrets and signing keys of owners. Values of secrets are never listed."""

import base64
import secrets
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
from sqlalchemy import Row, Select, cast, delete, func, literal, or_, select, text, tuple_, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Owner, Role
from app.domain.secrets import EVERYBODY, StoredSecret
from app.persistence.pagination import Page, Part, read_one, read_page, read_written
from app.persistence.sql_batches import fetch
from app.persistence.tables import SecretRow, UserProfile

# Secrets of one name that are looked at: every user may share one of that name with all.
MOST_OF_A_NAME = 100

KEY_BYTES = 32
# For how long after a rotation calls are signed with both keys.
OVERLAP_HOURS = 24

_TABLE = SecretRow.__table__
_USERS = UserProfile.__table__
# All columns but the value, which no list and no response shows.
_SHOWN = tuple(column for column in _TABLE.columns if column.name != "value")


class SecretInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A secret without its value."""

    id: int
    owner_id: int
    name: str
    # None for a secret without a value of its own, which stands for one of the environment: its hosts are named there.
    allowed_hosts: list[str] | None
    shared_with: Literal["all"] | list[int]
    created_at: datetime
    updated_at: datetime
    team_id: int | None = None


async def page(connection: AsyncConnection, owners: Sequence[int] | None, part: Part) -> Page[SecretInfo]:
    """Return a page of the secrets that these owners have or may use, newest first; None stands for all."""
    query: Select[Any] = select(*_SHOWN)
    if owners is not None:
        query = query.where(or_(_TABLE.c.owner_id.in_(owners), *map(_is_shared_with, owners)))
    return await read_page(connection, query, SecretInfo, (_TABLE.c.id,), part)


async def count_of(connection: AsyncConnection, owner_id: int) -> int:
    """Return the number of an owner's secrets."""
    query = select(func.count()).select_from(_TABLE).where(_TABLE.c.owner_id == owner_id)
    return int((await connection.execute(query)).scalar_one())


async def lock(connection: AsyncConnection, owner_id: int, name: str) -> SecretInfo | None:
    """Lock a secret against other changes and return it, or None."""
    query: Select[Any] = select(*_SHOWN).where(*_is(owner_id, name)).with_for_update()
    return await read_one(connection, query, SecretInfo)


async def add(connection: AsyncConnection, owner: Owner, name: str, values: dict[str, Any]) -> SecretInfo | None:
    """Create a secret and return it; None if the owner has one of that name."""
    owned = {"owner_id": owner.user_profile_id, "team_id": owner.team_id}
    statement = upsert(SecretRow).values(name=name, **owned, **values)
    statement = statement.on_conflict_do_nothing(index_elements=["owner_id", "name"])
    return await read_one(connection, statement.returning(*_SHOWN), SecretInfo)


async def save(connection: AsyncConnection, owner_id: int, name: str, values: dict[str, Any]) -> SecretInfo:
    """Change a secret that this transaction has locked."""
    changed = {**values, "updated_at": func.clock_timestamp()}
    statement = update(SecretRow).where(*_is(owner_id, name)).values(changed)
    return await read_written(connection, statement.returning(*_SHOWN), SecretInfo)


async def remove(connection: AsyncConnection, owner_id: int, name: str) -> bool:
    """Delete a secret. Return whether there was one."""
    return (await connection.execute(delete(SecretRow).where(*_is(owner_id, name)))).rowcount == 1


async def usable(connection: AsyncConnection, user_ids: Collection[int], names: Iterable[str]) -> list[StoredSecret]:
    """Return the secrets of these names that one of these users may use, their own and admins' first."""
    is_own = _TABLE.c.owner_id.in_(sorted(user_ids))
    query = (
        select(_TABLE, _USERS.c.role)
        .join(_USERS, _USERS.c.id == _TABLE.c.owner_id)
        .where(
            _TABLE.c.name.in_(sorted(names)), or_(is_own, *(_is_shared_with(user_id) for user_id in sorted(user_ids)))
        )
        .order_by(is_own.desc(), (_USERS.c.role == Role.ADMIN).desc(), _TABLE.c.id)
        .limit(MOST_OF_A_NAME * len(set(names)))
    )
    return [_stored(row) for row in await connection.execute(query)]


async def of_owners(connection: AsyncConnection, keys: Sequence[tuple[int, str]]) -> list[StoredSecret]:
    """Return the secrets of these owners and names."""
    if not keys:
        return []
    query = select(_TABLE, _USERS.c.role).join(_USERS, _USERS.c.id == _TABLE.c.owner_id)
    query = query.where(tuple_(_TABLE.c.owner_id, _TABLE.c.name).in_(list(keys)))
    return [_stored(row) for row in await connection.execute(query)]


def _is(owner_id: int, name: str) -> tuple[Any, Any]:
    return _TABLE.c.owner_id == owner_id, _TABLE.c.name == name


def _is_shared_with(user_id: int) -> Any:
    everybody = _TABLE.c.shared_with == cast(literal(EVERYBODY, JSONB), JSONB)
    return or_(everybody, _TABLE.c.shared_with.contains(cast(literal(user_id, JSONB), JSONB)))


def _stored(row: Row[Any]) -> StoredSecret:
    shared = row.shared_with
    return StoredSecret(
        id=row.id,
        name=row.name,
        owner_id=row.owner_id,
        owner_is_admin=row.role == Role.ADMIN,
        value=row.value,
        allowed_hosts=None if row.allowed_hosts is None else tuple(row.allowed_hosts),
        shared_with=EVERYBODY if shared == EVERYBODY else tuple(shared),
    )


_KEYS_OF_MANY = (
    "SELECT user_profile_id, key FROM signing_keys WHERE user_profile_id = ANY($1::int[]) "
    "AND (retires_at IS NULL OR retires_at > clock_timestamp()) ORDER BY id DESC"
)
_KEYS_OF = text(
    "SELECT key_id, key, retires_at FROM signing_keys WHERE user_profile_id = :owner "
    "AND (retires_at IS NULL OR retires_at > clock_timestamp()) ORDER BY id DESC"
)
_ADD_KEY = text(
    "INSERT INTO signing_keys (user_profile_id, key_id, key) VALUES (:owner, :key_id, :key) "
    "ON CONFLICT (user_profile_id) WHERE retires_at IS NULL DO NOTHING"
)
# Rotations of one owner wait for each other.
_LOCK_OWNER = text("SELECT id FROM user_profiles WHERE id = :owner FOR NO KEY UPDATE")
_FORGET_PREVIOUS = text("DELETE FROM signing_keys WHERE user_profile_id = :owner AND retires_at IS NOT NULL")
_RETIRE = text(
    "UPDATE signing_keys SET retires_at = clock_timestamp() + make_interval(hours => :hours) "
    "WHERE user_profile_id = :owner AND retires_at IS NULL"
)


class SigningKey(msgspec.Struct, frozen=True):
    """A signing key, and when it retires; None for the current one."""

    key_id: str
    key: str
    retires_at: datetime | None


async def ensure_signing_key(connection: AsyncConnection, owner_id: int) -> bool:
    """Create a key for an owner who has none. Return whether one was created."""
    key = "whsec_" + base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
    values = {"owner": owner_id, "key_id": f"key_{secrets.token_hex(8)}", "key": key}
    return (await connection.execute(_ADD_KEY, values)).rowcount == 1


async def rotate_signing_key(connection: AsyncConnection, owner_id: int) -> None:
    """Create a new key. The current one retires after the overlap; older ones are deleted."""
    await connection.execute(_LOCK_OWNER, {"owner": owner_id})
    await ensure_signing_key(connection, owner_id)
    await connection.execute(_FORGET_PREVIOUS, {"owner": owner_id})
    await connection.execute(_RETIRE, {"owner": owner_id, "hours": OVERLAP_HOURS})
    await ensure_signing_key(connection, owner_id)


async def signing_keys_of(connection: AsyncConnection, owner_id: int) -> list[SigningKey]:
    """Return the keys of an owner that are in use, newest first."""
    rows = await connection.execute(_KEYS_OF, {"owner": owner_id})
    return [SigningKey(row.key_id, row.key, row.retires_at) for row in rows]


async def read_signing_keys(connection: AsyncConnection, owner_ids: Sequence[int]) -> dict[int, list[str]]:
    """Return the keys of several owners that are in use, newest first; owners without one are left out."""
    keys: dict[int, list[str]] = {}
    for owner_id, key in await fetch(connection, _KEYS_OF_MANY, list(set(owner_ids))):
        keys.setdefault(owner_id, []).append(key)
    return keys
