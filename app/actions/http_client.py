"""The HTTP client: no redirects, no cookies, capped responses, guarded addresses, signed calls."""

import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec
from multidict import CIMultiDict
from standardwebhooks import Webhook

from app.actions.ssrf_guard import (
    AddressGuard,
    AddressRefusedError,
    JudgedAddresses,
    NameNotResolvedError,
    TargetAddresses,
    TargetResolver,
)
from app.clock import now
from app.failpoints import failpoint
from app.http1.connections import (
    CONNECT_SECONDS,
    ConnectionPool,
    ConnectTimeoutError,
    NotConnectedError,
    tls_context,
)
from app.http1.requests import InvalidRequestError, RequestHead, Target, request_head
from app.http1.response import ExchangeError, IncompleteResponseError, InvalidResponseError, Response
from app.observability.tracing import Attributes, Kind, current


class Sender(msgspec.Struct, frozen=True, gc=False):
    """The owner on whose behalf a call is made."""

    owner_id: int
    # An admin or a plugin: their calls are also signed with CARILLON_SIGNING_SECRET.
    is_operators: bool = False


class SigningKeys(Protocol):
    """The signing keys of owners."""

    async def keys_of(self, owner_id: int) -> Sequence[Webhook]:
        """Return the keys of an owner that are in use, newest first."""

    def known(self, owner_id: int) -> Sequence[Webhook] | None:
        """Return them if that needs no query, else None."""


def key_from(text: str) -> Webhook:
    """Parse a key in the form of Standard Webhooks: base64, with or without ``whsec_``; else raise ``ValueError``."""
    try:
        return Webhook(text)
    except (ValueError, RuntimeError) as error:
        raise ValueError("A signing key must be base64, with or without the prefix `whsec_`.") from error


class Signer:
    """Makes the headers by which a target can verify who sent a call."""

    def __init__(self, keys: SigningKeys, operators_key: Webhook | None = None) -> None:
        """``operators_key`` is CARILLON_SIGNING_SECRET, which never signs a member's calls."""
        self._keys = keys
        self._operators_key = operators_key

    async def headers(self, sender: Sender, message_id: str, body: bytes) -> dict[str, str]:
        """Return the headers that sign a message; none if there is no key."""
        return self._headers(await self._keys.keys_of(sender.owner_id), sender, message_id, body)

    def known_headers(self, sender: Sender, message_id: str, body: bytes) -> dict[str, str] | None:
        """Return the headers that sign a message, if the keys are known; else None."""
        keys = self._keys.known(sender.owner_id)
        return None if keys is None else self._headers(keys, sender, message_id, body)

    def _headers(self, keys: Sequence[Webhook], sender: Sender, message_id: str, body: bytes) -> dict[str, str]:
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
MAX_CONNECTIONS = 1000


class CallFailedError(Exception):
    """The target could not be reached, or its response is not valid HTTP."""

    code = "call_failed"


