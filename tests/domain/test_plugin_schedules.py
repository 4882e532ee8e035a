"""Who wins where a person and a plugin want different values of one schedule."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.plugin_schedules import FIELDS, NODES, EnsureMode, Merge, may_create, merge
from app.domain.specs import KINDS
from tests.support.hypothesis_examples import examples

CREATE_ONLY, ADOPT, ENFORCE = EnsureMode
NAMES = (*FIELDS, NODES)
VALUES = st.fixed_dictionaries({name: st.integers(0, 2) for name in NAMES})


def values(**others: Any) -> dict[str, Any]:
    """Return a value for every field."""
    return {**dict.fromkeys(NAMES), "cron": "0 3 * * *", "timezone": "UTC", **others}


def test_what_nobody_has_changed_follows_the_plugin() -> None:
    """In both modes, without a word about a conflict."""
    decided = Merge(changes=("max_retries",))
    for mode in (ADOPT, ENFORCE):
        assert decided == merge(mode, values(), values(), values(max_retries=9))
    assert "" == decided.note


def test_what_a_person_has_changed_stays_in_adopt() -> None:
    """Nothing is said as long as the plugin asks for the same as before; a new wish is told, once."""
    edited = values(cron="0 4 * * *")
    assert Merge() == merge(ADOPT, values(), edited, values())
    news = merge(ADOPT, values(), edited, values(cron="0 5 * * *"))
    assert Merge(kept=("cron",)) == news
    assert "The plugin asked for other values; those set by others were kept: cron." == news.note
    assert Merge() == merge(ADOPT, values(cron="0 5 * * *"), edited, values(cron="0 5 * * *"))


def test_the_plugin_wins_in_enforce() -> None:
    """And the history says over what."""
    decided = merge(ENFORCE, values(), values(cron="0 4 * * *"), values(max_retries=9))
    assert (set(KINDS) | {"max_retries"}, ("cron",)) == (set(decided.changes), decided.replaced)
    assert "The plugin's values replaced those set by others: cron." == decided.note


def test_the_kinds_of_spec_are_one_value() -> None:
    """A person who has changed cron to an interval is not given a second kind."""
    edited = values(cron=None, interval_seconds=60.0)
    assert Merge(kept=("interval_seconds", "cron")) == merge(ADOPT, values(), edited, values(cron="0 5 * * *"))
    assert set(KINDS) == set(merge(ENFORCE, values(), edited, values()).changes)


def test_a_field_of_which_nothing_is_known_was_changed_by_a_person() -> None:
    """A schedule of a release that kept no record: the history has said so."""
    asked = values()
    del asked["timezone"]
    assert Merge(kept=("timezone",)) == merge(ADOPT, asked, values(), values(timezone="Europe/Berlin"))


@given(asked=VALUES, current=VALUES, wanted=VALUES)
@examples(300)
def test_every_field_is_somebodys(asked: dict[str, int], current: dict[str, int], wanted: dict[str, int]) -> None:
    """After adopting, a field has the plugin's value unless a person has changed it; after enforcing, always."""
    assert Merge() == merge(CREATE_ONLY, asked, current, wanted)
    adopted = merge(ADOPT, asked, current, wanted)
    enforced = merge(ENFORCE, asked, current, wanted)
    assert all(name in enforced.changes for name in NAMES if current[name] != wanted[name])
    for name in NAMES:
        group = KINDS if name in KINDS else (name,)
        edited = any(asked[one] != current[one] for one in group)
        differs = any(current[one] != wanted[one] for one in group)
        assert (name in adopted.changes) == (differs and not edited)
    # Asked for again, nothing more is said.
    after = {**current, **{name: wanted[name] for name in adopted.changes}}
    assert Merge() == merge(ADOPT, wanted, after, wanted)


@pytest.mark.parametrize(
    ("mode", "deleted", "wanted", "created"),
    [
        (CREATE_ONLY, None, 1, True),
        (ADOPT, None, 1, True),
        (CREATE_ONLY, 1, 1, False),
        (ADOPT, 1, 1, False),
        (ADOPT, 2, 1, False),
        (ADOPT, 1, 2, True),
        (CREATE_ONLY, 1, 2, True),
        (ENFORCE, 1, 1, True),
    ],
)
def test_what_was_deleted_stays_deleted(mode: EnsureMode, deleted: int | None, wanted: int, *, created: bool) -> None:
    """Until a higher version is asked for, or the plugin insists."""
    assert created == may_create(mode, deleted, wanted)
