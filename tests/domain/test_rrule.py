"""Recurrence rules as people write them: one stored form for all spellings, and errors that say what is allowed."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import InvalidError
from app.domain.rrule import LONGEST_RULE, MAX_COUNT, MAX_INTERVAL, Frequency, NthWeekday, Rule, parse_rrule
from app.domain.rrule_days import canonical_rrule
from app.domain.specs import Spec, canonical
from tests.domain.rrule_oracle import rule_text
from tests.domain.test_rrule_times import rules
from tests.support.hypothesis_examples import examples

PARTS = "FREQ, INTERVAL, BYMONTH, BYMONTHDAY, BYDAY, BYHOUR, BYMINUTE, BYSETPOS, WKST, COUNT, UNTIL"
A_TIME = "expected a date or time such as 20261231, 20261231T235959 or 20261231T235959Z."


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("FREQ=DAILY", "FREQ=DAILY"),
        ("RRULE:FREQ=DAILY", "FREQ=DAILY"),
        (" rrule:freq=weekly; byday = tu , mo ; ", "FREQ=WEEKLY;BYDAY=MO,TU"),
        ("BYDAY=MO;FREQ=WEEKLY;INTERVAL=1", "FREQ=WEEKLY;BYDAY=MO"),
        ("FREQ=MONTHLY;BYMONTHDAY=-1,+15,1,15", "FREQ=MONTHLY;BYMONTHDAY=1,15,-1"),
        ("FREQ=MONTHLY;BYDAY=-1FR,+2TU,FR", "FREQ=MONTHLY;BYDAY=FR,2TU"),
        ("FREQ=YEARLY;BYMONTH=12,01;BYHOUR=09;BYMINUTE=00", "FREQ=YEARLY;BYMONTH=1,12;BYHOUR=9;BYMINUTE=0"),
        ("FREQ=WEEKLY;WKST=SU;BYDAY=MO", "FREQ=WEEKLY;BYDAY=MO"),
        ("FREQ=WEEKLY;WKST=SU;BYDAY=MO;INTERVAL=2", "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;WKST=SU"),
        ("FREQ=MONTHLY;WKST=SU;BYDAY=MO;BYSETPOS=-1", "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=-1"),
        ("FREQ=DAILY;COUNT=010", "FREQ=DAILY;COUNT=10"),
        ("FREQ=DAILY;UNTIL=20261231", "FREQ=DAILY;UNTIL=20261231"),
        ("FREQ=DAILY;UNTIL=20261231t235959z", "FREQ=DAILY;UNTIL=20261231T235959Z"),
        ("FREQ=DAILY;UNTIL=20261231T120000", "FREQ=DAILY;UNTIL=20261231T120000"),
    ],
)
def test_all_spellings_have_one_stored_form(written: str, stored: str) -> None:
    """Upper case, one order, sorted lists, nothing that has no effect."""
    assert stored == canonical_rrule(written)
    assert stored == canonical({"rrule": written})["rrule"]


@given(rules())
@examples(100)
def test_the_stored_form_is_read_back_as_the_same_rule(parts: dict[str, str]) -> None:
    """It is its own stored form, and means the same."""
    rule = parse_rrule(rule_text(parts))
    assert rule == parse_rrule(str(rule))


def test_a_rule_is_parsed_into_its_parts() -> None:
    """Weekdays count from Monday; a time with Z is an instant, others are wall times."""
    until = datetime(2026, 12, 31, 12, tzinfo=UTC)
    expected = Rule(
        freq=Frequency.YEARLY,
        interval=2,
        months=(5,),
        weekdays=(NthWeekday(2, 1), NthWeekday(-1, 6)),
        hours=(9,),
        minutes=(0, 30),
        until=until,
    )
    text = "FREQ=YEARLY;INTERVAL=2;BYMONTH=5;BYDAY=-1SU,2TU;BYHOUR=9;BYMINUTE=30,0;UNTIL=20261231T120000Z"
    assert expected == parse_rrule(text)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("", "Expected parts such as FREQ=WEEKLY;BYDAY=TU, separated by ';'."),
        ("every day", "Expected parts such as FREQ=WEEKLY;BYDAY=TU, separated by ';'."),
        ("FREQ=DAILY;;COUNT=1", "Expected parts such as FREQ=WEEKLY;BYDAY=TU, separated by ';'."),
        ("FREQ=", "Expected parts such as FREQ=WEEKLY;BYDAY=TU, separated by ';'."),
        ("INTERVAL=2", "FREQ is missing: expected FREQ=DAILY, WEEKLY, MONTHLY or YEARLY."),
        ("FREQ=OFTEN", "FREQ cannot be 'OFTEN': expected DAILY, WEEKLY, MONTHLY or YEARLY."),
        ("FREQ=HOURLY", "FREQ=HOURLY is not supported. Use interval_seconds, every or cron."),
        ("FREQ=MINUTELY", "FREQ=MINUTELY is not supported. Use interval_seconds, every or cron."),
        ("FREQ=SECONDLY", "FREQ=SECONDLY is not supported. Use interval_seconds, every or cron."),
        ("FREQ=DAILY;BYSECOND=1", "BYSECOND is not supported: times of day have hours and minutes only."),
        ("FREQ=YEARLY;BYYEARDAY=1", "BYYEARDAY is not supported. Use BYMONTH and BYMONTHDAY."),
        ("FREQ=YEARLY;BYWEEKNO=1", "BYWEEKNO is not supported. Use BYMONTH and BYDAY, or FREQ=WEEKLY with INTERVAL."),
        ("FREQ=YEARLY;BYEASTER=0", "BYEASTER is not supported. Use a calendar of holidays."),
        ("DTSTART:20260101T090000\nRRULE:FREQ=DAILY", "DTSTART is not a part of the rule: its start is start_at."),
        ("DTSTART=20260101;FREQ=DAILY", "DTSTART is not a part of the rule: its start is start_at."),
        ("FREQ=DAILY;FREQ=DAILY", "FREQ is given twice."),
        (
            "FREQ=DAILY;BYWEEKDAY=MO",
            f"'BYWEEKDAY' is not a part of a rule. Allowed: {PARTS}.",
        ),
        ("FREQ=DAILY;INTERVAL=0", f"INTERVAL cannot be '0': expected 1 to {MAX_INTERVAL}."),
        ("FREQ=DAILY;INTERVAL=1001", f"INTERVAL cannot be '1001': expected 1 to {MAX_INTERVAL}."),
        ("FREQ=DAILY;INTERVAL=two", f"INTERVAL cannot be 'TWO': expected 1 to {MAX_INTERVAL}."),
        ("FREQ=DAILY;COUNT=0", f"COUNT cannot be '0': expected 1 to {MAX_COUNT}."),
        ("FREQ=DAILY;BYMONTH=13", "BYMONTH cannot be '13': expected 1 to 12."),
        ("FREQ=DAILY;BYMONTH=1,,2", "BYMONTH cannot be '': expected 1 to 12."),
        ("FREQ=DAILY;BYMONTH=²", "BYMONTH cannot be '²': expected 1 to 12."),
        ("FREQ=DAILY;BYMONTHDAY=0", "BYMONTHDAY cannot be '0': expected 1 to 31 or -31 to -1."),
        ("FREQ=DAILY;BYHOUR=24", "BYHOUR cannot be '24': expected 0 to 23."),
        ("FREQ=DAILY;BYHOUR=-1", "BYHOUR cannot be '-1': expected 0 to 23."),
        ("FREQ=DAILY;BYMINUTE=60", "BYMINUTE cannot be '60': expected 0 to 59."),
        ("FREQ=DAILY;BYHOUR=1;BYSETPOS=367", "BYSETPOS cannot be '367': expected 1 to 366 or -366 to -1."),
        (
            "FREQ=WEEKLY;BYDAY=TUE",
            "BYDAY cannot be 'TUE': expected MO, TU, WE, TH, FR, SA, SU, or one with a number such as 2TU or -1FR.",
        ),
        (
            "FREQ=MONTHLY;BYDAY=0TU",
            "BYDAY cannot be '0TU': expected MO, TU, WE, TH, FR, SA, SU, or one with a number such as 2TU or -1FR.",
        ),
        ("FREQ=WEEKLY;BYDAY=2TU", "BYDAY with a number, such as 2TU, needs FREQ=MONTHLY or FREQ=YEARLY."),
        ("FREQ=MONTHLY;BYDAY=6TU", "BYDAY cannot be '6TU': expected a number from 1 to 5 or -5 to -1."),
        ("FREQ=YEARLY;BYDAY=54TU", "BYDAY cannot be '54TU': expected a number from 1 to 53 or -53 to -1."),
        ("FREQ=YEARLY;BYMONTH=1;BYDAY=-6TU", "BYDAY cannot be '-6TU': expected a number from 1 to 5 or -5 to -1."),
        ("FREQ=WEEKLY;BYMONTHDAY=1", "BYMONTHDAY cannot be used with FREQ=WEEKLY. Use FREQ=MONTHLY."),
        ("FREQ=DAILY;BYSETPOS=1", "BYSETPOS needs another part to select from, such as BYDAY or BYMONTHDAY."),
        ("FREQ=DAILY;WKST=XX", "WKST cannot be 'XX': expected MO, TU, WE, TH, FR, SA, SU."),
        ("FREQ=DAILY;COUNT=1;UNTIL=20261231", "COUNT and UNTIL cannot be used together."),
        (
            "FREQ=DAILY;UNTIL=2026-12-31",
            f"UNTIL cannot be '2026-12-31': {A_TIME}",
        ),
        (
            "FREQ=DAILY;UNTIL=20260230",
            f"UNTIL cannot be '20260230': {A_TIME}",
        ),
        ("FREQ=DAILY;UNTIL=99991231", "The year of UNTIL must be between 1900 and 2999."),
        ("X" * (LONGEST_RULE + 1), f"The rule is longer than {LONGEST_RULE} characters."),
    ],
)
def test_what_is_refused_and_why(rule: str, message: str) -> None:
    """The part is named, with what is allowed."""
    with pytest.raises(InvalidError) as caught:
        canonical({"rrule": rule})
    assert [("rrule", message)] == [(error.field, error.message) for error in caught.value.errors]


@given(
    st.text(max_size=60) | st.lists(st.sampled_from(["FREQ=DAILY", "BYDAY=", "COUNT", ";", "=", ",", "1"])).map("".join)
)
@examples(200)
def test_no_text_is_an_error_of_ours(text: str) -> None:
    """Whatever is written, it is read or refused with a sentence."""
    try:
        canonical_rrule(text)
    except ValueError as error:
        assert str(error).endswith(".")  # noqa: PT017 - the sentence is what is tested


def test_a_stored_rule_that_is_no_longer_valid_is_a_problem() -> None:
    """It says so, and does not raise."""
    fields: dict[str, Any] = {"rrule": "FREQ=OFTEN"}
    assert "FREQ cannot be 'OFTEN'" in Spec(**fields).problem
    assert not Spec(rrule="FREQ=DAILY").problem
