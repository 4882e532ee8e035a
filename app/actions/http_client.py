"""The HTTP client: no redirects, no cookies, capped responses, guarded addresses, signed calls."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import aiohttp
import msgspec
from multidict import CIMultiDict
from standardwebhooks import Webhook
from yarl import URL

from app.actions.ssrf_guard import AddressGuard, NameNotResolvedError, Target, TargetResolver, current_owner
from app.clock import now
from app.failpoints import failpoint
from app.observability.tracing import Attributes, Kind, current


class Sender(msgspec.Struct, frozen=True):
    """The owner on whose behalf a call is made."""

    owner_id: int
    # An admin or a plugin: their calls are also signed with CARILLON_SIGNING_SECRET.
    is_operators: bool = False


# Returns the signing keys of an owner that are in use, newest first.
KeysOf = Callable[[int], Awaitable[Sequence[Webhook]]]


def key_from(text: str) -> Webhook:
    """Parse a key in the form of Standard Webhooks: base64, with or without ``whsec_``; else raise ``ValueError``."""
    try:
        return Webhook(text)
    except (ValueError, RuntimeError) as error:
        raise ValueError("A signing key must be base64, with or without the prefix `whsec_`.") from error


class Signer:
    """Makes the headers by which a target can verify who sent a call."""

    def __init__(self, keys_of: KeysOf, operators_key: Webhook | None = None) -> None:
        """``operators_key`` is CARILLON_SIGNING_SECRET, which never signs a member's calls."""
        self._keys_of = keys_of
        self._operators_key = operators_key

    async def headers(self, sender: Sender, message_id: str, body: bytes) -> dict[str, str]:
        """Return the headers that sign a message; none if there is no key."""
        keys = await self._keys_of(sender.owner_id)
        if sender.is_operators and self._operators_key is not None:
            keys = (*keys, self._operators_key)
        if not keys:
            return {}
        moment, data = now(), body.decode()
        # Standard Webhooks: several signatures are separated by spaces, and one that verifies is enough.
        signatures = [key.sign(msg_id=message_id, timestamp=moment, data=data) for key in keys]
        return {
            "webhook-id": message_id,
            "webhook-timestamp": str(int(moment.timestamp())),
            "webhook-signature": " ".join(signatures),
        }


ANSWER_CAP_BYTES = 64 * 1024
CONNECT_TIMEOUT_SECONDS = 10
MAX_CONNECTIONS = 1000
USER_AGENT = "Carillon"


class CallFailedError(Exception):
    """The target could not be reached, or its response is not valid HTTP."""

    code = "call_failed"


class Answer(msgspec.Struct, frozen=True):
    """The response to a call; ``truncated`` if its body was longer than what is kept."""

    status: int
    headers: dict[str, str]
    body: bytes
    truncated: bool

    def content(self) -> Any:
        """Return the body as a JSON value if it is JSON, else as text."""
        if "json" in self.headers.get("content-type", "") and not self.truncated:
            try:
                return without_nul(msgspec.json.decode(self.body))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                pass
        return without_nul(self.body.decode(errors="replace"))


def without_nul(value: Any) -> Any:
    """Return a JSON value with its NUL characters replaced: Postgres cannot store them."""
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd")
    if isinstance(value, list):
        return [without_nul(item) for item in value]
    if isinstance(value, dict):
        return {without_nul(key): without_nul(item) for key, item in value.items()}
    return value


