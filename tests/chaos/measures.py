"""How late, how soon again, how much: figures that are no findings."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from tests.chaos.evidence import Ack, Arrival, Evidence, Fault, Verb
from tests.chaos.report import Counts, Lateness
from tests.chaos.stories import MANUAL, Story, arrived, late, required

# A call that was on its way when a fault began is late because of it.
ON_ITS_WAY_SECONDS = 1.0
ON_TIME_SECONDS = 1.0


def first_calls(stories: dict[UUID, Story]) -> list[Arrival]:
    """The first call of the first attempt of each slot."""
    calls: dict[tuple[UUID, datetime], Arrival] = {}
    for story in stories.values():
        for call in story.arrivals:
            beside = story.allows_manual(call.execution_id, call.slot) or story.may_be_by_backfill(call)
            if call.attempt == 1 and not beside and story.allows(call.slot):
                calls.setdefault((call.schedule_id, call.slot), call)
    return list(calls.values())


def by_faults(
    calls: Iterable[Arrival], faults: Sequence[Fault], settle: timedelta
) -> tuple[list[Arrival], list[Arrival]]:
    """The calls whose slots lie in a fault or in the settling after it, and the others."""
    on_its_way = timedelta(seconds=ON_ITS_WAY_SECONDS)
    inside: list[Arrival] = []
    outside: list[Arrival] = []
    for call in calls:
        troubled = any(fault.began - on_its_way <= call.slot <= fault.ended + settle for fault in faults)
        (inside if troubled else outside).append(call)
    return inside, outside


def lateness(calls: Iterable[Arrival]) -> Lateness | None:
    """How late these calls were; None if there are none."""
    seconds = sorted(late(call) for call in calls)
    if not seconds:
        return None
    return Lateness(len(seconds), _percentile(seconds, 0.5), _percentile(seconds, 0.99), seconds[-1])


def _percentile(ordered: Sequence[float], part: float) -> float:
    """The smallest value that at least this part of all values does not exceed."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def recovery(calls: Sequence[Arrival], evidence: Evidence, stories: dict[UUID, Story]) -> dict[UUID, float | None]:
    """For each schedule that is active at the end: when it was on time again, in seconds after the calm."""
    recovered: dict[UUID, float | None] = {
        story.id: None for story in stories.values() if story.row is not None and story.row.status == "active"
    }
    for call in sorted(calls, key=arrived, reverse=True):
        if call.schedule_id in recovered and call.slot >= evidence.calm and late(call) < ON_TIME_SECONDS:
            since = _active_since(stories[call.schedule_id], evidence.calm)
            recovered[call.schedule_id] = max(0.0, (call.at - since).total_seconds())
    return recovered


def _active_since(story: Story, calm: datetime) -> datetime:
    """The calm, or the moment at which the schedule was last created or resumed if that is later."""
    began = [
        request.asked
        for request in story.requests
        if request.ack is not Ack.NO and request.verb in {Verb.CREATE, Verb.RESUME}
    ]
    return max([calm, *began])


def counts(evidence: Evidence, stories: dict[UUID, Story]) -> Counts:
    """How much there was to look at."""
    unfired: Counter[str] = Counter()
    for entry in evidence.ledger:
        unfired[entry.outcome] += entry.slot_count
    scheduled = [row for row in evidence.executions if row.trigger != MANUAL and row.retry_attempt == 0]
    unfired.update(row.unrun_outcome for row in scheduled if row.unrun_outcome is not None)
    return Counts(
        schedules=len(evidence.schedules),
        executions=len(evidence.executions),
        arrivals=len(evidence.arrivals),
        required=sum(len(required(story)) for story in stories.values()),
        fired=sum(row.unrun_outcome is None for row in scheduled),
        unfired=dict(unfired),
    )


# Small questions about rows and calls.
