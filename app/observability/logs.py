"""Logging: one event per line, without data of users, and repeated events at most every few seconds."""

import logging
import os
import re
import sys
from typing import Literal
from uuid import UUID

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from app import clock
from app.domain.identities import slot_of
from app.domain.trigger_event import rfc3339
from app.observability.tracing import add_trace_id

# Postgres quotes whole rows in the lines after its first, and the driver the values that it cannot encode.
_QUOTED_ROWS = re.compile(
    r"\n(?:DETAIL|HINT|CONTEXT): .*?(?=\n(?:\[SQL: |\(Background on |Traceback |\nThe above |\nDuring )|\Z)", re.DOTALL
)
_QUOTED_VALUES = re.compile(r"(invalid input for query argument \$\d+).*")
_IN_WORDS = ("error", "exception", "words")
LIBRARY_EVENT = "library_log"


def with_slot(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    """The slot of the execution that a line is about: the id begins with it."""
    execution = line.get("execution")
    if execution and "slot" not in line:
        line["slot"] = rfc3339(slot_of(UUID(execution)))
    return line


def as_event(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    """What a library says: one event, whatever its words are."""
    line["words"] = line["event"]
    line["event"] = LIBRARY_EVENT
    return line


def without_rows(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    """Errors in the words of Postgres and its driver, without the data that they quote."""
    for name in _IN_WORDS:
        if isinstance(line.get(name), str):
            line[name] = _QUOTED_VALUES.sub(r"\1", _QUOTED_ROWS.sub("", line[name]))
    return line


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


def log_fields(schedule: UUID | None = None, execution: UUID | None = None) -> dict[str, str]:
    """The fields of a line, as far as they apply: what an entity runs has no schedule."""
    found = {"schedule": schedule, "execution": execution}
    return {name: str(value) for name, value in found.items() if value is not None}


SAY_SECONDS = 5.0


class LogThrottle:
    """Whether something that comes again and again is to be said now; each kind of it has turns of its own."""

    def __init__(self, seconds: float = SAY_SECONDS) -> None:
        """Everything is to be said the first time, and then after so long."""
        self._seconds = seconds
        self._said_at: dict[str, float] = {}

    def should_log(self, kind: str) -> bool:
        """Whether it has not been said for some seconds; now it has."""
        now = clock.monotonic()
        if kind in self._said_at and now - self._said_at[kind] < self._seconds:
            return False
        self._said_at[kind] = now
        return True


class Outage:
    """Something that this process needs is away. However many miss it, it is said once in a while; so is its end."""

    def __init__(self, log: FilteringBoundLogger, *, away: str, back: str) -> None:
        """Say these events to this log."""
        self._log = log
        self._away = away
        self._back = back
        self._missed_by: set[str] = set()
        self._began = 0.0
        self._throttle = LogThrottle()
        self._is_said = False

    def report(self, by: str, error: str) -> None:
        """Someone cannot work without it, for this reason."""
        now = clock.monotonic()
        if not self._missed_by:
            self._began = now
        self._missed_by.add(by)
        if self._throttle.should_log(self._away):
            self._log.warning(self._away, seconds=round(now - self._began, 1), error=error)
            self._is_said = True

    def clear(self, by: str) -> None:
        """It was there for someone; it is over when that is so for all who missed it."""
        if by not in self._missed_by:
            return
        self._missed_by.discard(by)
        if self._is_said and not self._missed_by:
            self._log.info(self._back, seconds=round(clock.monotonic() - self._began, 1))
            self._is_said = False
