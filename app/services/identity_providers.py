"""Identity providers: their metadata and keys, fetched over HTTP, and the signatures of their tokens."""

import asyncio
import socket
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import jwt
import msgspec
import structlog
from multidict import CIMultiDict

from app import clock
from app.domain.errors import CarillonError
from app.domain.identity_tokens import (
    ClaimRules,
    Identity,
    IdentityToken,
    TokenRefusedError,
    identity_of,
    matching_keys,
)
from app.http1.connections import send_once
from app.http1.requests import build_request, parse_target
from app.http1.response import ExchangeError, Response
from app.observability.logs import Outage

CALL_SECONDS = 5.0
MOST_ANSWER_BYTES = 1024 * 1024
MOST_KEYS = 100
# Keys are fetched again after this time, and sooner if a token names an unknown one. Anybody can send such tokens, so
# that of these fetches there are only so many at once, and one more for each time that has passed since.
KEYS_SECONDS = 600.0
REFRESH_SECONDS = 30.0
MOST_REFRESHES = 5
# Keys that nobody has asked for in this time are fetched before one of them is believed: it may be withdrawn since.
IDLE_SECONDS = 3600.0
# While there are no keys at all every token is refused, so that they are asked for more often.
FIRST_KEYS_SECONDS = 2.0
WELL_KNOWN = "/.well-known/openid-configuration"
# The parts of a published key that are used. One that is published with its private part is used as a public one.
PUBLIC_PARTS = ("kty", "crv", "n", "e", "x", "y")
# Short keys, which can be broken, are refused.
_SIGNATURES = jwt.PyJWS(options={"enforce_minimum_key_length": True})

log = structlog.get_logger(__name__)


class ProviderUnavailableError(CarillonError):
    """The identity provider cannot be reached, or its answer is not valid."""

    code = "identity_provider_unavailable"
    message = "The identity provider cannot be reached. Try again later."


class ProviderAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a provider is, and what its server is asked with."""

    issuer: str
    # The certificate authority of its server; blank: those of the system.
    ca_file: str = ""
    # The file of a bearer token that it requires; read for each call, because it may be replaced.
    token_file: str = ""


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a provider's discovery document that are used."""

    issuer: str
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    end_session_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class _KeySet(msgspec.Struct, frozen=True):
    keys: list[dict[str, Any]]


