"""What a chaos run came to: findings by kind, and what was measured."""

from collections.abc import Iterator, Sequence
from uuid import UUID

import msgspec

KINDS = ("lost", "duplicate", "early", "phantom", "overlap", "counters", "writes", "mislabelled", "unsettled")
SHOWN_PER_KIND = 20


class Lateness(msgspec.Struct, frozen=True):
    """How late first attempts arrived, in seconds after their slots."""

    count: int
    p50: float
    p99: float
    maximum: float


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How much there was to look at."""

    schedules: int
    executions: int
    arrivals: int
    required: int
    fired: int
    # Slots by the outcome that was entered for them.
    unfired: dict[str, int]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What does not fit, by kind, and what was measured."""

    lost: list[str] = []
    duplicate: list[str] = []
    early: list[str] = []
    phantom: list[str] = []
    overlap: list[str] = []
    counters: list[str] = []
    writes: list[str] = []
    mislabelled: list[str] = []
    unsettled: list[str] = []
    # Schedules that paused by themselves. Worth a look, but no broken promise.
    poisoned: list[str] = []
    counts: Counts
    # First attempts whose slot lies in a fault or shortly after it, and all others; None if there are none.
    lateness_inside: Lateness | None
    lateness_outside: Lateness | None
    # Seconds from the calm to the first call on time, for each schedule that is active at the end; None if none came.
    recovery: dict[UUID, float | None]

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return not any(getattr(self, kind) for kind in KINDS)

    @property
    def slowest_recovery(self) -> float | None:
        """Seconds until every schedule that recovered had done so; None if none did."""
        return max((seconds for seconds in self.recovery.values() if seconds is not None), default=None)

    @property
    def unrecovered(self) -> list[UUID]:
        """The schedules that have not made a call on time since the calm."""
        return [schedule_id for schedule_id, seconds in self.recovery.items() if seconds is None]

    def lines(self) -> list[str]:
        """A readable account, with the first findings of each kind."""
        findings = [line for kind in (*KINDS, "poisoned") for line in _section(kind, getattr(self, kind))]
        return [f"promises kept: {'yes' if self.ok else 'no'}", *self._counted(), *self._measured(), *findings]

    def _counted(self) -> Iterator[str]:
        counts = self.counts
        yield f"{counts.schedules} schedules, {counts.executions} executions, {counts.arrivals} arrivals"
        unfired = "".join(f", {number} {outcome}" for outcome, number in sorted(counts.unfired.items()))
        yield f"slots: {counts.required} required, {counts.fired} fired{unfired}"

    def _measured(self) -> Iterator[str]:
        for where, late in (("inside", self.lateness_inside), ("outside", self.lateness_outside)):
            if late is not None:
                yield (
                    f"lateness {where} of faults: p50 {late.p50:.3f} s, p99 {late.p99:.3f} s,"
                    f" max {late.maximum:.3f} s ({late.count} calls)"
                )
        if self.slowest_recovery is not None:
            yield f"recovery: {self.slowest_recovery:.3f} s at most ({len(self.recovery)} active schedules)"
        if self.unrecovered:
            shown = ", ".join(str(schedule_id) for schedule_id in self.unrecovered[:SHOWN_PER_KIND])
            yield f"not on time since the calm: {len(self.unrecovered)} ({shown})"


def _section(kind: str, findings: Sequence[str]) -> list[str]:
    """The findings of one kind, not all of them if there are many."""
    shown = [f"  {finding}" for finding in findings[:SHOWN_PER_KIND]]
    more = len(findings) - len(shown)
    return [f"{kind}: {len(findings)}", *shown, *([f"  and {more} more"] if more else [])]
