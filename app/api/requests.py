"""What every request goes through: who sent it, how often, and what its body says."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from litestar import Request
from litestar.datastructures import ResponseHeader
from litestar.di import NamedDependency
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from app import clock
from app.api.client_addresses import UNKNOWN, TrustedProxies, counted_as
from app.api.problems import TooManyRequestsError
from app.domain.access import Actor
from app.domain.errors import FieldError, InvalidError, UnauthenticatedError
from app.observability.metrics import REQUEST_SECONDS, REQUESTS
from app.persistence.shares import PARTY
from app.queue.counters import RateLimits
from app.services.users import UserService
from app.services.validation import read

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