class IdentityProvider:
    """One provider. Its metadata and keys are cached; keys that are no longer published are soon forgotten."""

    def __init__(self, address: ProviderAddress) -> None:
        """Call the provider at this address, when it is first needed."""
        self.address = address
        self._metadata: Metadata | None = None
        self._keys: tuple[Mapping[str, Any], ...] = ()
        self._fetched_at = self._tried_at = float("-inf")
        # By when the fetches that were made are paid off, at the rate of one in REFRESH_SECONDS.
        self._paid_off_at = float("-inf")
        self._fetching = asyncio.Lock()
        self._refreshing: asyncio.Task[None] | None = None
        self._outage = Outage(log, away="identity_provider_unreachable", back="identity_provider_reachable")

    async def verify(self, token: IdentityToken, rules: ClaimRules) -> Identity:
        """Return who a token speaks of. Raise ``TokenRefusedError`` unless its claims and its signature are valid."""
        # First, so that only tokens that are meant for us can make us call the provider.
        identity = identity_of(token.claims, rules, clock.now())
        if not _is_signed(token, await self._keys_for(token)):
            raise TokenRefusedError("wrong_signature")
        return identity

    async def metadata(self) -> Metadata:
        """Return the provider's metadata; fetch it if it is not known. Raise ``ProviderUnavailableError``."""
        if self._metadata is None:
            await self._refresh(clock.monotonic())
        if self._metadata is None:
            raise ProviderUnavailableError
        return self._metadata

    async def post_form(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> Any:
        """Send a form to the provider; return the JSON of its answer. Raise ``ProviderUnavailableError``."""
        try:
            sent = {**headers, "Content-Type": "application/x-www-form-urlencoded"}
            answer = msgspec.json.decode((await self._call("POST", url, sent, urlencode(form).encode())).body)
        except (ExchangeError, OSError, ValueError) as error:
            self._outage.report("token", _described(error))
            raise ProviderUnavailableError from error
        self._outage.clear("token")
        return answer

    async def _keys_for(self, token: IdentityToken) -> list[Mapping[str, Any]]:
        now = clock.monotonic()
        if not self._keys or now - self._tried_at > IDLE_SECONDS:
            await self._refresh(now)
        elif now - self._fetched_at > KEYS_SECONDS:
            self._refresh_in_background(now)
        if not self._keys:
            raise ProviderUnavailableError
        keys = matching_keys(self._keys, token)
        if not keys:
            await self._refresh(now)
            keys = matching_keys(self._keys, token)
        if not keys:
            raise TokenRefusedError("unknown_key")
        return keys

    def _refresh_in_background(self, now: float) -> None:
        """Fetch metadata and keys while requests go on with those that are known: a provider may hang."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh(now))

    async def _refresh(self, now: float) -> None:
        """Fetch metadata and keys, unless that was tried a moment ago; if it fails, those that are known stay."""
        async with self._fetching:
            # Others that waited for the same fetch do not repeat it.
            if now < self._tried_at or not self._may_fetch(now):
                return
            self._tried_at = clock.monotonic()
            if self._keys:
                self._paid_off_at = max(self._paid_off_at, now) + REFRESH_SECONDS
            try:
                metadata = await self._fetch(f"{self.address.issuer.rstrip('/')}{WELL_KNOWN}", Metadata)
                self._require_valid(metadata)
                found = await self._fetch(metadata.jwks_uri, _KeySet)
            except (ExchangeError, OSError, ValueError) as error:
                self._outage.report("keys", _described(error))
                return
            self._outage.clear("keys")
            self._metadata, self._keys = metadata, tuple(found.keys[:MOST_KEYS])
            self._fetched_at = clock.monotonic()

    def _may_fetch(self, now: float) -> bool:
        """Return whether the provider may be asked: right after a rotation of its keys too, yet not for each token."""
        if not self._keys:
            return now >= self._tried_at + FIRST_KEYS_SECONDS
        return self._paid_off_at - now <= (MOST_REFRESHES - 1) * REFRESH_SECONDS

    def _require_valid(self, metadata: Metadata) -> None:
        """Refuse the metadata of another issuer, and addresses that are less protected than the issuer's own."""
        if metadata.issuer != self.address.issuer:
            raise ValueError("the discovery document names another issuer")
        schemes = {"https", urlsplit(self.address.issuer).scheme}
        urls = (metadata.jwks_uri, metadata.authorization_endpoint, metadata.token_endpoint)
        if any(url and urlsplit(url).scheme not in schemes for url in (*urls, metadata.end_session_endpoint)):
            raise ValueError("the discovery document has an address without TLS")

    async def _fetch(self, url: str, kind: type[Any]) -> Any:
        response = await self._call("GET", url, _bearer(self.address.token_file), b"")
        if response.status != 200:  # noqa: PLR2004
            raise ValueError(f"status {response.status}")
        return msgspec.json.decode(response.body, type=kind)

    async def _call(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Make one call. Calls are rare: no connection is kept for them."""
        target = parse_target(url)
        request = build_request(method, url, CIMultiDict({**headers, "Connection": "close"}), body)
        tls = ssl.create_default_context(cafile=self.address.ca_file or None) if target.is_tls else None
        async with asyncio.timeout(CALL_SECONDS):
            found = await asyncio.get_running_loop().getaddrinfo(
                target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
            )
        addresses = [(str(address[0]), target.port) for *_, address in found]
        response = await send_once(request, addresses, tls=tls, most_body_bytes=MOST_ANSWER_BYTES, seconds=CALL_SECONDS)
        if response.truncated:
            raise ValueError("the answer is too large")
        return response


def _bearer(token_file: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {Path(token_file).read_text().strip()}"} if token_file else {}


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]


def _is_signed(token: IdentityToken, keys: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether one of the keys has signed a token, each used with the token's algorithm alone."""
    return any(_is_signed_by(token, key) for key in keys)


def _is_signed_by(token: IdentityToken, key: Mapping[str, Any]) -> bool:
    public = {name: key[name] for name in PUBLIC_PARTS if name in key}
    try:
        _SIGNATURES.decode(token.text, jwt.PyJWK(public, token.algorithm), algorithms=[token.algorithm])
    except (jwt.PyJWTError, ValueError, TypeError):
        return False
    return True
