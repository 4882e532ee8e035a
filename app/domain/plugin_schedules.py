"""Schedules that plugins ask for at every start: whether a change by a person or the plugin's wish stands."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from app.domain.declarations import same
from app.domain.schedules import EDITABLE
from app.domain.specs import KINDS

# The nodes and edges of the schedule's workflow, as one value.
NODES = "nodes"
# What a plugin says of a schedule. Its workflow is made from the action and belongs to the schedule.
FIELDS = tuple(name for name in EDITABLE if name not in {"workflow_id", "trigger_node_id", "key"})
# Values that are changed together: one kind of spec replaces the other.
_GROUPS = (KINDS, *((name,) for name in (*FIELDS, NODES) if name not in KINDS))


class EnsureMode(StrEnum):
    """What a plugin that asks for a schedule does to one that exists, or was deleted."""

    # Leave one that exists alone, and a deleted one deleted until a higher version is asked for.
    CREATE_ONLY = "create_only"
    # Change one that exists where no person has; a deleted one stays deleted in the same way.
    ADOPT = "adopt"
    # Change one that exists wherever it differs, and create a deleted one again.
    ENFORCE = "enforce"


class Merge(msgspec.Struct, frozen=True):
    """The fields that take the plugin's value, and who won where a person had changed one."""

    changes: tuple[str, ...] = ()
    # Fields in which the plugin asks for something new, and keeps what a person has set.
    kept: tuple[str, ...] = ()
    # Fields in which the plugin's value replaces what a person has set.
    replaced: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """Return who won, for the history; empty if there was no conflict."""
        sentences = []
        if self.replaced:
            sentences.append(f"The plugin's values replaced those set by others: {', '.join(self.replaced)}.")
        if self.kept:
            sentences.append(
                f"The plugin asked for other values; those set by others were kept: {', '.join(self.kept)}."
            )
        return " ".join(sentences)


def merge(mode: EnsureMode, asked: Mapping[str, Any], current: Mapping[str, Any], wanted: Mapping[str, Any]) -> Merge:
    """Compare what the plugin asked for last, what is stored, and what it asks for now.

    A field that differs from what was asked for last, or of which that is not known, was changed by a person.
    """
    changes: list[str] = []
    kept: list[str] = []
    replaced: list[str] = []
    for group in _GROUPS:
        if mode is EnsureMode.CREATE_ONLY or _same(group, current, wanted):
            continue
        was_edited = not _same(group, asked, current)
        differing = [name for name in group if not same(current.get(name), wanted.get(name))]
        if not was_edited or mode is EnsureMode.ENFORCE:
            changes += group
            replaced += differing if was_edited else ()
        elif not _same(group, asked, wanted):
            kept += differing
    return Merge(tuple(changes), tuple(kept), tuple(replaced))


def _same(names: tuple[str, ...], one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(name in one and name in other and same(one[name], other[name]) for name in names)


def may_create(mode: EnsureMode, deleted_version: int | None, wanted_version: int) -> bool:
    """Return whether a schedule that does not exist is created; one that was deleted was asked for in some version."""
    if deleted_version is None or mode is EnsureMode.ENFORCE:
        return True
    return wanted_version > deleted_version
