"""Single sign-on: browsers log in at the identity provider, by authorization code with PKCE, and get a session."""

import base64
import re
import secrets
from typing import Any
from urllib.parse import quote_plus, urlencode

import msgspec
import structlog

from app import clock
from app.domain.access import Actor
from app.domain.errors import NotFoundError, UnauthenticatedError
from app.domain.identity_tokens import ClaimRules, Identity, TokenRefusedError, read_token
from app.domain.login_attempts import LoginAttempt, begin_attempt, read_attempt
from app.observability.logs import LogThrottle
from app.persistence import identities
from app.persistence.database import Database
from app.services.identities import Identities, TrustedIssuer
from app.services.identity_providers import Metadata, ProviderUnavailableError
from app.services.sessions import Browser, SessionService

SECRET_BYTES = 32
CALLBACK_PATH = "/api/v1/session/oidc/callback"
AFTER_LOGOUT_PATH = "/console/"
# The form of the error codes of OAuth, such as `invalid_client`; bounded, because they are logged.
_ERROR_CODE = re.compile(r"[A-Za-z0-9_.-]{1,100}")

log = structlog.get_logger(__name__)


class LoginFailedError(UnauthenticatedError):
    """A login at the identity provider did not succeed."""

    code = "login_failed"
    message = "The login did not succeed, or it took too long. Start it again."


class _LoginRefusedError(TokenRefusedError):
    """A login is not accepted, or the provider did not accept it."""

    def __init__(self, reason: str, provider_error: object) -> None:
        """Store the error code of the provider if it is one; it comes from outside, so anything else is left out."""
        super().__init__(reason)
        is_code = isinstance(provider_error, str) and _ERROR_CODE.fullmatch(provider_error) is not None
        self.fields = {"provider_error": provider_error} if is_code else {}


class LoginClient(msgspec.Struct, frozen=True, kw_only=True):
    """The client that Carillon is for the provider."""

    client_id: str
    client_secret: str
    scopes: str


class LoginStart(msgspec.Struct, frozen=True):
    """Where a browser is sent to log in, and the cookie that its attempt is kept in."""

    url: str
    cookie: str


class LoginAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the provider sends a browser back with."""

    code: str
    state: str
    # The provider, if it names itself.
    issuer: str | None = None
    # Its error code, if the login failed there.
    error: str | None = None


class LoggedIn(msgspec.Struct, frozen=True):
    """The secret of the new session, and the page to go on with."""

    secret: str
    return_to: str


class SingleSignOn:
    """Logins at one identity provider. ``origin`` is this server as the browser sees it."""

    def __init__(
        self,
        database: Database,
        identity_users: Identities,
        sessions: SessionService,
        issuer: TrustedIssuer | None,
        client: LoginClient,
    ) -> None:
        """Offer logins at the issuer as this client; without either there are none."""
        self._database = database
        self._identities = identity_users
        self._sessions = sessions
        self._issuer = issuer if client.client_id else None
        self._client = client
        self._throttle = LogThrottle()

    async def start(self, origin: str, return_to: str) -> LoginStart:
        """Begin a login that ends on a page of this server."""
        issuer = self._configured()
        attempt = begin_attempt(secrets.token_urlsafe(SECRET_BYTES), return_to, clock.now())
        metadata = await issuer.provider.metadata()
        if not metadata.authorization_endpoint or not metadata.token_endpoint:
            raise ProviderUnavailableError
        asked = {
            "response_type": "code",
            "client_id": self._client.client_id,
            "redirect_uri": f"{origin}{CALLBACK_PATH}",
            "scope": self._client.scopes,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        return LoginStart(_with_query(metadata.authorization_endpoint, asked), attempt.cookie)

    async def finish(self, origin: str, cookie: str, answer: LoginAnswer, browser: Browser) -> LoggedIn:
        """Exchange the provider's code for a session. Why that fails is logged, not answered."""
        issuer = self._configured()
        try:
            attempt = _answered_attempt(cookie, answer, issuer)
            identity = await self._exchange(issuer, attempt, f"{origin}{CALLBACK_PATH}", answer.code)
        except TokenRefusedError as refusal:
            if self._throttle.should_log(refusal.reason):
                fields = refusal.fields if isinstance(refusal, _LoginRefusedError) else {}
                log.warning("login_failed", reason=refusal.reason, **fields)
            raise LoginFailedError from None
        try:
            actor = await self._identities.user_of(identity)
        except UnauthenticatedError:
            raise LoginFailedError from None
        return LoggedIn(await self._sessions.login_as(actor.user_id, browser), attempt.return_to)

    async def logout_url(self, actor: Actor, origin: str) -> str | None:
        """Return where a browser ends its session at the provider too, or None if it has none there."""
        if self._issuer is None or actor.session_id is None:
            return None
        async with self._database.reading() as connection:
            if not await identities.has(connection, actor.user_id, self._issuer.name):
                return None
        try:
            endpoint = (await self._issuer.provider.metadata()).end_session_endpoint
        except ProviderUnavailableError:
            return None
        asked = {"client_id": self._client.client_id, "post_logout_redirect_uri": f"{origin}{AFTER_LOGOUT_PATH}"}
        return _with_query(endpoint, asked) if endpoint else None

    def _configured(self) -> TrustedIssuer:
        if self._issuer is None:
            raise NotFoundError(
                "Single sign-on is not configured. Set CARILLON_OIDC_ISSUER and CARILLON_OIDC_CLIENT_ID, or log in "
                "with a token."
            )
        return self._issuer

    async def _exchange(self, issuer: TrustedIssuer, attempt: LoginAttempt, redirect_uri: str, code: str) -> Identity:
        metadata = await issuer.provider.metadata()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": attempt.verifier,
        }
        proof, headers = self._client_proof(metadata)
        answer: Any = await issuer.provider.post_form(metadata.token_endpoint, form | proof, headers)
        fields: dict[str, Any] = answer if isinstance(answer, dict) else {}
        id_token = fields.get("id_token")
        if not isinstance(id_token, str):
            raise _LoginRefusedError("code_refused", fields.get("error"))
        rules = ClaimRules(
            issuer=issuer.name,
            audience=self._client.client_id,
            groups_claim=issuer.groups_claim,
            nonce=attempt.nonce,
        )
        return await issuer.provider.verify(read_token(id_token), rules)

    def _client_proof(self, metadata: Metadata) -> tuple[dict[str, str], dict[str, str]]:
        """Return the fields and headers by which the client proves who it is; a header where the provider takes one."""
        client_id, secret = self._client.client_id, self._client.client_secret
        if not secret:
            return {"client_id": client_id}, {}
        if "client_secret_basic" in metadata.token_endpoint_auth_methods_supported:
            pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
            return {}, {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        return {"client_id": client_id, "client_secret": secret}, {}


def _answered_attempt(cookie: str, answer: LoginAnswer, issuer: TrustedIssuer) -> LoginAttempt:
    attempt = read_attempt(cookie)
    if attempt is None:
        raise TokenRefusedError("no_attempt")
    if not attempt.is_answered_by(answer.state, clock.now()):
        raise TokenRefusedError("wrong_state")
    if answer.issuer is not None and answer.issuer != issuer.name:
        raise TokenRefusedError("wrong_issuer")
    if not answer.code:
        raise _LoginRefusedError("no_code", answer.error)
    return attempt


def _with_query(url: str, query: dict[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"
