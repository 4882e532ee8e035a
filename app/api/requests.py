"""What every request passes: trace, client address, token, rate limit, and the parsing of its body."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Annotated, Any, TypeVar

from litestar import Request
from litestar.datastructures import ResponseHeader
from litestar.di import NamedDependency
from litestar.params import PathParameter, QueryParameter
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars, get_contextvars

from app import clock
from app.api.problems import TooManyRequestsError
from app.api.rate_limits import RateLimits
from app.domain.access import Actor
from app.domain.errors import FieldError, InvalidError, UnauthenticatedError
from app.observability.metrics import REQUEST_SECONDS, REQUESTS
from app.observability.tracing import Kind, Tracer, current, stored_context, trace_id_of
from app.persistence.connection_pool import PARTY
from app.persistence.pagination import MOST_OFFSET, Part
from app.services.inputs import INT_MAX
from app.services.users import UserService
from app.services.validation import read

Network = IPv4Network | IPv6Network
UNKNOWN = "unknown"
# A client owns at least a /64 of IPv6: counted one by one, its addresses would never run out.
IPV6_CLIENT_BITS = 64
# An X-Forwarded-For with more entries was made by a client, not by proxies.
MAX_HOPS = 20


class TrustedProxies:
    """The proxies whose ``X-Forwarded-For`` is believed."""

    def __init__(self, networks: Sequence[Network] = ()) -> None:
        """Trust these networks; by default no proxy is trusted."""
        self._networks = tuple(networks)

    def trusts(self, address: str) -> bool:
        """Return whether a connection from this address is a trusted proxy's."""
        if not self._networks:
            return False
        parsed = _parsed(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def client_of(self, peer: str, forwarded_for: str) -> str:
        """Return the client's address: the rightmost hop that is not a trusted proxy.

        Everything to the left of that hop was sent by the client and proves nothing.
        """
        client = peer
        for hop in reversed(forwarded_for.rsplit(",", MAX_HOPS)):
            if not self.trusts(client) or _parsed(hop) is None:
                break
            client = hop.strip()
        return client


def counted_as(address: str) -> str:
    """Return what an address is counted as: an IPv4 address, or the /64 network of an IPv6 address."""
    parsed = _parsed(address)
    if parsed is None:
        return UNKNOWN
    if isinstance(parsed, IPv4Address):
        return str(parsed)
    return str(IPv6Network((int(parsed), IPV6_CLIENT_BITS), strict=False))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address; an IPv4 address in IPv6 notation becomes IPv4."""
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


T = TypeVar("T")
# For answers that hold a token or another secret: neither a browser nor a proxy may keep them.
NO_STORE = [ResponseHeader(name="Cache-Control", value="no-store")]
AnyRequest = Request[Any, Any, Any]
# What a handler asks for to know on whose behalf it acts; ``current_actor`` provides it.
Acting = NamedDependency[Actor]


def bearer_token(request: AnyRequest) -> str | None:
    """The token that a request brings."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def required_token(request: AnyRequest) -> str:
    """The same, where there is no going on without one."""
    token = bearer_token(request)
    if token is None:
        raise UnauthenticatedError
    return token


async def current_actor(request: AnyRequest) -> Actor:
    """Return on whose behalf a request comes; refuse a token that asks too often."""
    users: UserService = request.app.state.users
    async with counting_failures(request):
        token = required_token(request)
        actor = await users.authenticate(token)
    await count_request(request, token)
    # From here on, what this request asks of Postgres counts towards the user's share of the connections.
    PARTY.set(actor.user_id)
    return actor


async def count_request(request: AnyRequest, token: str) -> None:
    """Count a request with a valid token, and refuse it if there were too many."""
    limits: RateLimits = request.app.state.rate_limits
    _refuse_if_over(await limits.count_request(token))


@asynccontextmanager
async def counting_failures(request: AnyRequest) -> AsyncIterator[None]:
    """Count a failed attempt to authenticate for its address: after too many of them the answer is 429.

    A valid token from the same address is not affected: many clients may share an address.
    """
    try:
        yield
    except UnauthenticatedError:
        limits: RateLimits = request.app.state.rate_limits
        _refuse_if_over(await limits.count_failure(counted_as(client_address(request))))
        raise


def _refuse_if_over(retry_after: int | None) -> None:
    if retry_after is not None:
        raise TooManyRequestsError(retry_after)


def client_address(request: AnyRequest) -> str:
    """Return the address that a request comes from; trusted proxies are believed about the one before them."""
    proxies: TrustedProxies = request.app.state.proxies
    peer = request.client.host if request.client else UNKNOWN
    return proxies.client_of(peer, ",".join(request.headers.getall("x-forwarded-for", [])))


async def refuse_null(request: AnyRequest) -> None:
    """Refuse the word ``null`` in a query: Litestar would take it for a filter that was left out."""
    errors = [
        FieldError(name, "It must have a value, or be left out.")
        for name, value in request.query_params.multi_items()
        if value.lower() == "null"
    ]
    if errors:
        raise InvalidError(*errors)


def counting_middleware(app: ASGIApp) -> ASGIApp:
    """Count every answer for the metrics."""

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        began = clock.monotonic()

        async def seen(message: Message) -> None:
            if message["type"] == "http.response.start":
                # The template of the path, not the path: there are as many paths as schedules.
                method, route = str(scope.get("method", "")), str(scope.get("path_template") or "none")
                REQUESTS.labels(method, route, str(message["status"])).inc()
                REQUEST_SECONDS.labels(method, route).observe(clock.monotonic() - began)
            await send(message)

        # Whose request it is will be known after authentication, and is forgotten with it.
        before = PARTY.set(None)
        try:
            await app(scope, receive, seen)
        finally:
            PARTY.reset(before)

    return counted


async def body(request: AnyRequest, wanted: type[T]) -> T:
    """The body of a request as a value; without one, as if it were an empty object."""
    return read(await request.body() or b"{}", wanted)


# A number beyond the bounds is one that nothing has: 404, not 422.
Id = Annotated[int, PathParameter(schema_extra={"minimum": 1, "maximum": INT_MAX})]
Limit = Annotated[int, QueryParameter(ge=1, le=500)]
# Its upper bound is checked by ``listed``, which says what to use instead.
Offset = Annotated[int, QueryParameter(ge=0, schema_extra={"maximum": MOST_OFFSET})]
# Where the part before ended, as it was answered.
Cursor = Annotated[str | None, QueryParameter(max_length=500, pattern=r"^[A-Za-z0-9_-]+$")]
WorkflowFilter = Annotated[int | None, QueryParameter(ge=1, le=INT_MAX)]
# Litestar would take a number for a moment as well; ``Span`` reads these as strictly as a body.
Since = Annotated[str | None, QueryParameter(name="from", schema_extra={"format": "date-time"})]
At = Annotated[str | None, QueryParameter(name="at", schema_extra={"format": "date-time"})]
Until = Annotated[str | None, QueryParameter(name="to", schema_extra={"format": "date-time"})]


def listed(limit: int, cursor: str | None, offset: int = 0, *, counts: bool = True) -> Part:
    """The part of a list that a query asks for; ``counts`` says whether the answer has a ``total``."""
    if offset > MOST_OFFSET:
        message = f"It must be at most {MOST_OFFSET}. Use `cursor` with the `next_cursor` of the page before instead."
        raise InvalidError(FieldError("offset", message))
    return Part(limit, offset, cursor, counts)


# Asked for every few seconds by machines.
UNTRACED = ("/health", "/metrics")
FIRST_ERROR = 500
_HEADERS = {b"traceparent": "traceparent", b"tracestate": "tracestate"}


def current_trace_id() -> str | None:
    """The trace of the request that is being answered, whether Carillon traces it or somebody else does."""
    span = current()
    return get_contextvars().get("trace_id") if span is None else span.trace_id


def tracing_middleware(tracer: Tracer | None) -> Callable[[ASGIApp], ASGIApp]:
    """Continue the trace that a request belongs to; without a tracer only the log names it."""

    def middleware(app: ASGIApp) -> ASGIApp:
        async def traced(scope: Scope, receive: Receive, send: Send) -> None:
            above = _came_with(scope)
            if tracer is not None and not scope["path"].startswith(UNTRACED):
                await _in_request(tracer, above, app, scope, receive, send)
            elif above is not None:
                with bound_contextvars(trace_id=trace_id_of(above)):
                    await app(scope, receive, send)
            else:
                await app(scope, receive, send)

        return traced

    return middleware


async def _in_request(
    tracer: Tracer, above: str | None, app: ASGIApp, scope: Scope, receive: Receive, send: Send
) -> None:
    method = str(scope.get("method", ""))
    with tracer.span(method, Kind.SERVER, {"http.request.method": method}, parent=above) as span:

        async def seen(message: Message) -> None:
            if message["type"] == "http.response.start":
                route, status = scope.get("path_template"), message["status"]
                span.note({"http.route": route, "http.response.status_code": status})
                if route:
                    span.rename(f"{method} {route}")
                if status >= FIRST_ERROR:
                    span.fail(str(status))
            await send(message)

        await app(scope, receive, seen)


def _came_with(scope: Scope) -> str | None:
    """The context that a request brings, if it makes sense."""
    headers = {_HEADERS[name]: value.decode("latin-1") for name, value in scope.get("headers", ()) if name in _HEADERS}
    return stored_context(headers) if headers else None
