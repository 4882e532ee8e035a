"""An identity provider on loopback: discovery, published keys that can be rotated, and the authorization code flow."""

import asyncio
import base64
import hashlib
import json
import secrets
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlencode

import jwt
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.support.carillon import Json

CLIENT_ID = "carillon-console"
CLIENT_SECRET = "the secret: of the client"
_CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


class Key:
    """A pair of keys for one algorithm, with its id."""

    def __init__(self, kid: str, algorithm: str = "RS256", bits: int = 2048, use: str = "sig") -> None:
        self.kid = kid
        self.algorithm = algorithm
        self.use = use
        self.private = _private(algorithm, bits)

    @property
    def public(self) -> Json:
        """Return the public key as it is published."""
        algorithm = jwt.get_algorithm_by_name(self.algorithm)
        jwk: Json = algorithm.to_jwk(self.private.public_key(), as_dict=True)
        return {**jwk, "kid": self.kid, "use": self.use, "key_ops": ["verify"]}

    def sign(self, claims: Json | bytes, **header: Any) -> str:
        """Return a token with these claims; ``header`` adds to its head or replaces parts of it."""
        payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
        head = {"alg": self.algorithm, "typ": "JWT", "kid": self.kid, **header}
        given = {name: value for name, value in head.items() if value is not None}
        return self.sign_raw(json.dumps(given).encode(), payload)

    def sign_raw(self, header: bytes, payload: bytes) -> str:
        """Return a token of exactly this head and payload."""
        signed = f"{encoded(header)}.{encoded(payload)}"
        algorithm = jwt.get_algorithm_by_name(self.algorithm)
        return f"{signed}.{encoded(algorithm.sign(signed.encode(), self.private))}"


def _private(algorithm: str, bits: int) -> Any:
    if algorithm in _CURVES:
        return ec.generate_private_key(_CURVES[algorithm])
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Return the file of a certificate for 127.0.0.1 that signs itself, and the TLS of a server with it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "provider")])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    built = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    built = built.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    built = built.add_extension(names, critical=False)
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    signed = built.sign(key, hashes.SHA256())
    authority, private = folder / "ca.crt", folder / "tls.key"
    authority.write_bytes(signed.public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, private)
    return authority, context


def encoded(data: bytes) -> str:
    """Return base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Provider:
    """Publishes its keys, and logs in ``user`` without asking. ``paths`` are the calls that it got."""

    def __init__(self, *keys: Key, tls: ssl.SSLContext | None = None) -> None:
        self.keys = list(keys) or [Key("first")]
        self.tls = tls
        self.issuer = ""
        self.paths: list[str] = []
        self.authorizations: list[str | None] = []
        self.forms: list[Mapping[str, str]] = []
        self.metadata: Json = {}
        # The claims of the user who logs in, and what a faulty provider would add to the ID token.
        self.user: Json = {"sub": "248289761001", "preferred_username": "jane"}
        self.id_token_claims: Json = {}
        self.status = 200
        # While it is cleared, nothing is answered.
        self.answering = asyncio.Event()
        self.answering.set()
        self._codes: dict[str, Json] = {}

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/realm/.well-known/openid-configuration", self._discovery)
        app.router.add_get("/realm/keys", self._published)
        app.router.add_post("/realm/token", self._token)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self.tls).start()
        self.issuer = f"{'https' if self.tls else 'http'}://127.0.0.1:{self._runner.addresses[0][1]}/realm"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def claims(self, **others: Any) -> Json:
        """Return the claims of a valid access token; a value of None leaves a claim out."""
        now = int(datetime.now(UTC).timestamp())
        claims = {"iss": self.issuer, "aud": "carillon", "sub": "jane-1", "iat": now, "exp": now + 300, **others}
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, **claims: Any) -> str:
        """Return a valid access token with these claims."""
        return self.keys[0].sign(self.claims(**claims))

    async def _discovery(self, request: web.Request) -> web.Response:
        self._note(request)
        await self.answering.wait()
        return web.json_response(
            {
                "issuer": self.issuer,
                "jwks_uri": f"{self.issuer}/keys",
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "end_session_endpoint": f"{self.issuer}/logout",
                **self.metadata,
            },
            status=self.status,
        )

    async def _published(self, request: web.Request) -> web.Response:
        self._note(request)
        return web.json_response({"keys": [key.public for key in self.keys]}, status=self.status)

    def _note(self, request: web.Request) -> None:
        self.paths.append(request.path)
        self.authorizations.append(request.headers.get("Authorization"))

    def authorize(self, query: str) -> str:
        """Log the user in, as the page at the authorization endpoint does; return the query of the callback."""
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        assert ("code", "S256", CLIENT_ID) == (
            asked["response_type"],
            asked["code_challenge_method"],
            asked["client_id"],
        )
        assert "openid" in asked["scope"].split()
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        return urlencode({"code": code, "state": asked["state"], "iss": self.issuer, "session_state": "x"})

    async def _token(self, request: web.Request) -> web.Response:
        self._note(request)
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.forms.append(form)
        asked = self._codes.pop(form.get("code", ""), None)
        verifier = encoded(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if asked is None or asked["code_challenge"] != verifier or asked["redirect_uri"] != form["redirect_uri"]:
            return web.json_response({"error": "invalid_grant", "error_description": "internal detail"}, status=400)
        if not self._is_client(request, form):
            return web.json_response({"error": "invalid_client"}, status=401)
        claims = self.claims(aud=CLIENT_ID, nonce=asked["nonce"], **self.user)
        token = self.keys[0].sign({**claims, **self.id_token_claims})
        return web.json_response({"access_token": "opaque", "token_type": "Bearer", "id_token": token})

    @staticmethod
    def _is_client(request: web.Request, form: Mapping[str, str]) -> bool:
        header = request.headers.get("Authorization")
        if header is None:
            return form.get("client_secret", CLIENT_SECRET) == CLIENT_SECRET and form["client_id"] == CLIENT_ID
        # Both parts are form-encoded before they are joined.
        expected = f"{CLIENT_ID}:{urlencode({'': CLIENT_SECRET})[1:]}"
        return header == f"Basic {base64.b64encode(expected.encode()).decode()}"
