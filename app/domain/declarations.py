"""Declared objects compared with the existing ones: what has to be created, changed or deleted."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from app.domain.schedules import Status

# Stands for a value that one side does not have.
ABSENT = msgspec.UNSET


class Difference(msgspec.Struct, frozen=True):
    """One value that differs: its path, and the value before and after."""

    path: str
    before: Any
    after: Any


def differences(before: Any, after: Any, path: str = "") -> Iterator[Difference]:
    """Yield every value that differs. The order of keys does not matter; 1 and true differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*after, *before)):
            inner = f"{path}.{name}" if path else name
            yield from differences(before.get(name, ABSENT), after.get(name, ABSENT), inner)
    elif _is_list(before) and _is_list(after) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, f"{path}[{index}]")
    elif isinstance(before, bool) is not isinstance(after, bool) or before != after:
        yield Difference(path, before, after)


def same(before: Any, after: Any) -> bool:
    """Return whether two values are equal, with 1 and true told apart."""
    return next(differences(before, after), None) is None


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


class Kind(StrEnum):
    """The kinds of objects that a file can declare."""

    WORKFLOW = "workflow"
    SCHEDULE = "schedule"
    CALENDAR = "calendar"
    LIMIT = "limit"


# Nothing uses a schedule; the others are deleted after what uses them.
_DELETED = (Kind.SCHEDULE, Kind.WORKFLOW, Kind.CALENDAR, Kind.LIMIT)


class Key(msgspec.Struct, frozen=True):
    """The identity of a declared object; it stays the same if the row is deleted and created again."""

    namespace: str
    kind: Kind
    name: str


class Declared(msgspec.Struct, frozen=True):
    """An object as a file declares it: values in their stored form, but a schedule names its workflow."""

    key: Key
    values: dict[str, Any]
    paused: bool = False


class Managed(msgspec.Struct, frozen=True, kw_only=True):
    """An existing object under a key, in the same form."""

    key: Key
    user_profile_id: int
    values: dict[str, Any]
    # Schedules only.
    status: Status | None = None


class Act(StrEnum):
    """The kinds of steps."""

    CREATE = "create"
    CHANGE = "change"
    KEEP = "keep"
    DELETE = "delete"
    # No longer declared, but pruning was not requested.
    LEAVE = "leave"


class Step(msgspec.Struct, frozen=True):
    """The step for one object, and the values that differ."""

    act: Act
    key: Key
    differences: tuple[Difference, ...] = ()
    # Schedules only: the status before the step, or after it once it is carried out.
    status: Status | None = None
    # The id of the stored object. Unknown while a step that creates it is only planned.
    object_id: UUID | int | None = None


def plan(declared: Iterable[Declared], managed: Mapping[Key, Managed]) -> list[Step]:
    """Return the steps that make objects as they are declared; equal ones are kept as they are."""
    return [_step(item, managed.get(item.key)) for item in declared]


def undeclared(managed: Iterable[Managed], declared: Collection[Key], *, prune: bool) -> list[Step]:
    """Return the steps for objects that no file declares any more, schedules before what they use."""
    rest = [item for item in managed if item.key not in declared]
    rest.sort(key=lambda item: (_DELETED.index(item.key.kind), item.key.namespace, item.key.name))
    return [Step(Act.DELETE if prune else Act.LEAVE, item.key, status=item.status) for item in rest]


def _step(declared: Declared, managed: Managed | None) -> Step:
    if managed is None:
        return Step(Act.CREATE, declared.key)
    changes = (*differences(managed.values, declared.values), *_pause(declared, managed))
    return Step(Act.CHANGE if changes else Act.KEEP, declared.key, changes, managed.status)


def _pause(declared: Declared, managed: Managed) -> Iterable[Difference]:
    """Yield a difference if a file pauses an active schedule. It never resumes one: an operator may have paused it."""
    if declared.paused and managed.status is Status.ACTIVE:
        yield Difference("paused", False, True)
