"""Explanations of slots, also of schedules whose stored spec can no longer be read."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.domain.explain import BackfillRun, Facts, SlotRecord, explain, nearest_slot, next_unrestricted_slot
from app.domain.ledger import LedgerOutcome
from app.domain.schedules import Reason, ScheduledJob, Status
from tests.support.domain_builders import OPEN, after, schedule
from tests.support.hypothesis_examples import examples

RUN = UUID(int=7)
WORDS = st.one_of(st.none(), st.text(max_size=20), st.sampled_from(["0 25 * * *", "Mars/Base", "25:00-26:00", "5x"]))
# Values as a row may hold them after an edit by hand, an update of tzdata, or by a newer release.
BROKEN = st.fixed_dictionaries(
    {
        "interval_seconds": st.one_of(st.none(), st.floats(), st.sampled_from([0.0, 1e300, -5.0])),
        "every": WORDS,
        "cron": WORDS,
        "after": WORDS,
        "timezone": st.one_of(st.text(max_size=20), st.sampled_from(["Mars/Base", "UTC", "Europe/Berlin"])),
        "only_between": WORDS,
        "not_on": st.lists(st.text(max_size=10), max_size=3).map(tuple),
    }
)
RECORDS = st.one_of(
    st.none(),
    st.sampled_from(["fired", "queued", *LedgerOutcome, "of_a_newer_release"]).map(
        lambda outcome: SlotRecord(outcome=outcome, reason="why", execution_id=RUN, status="failed")
    ),
)


def facts(job: ScheduledJob, **values: Any) -> Facts:
    """Return facts about a schedule that was always as it is."""
    known: dict[str, Any] = {"then": job, "since": None, "recorded": None, "active": (), "gate": OPEN}
    return Facts(job=job, **{**known, "now": after(1000), **values})


@given(now=BROKEN, then=BROKEN, record=RECORDS, seconds=st.integers(-10_000, 10_000))
@examples(300)
def test_a_schedule_that_cannot_be_read_is_explained(
    now: dict[str, Any], then: dict[str, Any], record: SlotRecord | None, seconds: int
) -> None:
    """Whatever the row and the revision in force hold: an answer with a sentence, and no exception."""
    job, before = replace(schedule(), **now), replace(schedule(), **then)
    moment = after(seconds)
    for slot in (nearest_slot(before, moment), next_unrestricted_slot(job, moment), moment, None):
        told = explain(facts(job, then=before, recorded=record, now=after(500)), slot)
        assert told.sentence.endswith(".")
        assert told.checks


@pytest.mark.parametrize("since", [after(400), None])
def test_what_is_invalid_since_when_and_what_the_slot_became(since: datetime | None) -> None:
    """The sentence has all three. If the history has been purged, the time is left out."""
    job = replace(schedule(), timezone="Mars/Base", status=Status.PAUSED, status_reason=Reason.INVALID_SPEC)
    record = SlotRecord(outcome="missed", reason="the spec was no longer valid")
    told = explain(facts(job, recorded=record, invalid_since=since), after(300))
    assert "The slot 2026-03-01T12:05:00Z did not fire (missed): the spec was no longer valid." in told.sentence
    assert "The schedule has no slots after it: its spec is not valid" in told.sentence
    assert "Mars/Base" in told.sentence
    assert ("found at 2026-03-01T12:06:40Z" in told.sentence) == (since is not None)
    assert [("spec", False), ("skip", True), ("retry", True), ("missed", False)] == [
        (one.check, one.passed) for one in told.checks
    ]


def test_a_slot_that_fired_before_its_zone_was_removed() -> None:
    """It was valid then."""
    job = replace(schedule(), timezone="Mars/Base")
    record = SlotRecord(outcome="fired", execution_id=RUN, status="success", started_at=after(300))
    first, *others = explain(facts(job, recorded=record), after(300)).checks
    assert first.passed
    assert first.detail.startswith("it was valid then, and is not any more: ")
    assert all(one.passed for one in others)


def test_a_slot_waits_for_its_jitter() -> None:
    """Between the slot and its due time no worker is late."""
    job = schedule(jitter_seconds=200)
    assert job.next_run_at is not None
    assert job.next_slot is not None
    before, late = job.next_run_at - timedelta(seconds=1), job.next_run_at + timedelta(seconds=1)
    assert "expected" == explain(facts(job, now=before), job.next_slot).outcome
    assert "due" == explain(facts(job, now=late), job.next_slot).outcome


def test_a_slot_before_the_creation() -> None:
    """The schedule did not exist yet. A backfill that ran the slot is named all the same."""
    job = schedule(cron="0 * * * *")
    slot = nearest_slot(job, after(-7200))
    assert after(-7200) == slot
    told = explain(facts(job), slot)
    assert ("not_expected", "active") == (told.outcome, told.checks[-1].check)
    assert told.sentence.endswith(": the schedule did not exist yet, it was created at 2026-03-01T12:00:00Z.")
    run = BackfillRun(RUN, "success", after(500))
    told = explain(facts(job, backfill=run), slot)
    assert ("fired", RUN) == (told.outcome, told.execution_id)
    assert after(3600) == nearest_slot(job, after(1))


def test_a_one_shot_shortly_before_its_creation_is_due() -> None:
    """It fires although its time had passed."""
    job = schedule(at=after(-10))
    assert "due" == explain(facts(job), nearest_slot(job, after(-10))).outcome


def test_a_slot_that_was_tried_again() -> None:
    """The sentence names the first attempt and the last one; the execution is the last."""
    last = UUID(int=9)
    record = SlotRecord(
        outcome="fired", execution_id=RUN, status="failed", started_at=after(300), retry=(2, last, "success")
    )
    told = explain(facts(schedule(), recorded=record), after(300))
    assert last == told.execution_id
    assert f"as execution {RUN}, which has the status failed. Its retry 2, execution {last}, has" in told.sentence
