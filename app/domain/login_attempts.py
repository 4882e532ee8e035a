"""Login attempts of browsers: what ties the answer of an identity provider to the browser that asked for it.

Nothing is stored for an attempt. A cookie holds a random secret, the time and the page to return to; ``state``,
``nonce`` and the verifier of PKCE are derived from all three. Only the browser with the cookie can use the provider's
answer, and a changed cookie no longer fits the ``state`` that the provider returns.
"""

import base64
import hashlib
import hmac
import re
from datetime import datetime

import msgspec

from app.domain.errors import FieldError, InvalidError

ATTEMPT_SECONDS = 600
MOST_PATH_CHARACTERS = 1_000
DEFAULT_PATH = "/console/"
# A second slash or a backslash at the beginning would lead to another host, and browsers skip control characters.
_LOCAL_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]*")
_COOKIE = re.compile(r"([A-Za-z0-9_-]{43})\.([0-9]{1,12})\.([A-Za-z0-9_-]{1,2000})")


class LoginAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A login that a browser has begun."""

    secret: str
    began_at: int
    return_to: str

    @property
    def state(self) -> str:
        """Return what the provider sends back unchanged."""
        return self._derived("state")

    @property
    def nonce(self) -> str:
        """Return what the provider puts into the ID token."""
        return self._derived("nonce")

    @property
    def verifier(self) -> str:
        """Return what proves to the provider that the code is used by whoever asked for it."""
        return self._derived("verifier")

    @property
    def challenge(self) -> str:
        """Return the hash of the verifier, which the provider gets first."""
        return _encoded(hashlib.sha256(self.verifier.encode()).digest())

    @property
    def cookie(self) -> str:
        """Return the value of the cookie."""
        return f"{self.secret}.{self.began_at}.{_encoded(self.return_to.encode())}"

    def is_answered_by(self, state: str, now: datetime) -> bool:
        """Return whether the answer of a provider belongs to this attempt and comes in time."""
        age = now.timestamp() - self.began_at
        is_ours = hmac.compare_digest(self.state.encode(), state.encode(errors="replace"))
        return is_ours and -ATTEMPT_SECONDS < age < ATTEMPT_SECONDS

    def _derived(self, purpose: str) -> str:
        text = f"{purpose}\n{self.began_at}\n{self.return_to}"
        return _encoded(hmac.digest(self.secret.encode(), text.encode(), "sha256"))


def begin_attempt(secret: str, return_to: str, now: datetime) -> LoginAttempt:
    """Return a new attempt. Raise ``InvalidError`` for a page that is not one of this server."""
    if not is_local_path(return_to):
        raise InvalidError(FieldError("return_to", "It must be a path on this server, such as `/console/`."))
    return LoginAttempt(secret=secret, began_at=int(now.timestamp()), return_to=return_to)


def read_attempt(cookie: str) -> LoginAttempt | None:
    """Return the attempt of a cookie, or None if there is none in it."""
    parts = _COOKIE.fullmatch(cookie)
    if parts is None:
        return None
    try:
        return_to = base64.urlsafe_b64decode(parts[3] + "=" * (-len(parts[3]) % 4)).decode()
    except ValueError:
        return None
    if not is_local_path(return_to):
        return None
    return LoginAttempt(secret=parts[1], began_at=int(parts[2]), return_to=return_to)


def is_local_path(path: str) -> bool:
    """Return whether a browser that follows this path stays on this server."""
    return len(path) <= MOST_PATH_CHARACTERS and bool(_LOCAL_PATH.fullmatch(path))


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
