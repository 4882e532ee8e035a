"""The events of an iCalendar file (RFC 5545), read within bounds as entries of a calendar.

Dates, times, durations, recurrence rules, excluded and added dates, and changed single events are understood. Alarms,
to-dos and time zone definitions are passed over: a zone is found by its IANA name.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice

import msgspec

from app.domain.calendar_layers import FixedSpans, Source, Span
from app.domain.local_time import DAY, canonical_zone, hours, zone
from app.domain.rrule import Rule, parse_rrule
from app.domain.rrule_days import most_in_year
from app.domain.rrule_times import RRuleTimes

MAX_BYTES = 1024 * 1024
MAX_EVENTS = 10_000
# The events of a calendar that repeat are computed for each year.
MAX_REPEATS_A_YEAR = 2000
LONGEST_REPEATED = 366 * DAY
EARLIEST_YEAR, LATEST_YEAR = 1900, 2999
_LONGEST_SUMMARY = 200
_INSTANT = timedelta.resolution
_NAME = re.compile(r"[A-Za-z0-9-]+")
_PARAMETER = re.compile(r';([A-Za-z0-9-]+)=("[^"]*"|[^";:]*)')
_MOMENT = re.compile(r"([0-9]{8})(?:T([0-9]{6})(Z?))?")
_DURATION = re.compile(
    r"\+?P(?:(\d{1,5})W|(?:(\d{1,5})D)?(?:T(?:(\d{1,5})H)?(?:(\d{1,6})M)?(?:(\d{1,7})S)?)?)", re.ASCII
)
_ESCAPED = re.compile(r"\\([\\;,nN])")
_READ = frozenset(
    {"UID", "SUMMARY", "DTSTART", "DTEND", "DURATION", "RRULE", "RDATE", "EXDATE", "RECURRENCE-ID", "STATUS"}
)


class Line(msgspec.Struct, frozen=True):
    """A property of an event, with the number of its line for messages."""

    number: int
    name: str
    parameters: dict[str, str]
    value: str


class Moment(msgspec.Struct, frozen=True):
    """A date or a time of an event: a wall time, and its zone, or None for that of the calendar."""

    wall: datetime
    zone: str | None
    is_date: bool

    def in_zone(self, name: str | None, default: str) -> datetime:
        """Return the wall time in another zone. A date is the same everywhere."""
        if self.is_date or self.zone == name:
            return self.wall
        return zone(name or default).local(zone(self.zone or default).instant(self.wall))


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event on the wall clock of its zone, or of the calendar's zone if that is None."""

    uid: str
    summary: str
    zone: str | None
    start: datetime
    length: timedelta
    rule: Rule | None
    added: tuple[datetime, ...]
    # The excluded starts; a date excludes what starts on it.
    excluded: frozenset[datetime | date]
    # For a changed single event: the start that it replaces.
    replaces: Moment | None
    cancelled: bool

    @property
    def repeats(self) -> bool:
        """Return whether the event has a recurrence rule."""
        return self.rule is not None

    def span(self, start: datetime) -> Span:
        """Return the span of an event that starts at a wall time. One without a length covers its moment."""
        return Span(start, start + max(self.length, _INSTANT), self.summary)

    def spans(self, year: int) -> Iterator[Span]:
        """Yield the spans of an event that repeats."""
        first = datetime(max(year, EARLIEST_YEAR + 1), 1, 1, tzinfo=UTC) - max(self.length, DAY)
        last = datetime(year + 1, 1, 1, tzinfo=UTC)
        if self.rule is not None:
            # The wall clock is searched as if it were UTC, which never changes.
            slots = RRuleTimes(self.rule, self.start.replace(tzinfo=UTC), hours("UTC", None, ()))
            starts = (slot.replace(tzinfo=None) for slot in slots.between(first, last))
            yield from (self.span(start) for start in starts if not self._is_excluded(start))

    def fixed_spans(self) -> Iterator[Span]:
        """Yield the spans that follow no rule: the event itself, and the added dates."""
        return (self.span(start) for start in (self.start, *self.added) if not self._is_excluded(start))

    def _is_excluded(self, start: datetime) -> bool:
        return start in self.excluded or start.date() in self.excluded