class HttpCaller:
    """The HTTP client. Use it as an async context: its session has to be created in the running loop."""

    def __init__(
        self, guard: AddressGuard, signer: Signer | None = None, resolver: Callable[[], TargetResolver] = TargetResolver
    ) -> None:
        """Connect only where the guard permits it; sign calls if there is a signer."""
        self._guard = guard
        self._signer = signer
        self._make_resolver = resolver
        self._session: aiohttp.ClientSession | None = None
        self._resolver: TargetResolver | None = None

    async def __aenter__(self) -> Self:
        """Open the session."""
        self._resolver = self._make_resolver()
        connector = aiohttp.TCPConnector(
            limit=MAX_CONNECTIONS,
            socket_factory=self._guard.open_socket,
            resolver=self._resolver,
            # The resolver has its own cache. With aiohttp's, one owner would wait for another's lookup of a name.
            use_dns_cache=False,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS),
            headers={"User-Agent": USER_AGENT},
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
        if self._resolver is not None:
            await self._resolver.close()

    async def call(  # noqa: PLR0913 - a request, who sends it and what is secret in it
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        message_id: str,
        sender: Sender,
        *,
        hidden: Callable[[Any], Any] | None = None,
    ) -> Answer:
        """Send a request and return the response. The caller bounds the time.

        ``hidden`` redacts secrets in what a trace says about the call.
        """
        sent = CIMultiDict(headers)
        if self._signer is not None:
            sent.update(await self._signer.headers(sender, message_id, body))
        current_owner.set(sender.owner_id)
        span = current()
        if span is None:
            return await self._send(method, url, sent, body)
        address = _address(url) if hidden is None else hidden(_address(url))
        with span.child(method, Kind.CLIENT, {"http.request.method": method, **address}) as calling:
            if "traceparent" not in sent:
                sent.update(calling.headers | dict(sent))
            answer = await self._send(method, url, sent, body)
            calling.note({"http.response.status_code": answer.status})
            if answer.status >= 400:  # noqa: PLR2004 - by HTTP, an error
                calling.fail(str(answer.status))
            return answer

    async def _send(self, method: str, url: str, sent: CIMultiDict[str], body: bytes) -> Answer:
        if self._session is None:
            raise AssertionError("the session is not open")
        try:
            target = self._guard.begin_call(URL(url).host)
            failpoint("before_send")
            async with self._session.request(
                method, url, headers=sent, data=body or None, allow_redirects=False
            ) as response:
                answer = await _read(response)
            failpoint("after_send")
        except aiohttp.ClientConnectorError as error:
            raise CallFailedError(_connect_problem(error, url, target)) from error
        except aiohttp.ConnectionTimeoutError as error:
            # Its own text quotes the URL, which may hold secrets.
            raise CallFailedError(f"No connection to {_host(url)} within {CONNECT_TIMEOUT_SECONDS} s.") from error
        except aiohttp.ClientResponseError as error:
            # Its own text quotes the URL and the response.
            raise CallFailedError("The target's response is not valid HTTP/1.1.") from error
        except ValueError as error:
            raise CallFailedError(
                f"The request cannot be sent, because its URL or headers are not valid: {type(error).__name__}."
            ) from error
        except (TimeoutError, aiohttp.ClientError) as error:
            raise CallFailedError(_lost_problem(error, url)) from error
        return answer


class AnyCaller(Protocol):
    """A client that makes calls for a sender."""

    async def call(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, message_id: str, sender: Sender
    ) -> Answer:
        """Send a request and return the response."""


class OwnersCaller:
    """The HTTP client of one run's action: it signs calls for the sender and names the run in them."""

    def __init__(self, caller: AnyCaller, sender: Sender, message_id: str) -> None:
        """``message_id`` is the ``webhook-id`` of every call."""
        self._caller = caller
        self._sender = sender
        self._message_id = message_id

    async def call(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, _message_id: str = ""
    ) -> Answer:
        """Send a request and return the response. The message id that plugins for 0.1 pass is ignored."""
        return await self._caller.call(method, url, headers, body, self._message_id, self._sender)


def _address(url: str) -> Attributes:
    """Return the host and port of a call for a trace; the rest of the URL may be secret."""
    try:
        return {"server.address": URL(url).host, "server.port": URL(url).port}
    except ValueError:
        return {}


async def _read(response: aiohttp.ClientResponse) -> Answer:
    body = bytearray()
    while len(body) <= ANSWER_CAP_BYTES:
        chunk = await response.content.read(ANSWER_CAP_BYTES + 1 - len(body))
        if not chunk:
            break
        body += chunk
    truncated = len(body) > ANSWER_CAP_BYTES
    if truncated:
        # Do not wait for the rest of the body: this connection is closed and not reused.
        response.close()
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Answer(response.status, headers, bytes(body[:ANSWER_CAP_BYTES]), truncated)


def _connect_problem(error: aiohttp.ClientConnectorError, url: str, target: Target) -> str:
    """Return why connecting failed, without the error's own text: it may hold addresses that a name resolved to."""
    cause = error.os_error
    if isinstance(cause, NameNotResolvedError):
        return str(cause)
    if target.refusal:
        return target.refusal
    if isinstance(error, aiohttp.ClientSSLError):
        return f"Could not connect to {_host(url)}: {cause.strerror or type(cause).__name__}"
    return f"Could not connect to {_host(url)}: {_reason(cause)}"


def _lost_problem(error: Exception, url: str) -> str:
    """Return why a call failed after the connection was made."""
    if isinstance(error, OSError) and error.errno:
        return f"The connection to {_host(url)} was lost: {os.strerror(error.errno)}"
    return f"The call to {_host(url)} failed: {type(error).__name__}"


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else "no address could be reached"


def _host(url: str) -> str:
    return f"{URL(url).host}:{URL(url).port}"
