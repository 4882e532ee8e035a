"""Traces, as the other packages see them: spans that show which request, tick and run led to which call.

Traces are off unless an address is configured: then there is no tracer and no current span. Only ``otlp`` knows
OpenTelemetry; it is imported when traces are on.

A *stored context* is the text by which a span is kept in the database: W3C's traceparent and, after a space, its
tracestate if there is one.
"""

import re
from collections.abc import Iterable, Mapping, MutableMapping
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from datetime import datetime
from enum import Enum
from typing import Any, Protocol
from uuid import UUID

Attributes = Mapping[str, str | int | None]

# W3C's traceparent: version, trace id, span id and flags; later versions may append more.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


class Kind(Enum):
    """The role of a span, as OpenTelemetry defines it."""

    INTERNAL = "INTERNAL"
    SERVER = "SERVER"
    CLIENT = "CLIENT"
    CONSUMER = "CONSUMER"


class Span(Protocol):
    """A piece of work with a duration. It begins when it is created and ends with its ``with`` block."""

    @property
    def trace_id(self) -> str:
        """The id of its trace, as 32 hexadecimal digits."""

    @property
    def headers(self) -> dict[str, str]:
        """The W3C headers that pass the span on to another service."""

    def rename(self, name: str) -> None:
        """Set the name, if it was not known at the beginning."""

    def note(self, attributes: Attributes) -> None:
        """Add attributes; those that are None are left out."""

    def fail(self, kind: str) -> None:
        """Mark the span as failed, with an error type. Never pass an error text: it may contain user data."""

    def child(self, name: str, kind: Kind, attributes: Attributes) -> AbstractContextManager["Span"]:
        """Return a new span inside this one."""


class Tracer(Protocol):
    """Creates spans, and exports them when they have ended."""

    def span(  # noqa: PLR0913 - everything that may be known at the beginning of a span
        self,
        name: str,
        kind: Kind,
        attributes: Attributes,
        *,
        parent: str | None = None,
        trace_id: UUID | None = None,
        links: Iterable[str | None] = (),
        began: datetime | None = None,
    ) -> AbstractContextManager[Span]:
        """Return a span below ``parent``, or without one the first span of a trace with this id, or a random id.

        ``parent`` and ``links`` are stored contexts. ``began`` is given if the work began before this call.
        """

    async def close(self) -> None:
        """Export the remaining spans, within a few seconds."""


_current: ContextVar[Span | None] = ContextVar("current_span", default=None)


def current() -> Span | None:
    """Return the innermost span of this task; None if there is none, as always when traces are off."""
    return _current.get()


def enter(span: Span) -> Token[Span | None]:
    """Make a span the current one until ``leave`` is called with the returned token."""
    return _current.set(span)


def leave(token: Token[Span | None]) -> None:
    """Make the previous span the current one again."""
    _current.reset(token)


def stored_context(headers: Mapping[str, str]) -> str | None:
    """Return the stored context of W3C headers; None if they are missing or not valid."""
    parent, state = headers.get("traceparent", "").strip(), headers.get("tracestate", "").strip()
    return f"{parent} {state}".strip() if trace_id_of(parent) else None


def current_context() -> str | None:
    """Return the stored context of the current span; None if there is none."""
    span = _current.get()
    return None if span is None else stored_context(span.headers)


def trace_id_of(context: str) -> str | None:
    """Return the trace id of a traceparent or a stored context; None if it is not valid."""
    match = _TRACEPARENT.fullmatch(context.partition(" ")[0])
    if match is None or (match[2] and context.startswith("00")):
        return None
    return match[1]


def add_trace_id(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the id of the current trace to a log line that has none."""
    span = _current.get()
    if span is not None:
        event.setdefault("trace_id", span.trace_id)
    return event


def open_tracer(endpoint: str, sample_ratio: float, service: str) -> Tracer | None:
    """Return a tracer that exports to a collector's OTLP/HTTP address; None without an address."""
    if not endpoint:
        return None
    # Imported here: without traces OpenTelemetry would only take memory.
    from app.observability.otlp import OtlpTracer

    return OtlpTracer(endpoint, sample_ratio, service)
