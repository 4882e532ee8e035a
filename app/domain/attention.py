"""The attention list: what is wrong now, with a sentence each, ranked by harm."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

import msgspec


class AttentionKind(StrEnum):
    """What needs attention, the greatest harm first: what stops all schedules, then one, then what may stop one."""

    SCHEDULES_DISABLED = "schedules_disabled"
    NO_WORKERS = "no_workers"
    SILENT = "silent"
    DEAD = "dead"
    POISONED = "poisoned"
    INVALID = "invalid"
    BREAKER_OPEN = "breaker_open"
    FAILING = "failing"
    LATE = "late"
    QUEUE_UNREACHABLE = "queue_unreachable"


_RANKS = {kind: rank for rank, kind in enumerate(AttentionKind)}
_SENTENCES = {
    AttentionKind.SCHEDULES_DISABLED: "All schedules are switched off: no slot fires until they are switched on.",
    AttentionKind.NO_WORKERS: "No worker is running: nothing fires until one is started.",
    AttentionKind.SILENT: "'{name}' is overdue by at least three intervals: nothing seems to fire it.",
    AttentionKind.DEAD: "'{name}' is dead: a run failed and no retry was left. Revive it once the cause is gone.",
    AttentionKind.POISONED: "'{name}' is paused: it could not be handled three times. Its last error says why.",
    AttentionKind.INVALID: "'{name}' is paused: its spec is no longer valid. Change the spec.",
    AttentionKind.BREAKER_OPEN: "The breaker of the workflow '{name}' is open: its schedules do not fire.",
    AttentionKind.FAILING: "The last run of '{name}' did not succeed.",
    AttentionKind.LATE: "'{name}' is overdue.",
    AttentionKind.QUEUE_UNREACHABLE: "Redis cannot be reached: workers poll Postgres, and runs may start later.",
}


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong: with which object, if it is one, and since when, if that is known."""

    kind: AttentionKind
    object_type: str
    id: str | None = None
    name: str = ""
    since: datetime | None = None

    @property
    def sentence(self) -> str:
        """Return what is wrong in one sentence."""
        return _SENTENCES[self.kind].format(name=self.name)


def ranked(items: Iterable[Attention], limit: int) -> list[Attention]:
    """Return what does the greatest harm, and within one kind what is newest."""

    def place(item: Attention) -> tuple[int, float]:
        return _RANKS[item.kind], -item.since.timestamp() if item.since else 0.0

    return sorted(items, key=place)[:limit]
