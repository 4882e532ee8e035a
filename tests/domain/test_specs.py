"""Specs as people write them: many spellings and one stored form, or a refusal that names the field."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from app.domain.cron_expression import LONGEST_EXPRESSION, canonical_cron
from app.domain.errors import InvalidError
from app.domain.local_time import WEEKDAYS, canonical_zone, weekdays, window
from app.domain.specs import KINDS, LONGEST_DURATION, Spec, canonical, format_duration, parse_duration, require_kind
from tests.domain import oracle
from tests.domain.strategies import aliases, day_rules, expressions, moments, sparse_expressions, zones
from tests.support.hypothesis_examples import examples

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("stored", "spellings"),
    [
        ("* * * * *", ["*/1 * * * *", " *  *\t* * *\n", "* * ? * ?", "*,5 * * * *", "*/2,1-59/2 * * * *"]),
        ("0 0 * * *", ["@daily", "@DAILY", " @midnight ", "00 00 * * *", "0 0 ? * *", "0-0 0 * * */1"]),
        ("0 * * * *", ["@hourly", "0 */1 * * ?", "0/60 * * * *"]),
        ("0 0 * * 0", ["@weekly", "0 0 * * 7", "0 0 * * sun", "0 0 * * SUN,7,0", "0 0 ? * 7-7"]),
        ("0 0 1 * *", ["@monthly", "0 0 01 * ?", "0 0 1,1 */1 *"]),
        ("0 0 1 1 *", ["@yearly", "@annually", "0 0 1 JAN *", "0 0 1 jan-jan ?"]),
        ("0 9 * * 1-5", ["0 9 * * mon-fri", "0 9 ? * Mon-Fri", "0 9 * * 5,4,3,2,1", "00 09 * * 1-3,tue-fri"]),
        ("0 9 * * 0,1,5,6", ["0 9 * * fri-mon", "0 9 * * 5-1", "0 9 * * 5-7,1", "0 9 * * FRI,SAT,SUN,MON"]),
        ("0 9 * * 0-6", ["0 9 * * sun-sat", "0 9 * * 0-7", "0 9 * * 1-7", "0 9 * * mon-sun"]),
        ("0 0-2,22,23 * * *", ["0 22-2 * * *", "0 22,23,0,1,2 * * *", "0 22-23,0-2 * * *"]),
        ("0,15,30,45 8 * * *", ["0/15 8 * * *", "0-59/15 8 * * *", "45,30,15,0 8 * * *", "00,15,30,45 08 * * *"]),
        ("*/15 8 * * *", ["*/015 8 * * *"]),
        ("1-3,5 8 * * *", ["1,2,3,5 8 * * *", "5,1-2,2-3 8 * * *"]),
        ("1,2,4,5 8 * * *", ["1-2,4-5 8 * * *", "5,4,2,1 8 * * *"]),
        ("0 0 1 1,2,12 *", ["0 0 1 dec-feb *", "0 0 1 12-2 *", "0 0 1 FEB,jan,Dec *"]),
        ("0 0 L * *", ["0 0 l * ?", "0 0 L,l * *"]),
        ("0 0 15,LW * *", ["0 0 lw,15 * *", "0 0 15,15,Lw * *"]),
        ("0 0 1,31 * *", ["0 0 31-1 * *"]),
        ("0 0 * * 5L", ["0 0 * * friL", "0 0 ? * 5l", "0 0 * * FRIL,5L"]),
        ("0 0 * * 0L", ["0 0 * * 7L", "0 0 * * sunl"]),
        ("0 0 * * 1#2", ["0 0 * * mon#2", "0 0 * * 1#2,MON#2"]),
        ("0 0 * * 0#1", ["0 0 * * 7#1", "0 0 ? * Sun#1"]),
        ("0 0 * * 3,1#2,5L", ["0 0 * * 5L,1#2,3", "0 0 * * friL,wed,mon#2"]),
    ],
)
def test_spellings_of_a_cron_expression(stored: str, spellings: list[str]) -> None:
    """However it is written, it is stored in one form, which stays as it is."""
    assert [stored] * (len(spellings) + 1) == [canonical_cron(text) for text in (*spellings, stored)]


def test_what_begins_with_a_star_is_kept_apart_from_the_same_values_without() -> None:
    """The star decides how days are matched and how a change of the clocks is taken, so it is part of the form."""
    spellings = ["*/15 * * * *", "0,15,30,45 0-23 * * *", "0 0 */2 * 1", "0 0 1-31/2 * 1"]
    expected = [
        "*/15 * * * *",
        "0,15,30,45 0-23 * * *",
        "0 0 */2 * 1",
        "0 0 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31 * 1",
    ]
    assert expected == [canonical_cron(text) for text in spellings]


@pytest.mark.parametrize(
    ("stored", "spellings"),
    [
        ("*/15 8 * * *", ["*/15,30 8 * * *", "*/15,0,45 8 * * *", "*/15,*/30 8 * * *", "*/30,*/15 8 * * *"]),
        ("0 0 */7 * *", ["0 0 */7,8-22/7 * *", "0 0 */14,*/7 * *"]),
        ("0 0 * * */2", ["0 0 * * */2,sat", "0 0 * * */4,2,6"]),
    ],
)
def test_lists_that_begin_with_a_star_have_one_form_too(stored: str, spellings: list[str]) -> None:
    """What adds nothing to a step is left out, and the order of steps does not matter."""
    assert [stored] * len(spellings) == [canonical_cron(text) for text in spellings]


@pytest.mark.parametrize(
    ("stored", "spellings"),
    [
        ({"interval_seconds": 90.0}, ["90s", "1.5m", "1m30s", " 1M 30S ", "90 s", "0.025h"]),
        ({"interval_seconds": 3600.0}, ["hourly", "Hourly", "1h", "60m", "3600s", " hourly "]),
        ({"interval_seconds": 86_400.0}, ["daily", "1d", "24h", "DAILY"]),
        ({"interval_seconds": 604_800.0}, ["weekly", "1w", "7d", "168h"]),
        ({"interval_seconds": 1.0}, ["1s", "0.5s0.5s", "01s", "1.000000s"]),
        ({"interval_seconds": 1.25}, ["1.25s"]),
        ({"every": "monthly"}, ["monthly", " Monthly", "MONTHLY"]),
    ],
)
def test_spellings_of_every(stored: dict[str, Any], spellings: list[str]) -> None:
    """Whatever is a number of seconds is stored as that; a month is not."""
    expected = dict.fromkeys(KINDS) | stored
    assert [expected] * len(spellings) == [canonical({"every": text}) for text in spellings]


@pytest.mark.parametrize(
    ("stored", "spellings"),
    [
        ("90m", ["90m", "1.5h", "1h30m", "5400s", "1H 30M"]),
        ("1h", ["1h", "60m", "3600s", "0.5h30m"]),
        ("1d", ["1d", "24h"]),
        ("2w", ["2w", "14d", "1w7d"]),
        ("0.5s", ["0.5s", "0.500000s"]),
        ("0s", ["0s", "0w"]),
        ("90.000001s", ["1.5m0.000001s"]),
        ("2147483647s", ["2147483647s"]),
    ],
)
def test_spellings_of_after(stored: str, spellings: list[str]) -> None:
    """A delay is stored in the largest unit that it is a whole number of."""
    expected = dict.fromkeys(KINDS) | {"after": stored}
    assert [expected] * len(spellings) == [canonical({"after": text}) for text in spellings]


@pytest.mark.parametrize(
    ("field", "stored", "spellings"),
    [
        ("timezone", "Europe/Berlin", ["Europe/Berlin", "europe/berlin", " EUROPE/BERLIN "]),
        ("timezone", "UTC", ["UTC", "utc", "Utc"]),
        ("timezone", "Etc/GMT+5", ["etc/gmt+5", "ETC/GMT+5"]),
        ("timezone", "America/Argentina/Buenos_Aires", ["america/argentina/buenos_aires"]),
        ("only_between", "08:00-18:00", ["08:00-18:00", "8:00-18:00", " 8:00 - 18:00 ", "08:00 -18:00"]),
        ("only_between", "22:00-06:00", ["22:00-06:00", "22:00-6:00"]),
        ("only_between", "22:00-24:00", ["22:00-24:00", "22:00-0:00", "22:00-00:00"]),
        ("only_between", "00:00-24:00", ["00:00-24:00", "0:00-24:00"]),
        ("not_on", ("sunday",), [["sunday"], ["Sun"], [0], [7], ["0", "7", " SUN ", 0]]),
        ("not_on", ("monday", "saturday"), [["sat", "mon"], [6, 1], ["Saturday", "monday", "6"]]),
        ("not_on", (), [[], (), None]),
        ("only_between", None, [None]),
        ("interval_seconds", 300.0, [300, 300.0]),
        ("at", AT, [AT]),
    ],
)
def test_spellings_of_the_other_fields(field: str, stored: object, spellings: list[Any]) -> None:
    """Names in any case, hours with and without a zero, days by name and by number."""
    assert [stored] * len(spellings) == [canonical({field: given})[field] for given in spellings]


def test_a_kind_that_is_given_replaces_all_others() -> None:
    """A change from an interval to a cron expression leaves no interval behind."""
    expected = {"interval_seconds": None, "every": None, "cron": "0 0 * * *", "rrule": None, "at": None}
    expected["after"] = None
    assert expected == canonical({"cron": "@daily"})


def test_fields_that_are_not_given_are_not_made_up() -> None:
    """A change of the window alone says nothing of the kind, and what is no part of a spec passes through."""
    expected = {"only_between": "08:00-18:00", "name": "x"}
    assert expected == canonical({"only_between": "8:00-18:00", "name": "x"})


@pytest.mark.parametrize(
    ("given_fields", "field", "gist"),
    [
        ({"cron": "0 0 31 2 *"}, "cron", "No date fits"),
        ({"cron": "0 0 30 2 *"}, "cron", "No date fits"),
        ({"cron": "0 0 30,31 feb ?"}, "cron", "No date fits"),
        ({"cron": "0 0 31 4,6,9,11 *"}, "cron", "No date fits"),
        ({"cron": "0 0 31 2 */2"}, "cron", "No date fits"),
        ({"cron": "0 0 0 * * *"}, "cron", "five fields"),
        ({"cron": "0 0 * *"}, "cron", "five fields"),
        ({"cron": ""}, "cron", "five fields"),
        ({"cron": "@reboot"}, "cron", "five fields"),
        ({"cron": "@every 5m"}, "cron", "five fields"),
        ({"cron": "0 0 15W * *"}, "cron", "day-of-month field cannot be '15w'"),
        ({"cron": "0 0 L-3 * *"}, "cron", "day-of-month field cannot be"),
        ({"cron": "*/0 * * * *"}, "cron", "minute field has a bad step"),
        ({"cron": "*/x * * * *"}, "cron", "minute field has a bad step"),
        ({"cron": "5/ * * * *"}, "cron", "minute field has a bad step"),
        ({"cron": "0-10/-2 * * * *"}, "cron", "minute field has a bad step"),
        ({"cron": "60 * * * *"}, "cron", "minute field cannot be '60'"),
        ({"cron": "-1 * * * *"}, "cron", "minute field cannot be"),
        ({"cron": "? * * * *"}, "cron", "minute field cannot be '?'"),
        ({"cron": "1,,2 * * * *"}, "cron", "minute field has an empty item"),
        ({"cron": "0 24 * * *"}, "cron", "hour field cannot be '24'"),
        ({"cron": "0 1-* * * *"}, "cron", "hour field cannot be '*'"),
        ({"cron": "0 0 0 * *"}, "cron", "day-of-month field cannot be '0'"),
        ({"cron": "0 0 32 * *"}, "cron", "day-of-month field cannot be '32'"),
        ({"cron": "0 0 ?,1 * *"}, "cron", "day-of-month field cannot be '?'"),
        ({"cron": "0 0 1 13 *"}, "cron", "month field cannot be '13'"),
        ({"cron": "0 0 1 mon *"}, "cron", "month field cannot be 'mon'"),
        ({"cron": "0 0 1 L *"}, "cron", "month field cannot be 'l'"),
        ({"cron": "0 0 * * 8"}, "cron", "day-of-week field cannot be '8'"),
        ({"cron": "0 0 * * monday"}, "cron", "day-of-week field cannot be 'monday'"),
        ({"cron": "0 0 * * L"}, "cron", "day-of-week field cannot be"),
        ({"cron": "0 0 * * 1#6"}, "cron", "day-of-week field cannot be '1#6'"),
        ({"cron": "0 0 * * 1#0"}, "cron", "day-of-week field cannot be '1#0'"),
        ({"cron": "٣ * * * *"}, "cron", "minute field cannot be"),
        ({"cron": ",".join(["1"] * 200_000) + " * * * *"}, "cron", "longer than 1000"),
        ({"every": "0.5s"}, "every", "one second"),
        ({"every": "0.999999s"}, "every", "one second"),
        ({"every": "0s"}, "every", "one second"),
        ({"every": "yearly"}, "every", "Expected a duration"),
        ({"every": "5"}, "every", "Expected a duration"),
        ({"every": "-5m"}, "every", "Expected a duration"),
        ({"every": "1e3s"}, "every", "Expected a duration"),
        ({"every": "5 minutes"}, "every", "Expected a duration"),
        ({"every": "0.0000001s"}, "every", "Expected a duration"),
        ({"every": ""}, "every", "Expected a duration"),
        ({"every": "9999999999w"}, "every", "too long"),
        ({"every": "2147483648s"}, "every", "too long"),
        ({"after": "3551w"}, "after", "too long"),
        ({"after": "2147483647s1s"}, "after", "too long"),
        ({"after": "99999999999s"}, "after", "Expected a duration"),
        ({"after": "soon"}, "after", "Expected a duration"),
        ({"after": "monthly"}, "after", "Expected a duration"),
        ({"interval_seconds": 2**31}, "interval_seconds", "too long"),
        ({"interval_seconds": 10**400}, "interval_seconds", "too long"),
        ({"timezone": "Mars/Olympus"}, "timezone", "no timezone 'Mars/Olympus'"),
        ({"timezone": ""}, "timezone", "no timezone"),
        ({"timezone": "localtime"}, "timezone", "no timezone"),
        ({"timezone": "../../etc/passwd"}, "timezone", "no timezone"),
        ({"timezone": "x" * 100_000}, "timezone", "no timezone"),
        ({"only_between": "08:00-08:00"}, "only_between", "empty"),
        ({"only_between": "00:00-00:00"}, "only_between", "empty"),
        ({"only_between": "08:00-25:00"}, "only_between", "00:00 to 24:00"),
        ({"only_between": "08:00-24:01"}, "only_between", "00:00 to 24:00"),
        ({"only_between": "08:60-18:00"}, "only_between", "00:00 to 24:00"),
        ({"only_between": "24:00-08:00"}, "only_between", "00:00 to 24:00"),
        ({"only_between": "8-18"}, "only_between", "Expected a window"),
        ({"only_between": "08:00"}, "only_between", "Expected a window"),
        ({"only_between": ""}, "only_between", "Expected a window"),
        ({"not_on": [0, 1, 2, 3, 4, 5, 6]}, "not_on", "Every day"),
        ({"not_on": list(WEEKDAYS)}, "not_on", "Every day"),
        ({"not_on": [8]}, "not_on", "Expected a weekday"),
        ({"not_on": [-1]}, "not_on", "Expected a weekday"),
        ({"not_on": ["holiday"]}, "not_on", "Expected a weekday"),
        ({"not_on": ["su"]}, "not_on", "Expected a weekday"),
        ({"cron": "@daily", "every": "5m"}, "cron", "Exactly one of"),
        ({"interval_seconds": 300, "every": "5m"}, "every", "Exactly one of"),
        ({"at": AT, "after": "5m"}, "after", "Exactly one of"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_what_is_refused(given_fields: dict[str, Any], field: str, gist: str) -> None:
    """The error names the field and says what is wrong with it."""
    with pytest.raises(InvalidError) as caught:
        canonical(given_fields)
    (error,) = caught.value.errors
    assert field == error.field
    assert gist in error.message


def test_all_that_is_wrong_is_named_at_once() -> None:
    """One answer for three mistakes."""
    with pytest.raises(InvalidError) as caught:
        canonical({"cron": "* * *", "timezone": "Nowhere", "only_between": "always", "not_on": ["sun"]})
    assert ["cron", "timezone", "only_between"] == [error.field for error in caught.value.errors]


@pytest.mark.parametrize(
    "given_fields",
    [
        {"timezone": "z" * 100_000},
        {"every": "8" * 100_000},
        {"after": "1s" * 50_000 + "!"},
        {"only_between": "0" * 100_000},
        {"not_on": ["x" * 100_000]},
        {"cron": f"{'9' * 900} * * * *"},
        {"cron": f"1/{'x' * 900} * * * *"},
        {"cron": f"0 0 * * {'l' * 900}"},
        {"cron": "x" * 900},
    ],
    ids=lambda fields: str(fields)[:25],
)
def test_a_refusal_of_something_long_is_short(given_fields: dict[str, Any]) -> None:
    """What comes back does not repeat what was sent."""
    with pytest.raises(InvalidError) as caught:
        canonical(given_fields)
    (error,) = caught.value.errors
    assert len(error.message) < 200


def test_a_spec_says_when() -> None:
    """Without any kind it is refused; with one it is not."""
    with pytest.raises(InvalidError) as caught:
        require_kind(canonical({"timezone": "UTC"}))
    assert ["interval_seconds"] == [error.field for error in caught.value.errors]
    require_kind(canonical({"every": "monthly"}))


def test_a_stored_form_that_is_no_longer_valid_says_so() -> None:
    """A zone that has left the database, or an expression of older rules, is a problem and no crash."""
    assert "no timezone 'Europe/Atlantis'" in Spec(cron="0 0 * * *", timezone="Europe/Atlantis").problem
    assert "No date fits" in Spec(cron="0 0 30 2 *").problem
    assert [""] * 3 == [
        Spec(cron="0 0 * * *").problem,
        Spec(every="monthly").problem,
        Spec(interval_seconds=5.0).problem,
    ]


@pytest.mark.parametrize(
    ("given_fields", "expected"),
    [
        ({"every": "90s"}, "90s"),
        ({"every": "hourly"}, "1h"),
        ({"every": "1.5h"}, "90m"),
        ({"interval_seconds": 86_400}, "1d"),
        ({"every": "monthly"}, "monthly"),
        ({"cron": "@daily"}, None),
    ],
)
def test_an_interval_is_shown_as_people_write_it(given_fields: dict[str, Any], expected: str | None) -> None:
    """In the largest unit that it is a whole number of."""
    assert expected == Spec(**canonical(given_fields)).spelled_every


# Anything at all, and anything that is made of the right letters.
ANY_TEXT = st.text() | st.text(st.characters(codec=None, categories=["Cs", "Nd", "Zs", "L"]))
CRON_LIKE = st.lists(st.text("0123456789*,-/#?LWlw", min_size=1, max_size=8), min_size=4, max_size=6).map(" ".join)
NAMED_CRON = st.lists(
    st.text(st.sampled_from("0159*,-/#?l"), max_size=3)
    | st.sampled_from(["mon", "sun-fri", "JAN", "*", "L", "LW", "5L", "1#5", "*/7", "22-2", "31", "30", "2", "feb"]),
    min_size=5,
    max_size=5,
).map(" ".join)


@given(ANY_TEXT | CRON_LIKE | NAMED_CRON | expressions | sparse_expressions | aliases)
@example("0 0 30 2 *")
@example("0" * LONGEST_EXPRESSION)
@examples(200)
def test_any_text_is_an_expression_or_is_refused(text: str) -> None:
    """Nothing but a ValueError is raised, and a stored form is its own stored form."""
    try:
        stored = canonical_cron(text)
    except ValueError:
        return
    assert stored == canonical_cron(stored)
    assert len(stored) <= LONGEST_EXPRESSION
    assert not Spec(cron=stored).problem


@given(ANY_TEXT | st.text("0123456789.wdhms ", max_size=20) | st.from_regex(r"\A[0-9]{1,11}(\.[0-9]{1,6})?[wdhms]\Z"))
@examples(150)
def test_any_text_is_a_duration_or_is_refused(text: str) -> None:
    """Its spelling says the same, and is its own spelling."""
    try:
        length = parse_duration(text)
    except ValueError:
        return
    assert timedelta(0) <= length <= LONGEST_DURATION
    assert (length, format_duration(length)) == (
        parse_duration(format_duration(length)),
        format_duration(parse_duration(format_duration(length))),
    )


@given(st.timedeltas(min_value=timedelta(0), max_value=LONGEST_DURATION))
def test_a_spelled_duration_is_read_back(length: timedelta) -> None:
    """To the microsecond, also by way of the seconds that an interval is stored as."""
    assert length == parse_duration(format_duration(length))
    if length >= timedelta(seconds=1):
        assert length == Spec(**canonical({"every": format_duration(length)})).interval


@given(
    ANY_TEXT | st.text("0123456789:- ", max_size=13) | st.from_regex(r"\A[0-9]{1,2}:[0-9]{2} ?- ?[0-9]{1,2}:[0-9]{2}\Z")
)
@examples(150)
def test_any_text_is_a_window_or_is_refused(text: str) -> None:
    """Its stored form is the same window."""
    try:
        found = window(text)
    except ValueError:
        return
    assert found == window(str(found))
    assert 0 <= found.start < 1440
    assert 0 < found.end <= 1440
    assert found.start != found.end


@given(st.lists(ANY_TEXT | st.integers() | st.sampled_from([*WEEKDAYS, "mon", "SUN", "7", 0, 7]), max_size=5))
@examples(150)
def test_any_list_is_weekdays_or_is_refused(days: list[int | str]) -> None:
    """Names of days, each once, in the order of the week."""
    try:
        found = weekdays(days)
    except ValueError:
        return
    assert found == weekdays(found)
    assert found == tuple(name for name in WEEKDAYS if name in found)
    assert bool(days) == bool(found)


@given(ANY_TEXT | zones.map(str.upper) | zones.map(str.lower))
@examples(150)
def test_any_text_is_a_timezone_or_is_refused(text: str) -> None:
    """Its stored form is the same zone, and can be compiled."""
    try:
        stored = canonical_zone(text)
    except ValueError:
        return
    assert stored == canonical_zone(stored)
    assert not Spec(cron="0 0 * * *", timezone=stored).problem


@given(
    text=expressions | sparse_expressions | aliases,
    zone=st.sampled_from(["America/Nuuk", "Europe/Berlin", "UTC"]),
    data=st.data(),
)
@examples(20)
def test_the_stored_form_has_the_slots_of_the_text(text: str, zone: str, data: st.DataObject) -> None:
    """By the oracle, which reads both, over the days around a change of the clocks."""
    stored = canonical_or_none(text)
    assume(stored is not None)
    first = data.draw(moments(zone))
    last = first + timedelta(days=3)
    assert oracle.cron_slots(text, zone, first, last) == oracle.cron_slots(stored or "", zone, first, last)


@given(text=day_rules, year=st.integers(1971, 2100))
@examples(100)
def test_the_stored_form_has_the_days_of_the_text(text: str, year: int) -> None:
    """The same, for all the days of two years."""
    stored = canonical_or_none(text)
    assume(stored is not None)
    raw, canonic = oracle.Cron(text), oracle.Cron(stored or "")
    days = [datetime(year, 1, 1, tzinfo=UTC).date() + timedelta(days=k) for k in range(731)]
    assert [raw.names_day(day) for day in days] == [canonic.names_day(day) for day in days]
    assert raw.is_fixed == canonic.is_fixed


def canonical_or_none(text: str) -> str | None:
    """The stored form, unless there is no such date."""
    try:
        return canonical_cron(text)
    except ValueError:
        return None
