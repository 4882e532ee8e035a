"""Sessions of browsers, and the codes that are exchanged for one. Of both only hashes are stored."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import delete, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.access import Actor
from app.persistence.pagination import Page, Part, read_page, read_written
from app.persistence.sql_batches import fetch
from app.persistence.tables import SessionCodeRow, SessionRow
from app.persistence.users import OWNER, TOKEN_TERMS, token_actor

# A session ends when it was not used for so long, and in any case so long after the login.
IDLE_SECONDS = 2 * 3600
LONGEST_SECONDS = 12 * 3600
CODE_SECONDS = 10 * 60

_TABLE = SessionRow.__table__
_IS_VALID = (
    "s.expires_at > clock_timestamp() AND u.disabled_at IS NULL AND coalesce(t.expires_at > clock_timestamp(), true) "
    f"AND s.seen_at > clock_timestamp() - interval '{IDLE_SECONDS} seconds'"
)
_BY_HASH = (
    f"SELECT s.secret_hash, s.id AS session_id, {OWNER}, {TOKEN_TERMS}, "  # noqa: S608
    "least(t.expires_at, s.credential_ends_at) AS credential_ends_at "
    "FROM unnest($1::bytea[]) AS given(secret_hash) JOIN sessions AS s ON s.secret_hash = given.secret_hash "
    "JOIN user_profiles AS u ON u.id = s.user_profile_id LEFT JOIN api_tokens AS t ON t.id = s.token_id "
    f"WHERE {_IS_VALID}"
)
# A row that another process is just writing the same into is left out: nobody waits, and nobody waits for each other.
_SEEN = (
    "UPDATE sessions AS s SET seen_at = u.at FROM unnest($1::int[], $2::timestamptz[]) AS u(id, at), "
    "(SELECT id FROM sessions WHERE id = ANY($1) FOR NO KEY UPDATE SKIP LOCKED) AS free "
    "WHERE s.id = u.id AND free.id = s.id AND s.seen_at < u.at"
)
_TAKE_CODE = text(
    "DELETE FROM session_codes AS c USING user_profiles AS u WHERE c.code_hash = :code_hash "
    "AND c.user_profile_id = u.id AND u.disabled_at IS NULL AND c.expires_at > clock_timestamp() "
    "AND coalesce(c.credential_ends_at > clock_timestamp(), true) "
    "RETURNING c.user_profile_id, c.token_id, c.credential_ends_at"
)
_DELETE_ENDED = text(
    "DELETE FROM sessions WHERE expires_at <= clock_timestamp() "  # noqa: S608
    f"OR seen_at <= clock_timestamp() - interval '{IDLE_SECONDS} seconds'"
)
_IS_LIVE = (
    "sessions.expires_at > clock_timestamp() "
    f"AND sessions.seen_at > clock_timestamp() - interval '{IDLE_SECONDS} seconds' "
    "AND NOT EXISTS (SELECT FROM api_tokens AS t WHERE t.id = sessions.token_id AND t.expires_at <= clock_timestamp())"
)
_DELETE_CODES = text("DELETE FROM session_codes WHERE expires_at <= clock_timestamp()")


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A stored session, without its hash."""

    id: int
    user_profile_id: int
    token_id: int | None
    address: str
    user_agent: str
    created_at: datetime
    seen_at: datetime
    expires_at: datetime


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """A session of an actor."""

    actor: Actor
    session_id: int


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is begun with: a user, the stored token if there is one, and when the credential ends."""

    user_id: int
    token_id: int | None = None
    ends_at: datetime | None = None


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that is to be stored."""

    secret_hash: bytes
    user_profile_id: int
    token_id: int | None
    address: str
    user_agent: str
    expires_at: datetime
    credential_ends_at: datetime | None


_SHOWN = tuple(_TABLE.c[name] for name in Session.__struct_fields__)


async def find(connection: AsyncConnection, hashes: Sequence[bytes]) -> dict[bytes, Login]:
    """Return the valid sessions among these, by the hash of their secret."""
    return {row["secret_hash"]: _login(row) for row in await fetch(connection, _BY_HASH, list(hashes))}


def _login(row: Any) -> Login:
    session_id: int = row["session_id"]
    actor = msgspec.structs.replace(token_actor(row), session_id=session_id, ends_at=row["credential_ends_at"])
    return Login(actor=actor, session_id=session_id)


async def add(connection: AsyncConnection, new: NewSession) -> Session:
    """Store a session."""
    return await read_written(
        connection, insert(SessionRow).values(msgspec.structs.asdict(new)).returning(*_SHOWN), Session
    )


async def delete_ended(connection: AsyncConnection) -> None:
    """Delete the sessions and the codes that have ended."""
    await connection.execute(_DELETE_ENDED)
    await connection.execute(_DELETE_CODES)


async def add_code(connection: AsyncConnection, code_hash: bytes, credential: Credential, expires_at: datetime) -> None:
    """Store a code that is exchanged for a session once."""
    values = {
        "code_hash": code_hash,
        "user_profile_id": credential.user_id,
        "token_id": credential.token_id,
        "credential_ends_at": credential.ends_at,
        "expires_at": expires_at,
    }
    await connection.execute(insert(SessionCodeRow).values(values))


async def take_code(connection: AsyncConnection, code_hash: bytes) -> Credential | None:
    """Use a code up. Return what it stands for; None if it is unknown, used or too old, or its token has ended."""
    row = (await connection.execute(_TAKE_CODE, {"code_hash": code_hash})).one_or_none()
    if row is None:
        return None
    return Credential(user_id=row.user_profile_id, token_id=row.token_id, ends_at=row.credential_ends_at)


async def count_live(connection: AsyncConnection, user_id: int) -> int:
    """Return how many sessions of a user have not ended."""
    query = select(func.count()).select_from(_TABLE).where(_TABLE.c.user_profile_id == user_id, text(_IS_LIVE))
    return (await connection.execute(query)).scalar_one()


async def page(connection: AsyncConnection, user_id: int, part: Part) -> Page[Session]:
    """Return a page of a user's sessions that have not ended, newest first."""
    query = select(*_SHOWN).where(_TABLE.c.user_profile_id == user_id, text(_IS_LIVE))
    return await read_page(connection, query, Session, (_TABLE.c.id,), part)


async def remove(connection: AsyncConnection, session_id: int, user_id: int | None) -> int | None:
    """End a session, of this user unless it is None; return whose it was, or None if there was none."""
    statement = delete(SessionRow).where(_TABLE.c.id == session_id)
    if user_id is not None:
        statement = statement.where(_TABLE.c.user_profile_id == user_id)
    return (await connection.execute(statement.returning(_TABLE.c.user_profile_id))).scalar_one_or_none()


async def end_of(connection: AsyncConnection, session_id: int) -> datetime | None:
    """Return when a session ends in any case."""
    return (await connection.execute(select(_TABLE.c.expires_at).where(_TABLE.c.id == session_id))).scalar_one_or_none()


async def note_use(connection: AsyncConnection, moments: Mapping[int, datetime]) -> None:
    """Store when sessions were last used, by their ids."""
    await fetch(connection, _SEEN, list(moments), list(moments.values()))
