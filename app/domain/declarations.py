"""Declared workflows and schedules compared with the existing ones: what has to be created, changed or deleted."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from app.domain.schedules import Status

# One side has nothing at this place.
ABSENT = msgspec.UNSET


class Difference(msgspec.Struct, frozen=True):
    """One place, before and after."""

    path: str
    before: Any
    after: Any


def differences(before: Any, after: Any, path: str = "") -> Iterator[Difference]:
    """Every place that differs. The order of keys is nothing; 1 and true are two."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*after, *before)):
            inner = f"{path}.{name}" if path else name
            yield from differences(before.get(name, ABSENT), after.get(name, ABSENT), inner)
    elif _is_list(before) and _is_list(after) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif isinstance(before, bool) is not isinstance(after, bool) or before != after:
        yield Difference(path, before, after)


def same(before: Any, after: Any) -> bool:
    """Whether nothing differs."""
    return next(differences(before, after), None) is None


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


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
