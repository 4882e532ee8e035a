"""Crontabs: the format of Vixie cron and its descendants, of users and of the system."""

import re
from typing import Any

import msgspec

from app.domain.local_time import canonical_zone
from app.services.imports.conversion import NO_TIMEZONE, Conversion, Job, Notices
from app.services.imports.cron_timing import Timing, read_timing, split_line

# cron neither makes up for missed runs, which is the default here, nor cares whether the last run still goes on.
SIDE_BY_SIDE = "allow"
MOST_COMMENT_LINES = 3
LONGEST_COMMENT = 1000
MAIL_VARIABLES = {"MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING"}
MAIL = "has no counterpart: cron mails the output of commands. Notifications tell of failed runs."
TZ = "changes the timezone of commands, not when they run: it is written to trigger_payload.environment."
ENVIRONMENT = "is written to trigger_payload.environment: Carillon starts no shell."
RANDOM_DELAY = "becomes `jitter_seconds`: another delay for each run, where cron keeps one until it is restarted."
CONTINUED = "the command ends with a backslash, but cron does not join lines."
SYSTEM_FORMAT = "the command begins with 'root'. If this is a system crontab, add --system."
NOT_LOGGED = "the hyphen before the time (no entry in the system's log) has no counterpart."
FLAGS = {
    "n": "-n (mail only if the command fails) has no counterpart.",
    "q": "-q (no entry in the system's log) has no counterpart.",
}

_ASSIGNMENT = re.compile(r"""(["']?)([A-Za-z_][A-Za-z0-9_]*)\1\s*=\s*(.*)""", re.DOTALL)
_FLAGS = re.compile(r"(?:-[nqs]+\s+)+")
_HEADER = re.compile(r"\bdom\s+mon\s+dow\b", re.IGNORECASE)
# A backslash takes the character after it along, so that only every other one escapes.
_PERCENT = re.compile(r"\\.|%", re.DOTALL)
_ZONED_TIME = re.compile(r"(\S+)\s+([0-9*@].*)", re.DOTALL)


class CrontabOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Whether lines name a user, as in /etc/crontab; and the timezone of the machine, if it is known."""

    system: bool = False
    timezone: str | None = None


def read_crontab(text: str, options: CrontabOptions) -> Conversion:
    """Return the schedules of a crontab; every line that is none is explained by a notice, but for comments."""
    reader = _Reader(options)
    for number, line in enumerate(text.split("\n"), start=1):
        reader.read(number, line.strip())
    return Conversion(tuple(reader.jobs), reader.notices.all())


class _Reader:
    """Reads lines in their order: a variable applies to the lines after it."""

    def __init__(self, options: CrontabOptions) -> None:
        self.jobs: list[Job] = []
        self.notices = Notices()
        self._options = options
        self._environment: dict[str, str] = {}
        self._zone = options.timezone
        self._zone_problem = ""
        self._fields: dict[str, Any] = {}
        self._comments: list[str] = []

    def read(self, number: int, line: str) -> None:
        if line.startswith("#"):
            self._comments.append(line.lstrip("# \t"))
            return
        if line:
            self._read_active(number, line)
        self._comments = []

    def _read_active(self, number: int, line: str) -> None:
        assignment = _ASSIGNMENT.fullmatch(line)
        try:
            if assignment is None:
                self._read_job(number, line)
            else:
                self._assign(number, assignment.group(2), assignment.group(3))
        except ValueError as error:
            self.notices.leave_out(number, str(error))

    def _assign(self, number: int, name: str, text: str) -> None:
        zoned = _ZONED_TIME.fullmatch(text) if name in {"CRON_TZ", "TZ"} else None
        if zoned is not None:
            self._read_job(number, zoned.group(2), canonical_zone(zoned.group(1)))
            return
        value = _unquoted(text)
        if name == "CRON_TZ":
            self._set_zone(number, value)
        elif name == "RANDOM_DELAY":
            self._set_seconds(number, name, "jitter_seconds", value, unit=60)
        elif name == "CRON_WITHIN":
            self._set_seconds(number, name, "misfire_grace_seconds", value, unit=1)
        elif name not in MAIL_VARIABLES:
            self._environment[name] = value
            self.notices.warn(number, f"{name} {TZ if name == 'TZ' else ENVIRONMENT}")
        elif value:
            self.notices.warn(number, f"{name} {MAIL}")

    def _set_zone(self, number: int, value: str) -> None:
        self._zone, self._zone_problem = self._options.timezone, ""
        if value:
            try:
                self._zone = canonical_zone(value)
            except ValueError as error:
                self._zone_problem = f"CRON_TZ of line {number} is not usable: {error}"

    def _set_seconds(self, number: int, name: str, field: str, value: str, *, unit: int) -> None:
        if not (value.isdecimal() and value.isascii()) or len(value) > 9:  # noqa: PLR2004 - more is no number of seconds
            self.notices.warn(number, f"{name} is not a number, and is ignored.")
            return
        self._fields[field] = int(value) * unit
        if name == "RANDOM_DELAY":
            self.notices.warn(number, f"{name} {RANDOM_DELAY}")

    def _read_job(self, number: int, line: str, zone: str | None = None) -> None:
        warnings: list[str] = []
        if line.startswith("-") and line[1:2] in {*"0123456789*@"}:
            line = line[1:]
            warnings.append(NOT_LOGGED)
        written_time, rest = split_line(line)
        timing = read_timing(written_time)
        if self._zone_problem and zone is None and timing.has_timezone:
            raise ValueError(self._zone_problem)
        command = _command(rest, system=self._options.system)
        self._warn(number, (*warnings, *timing.warnings, *command.warnings))
        self.jobs.append(self._job(number, timing, command, self._zone_of(number, timing, zone)))

    def _zone_of(self, number: int, timing: Timing, zone: str | None) -> dict[str, Any]:
        if not timing.has_timezone:
            return {}
        chosen = zone or self._zone
        if chosen is None:
            self._warn(number, (NO_TIMEZONE,))
            # Once is enough.
            self._zone = chosen = "UTC"
        return {} if chosen == "UTC" else {"timezone": chosen}

    def _job(self, number: int, timing: Timing, command: "_Command", zone: dict[str, Any]) -> Job:
        payload = {**command.payload, **({"environment": dict(self._environment)} if self._environment else {})}
        fields = {
            "description": "\n".join((*self._comment(), command.text)),
            **timing.fields,
            **zone,
            "if_running": timing.fields.get("if_running", SIDE_BY_SIDE),
            **self._fields,
            **command.fields,
            "trigger_payload": payload,
        }
        return Job(line=number, label=command.text, variant=timing.text, command=command.text, fields=fields)

    def _comment(self) -> list[str]:
        """Return the comment directly above a line, unless it is a long text or the heading of the columns."""
        lines = [line for line in self._comments if line and not _HEADER.search(line)]
        is_short = len(self._comments) <= MOST_COMMENT_LINES and sum(map(len, lines)) <= LONGEST_COMMENT
        return lines if is_short else []

    def _warn(self, number: int, warnings: tuple[str, ...]) -> None:
        for warning in warnings:
            self.notices.warn(number, warning)


class _Command(msgspec.Struct, frozen=True):
    """What a line runs: the command, what a workflow is told of it, and fields of the schedule that follow."""

    text: str
    payload: dict[str, Any]
    fields: dict[str, Any]
    warnings: tuple[str, ...]


def _command(rest: str, *, system: bool) -> _Command:
    """Read what follows the time. Raise ``ValueError`` if there is no command."""
    user, rest = _first_word(rest) if system else ("", rest)
    flags, rest = _flags(rest)
    text, stdin = split_at_percent(rest)
    if not text:
        raise ValueError("expected a user and a command after the time." if system else "there is no command.")
    payload = {"command": text, **({} if stdin is None else {"stdin": stdin}), **({"user": user} if user else {})}
    warnings = [text for flag, text in FLAGS.items() if flag in flags]
    if text.endswith("\\"):
        warnings.append(CONTINUED)
    if not system and text.startswith(("root ", "root\t")):
        warnings.append(SYSTEM_FORMAT)
    return _Command(text, payload, {"if_running": "skip"} if "s" in flags else {}, tuple(warnings))


def _first_word(text: str) -> tuple[str, str]:
    words = text.split(None, 1)
    return words[0] if words else "", words[1] if len(words) > 1 else ""


def _flags(text: str) -> tuple[str, str]:
    """Return the letters of the flags before a command, and the command."""
    flags = _FLAGS.match(text)
    return (flags.group(), text[flags.end() :]) if flags else ("", text)


def split_at_percent(text: str) -> tuple[str, str | None]:
    """Return a command and its standard input if it has one: an unescaped ``%`` begins it, and others end its lines."""
    first = next((match.start() for match in _PERCENT.finditer(text) if match.group() == "%"), None)
    if first is None:
        return _with_percent(text).strip(), None
    return _with_percent(text[:first]).strip(), _with_percent(text[first + 1 :], newline="\n")


def _with_percent(text: str, newline: str = "%") -> str:
    """Return a text with its escaped percent signs as such, and the others replaced."""
    return _PERCENT.sub(lambda match: {"%": newline, "\\%": "%"}.get(match.group(), match.group()), text)


def _unquoted(text: str) -> str:
    """Return a value without the quotes around it."""
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if is_quoted else text
