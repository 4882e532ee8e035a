"""Requests to the API: one connection, problems as errors, pages of lists, and the live pulse."""

import re
import ssl
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from app.client.contexts import HOW_TO_CONNECT, Target
from app.client.errors import ApiError, ClientError, Exit

API = "/api/v1"
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
PAGE_ITEMS = 500
# The first page is short, so that its rows are shown at once.
FIRST_PAGE_ITEMS = 50
LONGEST_WAIT_SECONDS = 120.0
TOO_MANY_REQUESTS = 429
ERRORS_FROM = 400
REDIRECTS = range(300, 400)
_READING = frozenset({"GET", "HEAD"})

# Answers with a token or a code are never stored, so the server takes no key for these calls.
_SECRET_ANSWERS = re.compile(r"/(tokens|leases|session|sessions|signing-key|secrets)/")

Params = Mapping[str, Any]
Say = Callable[[str], None]


class Answer(msgspec.Struct, frozen=True):
    """A response: its status, its headers with names in lower case, and its body."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the decoded body; None if it is empty."""
        if not self.body:
            return None
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ClientError(
                "The server's answer is not JSON. Is the address that of a Carillon?", hint=HOW_TO_CONNECT
            ) from None


class Page(msgspec.Struct, frozen=True):
    """A part of a list: its items, and the other members of the answer."""

    items: list[Any]
    members: dict[str, Any]


def path_part(value: object) -> str:
    """Return a value as a part of a path."""
    return quote(str(value), safe="")


