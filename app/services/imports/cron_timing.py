"""The times of crontab lines and CronJobs: five fields, ``@daily`` and the like, ``@every 5m``; the rest is refused."""

import re
from typing import Any

import msgspec

from app.domain.cron_expression import ALIASES, DAYS, MONTHS, canonical_cron
from app.domain.specs import parse_duration

FIELDS = 5
# Names that other crons have for times; what ``app.domain.cron_expression`` knows already is not repeated.
MORE_ALIASES = {
    "@every_minute": "* * * * *",
    "@minutely": "* * * * *",
    "@quarterly": "0 0 1 1,4,7,10 *",
    "@semi-annually": "0 0 1 1,7 *",
    "@semiannually": "0 0 1 1,7 *",
    "@bi-annually": "0 0 1 1,7 *",
    "@biannually": "0 0 1 1,7 *",
}
EVERY = "@every"
REBOOT = "@reboot names no time: it runs when a machine starts. Let the machine call the API then, to run a schedule."
JENKINS = "'H' is a time that Jenkins chooses. Write a time; `jitter_seconds` spreads runs."
RANDOM = "'~' is a time that cron chooses at random. Write a time; `jitter_seconds` spreads runs."
SIX_FIELDS = "there are more than five fields: a cron expression has neither seconds nor years here."
FCRON = "this is a line of fcrontab, not of a crontab."
ANACRON = "this is a line of anacrontab (period, delay, name, command), not of a crontab."
AWS = "cron(...) and rate(...) are AWS's forms. Write five fields, or @every 5m."
AFTER_THE_END = "cron counts these seconds from the end of the run before. Here they are counted from start to start."
QUESTION_MARK = "'?' is read as '*'; some crons mean a random value by it."

_NAME = "|".join((*DAYS, *MONTHS))
# What can only be a sixth field: numbers and marks, or names in capitals or in a range or list.
_LIKE_A_FIELD = re.compile(
    rf"[*?]|[0-9*?][0-9*?/,#LW-]*|(?:{_NAME.upper()})(?:[-,](?:{_NAME.upper()}))*(?:L|#[0-9])?"
    rf"|(?i:(?:{_NAME})(?:[-,](?:{_NAME}))+)"
)
_ANACRON = re.compile(r"(?:[0-9]+|@\w+)\s+[0-9]+\s+[A-Za-z][\w.-]{2,}\s+\S")
_AWS = re.compile(r"(?:cron|rate)\(")
_SECONDS = re.compile(r"@([0-9]+)")
_JENKINS = re.compile(r"(?:^|[\s,])H(?:$|[\s,(/])")


class Timing(msgspec.Struct, frozen=True):
    """The field that says when, further fields that follow from it, and what differs."""

    fields: dict[str, Any]
    warnings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the time as it is written in the field."""
        return str(self.fields.get("cron") or self.fields["every"])

    @property
    def has_timezone(self) -> bool:
        """Return whether the times depend on a timezone."""
        return "cron" in self.fields


def split_line(line: str) -> tuple[str, str]:
    """Return the time and the rest of a crontab line. Raise ``ValueError`` if it has no time of a crontab."""
    if line[0] in "%&!":
        raise ValueError(FCRON)
    if _ANACRON.match(line):
        raise ValueError(ANACRON)
    if _AWS.match(line):
        raise ValueError(AWS)
    return _split_nickname(line) if line.startswith("@") else _split_fields(line)


def _split_nickname(line: str) -> tuple[str, str]:
    word, _, rest = _words(line, 1)
    if word.lower() != EVERY:
        return word, rest
    duration, _, command = _words(rest, 1)
    return f"{word} {duration}", command


def _split_fields(line: str) -> tuple[str, str]:
    timing, count, rest = _words(line, FIELDS)
    if count < FIELDS:
        raise ValueError("expected five fields and a command, or a name such as @daily and a command.")
    following = rest.split(None, 1)
    if following and _LIKE_A_FIELD.fullmatch(following[0]):
        raise ValueError(SIX_FIELDS)
    return timing, rest


def _words(text: str, number: int) -> tuple[str, int, str]:
    """Return the first words of a text, how many they are, and the rest."""
    words = text.split(None, number)
    return " ".join(words[:number]), min(len(words), number), words[number] if len(words) > number else ""


def read_timing(text: str) -> Timing:
    """Return the fields for a time. Raise ``ValueError`` with the reason if it has no counterpart."""
    lowered = text.lower()
    if lowered == "@reboot":
        raise ValueError(REBOOT)
    if lowered == "@every_second":
        return Timing({"every": "1s"})
    if seconds := _SECONDS.fullmatch(text):
        return Timing({"every": _duration(f"{seconds.group(1)}s"), "if_running": "skip"}, (AFTER_THE_END,))
    if lowered == EVERY or lowered.startswith(f"{EVERY} "):
        return Timing({"every": _duration(text[len(EVERY) :].strip())})
    if lowered.startswith("@") and lowered not in ALIASES | MORE_ALIASES:
        known = ", ".join((*ALIASES, "@every 5m"))
        raise ValueError(f"'{text[:40]}' is not known. Use five fields, or one of {known}.")
    return _cron(MORE_ALIASES.get(lowered, text))


def _cron(text: str) -> Timing:
    if _JENKINS.search(text):
        raise ValueError(JENKINS)
    if "~" in text:
        raise ValueError(RANDOM)
    canonical_cron(text)
    return Timing({"cron": " ".join(text.split())}, (QUESTION_MARK,) if "?" in text else ())


def _duration(text: str) -> str:
    parse_duration(text)
    return text
