"""What every request passes through: tracing, client address, authentication, rate limits, and reading its body."""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network
from itertools import count
from secrets import token_hex
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Request
from litestar.connection import ASGIConnection
from litestar.datastructures import ResponseHeader
from litestar.di import NamedDependency
from litestar.enums import RequestEncodingType
from litestar.handlers import BaseRouteHandler
from litestar.params import BodyKwarg, PathParameter, QueryParameter
from litestar.types import ASGIApp, Message, Receive, Send
from litestar.types import Scope as AsgiScope
from msgspec.structs import replace
from structlog.contextvars import bind_contextvars, bound_contextvars, get_contextvars, reset_contextvars

from app import clock
from app.api.cookies import refuse_cross_site, session_secret
from app.api.cursors import note_list
from app.api.etags import note_precondition
from app.api.handlers import once_for_each_handler
from app.api.idempotency import HEADER as IDEMPOTENCY_KEY
from app.api.idempotency import begin_idempotent, is_idempotent, keep_answer
from app.api.problems import TooManyRequestsError
from app.api.rate_limits import RateLimits
from app.domain.access import Actor, Scope, feed_reader, require_kind, require_scope
from app.domain.audit import Origin, Via
from app.domain.client_addresses import UNKNOWN, counted_as, parse_address
from app.domain.errors import (
    FieldError,
    InvalidError,
    OutsideLeaseError,
    RestrictedError,
    UnauthenticatedError,
)
from app.observability.metrics import REQUEST_SECONDS, REQUESTS
from app.observability.tracing import Kind, Tracer, current, stored_context, trace_id_of
from app.persistence.audit import ORIGIN, current_origin
from app.persistence.connection_pool import PARTY
from app.persistence.pagination import MOST_OFFSET, Part
from app.services.audit import AuditService
from app.services.authentication import Authenticator
from app.services.inputs import INT_MAX
from app.services.preconditions import PRECONDITION, Precondition
from app.services.validation import read, require_json

Network = IPv4Network | IPv6Network
# An X-Forwarded-For with more entries was made by a client, not by proxies.
MAX_HOPS = 20


