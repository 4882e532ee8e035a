"""Which key signs when, how long it is published, and what a token says."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.call_tokens import (
    LIFETIME,
    PUBLISHED_BEFORE,
    ROTATION,
    CallOrigin,
    KeyTerm,
    claims_of,
    newest_key,
    signing_key,
    successor_activates_at,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
OLD = KeyTerm(kid="old", activates_at=START, retires_at=START + 90 * DAY)
NEW = KeyTerm(kid="new", activates_at=START + 90 * DAY)


@pytest.mark.parametrize(
    ("now", "signs", "published"),
    [
        (START - timedelta(seconds=1), None, ["old", "new"]),
        (START, "old", ["old", "new"]),
        (START + 90 * DAY - timedelta(seconds=1), "old", ["old", "new"]),
        (START + 90 * DAY, "new", ["old", "new"]),
        (START + 90 * DAY + timedelta(minutes=10, seconds=-1), "new", ["old", "new"]),
        (START + 90 * DAY + timedelta(minutes=10), "new", ["new"]),
        (START + 900 * DAY, "new", ["new"]),
    ],
)
def test_one_key_signs_and_more_are_published(now: datetime, signs: str | None, published: list[str]) -> None:
    """The successor before it signs, and the old key until its last token has expired."""
    key = signing_key([OLD, NEW], now)
    assert signs == (key.kid if key else None)
    assert published == [key.kid for key in (OLD, NEW) if key.is_published_at(now)]


def test_of_two_keys_that_may_sign_the_later_one_does() -> None:
    """A rotation ahead of time takes effect although the old key had time left."""
    early = KeyTerm(kid="early", activates_at=START + DAY)
    assert early == signing_key([early, OLD], START + DAY)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (START + 89 * DAY - timedelta(seconds=1), None),
        (START + 89 * DAY, START + 90 * DAY),
        (START + 89 * DAY + timedelta(hours=5), START + 89 * DAY + timedelta(hours=5) + DAY),
        (START + 400 * DAY, START + 401 * DAY),
    ],
)
def test_a_successor_is_published_a_day_before_it_signs(now: datetime, expected: datetime | None) -> None:
    """Also where no worker ran for a long time: verifiers get their day."""
    assert expected == successor_activates_at([KeyTerm(kid="k", activates_at=START)], now)


def test_there_is_no_successor_of_nothing() -> None:
    """Nor of keys that have one."""
    assert (None, None) == (newest_key([]), successor_activates_at([], START))
    assert successor_activates_at([OLD], START + 900 * DAY) is None


@given(st.lists(st.integers(min_value=1, max_value=400), min_size=1, max_size=8))
def test_some_key_always_signs_and_every_token_verifies_until_it_expires(pauses: list[int]) -> None:
    """However seldom rotations are looked for."""
    keys, now = [KeyTerm(kid="0", activates_at=START)], START
    for number, days in enumerate(pauses, 1):
        now += days * DAY
        activates_at = successor_activates_at(keys, now)
        if activates_at is not None:
            assert activates_at - now >= PUBLISHED_BEFORE
            keys[-1] = KeyTerm(kid=keys[-1].kid, activates_at=keys[-1].activates_at, retires_at=activates_at)
            keys.append(KeyTerm(kid=str(number), activates_at=activates_at))
            assert activates_at - keys[-2].activates_at >= ROTATION
        for moment in (now, *(key.activates_at for key in keys)):
            signer = signing_key(keys, moment)
            assert signer is not None
            assert signer.is_published_at(moment + LIFETIME)


def test_what_a_token_says() -> None:
    """Times in whole seconds; an entity has no workflow."""
    run = UUID(int=2)
    origin = CallOrigin(
        scheduled_job_id=None,
        entity="webhook/7",
        schedule_name="Ping",
        workflow_id=None,
        execution_id=run,
        message_id="m",
        owner_id=3,
    )
    now = START + timedelta(milliseconds=999)
    seconds = int(START.timestamp())
    assert {
        "iss": "i",
        "sub": "entity:webhook/7",
        "aud": "a",
        "iat": seconds,
        "exp": seconds + 300,
        "jti": "m",
        "owner": "mia",
        "owner_id": 3,
        "execution_id": str(run),
        "schedule_name": "Ping",
    } == claims_of(origin, "mia", "i", "a", now)