class Answer(msgspec.Struct, frozen=True, gc=False):
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
    """The HTTP client. Use it as an async context: its connections belong to the running loop."""

    def __init__(
        self,
        guard: AddressGuard,
        signer: Signer | None = None,
        resolver: Callable[[], TargetResolver] = TargetResolver,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Connect where the guard permits it; sign calls if there is a signer; ``tls`` trusts the system by default."""
        self._guard = guard
        self._signer = signer
        self._make_resolver = resolver
        self._tls = tls or tls_context()
        self._resolver: TargetResolver | None = None
        self._parts: tuple[TargetAddresses, ConnectionPool] | None = None

    async def __aenter__(self) -> Self:
        """Create the pool of connections."""
        self._resolver = self._make_resolver()
        addresses = TargetAddresses(self._guard, self._resolver)
        self._parts = (addresses, ConnectionPool(self._tls, MAX_CONNECTIONS))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        if self._parts is not None:
            await self._parts[1].close()
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
        try:
            head = request_head(method, url, CIMultiDict(headers))
        except InvalidRequestError as error:
            raise cannot_be_sent(error) from error
        return await self.send(head, {}, body, message_id, sender, hidden=hidden)

    async def send(
        self,
        head: RequestHead,
        further: Mapping[str, str],
        body: bytes,
        message_id: str,
        sender: Sender,
        *,
        hidden: Callable[[Any], Any] | None = None,
    ) -> Answer:
        """Send a request whose head was built before, with further headers. As ``call`` otherwise."""
        if self._signer is not None:
            signed = await self._signer.headers(sender, message_id, body)
            if signed:
                further = {**further, **signed}
        span = current()
        if span is None:
            return await self._send(head, further, body, sender)
        address = _address(head.target) if hidden is None else hidden(_address(head.target))
        attributes = {"http.request.method": head.method, **address}
        with span.child(head.method, Kind.CLIENT, attributes) as calling:
            if "traceparent" not in head.headers:
                further = {**calling.headers, **further}
            answer = await self._send(head, further, body, sender)
            calling.note({"http.response.status_code": answer.status})
            if answer.status >= 400:  # noqa: PLR2004 - by HTTP, an error
                calling.fail(str(answer.status))
            return answer

    async def _send(self, head: RequestHead, further: Mapping[str, str], body: bytes, sender: Sender) -> Answer:
        if self._parts is None:
            raise AssertionError("the client is not open")
        addresses, connections = self._parts
        target = head.target
        try:
            request = head.request(further, body)
            judged = await addresses.find(target.host, target.port, sender.owner_id)
        except InvalidRequestError as error:
            raise cannot_be_sent(error) from error
        except (NameNotResolvedError, AddressRefusedError) as error:
            raise CallFailedError(str(error)) from error
        failpoint("before_send")
        try:
            response = await connections.send(request, judged.permitted, ANSWER_CAP_BYTES)
        except (ExchangeError, OSError) as error:
            raise _failure(error, target, judged) from error
        failpoint("after_send")
        return Answer(response.status, response.headers, response.body, response.truncated)

    def begin(
        self,
        head: RequestHead,
        further: Mapping[str, str],
        body: bytes,
        message_id: str,
        sender: Sender,
        on_end: "OnAnswer",
    ) -> Callable[[], None] | None:
        """Send a request at once, if it needs neither a new connection, nor a lookup, nor a query; else return None.

        Then nothing was sent, and ``send`` does the same or raises. Return what cancels the call. ``on_end`` is called
        once, unless the call is cancelled.
        """
        if self._parts is None or current() is not None:
            return None
        addresses, connections = self._parts
        try:
            judged = addresses.known(head.target.host, head.target.port)
            signed = {} if self._signer is None else self._signer.known_headers(sender, message_id, body)
            if judged is None or signed is None:
                return None
            request = head.request({**further, **signed} if signed else further, body)
        except (InvalidRequestError, AddressRefusedError):
            return None
        failpoint("before_send")
        ended = partial(_report, head.target, judged, on_end)
        connection = connections.begin(request, judged.permitted, ANSWER_CAP_BYTES, ended)
        return None if connection is None else connection.cancel


# Called with the response to a call, or with the error that tells why there is none.
OnAnswer = Callable[[Answer | CallFailedError], None]


def _report(target: Target, judged: JudgedAddresses, on_end: OnAnswer, result: Response | Exception) -> None:
    failpoint("after_send")
    if isinstance(result, Response):
        on_end(Answer(result.status, result.headers, result.body, result.truncated))
    else:
        on_end(_failure(result, target, judged))


def cannot_be_sent(error: InvalidRequestError) -> CallFailedError:
    """Return the failure of a call whose request is not valid."""
    return CallFailedError(f"The request cannot be sent: {error}.")


def _failure(error: Exception, target: Target, judged: JudgedAddresses) -> CallFailedError:
    """Return the failure of a call, with a text that neither quotes the URL nor names an address."""
    if isinstance(error, NotConnectedError):
        if judged.refusal is not None:
            return CallFailedError(str(judged.refusal))
        return CallFailedError(f"Could not connect to {_host(target)}: {_reason(error.reason)}")
    if isinstance(error, ConnectTimeoutError):
        return CallFailedError(f"No connection to {_host(target)} within {CONNECT_SECONDS:g} s.")
    if isinstance(error, InvalidResponseError):
        # Its own text quotes the response.
        return CallFailedError("The target's response is not valid HTTP/1.1.")
    if isinstance(error, IncompleteResponseError):
        return CallFailedError(f"{_host(target)} closed the connection before its response was complete.")
    if isinstance(error, OSError):
        return CallFailedError(f"The connection to {_host(target)} was lost: {_reason(error)}")
    raise error


class AnyCaller(Protocol):
    """A client that makes calls for a sender."""

    async def call(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, message_id: str, sender: Sender
    ) -> Answer:
        """Send a request and return the response."""

    async def send(
        self, head: RequestHead, further: Mapping[str, str], body: bytes, message_id: str, sender: Sender
    ) -> Answer:
        """Send a request whose head was built before, with further headers."""


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

    async def send(self, head: RequestHead, further: Mapping[str, str], body: bytes) -> Answer:
        """Send a request whose head was built before, with further headers, and return the response."""
        return await self._caller.send(head, further, body, self._message_id, self._sender)


def _address(target: Target) -> Attributes:
    """Return the host and port of a call for a trace; the rest of the URL may be secret."""
    return {"server.address": target.host, "server.port": target.port}


def _reason(error: OSError) -> str:
    """Return why a connection failed, without the error's own text: it may hold addresses that a name resolved to."""
    if isinstance(error, ssl.SSLError):
        return error.strerror or type(error).__name__
    return os.strerror(error.errno) if error.errno else "no address could be reached"


def _host(target: Target) -> str:
    return f"{target.host}:{target.port}"