def say(message: str) -> None:
    """Print a message to stderr."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


class Connection:
    """A connection to one server with one token; it is opened by the first request and kept."""

    def __init__(self, target: Target, inform: Say = say, *, has_keys: bool = True) -> None:
        """Send each POST with a key, unless ``has_keys`` is False: the server stores the answers to such requests."""
        if not (target.token.isascii() and target.token.isprintable()):
            # Without the token: an error of the library would quote it.
            raise ClientError("The token has characters that no token has.", Exit.BAD_INPUT)
        self.target = target
        self._inform = inform
        self._has_keys = has_keys
        self._parts = urlsplit(target.url)
        self._http: HTTPConnection | None = None

    def __enter__(self) -> Self:
        """Begin a block at whose end the connection is closed."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection; another request would open a new one."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def get(self, path: str, params: Params | None = None) -> Any:
        """Return what a GET below /api/v1 answers."""
        return self.call("GET", path, params=params)

    def call(self, method: str, path: str, body: Any = None, *, params: Params | None = None) -> Any:
        """Send a request below /api/v1 and return the decoded answer."""
        return self.send(method, API + path, body, params=params).json()

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request to any path and return its answer; an error of the API is raised."""
        answer = self.raw(method, path, None if body is None else msgspec.json.encode(body), params, headers)
        if answer.status in REDIRECTS:
            place = answer.headers.get("location", "another address")
            raise ClientError(f"The server redirects to {place}.", Exit.BAD_INPUT, hint="Use that address as --server.")
        if answer.status >= ERRORS_FROM:
            raise self._error(answer)
        return answer

    def raw(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request and return its answer, whatever its status; one over the rate limit is repeated."""
        sent = {**self._headers(body), **(headers or {})}
        if self._has_keys and method == "POST" and not _SECRET_ANSWERS.search(path):
            # The request can be sent again if the connection breaks: the server carries it out once.
            sent.setdefault("Idempotency-Key", uuid.uuid4().hex)
        url = self._parts.path + path + query(params)
        waited = 0.0
        while True:
            answer = self._exchange(method, url, body, sent)
            pause = _retry_after(answer)
            if answer.status != TOO_MANY_REQUESTS or waited + pause > LONGEST_WAIT_SECONDS:
                return answer
            self._inform(f"The rate limit is reached; waiting {pause:.0f} s.")
            time.sleep(pause)
            waited += pause

    def pages(self, path: str, params: Params | None = None, most: int = 0) -> Iterator[Page]:
        """Yield the pages of a list below /api/v1, up to this many items; 0 is all of them."""
        cursor, left = None, most
        size = FIRST_PAGE_ITEMS
        while True:
            size = min(size, left) if most else size
            page = self.get(path, {**(params or {}), "limit": size, "cursor": cursor})
            members = {name: value for name, value in page.items() if name != "items"}
            yield Page(page["items"], members)
            left -= len(page["items"])
            cursor = members.get("next_cursor")
            if not cursor or (most and left <= 0):
                return
            size = PAGE_ITEMS

    def events(self, path: str) -> Iterator[Any]:
        """Yield the data of each event of a stream below /api/v1, until the server ends it."""
        response = self._open("GET", self._parts.path + API + path, None, self._headers(None))
        if response.status != 200:  # noqa: PLR2004 - a stream has no other status of success
            raise self._error(_read(response))
        try:
            for line in response:
                if line.startswith(b"data:"):
                    yield msgspec.json.decode(line[5:])
        except (OSError, HTTPException, msgspec.DecodeError) as error:
            raise self._unreachable(error) from None
        finally:
            self.close()

    def _headers(self, body: bytes | None) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "carillon-cli"}
        if self.target.token:
            headers["Authorization"] = f"Bearer {self.target.token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        return headers

    def _exchange(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        """Send a request; once more if the server had closed the kept connection."""
        while True:
            is_kept = self._http is not None
            try:
                return _read(self._request(method, url, body, headers))
            except KeyboardInterrupt:
                self.close()
                if method not in _READING:
                    path = url.partition("?")[0]
                    self._inform(f"\nInterrupted before the answer to {method} {path}: it may have been carried out.")
                raise
            except (OSError, HTTPException, ValueError) as error:
                self.close()
                is_safe = method != "POST" or "Idempotency-Key" in headers
                if not (is_kept and is_safe) or isinstance(error, TimeoutError | ValueError):
                    raise self._unreachable(error) from None

    def _open(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> HTTPResponse:
        self.close()
        try:
            return self._request(method, url, body, headers)
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            raise self._unreachable(error) from None

    def _request(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> HTTPResponse:
        if self._http is None:
            self._http = self._connected()
        self._http.request(method, url, body, dict(headers))
        return self._http.getresponse()

    def _connected(self) -> HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            context = ssl.create_default_context()
            connection: HTTPConnection = HTTPSConnection(host, port, timeout=CONNECT_SECONDS, context=context)
        else:
            connection = HTTPConnection(host, port, timeout=CONNECT_SECONDS)
        connection.connect()
        connection.sock.settimeout(ANSWER_SECONDS)
        return connection

    def _unreachable(self, error: Exception) -> ClientError:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        hint = "`carillon doctor` checks the connection step by step."
        if isinstance(error, ssl.SSLCertVerificationError):
            hint = "SSL_CERT_FILE names a file with a certificate authority of your own."
        elif isinstance(error, ssl.SSLError):
            hint = "Does the server speak TLS? If not, its address begins with http://."
        if self.target.source.startswith("`carillon up`"):
            hint = f"Start it with `carillon up`, or name another server. {HOW_TO_CONNECT}"
        return ClientError(f"{self.target.url} cannot be reached: {reason} ({self.target.source}).", hint=hint)

    def _error(self, answer: Answer) -> ApiError:
        try:
            problem = msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            problem = None
        if not isinstance(problem, dict):
            detail = f"{self.target.url} answers {answer.status}, and not as Carillon does."
            return ApiError(answer.status, {"detail": detail}, hint="Is a proxy in between, or another server there?")
        hint = "" if self.target.token or answer.status != 401 else f"No token is known. {HOW_TO_CONNECT}"  # noqa: PLR2004
        return ApiError(answer.status, problem, hint=hint)


def query(params: Params | None) -> str:
    """Return the query of a URL; parameters without a value are left out, lists are repeated."""
    given = [
        (name, _text(value))
        for name, values in (params or {}).items()
        for value in (values if isinstance(values, list | tuple) else [values])
        if value is not None and value != ""
    ]
    return f"?{urlencode(given)}" if given else ""


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read(response: HTTPResponse) -> Answer:
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())


def _retry_after(answer: Answer) -> float:
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else 1.0
