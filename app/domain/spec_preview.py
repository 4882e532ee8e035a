"""The preview of a spec: warnings about what users may not expect, and the next runs."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from app.domain.calendar_warnings import excluded_months, left_out_before, why_never
from app.domain.calendars import NO_CALENDARS, FilteredSlots
from app.domain.cron_expression import FIELDS, cron, is_fixed
from app.domain.local_time import DAY, Transition
from app.domain.planning import due_time, with_first_slot
from app.domain.recurrence import CronTimes, Recurrence
from app.domain.rrule import parse_rrule
from app.domain.rrule_times import RRuleTimes
from app.domain.rrule_warnings import lacking_days, rule_warnings
from app.domain.schedules import ScheduledJob
from app.domain.specs import Spec
from app.domain.trigger_event import rfc3339

_INSTANT = timedelta.resolution
_YEAR = timedelta(days=366)
# How many slots are looked at for warnings.
_SAMPLED_SLOTS = 50
# The search for next runs ends this long after the first one.
HORIZON = timedelta(days=100 * 366)
_SHORTEST_MONTH = 28
# For a field with steps: the name of its values, the unit of its steps, and the period after which they start again.
_STEPS = {
    "minute": ("minute", "minute", "hour"),
    "hour": ("hour", "hour", "day"),
    "month": ("month", "month", "year"),
    "day-of-week": ("weekday", "day", "week"),
}


class NextRun(msgspec.Struct, frozen=True):
    """The time of a run in the future, and a note if a clock change moves or repeats it."""

    at: datetime
    note: str


class Runs(msgspec.Struct, frozen=True):
    """Runs in the future, and whether the search for more was stopped early."""

    runs: list[NextRun]
    cut: bool


class _Case(msgspec.Struct, frozen=True, dict=True):
    """A valid spec with the anchor and bounds of the schedule that it is checked for.

    ``anchor`` is the moment from which slots are counted; ``counts_anchor`` is false if it is never itself expected.
    """

    spec: Spec
    anchor: datetime
    counts_anchor: bool
    first_moment: datetime
    end: datetime | None
    now: datetime

    @property
    def since(self) -> datetime:
        """Return the moment strictly after which the first slot comes."""
        return max(self.now, self.first_moment - _INSTANT)

    @cached_property
    def slots(self) -> Recurrence:
        """Return the slots of the spec."""
        return self.spec.slots(self.anchor, counts_anchor=self.counts_anchor)

    @cached_property
    def following(self) -> datetime | None:
        """Return the first slot, without regard to the end. A search that finds none is slow, so it is done once."""
        return self.slots.next(self.since)

    @cached_property
    def coming(self) -> list[datetime]:
        """Return the first slots of at most a year. Each may take a search, so only a sample is taken."""
        slots: list[datetime] = []
        slot = self.following
        while slot is not None and len(slots) < _SAMPLED_SLOTS and (self.end is None or slot <= self.end):
            slots.append(slot)
            slot = self.slots.next(slot) if slot < self.since + _YEAR else None
        return slots

    @cached_property
    def wall_slots(self) -> Recurrence:
        """Return the slots on a wall clock that is never changed, written as if it were UTC."""
        return replace(self.spec, timezone="UTC", calendars=NO_CALENDARS).slots(self.wall(self.anchor))

    def wall(self, moment: datetime) -> datetime:
        """Return the wall time of a moment, written as if it were UTC."""
        return self.spec.hours.zone.local(moment).replace(tzinfo=UTC)

    @cached_property
    def changes(self) -> list[Transition]:
        """Return the clock changes within the first year."""
        until = self.since + _YEAR if self.end is None else min(self.since + _YEAR, self.end)
        years = range(self.since.year, until.year + 1)
        changes = (change for year in years for change in self.spec.hours.zone.transitions(year))
        return [change for change in changes if self.since < change.at <= until]


def spec_warnings(
    spec: Spec,
    *,
    anchor: datetime,
    start_at: datetime | None,
    end_at: datetime | None,
    timeout_seconds: int,
    now: datetime,
) -> list[str]:
    """Return the warnings for a schedule with this spec and anchor, or why the spec is not valid."""
    if spec.problem:
        return [spec.problem]
    # As in ``ScheduledJob.first_moment``: the anchor is itself a slot only if it is ``start_at``, or of a one-shot.
    first_moment = anchor if spec.is_one_shot or anchor == start_at else anchor + _INSTANT
    case = _Case(spec, *spec.start(anchor, start_at), first_moment, end_at, now)
    if not case.coming:
        return [_why_never(case)]
    checks = (
        *(_only_moved, _cron_warnings, _rule_warnings, _month_ends, _clock_changes, _day_lengths),
        _excluded_months,
    )
    return [*(warning for check in checks for warning in check(case)), *_overlaps(case, timeout_seconds)]


def _why_never(case: _Case) -> str:
    spec = case.spec
    if case.end is not None and case.following is not None:
        return f"It never fires: it ends at {rfc3339(case.end)}, and its next slot would be {rfc3339(case.following)}."
    if isinstance(case.slots, FilteredSlots) and case.slots.slots.next(case.since) is not None:
        return f"It never fires: {why_never(case.slots, case.since, is_one_shot=spec.is_one_shot)}."
    if spec.is_one_shot and spec.hours.allows(case.anchor):
        return f"The moment has passed: {rfc3339(case.anchor)}."
    if spec.is_one_shot:
        return f"It never fires: {_excluding(spec)} {rfc3339(case.anchor)}."
    return f"It never fires: {_why_no_slot(case)}."


def _why_no_slot(case: _Case) -> str:
    unrestricted = case.spec.unrestricted_slots(case.anchor, counts_anchor=case.counts_anchor)
    if unrestricted.next(case.since) is not None:
        return f"{_excluding(case.spec)} every slot"
    if isinstance(unrestricted, RRuleTimes) and unrestricted.end is not None and unrestricted.end <= case.since:
        return f"the rule ended at {rfc3339(unrestricted.end)}"
    return f"no date fits the {'expression' if case.spec.rrule is None else 'rule'}"


def _excluding(spec: Spec) -> str:
    if not spec.not_on:
        return "the window leaves out"
    return f"{'the window and ' if spec.only_between else ''}the excluded weekdays leave out"


def _only_moved(case: _Case) -> Iterator[str]:
    """Warn if every slot is excluded but those that a clock change moves into the window."""
    if _names_wall_times(case.spec) and case.wall_slots.next(case.wall(case.since)) is None:
        yield f"It fires only where the clocks change: {_excluding(case.spec)} every other slot."


def _cron_warnings(case: _Case) -> Iterator[str]:
    expression = case.spec.cron
    if expression is not None:
        yield from _uneven_steps(case, expression)
        yield from _day_steps(expression)
        yield from _either_day(expression)
        yield from _lacking_days(expression)


def _uneven_steps(case: _Case, expression: str) -> Iterator[str]:
    for field, text in zip(FIELDS, expression.split(), strict=True):
        step = _step(text)
        # The last step is shorter if the field's values are not a multiple of it: */7 minutes end with 56, then 0.
        span = field.top - field.low + 1
        rest = span - (span - 1) // step * step
        if field.name in _STEPS and rest != step and _has_short_gap(case, expression, field.name, step):
            value, unit, whole = _STEPS[field.name]
            last = field.low + span - rest
            yield f"The gap from {value} {last} to the next {whole} is {_counted(rest, unit)}, not {step}."


def _step(text: str) -> int:
    """Return the step of a field such as ``*/7``, or 1."""
    _, _, step = text.partition("*/")
    return int(step) if step.isdecimal() else 1


def _has_short_gap(case: _Case, expression: str, field: str, step: int) -> bool:
    """Return whether the shorter gap occurs: with one named hour, no further hour follows the last minute."""
    if field == "minute":
        return _has_gap_below(case, timedelta(minutes=step))
    if field == "hour":
        # With a single minute, the distance between slots is that between hours.
        hourly = " ".join((str(min(cron(expression).minutes)), *expression.split()[1:]))
        return _has_gap_below(replace(case, spec=replace(case.spec, cron=hourly)), timedelta(hours=step))
    return True


def _has_gap_below(case: _Case, length: timedelta) -> bool:
    return any(later - earlier < length for earlier, later in pairwise(case.coming))


def _day_steps(expression: str) -> Iterator[str]:
    step = _step(expression.split()[2])
    if step > 1:
        yield f"Steps of days begin anew with every month: the last one is not always {step} days long."


def _either_day(expression: str) -> Iterator[str]:
    if not cron(expression).day_and:
        yield "It fires on days that fit the day of month or the day of week, not only on those that fit both."


def _lacking_days(expression: str) -> Iterator[str]:
    fields = cron(expression)
    if expression.split()[2].startswith("*") or fields.LAST in fields.days:
        return
    yield from lacking_days(fields.days, fields.months)


def _rule_warnings(case: _Case) -> Iterator[str]:
    if case.spec.rrule is not None:
        yield from rule_warnings(parse_rrule(case.spec.rrule), case.wall(case.anchor), is_chosen=case.counts_anchor)


def _excluded_months(case: _Case) -> Iterator[str]:
    if isinstance(case.slots, FilteredSlots):
        yield from excluded_months(case.slots, case.spec.hours.zone, case.since, case.end)


def _month_ends(case: _Case) -> Iterator[str]:
    day = case.wall(case.anchor).day
    if case.spec.every is not None and day > _SHORTEST_MONTH:
        yield f"In months without day {day} it fires on their last day."


def _clock_changes(case: _Case) -> Iterator[str]:
    """Warn of the first time of day that is skipped and of the first that comes twice."""
    warned: set[bool] = set()
    for change in case.changes if _names_wall_times(case.spec) else ():
        skips = change.skipped is not None
        wall = None if skips in warned else _affected_wall(case, change)
        if wall is not None:
            warned.add(skips)
            effect = _skipped(case, change, wall) if skips else _repeated(case.spec, wall)
            yield f"On {wall:%Y-%m-%d} the clocks in {case.spec.timezone} {effect}."


def _names_wall_times(spec: Spec) -> bool:
    """Return whether a spec names times of day, which a clock change can skip or repeat."""
    return spec.every is not None or spec.rrule is not None or (spec.cron is not None and spec.cron.split()[1] != "*")


def _affected_wall(case: _Case, change: Transition) -> datetime | None:
    """Return the first time of day in the spec that a clock change skips or repeats, or None."""
    start, end = sorted(change.at + offset for offset in (change.before, change.after))
    wall = case.wall_slots.next(start - _INSTANT)
    if wall is None or wall >= end:
        return None
    slot = case.spec.hours.zone.instant(wall.replace(tzinfo=None))
    return wall if case.spec.calendars.allows(slot) else None


def _skipped(case: _Case, change: Transition, wall: datetime) -> str:
    moved = _is_fixed(case.spec) and case.slots.next(change.at - _INSTANT) == change.at
    instead = f"it fires at {case.wall(change.at):%H:%M} instead" if moved else "it does not fire then"
    return f"skip {wall:%H:%M}: {instead}"


def _repeated(spec: Spec, wall: datetime) -> str:
    return f"show {wall:%H:%M} twice: it fires {'once, the first time' if _is_fixed(spec) else 'both times'}"


def _is_fixed(spec: Spec) -> bool:
    return spec.cron is None or is_fixed(spec.cron)


def _day_lengths(case: _Case) -> Iterator[str]:
    if case.spec.interval is not None and not case.spec.interval % DAY and case.changes:
        when = f"when the clocks change on {case.wall(case.changes[0].at):%Y-%m-%d}"
        yield f"It counts hours, not days: its time of day in {case.spec.timezone} moves {when}."


def _overlaps(case: _Case, timeout_seconds: int) -> Iterator[str]:
    gaps = {later - earlier for earlier, later in pairwise(case.coming)}
    shortest = min(gaps, default=_YEAR).total_seconds()
    if gaps and shortest < timeout_seconds:
        slots = "the slots" if len(gaps) == 1 else "some slots"
        yield f"A run may take up to {timeout_seconds} s, and {slots} are {shortest:.10g} s apart."


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def next_runs(job: ScheduledJob, count: int, now: datetime, is_enough: Callable[[], bool] = lambda: False) -> Runs:
    """Return the next ``count`` runs of a schedule, or of one that would be created now.

    The search stops early if ``is_enough`` returns true, or if the next run lies beyond the horizon.
    """
    slots = job.spec.slots_from(job.anchor_at, job.start_at)
    runs: list[NextRun] = []
    previous = max(now, job.first_moment - _INSTANT)
    for slot in _future_slots(job, now):
        if runs and (is_enough() or slot - runs[0].at > HORIZON):
            return Runs(runs, cut=True)
        notes = (left_out_before(slots, job.spec.hours.zone, previous, slot), _moved_by_clocks(job, slots, slot))
        runs.append(NextRun(due_time(job, slot), "; ".join(filter(None, notes))))
        previous = slot
        if len(runs) == count:
            break
    return Runs(runs, cut=False)


def _future_slots(job: ScheduledJob, now: datetime) -> Iterator[datetime]:
    """Yield the pending slot, or the one that would be planned, then those after it."""
    slot = job.next_slot if job.next_attempt == 0 else job.cadence_slot
    if slot is None:
        slot = with_first_slot(job, 0, now).next_slot
    while slot is not None:
        yield slot
        slot = job.cadence.first_after(slot)


def _moved_by_clocks(job: ScheduledJob, slots: Recurrence, slot: datetime) -> str:
    """Return the note that a clock change moves a slot or shows its time twice, or an empty string."""
    times = slots.slots if isinstance(slots, FilteredSlots) else slots
    if not isinstance(times, CronTimes | RRuleTimes):
        return ""
    wall = job.spec.hours.zone.local(slot)
    skipped = times.moved(slot)
    if skipped is not None:
        return f"the clocks skip {skipped:%H:%M} on {skipped:%Y-%m-%d}: moved to {wall:%H:%M}"
    if times.repeated(slot):
        return f"the clocks repeat {wall:%H:%M} on {wall:%Y-%m-%d}: only the first one counts"
    return ""
