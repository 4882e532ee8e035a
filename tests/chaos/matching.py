"""Arrivals matched to executions a second time, without their labels, so that mislabelled ones show."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from tests.chaos.evidence import Arrival, Evidence, ExecutionRow, Verb
from tests.chaos.stories import Story, arrived, begun, called, hand_outs, labelled, started, was_handed_back

# How far an arrival may lie outside the time in which its execution says that it ran.
TOLERANCE_SECONDS = 0.5


def strangers(evidence: Evidence, stories: dict[UUID, Story]) -> Iterator[str]:
    """Whatever belongs to a schedule that nobody ever asked for."""
    found = [
        *((row.id, "a schedule") for row in evidence.schedules),
        *((row.scheduled_job_id, called(row)) for row in evidence.executions),
        *((row.scheduled_job_id, f"{row.outcome} {row.first_slot.isoformat()}") for row in evidence.ledger),
        *((call.schedule_id, labelled(call)) for call in evidence.arrivals),
    ]
    for schedule_id, what in found:
        if schedule_id not in stories:
            yield f"schedule {schedule_id}, which nobody asked for: {what}"


# Matching calls with executions a second time, by the address and the time alone.


class _Window(msgspec.Struct):
    """The time in which the calls of an execution may arrive, and how many of them."""

    row: ExecutionRow
    first: datetime
    last: datetime
    room: int


def misdirected(evidence: Evidence, stories: dict[UUID, Story]) -> Iterator[str]:
    """Calls whose labels do not fit what was under way for the schedule of their address."""
    paths = defaultdict(list)
    for arrival in sorted(evidence.arrivals, key=arrived):
        paths[arrival.path].append(arrival)
    names = _names(stories)
    for path, arrivals in sorted(paths.items()):
        owner = _owner(path, arrivals, names)
        story = stories.get(owner)
        yield from (
            f"{path}: {labelled(call)} carries the schedule {call.schedule_id}, the address is that of {owner}"
            for call in arrivals
            if call.schedule_id != owner
        )
        if story is not None and story.row is not None:
            in_time = [call for call in arrivals if call.at <= evidence.ended]
            yield from (f"{path}: {found}" for found in _misfits(story, in_time))


def _names(stories: dict[UUID, Story]) -> dict[str, UUID]:
    """Which schedule a part of an address names: its id, or the name that it was created with and shares with none."""
    created = [
        (request.body.get("name", (request.answer or {}).get("name")), story.id)
        for story in stories.values()
        for request in story.requests
        if request.verb is Verb.CREATE
    ]
    shared = Counter(name for name, _ in created)
    names = {name: schedule_id for name, schedule_id in created if name is not None and shared[name] == 1}
    return names | {str(schedule_id): schedule_id for schedule_id in stories}


def _owner(path: str, arrivals: Sequence[Arrival], names: dict[str, UUID]) -> UUID:
    """The schedule of an address: the one that it names, else the one that most of its calls carry."""
    named = [names[part] for part in path.split("/") if part in names]
    return named[0] if named else Counter(call.schedule_id for call in arrivals).most_common(1)[0][0]


def _misfits(story: Story, arrivals: Sequence[Arrival]) -> Iterator[str]:
    """Calls to the address of a schedule whose slot, attempt or number does not fit its executions."""
    rows = {row.id: row for row in story.executions}
    windows = sorted(_windows(story), key=lambda window: window.first)
    by_label = _by_label(windows)
    unmatched = set(_unmatched(arrivals, windows))
    for call in arrivals:
        row = rows.get(call.execution_id)
        if row is not None and (call.slot, call.attempt) != (row.scheduled_for, row.retry_attempt + 1):
            yield f"{labelled(call)} does not fit its {called(row)}"
        elif not any(window.first <= call.at <= window.last for window in by_label[call.slot, call.attempt]):
            yield f"{labelled(call)} does not fit any execution that was under way"
        elif call in unmatched:
            yield f"{labelled(call)} is more than the executions that were under way can have sent"


def _windows(story: Story) -> Iterator[_Window]:
    """When the calls of each execution that began may have arrived."""
    tolerance = timedelta(seconds=TOLERANCE_SECONDS)
    for row in begun(story.executions):
        # A run that was handed back may have made a call before the start that the table shows.
        first = row.scheduled_for if was_handed_back(row) else started(row)
        last = _last_call(story, row)
        yield _Window(row, first - tolerance, last + tolerance, max(1, hand_outs(row)))


def _last_call(story: Story, row: ExecutionRow) -> datetime:
    """When the last call of an execution may have arrived: one that was given up may have been held up on its way."""
    finished = row.finished_at or story.ended
    if row.status == "success" and not was_handed_back(row):
        return finished
    faults = [fault.ended for fault in story.faults if fault.began <= finished and started(row) <= fault.ended]
    return max([finished, *faults]) + story.settle


def _by_label(windows: Iterable[_Window]) -> defaultdict[tuple[datetime, int], list[_Window]]:
    """The executions by the slot and the attempt that their calls carry."""
    labelled = defaultdict(list)
    for window in windows:
        labelled[window.row.scheduled_for, window.row.retry_attempt + 1].append(window)
    return labelled


def _unmatched(arrivals: Sequence[Arrival], windows: Sequence[_Window]) -> list[Arrival]:
    """The calls that are left over if each goes to an execution under way, the one that ends first."""
    coming = list(reversed(windows))
    under_way: list[tuple[datetime, int, _Window]] = []
    left_over = []
    for call in arrivals:
        while coming and coming[-1].first <= call.at:
            window = coming.pop()
            heapq.heappush(under_way, (window.last, len(coming), window))
        while under_way and (under_way[0][0] < call.at or not under_way[0][2].room):
            heapq.heappop(under_way)
        if under_way:
            under_way[0][2].room -= 1
        else:
            left_over.append(call)
    return left_over


def confused_keys(arrivals: Sequence[Arrival]) -> Iterator[str]:
    """Idempotency keys that two slots share, or that change within one."""
    slots_of, keys_of = defaultdict(set), defaultdict(set)
    for call in arrivals:
        slots_of[call.key].add((call.schedule_id, call.slot))
        keys_of[call.schedule_id, call.slot].add(call.key)
    for key, slots in slots_of.items():
        if len(slots) > 1:
            yield f"key {key} stands for {len(slots)} slots"
    for (schedule_id, slot), keys in keys_of.items():
        if len(keys) > 1:
            yield f"schedule {schedule_id}: slot {slot.isoformat()} has {len(keys)} keys: {', '.join(sorted(keys))}"


# Measures.
