"""Identity tokens: claims, keys and names. Forged tokens are in tests/api/test_identity_tokens.py."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, strategies

from app.domain.access import TeamRole
from app.domain.identity_tokens import (
    ALGORITHMS,
    ClaimRules,
    Identity,
    IdentityToken,
    TokenRefusedError,
    identity_of,
    matching_keys,
    read_token,
    teams_of,
    usernames_for,
)

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECOND = int(NOW.timestamp())
ISSUER = "https://login.example"
RULES = ClaimRules(issuer=ISSUER, audience="carillon")
LOGIN = ClaimRules(issuer=ISSUER, audience="console", nonce="n-1")
CLAIMS: dict[str, Any] = {"iss": ISSUER, "aud": "carillon", "sub": "jane", "exp": SECOND + 60}
LOGIN_CLAIMS: dict[str, Any] = {**CLAIMS, "aud": "console", "nonce": "n-1"}


def identity(**values: Any) -> Identity:
    """Return an identity."""
    whole: dict[str, Any] = {"issuer": ISSUER, "subject": "s", "names": ("s",), "groups": (), "issued_at": NOW}
    return Identity(**{**whole, "expires_at": NOW, **values})


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": SECOND - 59}, None),
        ({"exp": SECOND - 60}, "expired"),
        ({"nbf": SECOND + 60}, None),
        ({"nbf": SECOND + 61}, "not_yet_valid"),
        ({"iat": SECOND + 61}, "not_yet_valid"),
        ({"exp": SECOND + 0.5}, None),
        ({"aud": ["x", "carillon"]}, None),
        ({"aud": []}, "wrong_audience"),
        ({"sub": "x" * 255}, None),
        ({"sub": "x" * 256}, "no_subject"),
    ],
)
def test_claims_are_checked_with_a_minute_of_skew(claims: dict[str, Any], reason: str | None) -> None:
    """The reason of a refusal is a word for the log."""
    if reason is None:
        identity_of({**CLAIMS, **claims}, RULES, NOW)
    else:
        with pytest.raises(TokenRefusedError, match=f"^{reason}$"):
            identity_of({**CLAIMS, **claims}, RULES, NOW)


def test_no_audience_is_never_enough() -> None:
    """Not even if none is expected."""
    with pytest.raises(TokenRefusedError):
        identity_of({**CLAIMS, "aud": ""}, ClaimRules(issuer=ISSUER, audience=""), NOW)


@pytest.mark.parametrize(
    ("claims", "is_valid"),
    [
        ({}, True),
        ({"nonce": "n-2"}, False),
        ({"nonce": None}, False),
        ({"azp": "console"}, True),
        ({"azp": "other"}, False),
        ({"aud": ["console", "api"]}, False),
        ({"aud": ["console", "api"], "azp": "console"}, True),
        ({"aud": "carillon"}, False),
    ],
)
def test_a_login_needs_its_nonce_and_its_client(claims: dict[str, Any], is_valid: bool) -> None:
    """An ID token of another login or of another client is refused."""
    try:
        identity_of({**LOGIN_CLAIMS, **claims}, LOGIN, NOW)
    except TokenRefusedError:
        assert not is_valid
    else:
        assert is_valid


@pytest.mark.parametrize(
    ("name", "claims", "groups"),
    [
        ("groups", {"groups": ["a", 5, "b"]}, ("a", "b")),
        ("groups", {"groups": "a"}, ("a",)),
        ("groups", {"groups": {"a": 1}}, ()),
        ("realm_access.roles", {"realm_access": {"roles": ["a"]}}, ("a",)),
        ("https://x.example/groups", {"https://x.example/groups": ["a"]}, ("a",)),
        ("a.b", {"a": ["b"]}, ()),
    ],
)
def test_groups_are_found_by_name_or_by_path(name: str, claims: dict[str, Any], groups: tuple[str, ...]) -> None:
    """What is not a text is left out."""
    rules = ClaimRules(issuer=ISSUER, audience="carillon", groups_claim=name)
    assert groups == identity_of({**CLAIMS, **claims}, rules, NOW).groups


@pytest.mark.parametrize(
    ("key", "algorithms"),
    [
        ({"kty": "RSA", "alg": "RS256"}, {"RS256"}),
        ({"kty": "RSA"}, {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
        ({"kty": "EC", "crv": "P-256"}, {"ES256"}),
        ({"kty": "OKP", "crv": "Ed25519"}, {"EdDSA"}),
        ({"kty": "OKP", "crv": "X25519"}, set()),
        ({"kty": "OKP", "crv": ["Ed25519"]}, set()),
        ({"kty": "oct", "k": "AAAA"}, set()),
        ({"kty": "oct", "k": "AAAA", "alg": "RS256"}, set()),
        ({"kty": "RSA", "use": "enc"}, set()),
        ({"kty": "RSA", "alg": "RS256", "key_ops": ["encrypt"]}, set()),
        ({"kty": "RSA", "alg": "RS256", "key_ops": 5}, set()),
    ],
)
def test_a_key_is_used_with_its_own_algorithms_only(key: dict[str, Any], algorithms: set[str]) -> None:
    """Which its type, curve, algorithm and use allow."""
    fitting = {name for name in ALGORITHMS if matching_keys([key], IdentityToken("", name, None, {}))}
    assert algorithms == fitting


@given(strategies.text(), strategies.text(), strategies.text())
def test_every_identity_gets_a_name_that_users_can_have(preferred: str, email: str, subject: str) -> None:
    """With further ones in case it is taken."""
    names = usernames_for(identity(names=(preferred, email, subject)))
    assert len(names) >= 2
    assert len(names) == len(set(names))
    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,254}", name)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("jane", "j@x.example", "1"), "jane"),
        (("", "j@x.example", "1"), "j@x.example"),
        (("Zoë Müller",), "Zoe-Muller"),
        (("_.-@x",), "x"),
        (("system:serviceaccount:shop:orders",), "system-serviceaccount-shop-orders"),
        (("🔔",), "user"),
    ],
)
def test_the_first_fitting_name_is_taken(names: tuple[str, ...], expected: str) -> None:
    """In plain letters."""
    assert expected == usernames_for(identity(names=names))[0]


def test_no_identity_is_called_admin() -> None:
    """Whatever its provider says."""
    for name in ("admin", "ADMIN", "ádmin"):
        assert "admin" not in {found.lower() for found in usernames_for(identity(names=(name,)))}


@given(strategies.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """Without another error."""
    with pytest.raises(TokenRefusedError):
        read_token(text)


def test_clock_skew_is_a_minute() -> None:
    """As the API documents."""
    late = identity_of(CLAIMS, RULES, NOW + timedelta(seconds=119))
    assert "jane" == late.subject


def test_groups_name_teams_and_roles() -> None:
    """By a prefix, and a role behind a colon; the highest role counts, and what is no role is no team."""
    groups = ["t-shop", "t-shop:viewer", "t-web:viewer", "t-web:operator", "t-web:viewer", "t-ops:admin", "other", "t-"]
    assert {"shop": TeamRole.EDITOR, "web": TeamRole.OPERATOR} == teams_of(groups, "t-")
    assert {"a": TeamRole.OWNER} == teams_of(["a:owner"], "")
