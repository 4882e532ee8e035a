"""Schedules whose calendars leave slots out, and what a changed calendar does to what is planned.

Covers app.domain.calendars, app.domain.schedule_lifecycle.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.domain.calendars import Calendar, CalendarRules, content_digest, rules_of
from app.domain.explain import Check, Facts, explain
from app.domain.ledger import LedgerOutcome, dropped_slots
from app.domain.planning import with_first_slot, with_retry
from app.domain.schedule_lifecycle import problems, with_new_calendars
from app.domain.schedules import Reason, ScheduledJob, Status
from app.domain.specs import Spec
from tests.support.domain_builders import JOB, OPEN

NOW = datetime(2026, 12, 23, 18, tzinfo=UTC)
DAY = timedelta(days=1)


def noon(day: int) -> datetime:
    """Return noon of a day in December."""
    return datetime(2026, 12, day, 12, tzinfo=UTC)


def without(*dates: str) -> CalendarRules:
    """Return the rules of a schedule that excludes these dates."""
    return CalendarRules((Calendar(name="closed", dates=dates),))


def daily(rules: CalendarRules, **values: Any) -> ScheduledJob:
    """Return a schedule at noon of every day, planned."""
    fields: dict[str, Any] = {"cron": "0 12 * * *", "exclude_calendars": ("closed",), "calendars": rules}
    fields |= {"anchor_at": NOW - DAY, "created_at": NOW - DAY, "updated_at": NOW - DAY}
    draft = ScheduledJob(id=JOB, user_profile_id=1, workflow_id=1, name="s", **(fields | values))
    return with_first_slot(draft, 0, NOW)


def changed(job: ScheduledJob, rules: CalendarRules, now: datetime = NOW, active: int = 0) -> ScheduledJob:
    """Return a schedule after its calendars were replaced."""
    return with_new_calendars(replace(job, calendars=rules), active, now)


@pytest.mark.corner("a changed calendar")
def test_a_changed_calendar_replaces_the_pending_tick_only_if_its_slot_is_another() -> None:
    """A tick that stays keeps its generation, and with it the message that is under way."""
    job = daily(without())
    assert noon(24) == job.next_slot
    moved = changed(job, without("2026-12-24/2026-12-26"))
    assert (noon(27), job.generation + 1) == (moved.next_slot, moved.generation)
    kept = changed(job, without("2026-12-25"))
    assert (noon(24), job.generation) == (kept.next_slot, kept.generation)


@pytest.mark.corner("a changed calendar")
def test_a_due_slot_fires_if_it_is_still_allowed_and_is_accounted_for_otherwise() -> None:
    """As with every other change of the cadence."""
    job, now = daily(without()), noon(24) + timedelta(seconds=5)
    assert noon(24) == changed(job, without("2026-12-25"), now).next_slot
    dropped = changed(job, without("2026-12-24"), now)
    assert noon(25) == dropped.next_slot
    (entry,) = dropped_slots(job, dropped, now)
    assert (noon(24), LedgerOutcome.MISSED) == (entry.first_slot, entry.outcome)


@pytest.mark.corner("a changed calendar")
def test_a_pending_retry_stays_and_the_slots_that_it_held_back_are_accounted_for() -> None:
    """The slot of the retry was expected when it came."""
    due = noon(26) + timedelta(hours=1)
    job = with_retry(replace(daily(without()), cadence_slot=noon(24)), noon(23), 1, due)
    after = changed(job, without("2026-12-25/2026-12-27"), noon(25) + DAY / 4)
    assert (noon(23), due, 1, noon(28)) == (after.next_slot, after.next_run_at, after.next_attempt, after.cadence_slot)
    (entry,) = dropped_slots(job, after, noon(25) + DAY / 4)
    assert (noon(24), noon(25), LedgerOutcome.SKIPPED_RETRY) == (entry.first_slot, entry.last_slot, entry.outcome)


@pytest.mark.corner("a changed calendar")
def test_a_schedule_without_slots_ends_and_goes_on_when_it_has_one_again() -> None:
    """A one-shot whose only slot is excluded too, unless it has fired meanwhile."""
    only = daily(without(), cron=None, at=noon(25), anchor_at=noon(25))
    ended = changed(only, without("2026-12-25"))
    assert (Status.DONE, Reason.EXHAUSTED) == (ended.status, ended.status_reason)
    assert (Status.ACTIVE, noon(25)) == (changed(ended, without()).status, changed(ended, without()).next_slot)
    fired = replace(ended, last_slot=noon(25))
    assert Status.DONE is changed(fired, without()).status
    by_end = daily(without(), end_at=noon(26))
    gone = changed(by_end, without("2026-12-24/2026-12-26"))
    assert (Status.DONE, Reason.END_REACHED) == (gone.status, gone.status_reason)
    assert noon(26) == changed(gone, without("2026-12-24/2026-12-25")).next_slot


@pytest.mark.corner("a changed calendar")
def test_a_missing_calendar_pauses_and_its_return_resumes() -> None:
    """A pause by hand stays a pause."""
    job = daily(without())
    lost = changed(job, CalendarRules(missing=("closed",)))
    assert (Status.PAUSED, Reason.INVALID_SPEC) == (lost.status, lost.status_reason)
    assert "There is no calendar 'closed'" in lost.last_error
    assert Status.ACTIVE is changed(lost, without("2026-12-24")).status
    by_hand = replace(lost, status_reason=Reason.MANUAL)
    assert Status.PAUSED is changed(by_hand, without()).status


def test_an_interval_is_filtered_too() -> None:
    """The fast way to its slots is for intervals without calendars."""
    closed = without("2026-12-23T19:00/2026-12-23T20:30")
    job = daily(closed, cron=None, interval_seconds=3600.0, anchor_at=NOW)
    assert NOW + timedelta(hours=3) == job.next_slot
    assert "" == job.spec_problem
    assert "There is no calendar" in replace(job, calendars=CalendarRules(missing=("x",))).spec_problem


def test_problems_name_the_field_of_the_calendar() -> None:
    """The one that has the name, or the one that leaves no slot."""
    unknown = daily(without(), exclude_calendars=(), only_calendars=("x",))
    unknown = replace(unknown, calendars=CalendarRules(missing=("x",)))
    assert ["only_calendars"] == [error.field for error in problems(unknown, NOW)]
    never = daily(without("2026-01-01/2090-01-01"))
    assert ["exclude_calendars"] == [error.field for error in problems(never, NOW)]


def test_a_moment_opens_where_window_and_calendars_both_allow_it() -> None:
    """Retries wait for it."""
    spec = Spec(cron="0 12 * * *", only_between="08:00-10:00", calendars=without("2026-12-24/2026-12-25"))
    assert datetime(2026, 12, 26, 8, tzinfo=UTC) == spec.opening(NOW)
    open_now = datetime(2026, 12, 23, 9, tzinfo=UTC)
    assert open_now == spec.opening(open_now)
    nowhere = CalendarRules((), (Calendar(name="past", dates=("2020-01-01",)),))
    assert None is Spec(cron="0 12 * * *", calendars=nowhere).opening(NOW)


def test_explain_says_which_calendar_and_which_entry() -> None:
    """As the check after the weekdays."""
    job = daily(without("2026-12-24/2026-12-26"))
    facts = Facts(job=job, then=job, since=None, recorded=None, active=(), gate=OPEN, now=NOW)
    explained = explain(facts, noon(25))
    assert (Check.CALENDAR, False) == (explained.checks[-1].check, explained.checks[-1].passed)
    assert "calendar 'closed' excludes it (2026-12-24/2026-12-26)" in explained.sentence


def test_rules_know_stored_calendars_and_public_holidays() -> None:
    """Names that stand for nothing are missing; equal contents have one digest, whatever the calendars are called."""
    stored = {"a": Calendar(name="a", dates=("2026-12-24",))}
    rules = rules_of(("a", "holidays:DE"), ("b",), stored, "Europe/Berlin")
    assert (["a", "holidays:DE"], (), ("b",)) == ([one.name for one in rules.excluded], rules.only, rules.missing)
    assert "Europe/Berlin" == rules.excluded[1].timezone
    content = {"timezone": "UTC", "dates": ["2026-12-24"], "ics": None, "holidays": None}
    assert content_digest(content) == content_digest({**content, "name": "b"})
    assert content_digest(content) != content_digest({**content, "timezone": "Asia/Tokyo"})
