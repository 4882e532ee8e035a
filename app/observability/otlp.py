"""Spans by OpenTelemetry, sent to a collector by OTLP over HTTP. The only module that knows either.

A thread of the SDK's own encodes and sends, so nothing waits for a collector. One that is away costs spans, and nothing
else: what cannot be sent is dropped, and that is said once in a while.
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
MOST_WAITING_SPANS = 16_384
SAY_AGAIN_SECONDS = 300.0
RANDOM_BITS = 56

_KINDS = {kind: trace.SpanKind[kind.value] for kind in Kind}
_NOWHERE = Context()
_w3c = TraceContextTextMapPropagator()

log = structlog.get_logger(__name__)


class OtlpTracer:
    """Makes spans for one process."""

    def __init__(self, endpoint: str, sample_ratio: float, service: str) -> None:
        """Send this share of the traces to ``endpoint``, under the name of a service."""
        # It complains about every batch; we do so once in a while.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._ids = _Ids()
        self._exporter = _SeldomComplaining(
            OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS)
        )
        self._provider = TracerProvider(
            sampler=ParentBased(_Share(sample_ratio)),
            resource=_resource(service),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                self._exporter,
                max_queue_size=MOST_WAITING_SPANS,
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
        """A span below one of elsewhere; else the first of its trace."""
        self._ids.next_trace = None if trace_id is None else trace_id.int
        span = self._tracer.start_span(
            name,
            _NOWHERE if parent is None else _context(parent),
            _KINDS[kind],
            _said(attributes),
            [trace.Link(_span_context(one)) for one in links if one is not None],
            None if began is None else _nanoseconds(began),
        )
        return _OtlpSpan(self._tracer, span)

    async def close(self) -> None:
        """Send what is left, within a few seconds; a collector that is away is not waited for any longer."""
        loop, flushed = asyncio.get_running_loop(), asyncio.Event()

        def flush() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # The loop may be gone by now.
                loop.call_soon_threadsafe(flushed.set)

        threading.Thread(target=flush, name="flush-spans", daemon=True).start()
        with suppress(TimeoutError):
            await asyncio.wait_for(flushed.wait(), FLUSH_SECONDS)
        self._exporter.shutdown()


class _OtlpSpan:
    """A span of the SDK; within its block it is the current one."""

    def __init__(self, tracer: trace.Tracer, span: trace.Span) -> None:
        self._tracer = tracer
        self._span = span
        self._before: Token[tracing.Span | None] | None = None

    @property
    def trace_id(self) -> str:
        return trace.format_trace_id(self._span.get_span_context().trace_id)

    @property
    def headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        _w3c.inject(headers, trace.set_span_in_context(self._span, _NOWHERE))
        return headers

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def note(self, attributes: Attributes) -> None:
        self._span.set_attributes(_said(attributes) or {})

    def fail(self, kind: str) -> None:
        self._span.set_attribute("error.type", kind)
        self._span.set_status(trace.StatusCode.ERROR)

    def child(self, name: str, kind: Kind, attributes: Attributes) -> "_OtlpSpan":
        within = trace.set_span_in_context(self._span, _NOWHERE)
        return _OtlpSpan(self._tracer, self._tracer.start_span(name, within, _KINDS[kind], _said(attributes)))

    def __enter__(self) -> Self:
        self._before = tracing.enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """What somebody raised is named by its type; its words may hold anything."""
        if self._before is not None:
            tracing.leave(self._before)
        if isinstance(error, asyncio.CancelledError):
            self.note({"carillon.outcome": "cancelled"})
        elif kind is not None:
            self.fail(kind.__name__)
        self._span.end()


class _Ids(RandomIdGenerator):
    """Ids by chance, but for a trace whose id is known."""

    next_trace: int | None = None

    def generate_trace_id(self) -> int:
        wanted, self.next_trace = self.next_trace, None
        return super().generate_trace_id() if wanted is None else wanted


class _Share(Sampler):
    """Takes a share of the traces, by the bits that are random in every id: wherever one is judged, alike.

    The SDK's own looks at bits, too, which are the same in all UUIDs.
    """

    def __init__(self, ratio: float) -> None:
        self._first_taken = round((1 - ratio) * 2**RANDOM_BITS)

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
        if trace_id & (2**RANDOM_BITS - 1) >= self._first_taken:
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)
        return SamplingResult(Decision.DROP)

    def get_description(self) -> str:
        return "Share"


class _SeldomComplaining(SpanExporter):
    """Hands on; that something was not taken is counted, and said once in a while."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._lost = 0
        self._throttle = LogThrottle(SAY_AGAIN_SECONDS)
        self._is_closed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._lose(len(spans))
        return result

    def shutdown(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._exporter.shutdown()

    def _lose(self, count: int) -> None:
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


def _context(kept: str) -> Context:
    """A context as it is kept; nowhere if it makes no sense."""
    parent, _, state = kept.partition(" ")
    return _w3c.extract({"traceparent": parent, "tracestate": state} if state else {"traceparent": parent}, _NOWHERE)


def _span_context(kept: str) -> trace.SpanContext:
    return trace.get_current_span(_context(kept)).get_span_context()


def _said(attributes: Attributes) -> dict[str, str | int] | None:
    return {name: value for name, value in attributes.items() if value is not None}


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1000
