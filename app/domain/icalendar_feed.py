"""iCalendar text (RFC 5545) of coming fires, as calendar programs subscribe to it."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec

# Longer lines are folded: the next one begins with a blank.
_LINE_BYTES = 75
_STAMP = "%Y%m%dT%H%M%SZ"
_ESCAPES = str.maketrans({"\\": "\\\\", ";": "\\;", ",": "\\,", "\n": "\\n", "\r": None})


class FeedEvent(msgspec.Struct, frozen=True):
    """An event of a feed. ``uid`` stays the same as long as it is the same event."""

    uid: str
    at: datetime
    summary: str
    description: str = ""


def feed_text(name: str, events: Iterable[FeedEvent], now: datetime) -> str:
    """Return the text of a calendar with this name."""
    lines = (
        *("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Carillon//Upcoming//EN", "CALSCALE:GREGORIAN"),
        *("METHOD:PUBLISH", f"X-WR-CALNAME:{_escaped(name)}", "REFRESH-INTERVAL;VALUE=DURATION:PT1H"),
        *(line for event in events for line in _event_lines(event, now)),
        "END:VCALENDAR",
    )
    return "".join(f"{folded}\r\n" for line in lines for folded in _folded(line))


def _event_lines(event: FeedEvent, now: datetime) -> Iterator[str]:
    yield from ("BEGIN:VEVENT", f"UID:{event.uid}", f"DTSTAMP:{_stamp(now)}", f"DTSTART:{_stamp(event.at)}")
    yield f"SUMMARY:{_escaped(event.summary)}"
    if event.description:
        yield f"DESCRIPTION:{_escaped(event.description)}"
    # A fire takes no time that anybody would have to keep free.
    yield from ("TRANSP:TRANSPARENT", "END:VEVENT")


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime(_STAMP)


def _escaped(text: str) -> str:
    printable = "".join(letter for letter in text if letter.isprintable() or letter in "\n\t")
    return printable.translate(_ESCAPES)


def _folded(line: str) -> Iterator[str]:
    """Yield the pieces of a line, none longer than the standard allows and none with a part of a character."""
    piece, size = "", 0
    for letter in line:
        length = len(letter.encode())
        if size + length > _LINE_BYTES:
            yield piece
            piece, size = " ", 1
        piece += letter
        size += length
    yield piece
