"""Warnings and notes about calendars: months without a slot, slots that are left out, and why nothing fires."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice, pairwise

from app.domain.calendars import SEARCHED_YEARS, FilteredSlots, calendar_names
from app.domain.local_time import DAY, Zone
from app.domain.phrases import MONTHS, joined
from app.domain.recurrence import Recurrence

_INSTANT = timedelta.resolution
# How many slots of a month are looked at to name the calendars that exclude them.
_SAMPLED_SLOTS = 50
# More months than this are counted, not named.
_MOST_MONTHS = 6


def why_never(slots: FilteredSlots, since: datetime, *, is_one_shot: bool) -> str:
    """Return why calendars leave no slot after a moment, as part of a sentence."""
    slot, rules = slots.slots.next(since), slots.rules
    exclusion = None if slot is None else rules.exclusion(slot)
    if is_one_shot and exclusion is not None:
        return str(exclusion)
    names = calendar_names(calendar.name for calendar in (*rules.excluded, *rules.only))
    return f"{names} left no slot in a search over {SEARCHED_YEARS} years"


def excluded_months(slots: FilteredSlots, zone: Zone, since: datetime, end: datetime | None) -> Iterator[str]:
    """Yield warnings of the months of the coming year in which calendars exclude every slot."""
    starts = list(islice(_months(zone.local(since)), len(MONTHS) + 1))
    excluding: dict[str, tuple[str, ...]] = {}
    for month, following in pairwise(starts):
        until = zone.instant(following) if end is None else min(zone.instant(following), end + _INSTANT)
        names = _excluding_all(slots, max(since, zone.instant(month) - _INSTANT), until)
        if names:
            excluding[f"{MONTHS[month.month - 1]} {month.year}"] = names
    for names in dict.fromkeys(excluding.values()):
        months = [month for month, found in excluding.items() if found == names]
        which = joined(months) if len(months) <= _MOST_MONTHS else f"{len(months)} of the next 12 months"
        yield f"Every slot of {which} is excluded by {calendar_names(names)}."


def left_out_before(slots: Recurrence, zone: Zone, previous: datetime, slot: datetime) -> str:
    """Return the note that calendars leave out slots between two runs, or an empty string."""
    first = slots.slots.next(previous) if isinstance(slots, FilteredSlots) else None
    if not isinstance(slots, FilteredSlots) or first is None or first >= slot:
        return ""
    second = slots.slots.next(first)
    others = " and others" if second is not None and second < slot else ""
    return f"{zone.local(first):%Y-%m-%d %H:%M}{others} left out: {slots.rules.exclusion(first)}"


def _months(wall: datetime) -> Iterator[datetime]:
    """Yield the wall times at which the month of a wall time begins, and those after it."""
    month = wall.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    while True:
        yield month
        month = (month + 31 * DAY).replace(day=1)


def _excluding_all(slots: FilteredSlots, since: datetime, until: datetime) -> tuple[str, ...]:
    """Return the names of the calendars that exclude all slots of a span; none if a slot is kept, or none is there."""
    kept = slots.next(since)
    if kept is not None and kept < until:
        return ()
    names: dict[str, None] = {}
    slot = slots.slots.next(since)
    for _ in range(_SAMPLED_SLOTS):
        if slot is None or slot >= until:
            break
        exclusion = slots.rules.exclusion(slot)
        if exclusion is not None and exclusion.entry is not None:
            names |= dict.fromkeys(exclusion.calendars)
        slot = slots.slots.next(slot)
    return tuple(names)