class TrustedProxies:
    """The proxies whose ``X-Forwarded-For`` header is trusted."""

    def __init__(self, networks: Sequence[Network] = ()) -> None:
        """Trust these networks; by default no proxy is trusted."""
        self._networks = tuple(networks)

    def trusts(self, address: str) -> bool:
        """Return whether this address is that of a trusted proxy."""
        if not self._networks:
            return False
        parsed = parse_address(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def client_of(self, peer: str, forwarded_for: str) -> str:
        """Return the client's address: the rightmost hop that is not a trusted proxy.

        Everything to the left of that hop was sent by the client and proves nothing.
        """
        client = peer
        for hop in reversed(forwarded_for.rsplit(",", MAX_HOPS)):
            if not self.trusts(client) or parse_address(hop) is None:
                break
            client = hop.strip()
        return client


T = TypeVar("T")
MAY_BE_MISSING = "may be missing"
# The type of a handler's ``data`` where the body may be left out, beside Litestar's ``JSONBody`` where it may not.
OptionalBody = Annotated[T, BodyKwarg(media_type=RequestEncodingType.JSON), MAY_BE_MISSING]
# For responses that hold a token or a key: neither a browser nor a proxy may store them.
NO_STORE = [ResponseHeader(name="Cache-Control", value="no-store")]
AnyConnection = ASGIConnection[Any, Any, Any, Any]
AnyRequest = Request[Any, Any, Any]
# The name and type of the parameter by which a handler gets the user; only authenticated requests reach such a handler.
ACTOR = "actor"
Acting = NamedDependency[Actor]


class JsonRequest(AnyRequest):
    """A request whose body is read by our own strict rules before Litestar hands it to a handler as ``data``.

    Litestar alone would accept "5" for a number, and fail with status 500 on invalid UTF-8 and on JSON that is nested
    2,000 levels deep.
    """

    async def body(self) -> bytes:
        """Return the body. A missing body counts as an empty object."""
        return await super().body() or b"{}"

    async def json(self) -> Any:
        """Return the body as a value of the type that the handler declares for ``data``."""
        return read(await self.body(), self.route_handler.parsed_fn_signature.parameters["data"].annotation)


# The option of a handler that reads the body itself, and answers a broken one in its own way.
OWN_BODY = "own_body"


async def check_request(request: AnyRequest) -> None:
    """Authenticate the user if the handler has an ``actor`` parameter, then check the query.

    Litestar calls this before it reads the body. As a dependency it would be called after, and a client without a token
    could make us read and parse 256 KiB with each request. As a guard it would cost a copy of the handler each time.
    """
    handler = request.route_handler
    if ACTOR in handler.parsed_fn_signature.parameters:
        actor = await _authenticate(request)
        needs = required_scope(handler)
        # Set before it may be refused: the audit log names whom.
        request.scope["user"] = actor if actor.needs is needs else replace(actor, needs=needs)
        require_kind(actor, reads_feeds=bool(handler.opt.get(FEEDS)))
        require_scope(actor, needs)
        if actor.grant is not None and not _serves_agents(handler):
            raise OutsideLeaseError
        if actor.restriction is not None and not handler.opt.get(RESTRICTABLE):
            raise RestrictedError
        note_precondition(request)
        await check_query(request, handler)
        note_list(request)
        # Only these checks read the body, of a client that has proved who it is.
        if request.method == "POST" and handler.parsed_data_field is None and not handler.opt.get(OWN_BODY):
            # The call needs no body and ignores what one says, but a broken one tells of a broken client.
            require_json(await request.body())
        if request.method == "POST" and IDEMPOTENCY_KEY in request.headers:
            await begin_idempotent(request, actor, await request.body())


# The option of a handler that a token for calendars (`kind: feed`) may call, also as a part of the address.
FEEDS = "feeds"
FEED = "feed"
# The option of a handler that keeps to the restriction of a token. To all other calls such a token does not reach.
RESTRICTABLE = "restrictable"
# For controllers all of whose handlers do.
KEEPS_TO_RESTRICTIONS: dict[str, Any] = {RESTRICTABLE: True}
# The option of a handler that changes nothing beyond the lease of an agent's token. To all other calls but those that
# only read, such a token does not reach.
LEASABLE = "leasable"
# The option by which a handler says which scope it needs, if not the usual one for its method.
SCOPE = "scope"


@once_for_each_handler
def required_scope(handler: BaseRouteHandler) -> Scope:
    """Return the scope that a call needs: the one that its handler names, else ``read`` for GET and ``write``."""
    named: Scope | None = handler.opt.get(SCOPE)
    methods: frozenset[str] = getattr(handler, "http_methods", frozenset())
    return named or (Scope.READ if methods <= {"GET", "HEAD"} else Scope.WRITE)


@once_for_each_handler
def _serves_agents(handler: BaseRouteHandler) -> bool:
    """Return whether the token of a lease may be used for a call."""
    methods: frozenset[str] = getattr(handler, "http_methods", frozenset())
    only_reads = required_scope(handler) is Scope.READ and methods <= {"GET", "HEAD"}
    return only_reads or bool(handler.opt.get(LEASABLE))


def current_actor(request: AnyRequest) -> Actor:
    """Return the user whom ``check_request`` has authenticated."""
    actor: Actor = request.user
    return actor


async def _authenticate(connection: AnyConnection) -> Actor:
    """Return the user that the token or the session belongs to; refuse one that is used too often."""
    authenticator: Authenticator = connection.app.state.authenticator
    token = bearer_token(connection)
    try:
        actor = await (_without_token(connection) if token is None else authenticator.by_token(token))
    except UnauthenticatedError:
        await _count_failure(connection)
        raise
    if token is not None and connection.headers.get("user-agent", "").startswith(COMMAND_LINE):
        set_via(Via.CLI)
    limits: RateLimits = connection.app.state.rate_limits
    _refuse_if_over(await limits.count_request(actor.user_id))
    # From here on, the database connections that this request uses count towards the user's share of them.
    PARTY.set(actor.user_id)
    return actor


async def _without_token(connection: AnyConnection) -> Actor:
    """Return the user that the token for a calendar in the address, or the session, belongs to."""
    authenticator: Authenticator = connection.app.state.authenticator
    feed = connection.query_params.get(FEED) if connection.route_handler.opt.get(FEEDS) else None
    if feed:
        return feed_reader(await authenticator.by_token(feed))
    secret = session_secret(connection)
    if secret is None:
        raise UnauthenticatedError
    # Before anything is looked up: the answer to another site must not tell whether somebody is logged in.
    refuse_cross_site(connection)
    actor = (await authenticator.by_session(secret)).actor
    set_via(Via.CONSOLE)
    return actor


def bearer_token(connection: AnyConnection) -> str | None:
    """Return the bearer token of a request, or None if there is none."""
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def required_token(connection: AnyConnection) -> str:
    """Return the bearer token of a request; raise ``UnauthenticatedError`` if there is none."""
    token = bearer_token(connection)
    if token is None:
        raise UnauthenticatedError
    return token


async def require_bearer_token(connection: AnyConnection, _handler: BaseRouteHandler) -> None:
    """Refuse a request without a bearer token before its body is read; the handler checks the token itself."""
    async with counting_failures(connection):
        required_token(connection)


async def count_callback(connection: AnyConnection, token: str) -> None:
    """Count a request with a valid callback token; refuse it if there were too many."""
    limits: RateLimits = connection.app.state.rate_limits
    _refuse_if_over(await limits.count_callback(token))


async def count_login(connection: AnyConnection) -> None:
    """Count an attempt to log in for the client's address, before it costs anything; refuse it after too many."""
    limits: RateLimits = connection.app.state.rate_limits
    _refuse_if_over(await limits.count_login(counted_as(client_address(connection))))


@asynccontextmanager
async def counting_failures(connection: AnyConnection) -> AsyncIterator[None]:
    """Count a failed authentication for the client's address; after too many of them the status is 429.

    A valid token from the same address is not affected, because many clients may share an address.
    """
    try:
        yield
    except UnauthenticatedError:
        await _count_failure(connection)
        raise


async def _count_failure(connection: AnyConnection) -> None:
    limits: RateLimits = connection.app.state.rate_limits
    audit: AuditService = connection.app.state.audit
    address = client_address(connection)
    audit.count_refusal(address)
    _refuse_if_over(await limits.count_failure(counted_as(address)))


def _refuse_if_over(retry_after: int | None) -> None:
    if retry_after is not None:
        raise TooManyRequestsError(retry_after)


def client_address(connection: AnyConnection) -> str:
    """Return the address of the client; behind trusted proxies, the address that they report."""
    return _client_of(connection.scope, connection.app.state.proxies)


async def check_query(connection: AnyConnection, _handler: BaseRouteHandler) -> None:
    """Refuse parameters that the handler does not declare, missing and repeated ones, and the word ``null``.

    Handlers without an ``actor`` name this guard themselves, behind the guard that checks their token.
    """
    allowed = _query_parameters(connection.route_handler)
    if connection.scope["query_string"] or allowed.required:
        given = connection.query_params
        errors = [
            FieldError(name, message)
            for name in given
            if (message := _query_problem(name, given.getall(name), allowed))
        ]
        # Litestar would refuse these too, but name none of them.
        missing = (FieldError(name, "This parameter is required.") for name in allowed.required if name not in given)
        if errors := errors or [*missing]:
            raise InvalidError(*errors)


class _QueryParameters(msgspec.Struct, frozen=True):
    """The names of the query parameters of a handler, and which of them may be repeated, and which are required."""

    names: tuple[str, ...]
    repeatable: frozenset[str]
    required: tuple[str, ...]


@once_for_each_handler
def _query_parameters(handler: BaseRouteHandler) -> _QueryParameters:
    fields = {
        field.kwarg_definition.name or name: field
        for name, field in handler.parsed_fn_signature.parameters.items()
        if isinstance(field.kwarg_definition, QueryParameter)
    }
    repeatable = (name for name, field in fields.items() if field.is_non_string_sequence)
    required = (name for name, field in fields.items() if field.is_required)
    return _QueryParameters(tuple(fields), frozenset(repeatable), tuple(required))


def _query_problem(name: str, values: Sequence[str], allowed: _QueryParameters) -> str:
    """Return what is wrong with a parameter of a query, or an empty text."""
    if name not in allowed.names:
        takes = f"It takes: {', '.join(allowed.names)}." if allowed.names else "It takes none."
        return f"This call does not take this parameter. {takes}"
    if len(values) > 1 and name not in allowed.repeatable:
        return "This parameter may be given only once."
    # Litestar would treat it as a filter that was left out.
    if any(value.lower() == "null" for value in values):
        return "`null` is not allowed in a query. Give a value, or leave the parameter out."
    return ""


# The name in a request's state that says that its response goes on until the client or the server ends it.
STREAM = "is_stream"
REQUEST_ID = b"x-request-id"
_STATE_KEY = "request_id"
# How the command line names itself. Others may say so too: it tells how a change came, not who may make it.
COMMAND_LINE = "carillon-cli"
# Random for a process and counted within it: random bytes for each request would be a system call.
_request_ids = map((token_hex(10) + "{:012x}").format, count(1))
_SOUND_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def origin_middleware(trusted: Callable[[], TrustedProxies]) -> Callable[[ASGIApp], ASGIApp]:
    """Put the id of a request into its log lines, and note where its changes come from."""

    def middleware(app: ASGIApp) -> ASGIApp:
        async def identified(scope: AsgiScope, receive: Receive, send: Send) -> None:
            request_id = _request_id(scope)
            before = ORIGIN.set(Origin(Via.API, _client_of(scope, trusted()), request_id))
            said = PRECONDITION.set(Precondition())
            logged = bind_contextvars(request_id=request_id)
            try:
                await app(scope, receive, send)
            finally:
                reset_contextvars(**logged)
                ORIGIN.reset(before)
                PRECONDITION.reset(said)

        return identified

    return middleware


async def finish_answer(message: Message, scope: AsgiScope) -> None:
    """Add the id of a request to its answer, also where no middleware runs, and store it if it may be asked for again.

    An unknown path is a place where no middleware runs.
    """
    if message["type"] == "http.response.start":
        message["headers"] = [*message["headers"], (REQUEST_ID, _request_id(scope).encode())]
    if is_idempotent(scope):
        await keep_answer(message, scope)


def set_via(via: Via) -> None:
    """Note by which way the changes of the current request come."""
    ORIGIN.set(replace(current_origin(), via=via))


def _request_id(scope: AsgiScope) -> str:
    """Return the id of a request: that of the client if it is sound, else a new one, which is kept in the scope."""
    known: str | None = scope["state"].get(_STATE_KEY)
    if known is None:
        given = next((value.decode("latin-1") for name, value in scope["headers"] if name == REQUEST_ID), "")
        known = scope["state"][_STATE_KEY] = given if _SOUND_ID.fullmatch(given) else next(_request_ids)
    return known


def _client_of(scope: AsgiScope, proxies: TrustedProxies) -> str:
    client = scope.get("client")
    forwarded = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
    return proxies.client_of(client[0] if client else UNKNOWN, ",".join(forwarded))


# The figures of a route, which are asked for with every request.
_counter_of = lru_cache(maxsize=4096)(REQUESTS.labels)
_timer_of = lru_cache(maxsize=4096)(REQUEST_SECONDS.labels)


def counting_middleware(app: ASGIApp) -> ASGIApp:
    """Count every response for the metrics."""

    async def counted(scope: AsgiScope, receive: Receive, send: Send) -> None:
        began = clock.monotonic()

        async def seen(message: Message) -> None:
            if message["type"] == "http.response.start":
                # The template of the path, not the path: there are as many paths as schedules.
                method, route = str(scope.get("method", "")), str(scope.get("path_template") or "none")
                _counter_of(method, route, message["status"]).inc()
                _timer_of(method, route).observe(clock.monotonic() - began)
            await send(message)

        # Authentication sets the user; it must not stay set for the next request of this connection.
        before = PARTY.set(None)
        try:
            await app(scope, receive, seen)
        finally:
            PARTY.reset(before)

    return counted


# No object has an id beyond these bounds, so such an id gets 404, not 422.
Id = Annotated[int, PathParameter(schema_extra={"minimum": 1, "maximum": INT_MAX})]
Limit = Annotated[int, QueryParameter(ge=1, le=500)]
# ``listed`` checks the upper bound, because its message says what to use instead.
Offset = Annotated[int, QueryParameter(ge=0, schema_extra={"maximum": MOST_OFFSET})]
Cursor = Annotated[str | None, QueryParameter(max_length=500, pattern=r"^[A-Za-z0-9_.-]+$")]
# Postgres cannot store NUL, so no value has one.
TextFilter = Annotated[str | None, QueryParameter(max_length=255, pattern=r"^[^\x00]*$")]
WorkflowFilter = Annotated[int | None, QueryParameter(ge=1, le=INT_MAX)]
TeamFilter = Annotated[int | None, QueryParameter(ge=1, le=INT_MAX)]
# Read as text here and parsed by ``Span``: Litestar would accept a number as a time.
Since = Annotated[str | None, QueryParameter(name="from", schema_extra={"format": "date-time"})]
At = Annotated[str | None, QueryParameter(name="at", schema_extra={"format": "date-time"})]
Until = Annotated[str | None, QueryParameter(name="to", schema_extra={"format": "date-time"})]
# Read by ``check_request`` of handlers with the option ``FEEDS``.
Feed = Annotated[str | None, QueryParameter(name=FEED, max_length=500, pattern=r"^[^\x00]*$")]


def listed(limit: int, cursor: str | None, offset: int = 0, *, counts: bool = True) -> Part:
    """Return the page that a query asks for; ``counts`` says whether the response has a ``total``."""
    if offset > MOST_OFFSET:
        message = f"It must be at most {MOST_OFFSET}. Use `cursor` with the `next_cursor` of the previous page instead."
        raise InvalidError(FieldError("offset", message))
    return Part(limit, offset, cursor, counts)


# Probes and scrapers request these every few seconds; a stream would be a span without an end.
UNTRACED = ("/health", "/metrics", "/api/v1/live")
FIRST_ERROR = 500
_HEADERS = {b"traceparent": "traceparent", b"tracestate": "tracestate"}


def current_trace_id() -> str | None:
    """Return the trace id of the current request, whether Carillon traces it or only its client does."""
    span = current()
    return get_contextvars().get("trace_id") if span is None else span.trace_id


def tracing_middleware(current: Callable[[], Tracer | None]) -> Callable[[ASGIApp], ASGIApp]:
    """Continue the trace that a request belongs to; without a tracer, only put its id into the log."""

    def middleware(app: ASGIApp) -> ASGIApp:
        async def traced(scope: AsgiScope, receive: Receive, send: Send) -> None:
            parent, tracer = _trace_context(scope), current()
            if tracer is not None and not scope["path"].startswith(UNTRACED):
                await _in_request(tracer, parent, app, scope, receive, send)
            elif parent is not None:
                with bound_contextvars(trace_id=trace_id_of(parent)):
                    await app(scope, receive, send)
            else:
                await app(scope, receive, send)

        return traced

    return middleware


async def _in_request(
    tracer: Tracer, parent: str | None, app: ASGIApp, scope: AsgiScope, receive: Receive, send: Send
) -> None:
    method = str(scope.get("method", ""))
    with tracer.span(method, Kind.SERVER, {"http.request.method": method}, parent=parent) as span:

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


def _trace_context(scope: AsgiScope) -> str | None:
    """Return the trace context in a request's headers, or None if there is none or it is not valid."""
    headers = {_HEADERS[name]: value.decode("latin-1") for name, value in scope.get("headers", ()) if name in _HEADERS}
    return stored_context(headers) if headers else None
