"""Identity tokens: JSON Web Tokens of an identity provider, read strictly, and what their claims say of a user.

Only signatures are verified elsewhere (``app.services.identity_providers``): that needs the provider's keys.
"""

import base64
import binascii
import hmac
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import msgspec

from app.domain.access import ROLE_BY_CLAIM, TEAM_NAME_PATTERN, TeamRole

MOST_TOKEN_CHARACTERS = 16_384
MOST_SUBJECT_CHARACTERS = 255
MOST_KEY_ID_CHARACTERS = 255
MOST_GROUPS = 1_000
CLOCK_SKEW = timedelta(seconds=60)
# The last second of the year 9999, the largest moment that a datetime can hold.
LAST_SECOND = 253_402_300_799
# Later ends count as this one, so that a time zone or the clock skew can be added to each.
LATEST_END = datetime(9999, 12, 1, tzinfo=UTC)
# The types and curves of the keys that each algorithm is used with. Algorithms with a shared secret and `none` are
# missing: with them, anybody who knows the public key could sign.
ALGORITHMS: dict[str, tuple[str, tuple[str | None, ...]]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", (None,))),
    "ES256": ("EC", ("P-256",)),
    "ES384": ("EC", ("P-384",)),
    "ES512": ("EC", ("P-521",)),
    "EdDSA": ("OKP", ("Ed25519", "Ed448")),
}
# What `typ` may say; tokens for other purposes, such as `logout+jwt`, are refused.
TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})
# Extensions that change what is signed; a token that needs one is refused.
UNSUPPORTED_HEADERS = ("crit", "b64")
RESERVED_NAMES = frozenset({"admin", "nobody", "system"})
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.@-]+")
_MOST_NAME_CHARACTERS = 200
_TEAM_NAME = re.compile(TEAM_NAME_PATTERN)
# From the least to the highest.
_TEAM_ROLES = tuple(TeamRole)


class TokenRefusedError(Exception):
    """An identity token is not accepted. The reason is for the log, never for the client."""

    def __init__(self, reason: str) -> None:
        """Store the reason, which never contains a part of the token."""
        super().__init__(reason)
        self.reason = reason


class IdentityToken(msgspec.Struct, frozen=True):
    """A token that was read and not verified."""

    text: str
    algorithm: str
    key_id: str | None
    claims: dict[str, Any]

    @property
    def issuer(self) -> str:
        """Return the issuer that the token names, or an empty text."""
        issuer = self.claims.get("iss")
        return issuer if isinstance(issuer, str) else ""


class ClaimRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the claims of a token must say, and which of them has the groups."""

    issuer: str
    audience: str
    groups_claim: str = "groups"
    # Of a login: the nonce that the provider was sent.
    nonce: str | None = None


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A user as an identity provider describes them."""

    issuer: str
    subject: str
    # What the user may be called, the best name first.
    names: tuple[str, ...]
    groups: tuple[str, ...]
    # None if the token does not say: nobody knows then whether its claims are newer than those that were applied.
    issued_at: datetime | None
    expires_at: datetime


def teams_of(groups: Iterable[str], prefix: str) -> dict[str, TeamRole]:
    """Return the teams that groups name, each with the user's role in it.

    A group is the prefix and the name of a team, or also a colon and a role. Of several roles the highest counts. A
    group that cannot be the name of a team counts for nothing: the database could not even store some of them.
    """
    named: dict[str, TeamRole] = {}
    for group in groups:
        if group.startswith(prefix):
            team, _, role = group.removeprefix(prefix).partition(":")
            if _TEAM_NAME.fullmatch(team) and (not role or role in _TEAM_ROLES):
                roles = (TeamRole(role) if role else ROLE_BY_CLAIM, named.get(team, TeamRole.VIEWER))
                named[team] = max(roles, key=_TEAM_ROLES.index)
    return named


def looks_like_jwt(token: str) -> bool:
    """Return whether a bearer token has three parts, as no token of Carillon's own has."""
    return token.count(".") == 2  # noqa: PLR2004


def read_token(text: str) -> IdentityToken:
    """Read a token in its only spelling. Raise ``TokenRefusedError`` if it is malformed or of no accepted kind."""
    if len(text) > MOST_TOKEN_CHARACTERS:
        raise TokenRefusedError("too_long")
    parts = text.split(".")
    if len(parts) != 3:  # noqa: PLR2004
        raise TokenRefusedError("malformed")
    head, body, _signature = (_decode(part) for part in parts)
    header, claims = _read_object(head), _read_object(body)
    algorithm, key_id, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenRefusedError("algorithm_not_allowed")
    if any(name in header for name in UNSUPPORTED_HEADERS):
        raise TokenRefusedError("unsupported_header")
    if not isinstance(kind, str) or kind.lower() not in TYPES:
        raise TokenRefusedError("wrong_type")
    if key_id is not None and (not isinstance(key_id, str) or len(key_id) > MOST_KEY_ID_CHARACTERS):
        raise TokenRefusedError("malformed")
    return IdentityToken(text, algorithm, key_id, claims)


