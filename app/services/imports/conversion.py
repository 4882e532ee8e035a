"""Converted schedules become one document for ``carillon apply``; what it would refuse is left out with the reason."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from app.domain.errors import CarillonError, FieldError, InvalidError
from app.domain.limits import DEFAULT_CAPS
from app.domain.planning import with_start_anchor
from app.domain.schedule_input import Name
from app.domain.schedule_lifecycle import problems
from app.domain.schedules import ScheduledJob
from app.domain.workflows import TRIGGER_TYPE
from app.services.inputs import DeclaredScheduleInput, Namespace
from app.services.schedules import spec_values
from app.services.validation import checked

LONGEST_LABEL = 100
MOST_SCHEDULES = 10_000
NO_TIMEZONE = "no timezone is given, so it is UTC. Name another one with --timezone."
_NO_ID = UUID(int=0)
_TEMPLATE_MARK = "{{"
_COMMAND_OF_PAYLOAD = "{{ trigger.payload.command }}"


class Notice(msgspec.Struct, frozen=True):
    """Something that the result does not say, or says in another way; ``left_out`` if a whole schedule is missing."""

    line: int
    message: str
    left_out: bool = False


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A converted schedule: the fields of a declaration except for its name and its workflow."""

    line: int
    # What the name is made of; ``variant`` tells jobs of the same label apart.
    label: str
    variant: str = ""
    # What ran in the other tool: a shell command, a container, a plugin's command. Also in ``trigger_payload.command``.
    command: str
    fields: dict[str, Any]


class Conversion(msgspec.Struct, frozen=True):
    """The schedules that a text holds, and the notices about it."""

    jobs: tuple[Job, ...]
    notices: tuple[Notice, ...]


class Target(msgspec.Struct, frozen=True):
    """The namespace of the document; the workflow of all schedules, or None for a new one for each schedule."""

    namespace: Namespace
    workflow: Name | None = None


class Import(msgspec.Struct, frozen=True):
    """The document, or None if there is no schedule to declare; and the notices by line."""

    document: dict[str, Any] | None
    notices: tuple[Notice, ...]

    @property
    def is_complete(self) -> bool:
        """Return whether nothing was left out."""
        return not any(notice.left_out for notice in self.notices)


class Notices:
    """Collects notices while a text is read."""

    def __init__(self) -> None:
        """Start with none."""
        self._notices: list[Notice] = []

    def warn(self, line: int, message: str) -> None:
        """Add a notice about something that has no counterpart, or another one."""
        self._notices.append(Notice(line, message))

    def leave_out(self, line: int, reason: str) -> None:
        """Add a notice about a schedule that is missing in the result."""
        self._notices.append(Notice(line, reason, left_out=True))

    def all(self) -> tuple[Notice, ...]:
        """Return what was collected."""
        return tuple(self._notices)


def declare(conversion: Conversion, target: Target, now: datetime) -> Import:
    """Return the document that declares the converted schedules, without those that ``carillon apply`` would refuse.

    Raise ``InvalidError`` if the target itself is not valid, ``CarillonError`` if there are too many schedules.
    """
    checked(msgspec.structs.asdict(target), Target)
    if len(conversion.jobs) > MOST_SCHEDULES:
        raise CarillonError(f"There are more than {MOST_SCHEDULES} schedules. Split the file.")
    refusals = [(job, _refusal(job, now)) for job in conversion.jobs]
    left_out = [Notice(job.line, reason, left_out=True) for job, reason in refusals if reason]
    jobs = [job for job, reason in refusals if not reason]
    notices = sorted((*conversion.notices, *left_out), key=lambda notice: notice.line)
    return Import(_document(jobs, target) if jobs else None, tuple(notices))


def _refusal(job: Job, now: datetime) -> str:
    """Return why ``carillon apply`` would refuse a schedule, or an empty string."""
    entry = _schedule(job, "name", "workflow")
    try:
        msgspec.json.encode(entry)
        errors = _errors(entry, now)
    except UnicodeEncodeError:
        return "it has characters that cannot be stored."
    except InvalidError as error:
        errors = list(error.errors)
    return " ".join(f"{error.field}: {error.message}" for error in errors)


def _errors(entry: dict[str, Any], now: datetime) -> list[FieldError]:
    values = spec_values(checked(entry, DeclaredScheduleInput))
    fields = {name: value for name, value in values.items() if name not in {"workflow", "paused"}}
    job = ScheduledJob(
        id=_NO_ID, user_profile_id=0, workflow_id=0, anchor_at=now, created_at=now, updated_at=now, **fields
    )
    return [*DEFAULT_CAPS.errors(fields), *problems(with_start_anchor(job, now), now)]


def _document(jobs: Sequence[Job], target: Target) -> dict[str, Any]:
    named = list(zip(unique_names(jobs), jobs, strict=True))
    document: dict[str, Any] = {"namespace": target.namespace}
    if target.workflow is None:
        document["workflows"] = [_placeholder(name, job) for name, job in named]
    document["schedules"] = [_schedule(job, name, target.workflow or name) for name, job in named]
    return document


def _schedule(job: Job, name: str, workflow: str) -> dict[str, Any]:
    return {"name": name, "workflow": workflow, **job.fields}


def _placeholder(name: str, job: Job) -> dict[str, Any]:
    """Return a workflow that does nothing and says what ran in the other tool."""
    # Text in a configuration is a template, and a command may have braces that mean something else.
    description = _COMMAND_OF_PAYLOAD if _TEMPLATE_MARK in job.command else job.command
    return {
        "name": name,
        "nodes": [
            {"id": "start", "type": TRIGGER_TYPE},
            {"id": "command", "type": "core.noop", "config": {"description": description}},
        ],
        "edges": [{"from": "start", "to": "command"}],
    }


def unique_names(jobs: Iterable[Job]) -> list[str]:
    """Return a name for each job: its label, with the variant if the label occurs twice, and at last with a number.

    Names do not depend on the order of the jobs, except for jobs that are equal in both.
    """
    labels = [(_short(job.label) or "schedule", _short(job.variant)) for job in jobs]
    often = Counter(label for label, _ in labels)
    taken: set[str] = set()
    names = []
    for label, variant in labels:
        name = base = f"{label} ({variant})" if variant and often[label] > 1 else label
        number = 1
        while name in taken:
            number += 1
            name = f"{base} #{number}"
        taken.add(name)
        names.append(name)
    return names


def _short(text: str) -> str:
    """Return a text in one line of printable characters, cut to a length that leaves room for additions."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(printable.split())
    return line if len(line) <= LONGEST_LABEL else f"{line[: LONGEST_LABEL - 3]}..."
