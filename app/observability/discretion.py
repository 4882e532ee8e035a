"""What happens to every line of the log: the slot that it is about is named, and data is left out."""

import re
from uuid import UUID

from structlog.typing import EventDict, WrappedLogger

from app.domain.identities import slot_of
from app.domain.trigger_event import rfc3339

# Postgres quotes whole rows in the lines after its first, and the driver the values that it cannot encode.
_QUOTED_ROWS = re.compile(
    r"\n(?:DETAIL|HINT|CONTEXT): .*?(?=\n(?:\[SQL: |\(Background on |Traceback |\nThe above |\nDuring )|\Z)", re.DOTALL
)
_QUOTED_VALUES = re.compile(r"(invalid input for query argument \$\d+).*")
_IN_WORDS = ("error", "exception", "words")
LIBRARY_EVENT = "library_says"


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
