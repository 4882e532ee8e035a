"""Declared workflows and schedules beside those that there are: what has to be done, decided."""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from app.domain.differences import Difference, differences
from app.domain.schedules import Status


class Kind(StrEnum):
    """What can be declared."""

    WORKFLOW = "workflow"
    SCHEDULE = "schedule"


class Key(msgspec.Struct, frozen=True):
    """What a declared thing is known by, whatever becomes of its row."""

    namespace: str
    kind: Kind
    name: str


class Declared(msgspec.Struct, frozen=True):
    """What a file says. The values are in their stored form, but that a schedule names its workflow."""

    key: Key
    values: dict[str, Any]
    paused: bool = False


class Managed(msgspec.Struct, frozen=True, kw_only=True):
    """What there is under a key, in the same form."""

    key: Key
    user_profile_id: int
    values: dict[str, Any]
    # Of a schedule.
    status: Status | None = None


class Act(StrEnum):
    """What is done about a key."""

    CREATE = "create"
    CHANGE = "change"
    KEEP = "keep"
    DELETE = "delete"
    # It is no longer declared, and nobody asked to delete it.
    LEAVE = "leave"


class Step(msgspec.Struct, frozen=True):
    """What is done about one key, and why."""

    act: Act
    key: Key
    differences: tuple[Difference, ...] = ()
    # Of a schedule: before the step, or once it is done, after it.
    status: Status | None = None


def plan(declared: Iterable[Declared], managed: Mapping[Key, Managed]) -> list[Step]:
    """What makes things as they are declared. What is the same already is left alone."""
    return [_step(one, managed.get(one.key)) for one in declared]


def undeclared(managed: Iterable[Managed], declared: Collection[Key], *, prune: bool) -> list[Step]:
    """What is done about things that no file names any more: schedules before the workflows that they run."""
    left = [one for one in managed if one.key not in declared]
    left.sort(key=lambda one: (one.key.kind is Kind.WORKFLOW, one.key.namespace, one.key.name))
    return [Step(Act.DELETE if prune else Act.LEAVE, one.key, status=one.status) for one in left]


def _step(declared: Declared, managed: Managed | None) -> Step:
    if managed is None:
        return Step(Act.CREATE, declared.key)
    found = [*differences(managed.values, declared.values), *_pause(declared, managed)]
    return Step(Act.CHANGE if found else Act.KEEP, declared.key, tuple(found), managed.status)


def _pause(declared: Declared, managed: Managed) -> Iterable[Difference]:
    """A file may pause a schedule that is active. It never resumes one: an operator may have paused it."""
    if declared.paused and managed.status is Status.ACTIVE:
        yield Difference("paused", False, True)