def read_events(text: str, timezone: str) -> tuple[Event, ...]:
    """Return the events of an iCalendar file. Raise ``ValueError`` with the line that is wrong.

    Times without a zone are in ``timezone``, which is that of the calendar.
    """
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise ValueError(f"The iCalendar file is larger than {MAX_BYTES // 1024} KiB.")
    found = list(islice(_components(text), MAX_EVENTS + 1))
    if len(found) > MAX_EVENTS:
        raise ValueError(f"The iCalendar file has more than {MAX_EVENTS:,} events.")
    events = [_event(lines, timezone) for lines in found]
    _check_repeats(events)
    return tuple(_with_changes(events, timezone))


def sources(events: tuple[Event, ...]) -> Mapping[str | None, list[Source]]:
    """Return the entries of events by their zones; None is that of the calendar."""
    fixed: dict[str | None, list[Span]] = defaultdict(list)
    found: dict[str | None, list[Source]] = defaultdict(list)
    for event in events:
        fixed[event.zone] += event.fixed_spans()
        if event.repeats:
            found[event.zone].append(event)
    for name, spans in fixed.items():
        found[name].append(FixedSpans(tuple(spans)))
    return found


def _components(text: str) -> Iterator[list[Line]]:
    """Yield the properties of each event. Raise ``ValueError`` if components are not closed in their order."""
    open_components: list[str] = []
    lines: list[Line] = []
    for number, content in _unfolded(text):
        if not open_components and content.strip().upper() != "BEGIN:VCALENDAR":
            raise ValueError("The text is not an iCalendar file: it does not begin with BEGIN:VCALENDAR.")
        line = _line(number, content)
        if line.name == "BEGIN":
            open_components.append(line.value.upper())
            lines = [] if line.value.upper() == "VEVENT" else lines
        elif line.name == "END":
            if open_components.pop() != line.value.upper():
                raise ValueError(f"Line {number}: END:{line.value[:20]} closes another component.")
            if line.value.upper() == "VEVENT":
                yield lines
        elif open_components[-1] == "VEVENT" and line.name in _READ:
            lines.append(line)
    if open_components or not text.strip():
        raise ValueError("The iCalendar file is not complete: END:VCALENDAR is missing.")


