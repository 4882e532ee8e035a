"""Spans by OpenTelemetry, exported to a collector by OTLP over HTTP. The only module that imports OpenTelemetry.

A thread of the SDK encodes and sends, so no run waits for the collector. If the collector is unavailable, spans are
dropped and counted, which is logged every few minutes; nothing else happens.
"""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from contextvars import Token
from datetime import datetime
from importlib.metadata import version
from types import TracebackType
from typing import Self
from uuid import UUID

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes as OtelAttributes

from app.observability import tracing
from app.observability.logs import LogThrottle
from app.observability.metrics import SPANS_LOST
from app.observability.tracing import Attributes, Kind

EXPORT_SECONDS = 5.0
FLUSH_SECONDS = 3.0
BATCH_MILLISECONDS = 1000
BATCH_SPANS = 512
MAX_QUEUED_SPANS = 16_384
LOG_AGAIN_SECONDS = 300.0
# The last 56 bits of a trace id are random, by W3C's recommendation and in the ids of executions.
RANDOM_BITS = 56

_KINDS = {kind: trace.SpanKind[kind.value] for kind in Kind}
_NO_PARENT = Context()
_w3c = TraceContextTextMapPropagator()

log = structlog.get_logger(__name__)


class OtlpTracer:
    """The tracer of one process."""

    def __init__(self, endpoint: str, sample_ratio: float, service: str) -> None:
        """Export this share of the traces to ``endpoint``, under this service name."""
        # The SDK logs an error for every batch that fails; ``_CountingExporter`` logs every few minutes.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._ids = _Ids()
        self._exporter = _CountingExporter(
            OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS)
        )
        self._provider = TracerProvider(
            sampler=ParentBased(_RatioSampler(sample_ratio)),
            resource=_resource(service),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                self._exporter,
                max_queue_size=MAX_QUEUED_SPANS,
                schedule_delay_millis=BATCH_MILLISECONDS,
                max_export_batch_size=BATCH_SPANS,
            )
        )
        self._tracer = self._provider.get_tracer("carillon", version("carillon"))

    def span(  # noqa: PLR0913 - see the protocol
        self,
        name: str,
        kind: Kind,
        attributes: Attributes,
        *,
        parent: str | None = None,
        trace_id: UUID | None = None,
        links: Iterable[str | None] = (),
        began: datetime | None = None,
    ) -> "_OtlpSpan":
        """Return a span below ``parent``, or the first span of a trace."""
        self._ids.next_trace = None if trace_id is None else trace_id.int
        span = self._tracer.start_span(
            name,
            _NO_PARENT if parent is None else _context(parent),
            _KINDS[kind],
            _without_none(attributes),
            [trace.Link(_span_context(link)) for link in links if link is not None],
            None if began is None else _nanoseconds(began),
        )
        return _OtlpSpan(self._tracer, span)

    async def close(self) -> None:
        """Export the remaining spans; give up after a few seconds if the collector does not answer."""
        loop, flushed = asyncio.get_running_loop(), asyncio.Event()

        def flush() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # The event loop may be closed by then.
                loop.call_soon_threadsafe(flushed.set)

        threading.Thread(target=flush, name="flush-spans", daemon=True).start()
        with suppress(TimeoutError):
            await asyncio.wait_for(flushed.wait(), FLUSH_SECONDS)
        self._exporter.shutdown()


class _OtlpSpan:
    """A span of the SDK; inside its ``with`` block it is the current span."""

    def __init__(self, tracer: trace.Tracer, span: trace.Span) -> None:
        self._tracer = tracer
        self._span = span
        self._token: Token[tracing.Span | None] | None = None

    @property
    def trace_id(self) -> str:
        return trace.format_trace_id(self._span.get_span_context().trace_id)

    @property
    def headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        _w3c.inject(headers, trace.set_span_in_context(self._span, _NO_PARENT))
        return headers

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def note(self, attributes: Attributes) -> None:
        self._span.set_attributes(_without_none(attributes) or {})

    def fail(self, kind: str) -> None:
        self._span.set_attribute("error.type", kind)
        self._span.set_status(trace.StatusCode.ERROR)

    def child(self, name: str, kind: Kind, attributes: Attributes) -> "_OtlpSpan":
        context = trace.set_span_in_context(self._span, _NO_PARENT)
        return _OtlpSpan(self._tracer, self._tracer.start_span(name, context, _KINDS[kind], _without_none(attributes)))

    def __enter__(self) -> Self:
        self._token = tracing.enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End the span. An exception is recorded by its type alone: its text may contain user data."""
        if self._token is not None:
            tracing.leave(self._token)
        if isinstance(error, asyncio.CancelledError):
            self.note({"carillon.outcome": "cancelled"})
        elif kind is not None:
            self.fail(kind.__name__)
        self._span.end()


class _Ids(RandomIdGenerator):
    """Random ids, except for a trace whose id is given."""

    next_trace: int | None = None

    def generate_trace_id(self) -> int:
        trace_id, self.next_trace = self.next_trace, None
        return super().generate_trace_id() if trace_id is None else trace_id


class _RatioSampler(Sampler):
    """Samples a share of the traces by the random bits of their ids, so that every process decides alike.

    The SDK's own sampler also looks at bits that are the same in all UUIDs, and does not keep to the ratio for them.
    """

    def __init__(self, ratio: float) -> None:
        self._first_sampled = round((1 - ratio) * 2**RANDOM_BITS)

    def should_sample(  # noqa: PLR0913 - the SDK's signature
        self,
        parent_context: Context | None,  # noqa: ARG002
        trace_id: int,
        name: str,  # noqa: ARG002
        kind: trace.SpanKind | None = None,  # noqa: ARG002
        attributes: OtelAttributes = None,
        links: Sequence[trace.Link] | None = None,  # noqa: ARG002
        trace_state: trace.TraceState | None = None,  # noqa: ARG002
    ) -> SamplingResult:
        if trace_id & (2**RANDOM_BITS - 1) >= self._first_sampled:
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)
        return SamplingResult(Decision.DROP)

    def get_description(self) -> str:
        return "RatioSampler"


class _CountingExporter(SpanExporter):
    """Exports by another exporter; counts the spans that were not accepted and logs that every few minutes."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._lost = 0
        self._throttle = LogThrottle(LOG_AGAIN_SECONDS)
        self._is_closed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._count_lost(len(spans))
        return result

    def shutdown(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._exporter.shutdown()

    def _count_lost(self, count: int) -> None:
        SPANS_LOST.inc(count)
        self._lost += count
        if self._throttle.should_log("traces_not_exported"):
            log.warning("traces_not_exported", spans=self._lost)
            self._lost = 0


def _resource(service: str) -> Resource:
    return Resource.create(
        {
            "service.name": service,
            "service.version": version("carillon"),
            "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
        }
    )


def _context(stored: str) -> Context:
    """Return the SDK's context of a stored context; one without a parent if it is not valid."""
    parent, _, state = stored.partition(" ")
    return _w3c.extract({"traceparent": parent, "tracestate": state} if state else {"traceparent": parent}, _NO_PARENT)


def _span_context(stored: str) -> trace.SpanContext:
    return trace.get_current_span(_context(stored)).get_span_context()


def _without_none(attributes: Attributes) -> dict[str, str | int] | None:
    return {name: value for name, value in attributes.items() if value is not None}


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1000
