"""Logging: one event a line, readable on a terminal, JSON elsewhere."""

import logging
import os
import sys
from typing import Literal

import structlog
from structlog.typing import Processor

from app.observability.discretion import as_event, with_slot, without_rows
from app.observability.tracing import add_trace_id

LIBRARIES = ("uvicorn.error", "uvicorn.access", "arq", "sqlalchemy.engine", "aiohttp.access")


def set_up_logging(log_format: Literal["auto", "console", "json"], level: str) -> None:
    """Send our events and the libraries' warnings the same way, to stdout."""
    console = log_format == "console" or (log_format == "auto" and sys.stdout.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        add_trace_id,
        structlog.processors.add_log_level,
        with_slot,
        structlog.processors.TimeStamper(fmt="iso" if not console else "%H:%M:%S", utc=not console),
    ]
    renderer: Processor = _console() if console else structlog.processors.JSONRenderer()
    tracebacks: list[Processor] = [structlog.processors.format_exc_info, without_rows]
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, *tracebacks, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        # A line and its end in one write: several processes share a pod's output.
        logger_factory=structlog.WriteLoggerFactory(sys.stdout),
        cache_logger_on_first_use=True,
    )
    _adopt_libraries([*shared, structlog.stdlib.add_logger_name, as_event], [*tracebacks, renderer])


def _console() -> structlog.dev.ConsoleRenderer:
    plain = structlog.dev.plain_traceback
    return structlog.dev.ConsoleRenderer(colors=_colours(), exception_formatter=plain, pad_event_to=22)


def _colours() -> bool:
    """On a terminal; and below `carillon up` on one, which relays our lines."""
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def _adopt_libraries(shared: list[Processor], last: list[Processor]) -> None:
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)