def _unfolded(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with the number of each. A line that begins with a space continues the one before it."""
    parts: list[str] = []
    begun = 1
    for number, physical in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        content = physical.removesuffix("\r")
        if content[:1] in {" ", "\t"} and parts:
            parts.append(content[1:])
        elif content.strip():
            if parts:
                yield begun, "".join(parts)
            parts, begun = [content], number
    if parts:
        yield begun, "".join(parts)


def _line(number: int, content: str) -> Line:
    name = _NAME.match(content)
    if name is None:
        raise ValueError(f"Line {number}: expected NAME:VALUE.")
    parameters, place = {}, name.end()
    while (match := _PARAMETER.match(content, place)) is not None:
        parameters[match[1].upper()] = match[2].strip('"')
        place = match.end()
    if content[place : place + 1] != ":":
        raise ValueError(f"Line {number}: expected NAME:VALUE.")
    return Line(number, name[0].upper(), parameters, content[place + 1 :].strip())


def _event(lines: list[Line], timezone: str) -> Event:
    first = {line.name: line for line in reversed(lines)}
    if "DTSTART" not in first:
        where = f"Line {lines[0].number}: the" if lines else "An"
        raise ValueError(f"{where} event has no DTSTART.")
    start = _moment(first["DTSTART"])
    length = _length(first, start, timezone)
    rule = _rule(first["RRULE"], start, timezone, length) if "RRULE" in first else None
    replaced = first.get("RECURRENCE-ID")
    if replaced is not None and "RANGE" in replaced.parameters:
        raise ValueError(f"Line {replaced.number}: RECURRENCE-ID with RANGE is not supported.")
    return Event(
        uid=first["UID"].value if "UID" in first else "",
        summary=_text(first["SUMMARY"].value) if "SUMMARY" in first else "event",
        zone=start.zone,
        start=start.wall,
        length=length,
        rule=rule,
        added=tuple(moment.in_zone(start.zone, timezone) for moment in _all(lines, "RDATE")),
        excluded=frozenset(_excluded(moment, start.zone, timezone) for moment in _all(lines, "EXDATE")),
        replaces=None if replaced is None else _moment(replaced),
        cancelled="STATUS" in first and first["STATUS"].value.upper() == "CANCELLED",
    )


def _all(lines: list[Line], name: str) -> Iterator[Moment]:
    """Yield the dates and times of all properties with this name, each of which may be a list."""
    for line in lines:
        if line.name == name:
            yield from (_moment(msgspec.structs.replace(line, value=item)) for item in line.value.split(","))


def _excluded(moment: Moment, zone_name: str | None, timezone: str) -> datetime | date:
    return moment.wall.date() if moment.is_date else moment.in_zone(zone_name, timezone)


def _moment(line: Line) -> Moment:
    match = _MOMENT.fullmatch(line.value.strip().upper())
    if match is None or (line.parameters.get("VALUE") == "DATE" and match[2]):
        raise ValueError(f"Line {line.number}: {line.name} '{line.value[:40]}' is not a date or a time.")
    try:
        wall = datetime.strptime(f"{match[1]}{match[2] or '000000'}", "%Y%m%d%H%M%S")  # noqa: DTZ007 - a wall time
    except ValueError:
        raise ValueError(f"Line {line.number}: {line.name} '{line.value[:40]}' does not exist.") from None
    if not EARLIEST_YEAR < wall.year <= LATEST_YEAR:
        raise ValueError(f"Line {line.number}: the year of {line.name} must be after {EARLIEST_YEAR} and before 3000.")
    return Moment(wall, _zone_name(line, is_utc=bool(match[3])) if match[2] else None, is_date=not match[2])


def _zone_name(line: Line, *, is_utc: bool) -> str | None:
    if is_utc:
        return "UTC"
    given = line.parameters.get("TZID")
    try:
        return None if given is None else canonical_zone(given.removeprefix("/"))
    except ValueError as error:
        raise ValueError(f"Line {line.number}: {error}") from None


def _length(first: Mapping[str, Line], start: Moment, timezone: str) -> timedelta:
    if "DTEND" in first:
        line = first["DTEND"]
        length = _moment(line).in_zone(start.zone, timezone) - start.wall
        if length < timedelta(0):
            raise ValueError(f"Line {line.number}: DTEND is before DTSTART.")
    elif "DURATION" in first:
        length = _duration(first["DURATION"])
    else:
        length = timedelta(0)
    return max(length, DAY) if start.is_date else length


def _duration(line: Line) -> timedelta:
    match = _DURATION.fullmatch(line.value.strip().upper())
    if match is None or not any(match.groups()):
        raise ValueError(f"Line {line.number}: DURATION '{line.value[:40]}' is not a duration such as P1D or PT1H30M.")
    weeks, days, hour, minute, second = (int(part or 0) for part in match.groups())
    return timedelta(weeks=weeks, days=days, hours=hour, minutes=minute, seconds=second)


def _rule(line: Line, start: Moment, timezone: str, length: timedelta) -> Rule:
    """Return the rule of an event, with UNTIL on the wall clock of the event."""
    try:
        rule = parse_rrule(line.value)
    except ValueError as error:
        raise ValueError(f"Line {line.number}: {error}") from None
    if length > LONGEST_REPEATED:
        raise ValueError(f"Line {line.number}: an event that repeats may last {LONGEST_REPEATED.days} days at most.")
    if rule.until is None or rule.until.tzinfo is None:
        return rule
    until = zone(start.zone or timezone).local(rule.until)
    return msgspec.structs.replace(rule, until=datetime.combine(until, time.max) if start.is_date else until)


def _check_repeats(events: list[Event]) -> None:
    repeats = 0
    for event in events:
        repeats += most_in_year(event.rule) if event.rule is not None else 0
        if repeats > MAX_REPEATS_A_YEAR:
            raise ValueError(f"The events of the iCalendar file repeat more than {MAX_REPEATS_A_YEAR:,} times a year.")


def _with_changes(events: list[Event], timezone: str) -> Iterator[Event]:
    """Yield the events that take place. A changed single event takes the place of one of its series."""
    replaced: dict[str, list[Moment]] = defaultdict(list)
    for event in events:
        if event.replaces is not None:
            replaced[event.uid].append(event.replaces)
    for event in events:
        if event.cancelled:
            continue
        changed = replaced.get(event.uid, []) if event.replaces is None else []
        starts = {_excluded(moment, event.zone, timezone) for moment in changed}
        yield msgspec.structs.replace(event, excluded=event.excluded | starts) if starts else event


def _text(value: str) -> str:
    """Return a text without escapes, on one line."""
    text = _ESCAPED.sub(lambda match: " " if match[1] in "nN" else match[1], value)
    return " ".join(text.split())[:_LONGEST_SUMMARY] or "event"
