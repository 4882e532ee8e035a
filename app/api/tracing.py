"""Requests as spans of a trace, and the trace of a request in the log."""

from collections.abc import Callable

from litestar.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars, get_contextvars

from app.observability.tracing import Kind, Tracer, current, kept, trace_id_of

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
    return kept(headers) if headers else None
