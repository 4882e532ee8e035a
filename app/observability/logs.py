"""Logging: one event per line, without user data, and repeated events at most every few seconds."""

import logging
import os
import re
import sys
from typing import Literal
from uuid import UUID

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from app import clock
from app.domain.run_ids import slot_of
from app.domain.trigger_event import rfc3339
from app.observability.tracing import add_trace_id

LIBRARY_EVENT = "library_log"
# Libraries that log every request or statement below the level of a warning.
LIBRARIES = ("uvicorn.error", "uvicorn.access", "arq", "sqlalchemy.engine")
LOG_AGAIN_SECONDS = 5.0
# Postgres quotes whole rows in the lines after the first of an error; asyncpg quotes values that it cannot encode.
_QUOTED_ROWS = re.compile(
    r"\n(?:DETAIL|HINT|CONTEXT): .*?(?=\n(?:\[SQL: |\(Background on |Traceback |\nThe above |\nDuring )|\Z)", re.DOTALL
)
_QUOTED_VALUES = re.compile(r"(invalid input for query argument \$\d+).*")
_REDACTED_FIELDS = ("error", "exception", "message", "words")


def set_up_logging(log_format: Literal["auto", "console", "json"], level: str) -> None:
    """Write our events and the warnings of libraries to stdout in the same format."""
    console = log_format == "console" or (log_format == "auto" and sys.stdout.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        add_trace_id,
        structlog.processors.add_log_level,
        add_slot,
        structlog.processors.TimeStamper(fmt="iso" if not console else "%H:%M:%S", utc=not console),
    ]
    renderer: Processor = _console_renderer() if console else structlog.processors.JSONRenderer()
    tracebacks: list[Processor] = [structlog.processors.format_exc_info, redact_quoted_data]
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, *tracebacks, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        # Writes a line and its line end in one call: several processes share the output of a pod.
        logger_factory=structlog.WriteLoggerFactory(sys.stdout),
        cache_logger_on_first_use=True,
    )
    _redirect_libraries([*shared, structlog.stdlib.add_logger_name, as_library_event], [*tracebacks, renderer])


def _console_renderer() -> structlog.dev.ConsoleRenderer:
    # FORCE_COLOR is set by `carillon up` on a terminal, which relays our lines.
    colors = sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))
    plain = structlog.dev.plain_traceback
    return structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain, pad_event_to=22)


def _redirect_libraries(shared: list[Processor], last: list[Processor]) -> None:
    """Send the records of the standard library's logging through our processors."""
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


def add_slot(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    """Add the slot of the execution that a line is about: the id of an execution begins with its slot."""
    execution = line.get("execution")
    if execution and "slot" not in line:
        line["slot"] = rfc3339(slot_of(UUID(execution)))
    return line


def as_library_event(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    """Turn a library's log line into one event, with the text as ``message``."""
    line["message"] = line["event"]
    line["event"] = LIBRARY_EVENT
    return line


def redact_quoted_data(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    """Remove the rows and values of users that errors of Postgres and its driver quote."""
    for name in _REDACTED_FIELDS:
        if isinstance(line.get(name), str):
            line[name] = _QUOTED_VALUES.sub(r"\1", _QUOTED_ROWS.sub("", line[name]))
    return line


def log_fields(schedule: UUID | None = None, execution: UUID | None = None) -> dict[str, str]:
    """Return the fields that say what a line is about. The run of an entity has no schedule."""
    fields = {"schedule": schedule, "execution": execution}
    return {name: str(value) for name, value in fields.items() if value is not None}


class LogThrottle:
    """Limits repeated log lines: each kind is logged at once, and then again only after some seconds."""

    def __init__(self, seconds: float = LOG_AGAIN_SECONDS) -> None:
        """Allow each kind of line once in this many seconds."""
        self._seconds = seconds
        self._logged_at: dict[str, float] = {}

    def should_log(self, kind: str) -> bool:
        """Return whether a line of this kind is to be logged now; if so, count it as logged."""
        now = clock.monotonic()
        if kind in self._logged_at and now - self._logged_at[kind] < self._seconds:
            return False
        self._logged_at[kind] = now
        return True


class Outage:
    """An outage of something that several parts of this process need, logged every few seconds and at its end."""

    def __init__(self, log: FilteringBoundLogger, *, away: str, back: str) -> None:
        """Log these two events: ``away`` while it lasts, ``back`` when it is over."""
        self._log = log
        self._away = away
        self._back = back
        self._affected: set[str] = set()
        self._began = 0.0
        self._throttle = LogThrottle()
        self._is_logged = False

    @property
    def is_ongoing(self) -> bool:
        """Whether a part has reported it and does not work again yet."""
        return bool(self._affected)

    def report(self, by: str, error: str) -> None:
        """Record that this part failed because of the outage."""
        now = clock.monotonic()
        if not self._affected:
            self._began = now
        self._affected.add(by)
        if self._throttle.should_log(self._away):
            self._log.warning(self._away, seconds=round(now - self._began, 1), error=error)
            self._is_logged = True

    def clear(self, by: str) -> None:
        """Record that this part works again; the outage is over when all parts that reported it do."""
        if by not in self._affected:
            return
        self._affected.discard(by)
        if self._is_logged and not self._affected:
            self._log.info(self._back, seconds=round(clock.monotonic() - self._began, 1))
            self._is_logged = False