def _decode(part: str) -> bytes:
    """Decode base64url. Another spelling of the same bytes is refused, so that a token has one text."""
    try:
        data = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) if _BASE64URL.fullmatch(part) else b""
    except binascii.Error:
        data = b""
    if not data or base64.urlsafe_b64encode(data).rstrip(b"=").decode() != part:
        raise TokenRefusedError("malformed")
    return data


def _read_object(data: bytes) -> dict[str, Any]:
    """Read a JSON object. A repeated name is refused: two readers could take it for two different values."""
    try:
        value = json.loads(data.decode(), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError):
        raise TokenRefusedError("malformed") from None
    if not isinstance(value, dict):
        raise TokenRefusedError("malformed")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise TokenRefusedError("repeated_name")
    return dict(pairs)


def matching_keys(keys: Sequence[Mapping[str, Any]], token: IdentityToken) -> list[Mapping[str, Any]]:
    """Return the keys of a provider that may have signed a token: by id, type, curve, algorithm and use."""
    return [
        key
        for key in keys
        if (token.key_id is None or key.get("kid") == token.key_id) and _is_for(key, token.algorithm)
    ]


def _is_for(key: Mapping[str, Any], algorithm: str) -> bool:
    key_type, curves = ALGORITHMS[algorithm]
    operations = key.get("key_ops", ["verify"])
    return (
        key.get("kty") == key_type
        and key.get("crv") in curves
        and key.get("alg", algorithm) == algorithm
        and key.get("use", "sig") == "sig"
        and isinstance(operations, list)
        and "verify" in operations
    )


def identity_of(claims: Mapping[str, Any], rules: ClaimRules, now: datetime) -> Identity:
    """Return who the claims of a token speak of. Raise ``TokenRefusedError`` if they do not keep the rules."""
    if claims.get("iss") != rules.issuer:
        raise TokenRefusedError("wrong_issuer")
    audiences = _texts(claims.get("aud"))
    if not rules.audience or rules.audience not in audiences:
        raise TokenRefusedError("wrong_audience")
    if rules.nonce is not None:
        _check_login(claims, audiences, rules.audience, rules.nonce)
    expires_at, not_before, issued_at = (_moment(claims.get(name)) for name in ("exp", "nbf", "iat"))
    if expires_at is None:
        raise TokenRefusedError("no_expiry")
    if expires_at <= now - CLOCK_SKEW:
        raise TokenRefusedError("expired")
    if any(moment is not None and moment > now + CLOCK_SKEW for moment in (not_before, issued_at)):
        raise TokenRefusedError("not_yet_valid")
    return Identity(
        issuer=rules.issuer,
        subject=_subject(claims.get("sub")),
        names=tuple(
            name
            for name in (claims.get("preferred_username"), claims.get("email"), claims["sub"])
            if isinstance(name, str)
        ),
        groups=_groups(claims, rules.groups_claim),
        issued_at=issued_at,
        expires_at=min(expires_at, LATEST_END),
    )


def _check_login(claims: Mapping[str, Any], audiences: Sequence[str], client_id: str, nonce: str) -> None:
    """Refuse an ID token of another login, or one that was issued to another client."""
    given = claims.get("nonce")
    if not isinstance(given, str) or not hmac.compare_digest(given.encode(errors="replace"), nonce.encode()):
        raise TokenRefusedError("wrong_nonce")
    if claims.get("azp", client_id if len(audiences) == 1 else None) != client_id:
        raise TokenRefusedError("wrong_authorized_party")


def _moment(value: Any) -> datetime | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefusedError("malformed_time")
    # Not true of NaN either.
    if not 0 <= value <= LAST_SECOND:
        raise TokenRefusedError("malformed_time")
    return datetime.fromtimestamp(value, UTC)


def _subject(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MOST_SUBJECT_CHARACTERS or not value.isprintable():
        raise TokenRefusedError("no_subject")
    return value


def _groups(claims: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the groups of a claim; a dot in its name leads into an object, such as ``realm_access.roles``."""
    value: Any = claims.get(name)
    if value is None:
        value = claims
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    return _texts(value)[:MOST_GROUPS]


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(text for text in value if isinstance(text, str)) if isinstance(value, list) else ()


def usernames_for(identity: Identity) -> tuple[str, ...]:
    """Return the names to try for a new user, in this order. All but the first contain a part of a hash.

    A name that is taken is never taken over: whoever may choose a name at the provider could become anybody here.
    """
    name = next((fitting for name in identity.names if (fitting := _fitting_name(name))), "user")
    mark = sha256(f"{identity.issuer}\n{identity.subject}".encode()).hexdigest()
    marked = (f"{name}-{mark[:8]}", f"{name}-{mark[:32]}")
    return marked if name.lower() in RESERVED_NAMES else (name, *marked)


def _fitting_name(name: str) -> str:
    """Return a name in the letters that user names may have, or an empty text."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return _NOT_IN_NAMES.sub("-", plain).lstrip("_.@-")[:_MOST_NAME_CHARACTERS].rstrip("-")
