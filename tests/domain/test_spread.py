"""Spreading load: peaks become lower, and nothing moves further than it may or to another day."""

from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.domain.forecasts import Buckets, fire_pattern
from app.domain.schedules import ScheduledJob
from app.domain.spread import MINUTE, Movable, Option, jitter_option, shift_options, shifted_fields, spread
from tests.domain.test_upcoming import schedules
from tests.support.domain_builders import after, schedule
from tests.support.hypothesis_examples import examples

DAY = timedelta(days=1)
BUCKETS = Buckets(after(60), after(60) + DAY, MINUTE)


def movable(job: ScheduledJob, count: int) -> Movable:
    """Return so many schedules like this one."""
    ids = tuple(UUID(int=number) for number in range(1, count + 1))
    return Movable(job, ids, tuple(fire_pattern(job, 0, BUCKETS).elements()))


def test_a_peak_is_spread_over_the_minutes_around_it() -> None:
    """To the emptiest ones, and what cannot be moved stays."""
    job = schedule(cron="0 3 * * *")
    group = movable(job, 22)
    (peak,) = group.indices
    load = [0] * BUCKETS.count
    load[peak], load[peak + 1] = 22 + 4, 7
    options = shift_options(job, timedelta(minutes=2), BUCKETS)
    moves = spread(load, [group], lambda _group, _id: options, 100)
    assert [6, 6, 7, 7, 7] == sorted(load[peak - 2 : peak + 3])
    assert 26 + 7 == sum(load)
    assert {"58 2 * * *", "59 2 * * *", "1 3 * * *", "2 3 * * *"} >= {move.option.fields["cron"] for move in moves}
    assert len(moves) == len({move.job_id for move in moves})


@pytest.mark.parametrize(
    ("cron", "minutes", "expected"),
    [
        ("0 3 * * *", 10, "10 3 * * *"),
        ("0 3 * * *", -10, "50 2 * * *"),
        ("55 3,9 * * 1", 10, "5 4,10 * * 1"),
        ("5 * * * *", 10, "15 * * * *"),
        ("5 * * * *", -10, None),
        ("0 0 * * *", -1, None),
        ("55 23 * * *", 10, None),
        ("*/5 * * * *", 1, None),
    ],
)
def test_expressions_are_moved_within_their_day(cron: str, minutes: int, expected: str | None) -> None:
    """By their minute, and by their hours where those are numbers."""
    moved = shifted_fields(schedule(cron=cron), minutes)
    assert (None if expected is None else {"cron": expected}) == moved


@given(schedules(), st.sampled_from([3, 30, 90]))
@examples(50)
def test_options_do_what_they_say(job: ScheduledJob, minutes: int) -> None:
    """The fields that an option sets lead to the fires that it announces, near the old ones and on the same days."""
    job = replace(job, jitter_seconds=0)
    old = sorted(fire_pattern(job, 0, BUCKETS).elements())
    local = job.spec.hours.zone.local
    options = [
        *shift_options(job, timedelta(minutes=minutes), BUCKETS),
        *jitter_option(job, timedelta(minutes=minutes), BUCKETS),
    ]
    for option in options:
        assert len(old) == len(option.indices)
        for before, now in zip(old, sorted(option.indices), strict=True):
            assert abs(now - before) <= minutes
            assert local(BUCKETS.at(before)).date() == local(BUCKETS.at(now)).date()
        if "jitter_seconds" in option.fields or "cron" in option.fields:
            changed = replace(job, **option.fields)
            first = BUCKETS.since - timedelta.resolution
            if "cron" in option.fields:
                changed = replace(changed, anchor_at=first, start_at=None)
                changed = replace(changed, cadence_slot=changed.cadence.first_after(first))
            assert sorted(option.indices) == sorted(fire_pattern(changed, 0, BUCKETS).elements())


@given(st.lists(st.integers(0, 30), min_size=20, max_size=20), st.lists(st.integers(2, 17), max_size=30))
def test_a_spread_never_raises_the_peak_and_loses_no_fire(background: list[int], places: list[int]) -> None:
    """Whatever the load is, and only within the given options."""
    load = list(background)
    groups = [Movable(schedule(), (UUID(int=number),), (place,)) for number, place in enumerate(places)]
    for place in places:
        load[place] += 1
    before = list(load)

    def options(group: Movable, _job_id: UUID) -> list[Option]:
        return [Option(abs(by), {}, (group.indices[0] + by,)) for by in (-2, -1, 1, 2)]

    moves = spread(load, groups, options, 10)
    assert (sum(before), True) == (sum(load), max(load) <= max(before))
    assert len(moves) <= 10
    assert not moves or (max(load), load.count(max(before))) < (max(before), before.count(max(before)))
