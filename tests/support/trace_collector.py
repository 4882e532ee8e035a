"""A collector of traces: a real OTLP/HTTP receiver on loopback that records every span."""

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A span that has arrived."""

    service: str
    name: str
    kind: int
    trace: str
    span: str
    parent: str
    links: list[tuple[str, str]]
    state: str
    began: int
    ended: int
    failed: bool
    attributes: dict[str, Any]


class Collector:
    """Records the spans that it receives."""

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self._arrived = asyncio.Condition()
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def one(self, name: str, wanted: Callable[[Seen], bool] = lambda _: True) -> Seen:
        """Wait for the one span of this name that meets the condition, and return it."""

        def matching() -> list[Seen]:
            return [span for span in self.spans if span.name == name and wanted(span)]

        async with asyncio.timeout(30), self._arrived:
            await self._arrived.wait_for(matching)
        (span,) = matching()
        return span

    async def _take(self, request: web.Request) -> web.Response:
        sent = ExportTraceServiceRequest.FromString(await request.read())
        async with self._arrived:
            self.spans += list(_seen(sent))
            self._arrived.notify_all()
        return web.Response()


def _seen(sent: ExportTraceServiceRequest) -> Iterable[Seen]:
    for resource in sent.resource_spans:
        service = _values(resource.resource.attributes)["service.name"]
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            yield Seen(
                service=service,
                name=span.name,
                kind=span.kind,
                trace=span.trace_id.hex(),
                span=span.span_id.hex(),
                parent=span.parent_span_id.hex(),
                links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
                state=span.trace_state,
                began=span.start_time_unix_nano,
                ended=span.end_time_unix_nano,
                failed=span.status.code == span.status.STATUS_CODE_ERROR,
                attributes=_values(span.attributes),
            )


def _values(attributes: Iterable[Any]) -> dict[str, Any]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in attributes}
