"""Traces: which request, tick and run led to which call.

They are off unless an address is configured, and then nobody is handed a tracer and there is no current span.
``otlp`` alone knows OpenTelemetry, and is imported only where traces are wanted.
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

# W3C's traceparent: version, trace, span and flags; later versions may say more behind them.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


class Kind(Enum):
    """What a span is to those on its other side."""

    INTERNAL = "INTERNAL"
    SERVER = "SERVER"
    CLIENT = "CLIENT"
    CONSUMER = "CONSUMER"


class Span(Protocol):
    """Something that takes a while; it begins when it is made and ends with its block."""

    @property
    def trace_id(self) -> str:
        """The trace that it is part of, as 32 hexadecimal digits."""

    @property
    def headers(self) -> dict[str, str]:
        """What tells somebody else of it, by W3C."""

    def rename(self, name: str) -> None:
        """Give it a name that was not known when it began."""

    def note(self, attributes: Attributes) -> None:
        """Say more about it; what is None is not said."""

    def fail(self, kind: str) -> None:
        """It went wrong, in this way: a word, and nothing that somebody said."""

    def child(self, name: str, kind: Kind, attributes: Attributes) -> AbstractContextManager["Span"]:
        """A span within it."""


class Tracer(Protocol):
    """Makes spans, and sends away what has ended."""

    def span(  # noqa: PLR0913 - all that may be known when one begins
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
        """A span below one of elsewhere; else the first of its trace, which has this id, or one by chance.

        Parents and links are contexts as they are kept. It may have begun before.
        """

    async def close(self) -> None:
        """Send what is left, within a few seconds."""


_current: ContextVar[Span | None] = ContextVar("current_span", default=None)


def current() -> Span | None:
    """The innermost span that this is part of; None where there is none, as always when traces are off."""
    return _current.get()


def enter(span: Span) -> Token[Span | None]:
    """Make a span the current one until ``leave``."""
    return _current.set(span)


def leave(token: Token[Span | None]) -> None:
    """Make the span current again that was so before."""
    _current.reset(token)


def kept(headers: Mapping[str, str]) -> str | None:
    """A context as it is kept: W3C's traceparent and, behind a space, its tracestate; None if it makes no sense."""
    parent, state = headers.get("traceparent", "").strip(), headers.get("tracestate", "").strip()
    return f"{parent} {state}".strip() if trace_id_of(parent) else None


def current_context() -> str | None:
    """The current span as it is kept."""
    span = _current.get()
    return None if span is None else kept(span.headers)


def trace_id_of(context: str) -> str | None:
    """The trace that a traceparent, or what is kept of one, names; None if it makes no sense."""
    found = _TRACEPARENT.fullmatch(context.partition(" ")[0])
    if found is None or (found[2] and context.startswith("00")):
        return None
    return found[1]


def add_trace_id(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Let a log line name its trace, unless it names one already."""
    span = _current.get()
    if span is not None:
        event.setdefault("trace_id", span.trace_id)
    return event


def open_tracer(endpoint: str, sample_ratio: float, service: str) -> Tracer | None:
    """A tracer that sends to a collector's OTLP/HTTP address; none without an address."""
    if not endpoint:
        return None
    # Imported here: who traces nothing shall not have it in memory.
    from app.observability.otlp import OtlpTracer

    return OtlpTracer(endpoint, sample_ratio, service)
