"""Views of users, teams, tokens, secrets and signing keys."""

from datetime import datetime
from typing import Any, Literal

import msgspec

from app.domain.access import OwnerKind, Role, Scope, TeamRole, highest, lesser, scope_of_role
from app.domain.limits import OwnQuotas
from app.persistence.quotas import stored_quotas
from app.persistence.users import Token, User, shown_prefix
from app.services.inputs import Instant
from app.services.listing import Encoded


class UserView(msgspec.Struct, kw_only=True):
    """A user."""

    id: int
    username: str
    role: Role
    kind: OwnerKind
    disabled: bool
    disabled_at: Instant | None
    created_at: Instant
    quotas: OwnQuotas


class UserList(msgspec.Struct):
    """A page of the list of users."""

    items: list[Encoded[UserView]]
    next_cursor: str | None


class TeamView(msgspec.Struct, kw_only=True):
    """A team, and your role in it."""

    id: int
    name: str
    # None for an admin who does not belong to the team.
    role: TeamRole | None
    created_at: Instant
    quotas: OwnQuotas


class TeamList(msgspec.Struct):
    """A page of the list of teams."""

    items: list[Encoded[TeamView]]
    next_cursor: str | None


class MemberView(msgspec.Struct, kw_only=True):
    """A member of a team."""

    user_id: int
    username: str
    role: TeamRole
    added_at: Instant


class MemberList(msgspec.Struct):
    """A page of a team's members."""

    items: list[Encoded[MemberView]]
    next_cursor: str | None


class RestrictionView(msgspec.Struct, kw_only=True):
    """The objects that a token is restricted to."""

    labels: dict[str, str]
    namespace: str | None
    workflow_ids: list[int]


class TokenView(msgspec.Struct, kw_only=True):
    """A token, without its text."""

    id: int
    user_id: int
    name: str
    kind: str
    prefix: str
    scopes: list[Scope]
    restrict: RestrictionView | None
    expires_at: Instant | None
    last_used_at: Instant | None
    created_at: Instant


class FreshTokenView(TokenView, kw_only=True):
    """A new token with its text, which is shown only once."""

    token: str


class TokenList(msgspec.Struct):
    """A page of a user's tokens."""

    items: list[Encoded[TokenView]]
    next_cursor: str | None


class SessionView(msgspec.Struct, kw_only=True):
    """A session of a browser."""

    id: int
    is_current: bool
    address: str
    user_agent: str
    created_at: Instant
    seen_at: Instant
    expires_at: Instant


class SessionList(msgspec.Struct):
    """A page of your sessions."""

    items: list[Encoded[SessionView]]
    next_cursor: str | None


class SessionCodeView(msgspec.Struct, kw_only=True):
    """A code that is exchanged for a session once."""

    code: str
    expires_at: Instant


class CurrentSessionView(msgspec.Struct, kw_only=True):
    """Who is logged in, and how far that reaches."""

    user: UserView
    role: Role
    scopes: list[Scope]
    # None where the request came with a token that has no end.
    expires_at: Instant | None
    # Where the browser ends its session at the identity provider too; None if it has none there.
    logout_url: str | None = None


def user_view(user: User) -> UserView:
    """Return the view of a user."""
    return UserView(
        id=user.id,
        username=user.username,
        role=Role(user.role),
        kind=OwnerKind(user.kind),
        disabled=user.disabled_at is not None,
        disabled_at=user.disabled_at,
        created_at=user.created_at,
        quotas=stored_quotas(user.quotas),
    )


def token_view(token: Token, owner: User) -> TokenView:
    """Return the view of a token; one without scopes has those of its owner's role."""
    return TokenView(**_token_fields(token, owner))


def fresh_token_view(token: Token, owner: User, text: str) -> FreshTokenView:
    """Return the view of a new token with its text."""
    return FreshTokenView(**_token_fields(token, owner), token=text)


def _token_fields(token: Token, owner: User) -> dict[str, Any]:
    top = scope_of_role(Role(owner.role))
    scope = top if token.scopes is None else lesser(top, highest(token.scopes))
    restriction = token.restriction
    return {
        **{name: getattr(token, name) for name in ("id", "name", "kind", "created_at")},
        "prefix": shown_prefix(token.prefix),
        "user_id": token.user_profile_id,
        "scopes": [one for one in Scope if scope.includes(one)],
        "restrict": None
        if restriction is None
        else RestrictionView(
            labels=dict(restriction.labels),
            namespace=restriction.namespace or None,
            workflow_ids=list(restriction.workflow_ids),
        ),
        "expires_at": token.expires_at,
        "last_used_at": token.last_used_at,
    }


class SecretView(msgspec.Struct, frozen=True, kw_only=True):
    """A secret, without its value. ``shared_to_you`` marks those of others that your own workflows may use."""

    name: str
    owner: int
    team_id: int | None
    shared_to_you: bool
    shared_to_teams: list[int]
    allowed_hosts: list[str] | None
    shared_with: Literal["all"] | list[int]
    created_at: datetime
    updated_at: datetime


class SecretPage(msgspec.Struct, frozen=True):
    """A page of the list of secrets."""

    items: list[SecretView]
    next_cursor: str | None


class PreviousKeyView(msgspec.Struct, kw_only=True):
    """The previous key; calls are signed with it too until it retires."""

    key_id: str
    key: str
    retires_at: Instant


class SigningKeyView(msgspec.Struct, kw_only=True):
    """The key that signs your calls, in the form of Standard Webhooks."""

    key_id: str
    key: str
    previous: PreviousKeyView | None


class JwkView(msgspec.Struct, kw_only=True):
    """A public key by which the tokens of calls are verified, as a JSON Web Key."""

    kty: str
    kid: str
    use: str
    alg: str
    n: str
    e: str


class JwksView(msgspec.Struct, kw_only=True):
    """The public keys by which the tokens of calls are verified, as a JSON Web Key Set."""

    keys: list[JwkView]


class IssuerView(msgspec.Struct, kw_only=True):
    """The issuer of the tokens that calls carry, in the form of OpenID Connect Discovery."""

    issuer: str
    jwks_uri: str
    id_token_signing_alg_values_supported: list[str]
    response_types_supported: list[str]
    subject_types_supported: list[str]
    claims_supported: list[str]


class OidcKeyView(msgspec.Struct, kw_only=True):
    """A key that signs the tokens of calls, and when it begins to."""

    key_id: str
    activates_at: Instant
