"""Random specs as people write them, and moments near which the clocks change."""

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tests.domain import oracle

# Half hours, quarter hours, changes at midnight, at 00:01 and at 23:00, two hours, lost days, and none at all.
ZONES = [
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Asuncion",
    "America/Caracas",
    "America/Goose_Bay",
    "America/Havana",
    "America/New_York",
    "America/Nuuk",
    "America/Recife",
    "America/Santiago",
    "America/Sao_Paulo",
    "America/Scoresbysund",
    "America/St_Johns",
    "Antarctica/Casey",
    "Antarctica/Troll",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Atlantic/Azores",
    "Australia/Adelaide",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Dublin",
    "Europe/London",
    "Europe/Volgograd",
    "Pacific/Apia",
    "Pacific/Auckland",
    "Pacific/Chatham",
    "Pacific/Fakaofo",
    "Pacific/Kiritimati",
    "Pacific/Kwajalein",
    "Pacific/Tongatapu",
    "UTC",
]
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_EARLIEST, _LATEST = datetime(1990, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)

zones = st.sampled_from(ZONES)


@cache
def changes(zone: str) -> list[datetime]:
    """Where the clocks change, in the years that are looked at."""
    return oracle.changes(zone, _EARLIEST.year, _LATEST.year)


@st.composite
def moments(draw: st.DrawFn, zone: str) -> datetime:
    """A moment from three days before a change of the clocks to half a day after it; some lie elsewhere."""
    if not changes(zone) or draw(st.integers(0, 9)) == 0:
        between = st.datetimes(_EARLIEST.replace(tzinfo=None), _LATEST.replace(tzinfo=None), timezones=st.just(UTC))
        return draw(between)
    minutes = draw(st.integers(-3 * 24 * 60, 12 * 60) | st.integers(-180, 60))
    micros = draw(st.sampled_from([0, 0, 1, 999_999, 59_999_999]) | st.integers(0, 59_999_999))
    return draw(st.sampled_from(changes(zone))) + timedelta(minutes=minutes, microseconds=micros)


@st.composite
def _value(draw: st.DrawFn, low: int, high: int, names: list[str]) -> str:
    """A value by its number, with a zero before it perhaps, or by its name in whatever case."""
    value = draw(st.integers(low, high))
    spellings = [str(value), f"{value:02}"]
    if names:
        name = names[(value - low) % len(names)]
        spellings += [name, name.upper(), name.title()]
    return draw(st.sampled_from(spellings))


@st.composite
def _item(draw: st.DrawFn, low: int, high: int, names: list[str]) -> str:
    """A value, or a range that may be wrapped and may have a step."""
    value, step = _value(low, high, names), st.integers(1, high + 3)
    shape = draw(st.sampled_from(["value", "value", "range", "range", "stepped", "tail"]))
    if shape == "value":
        return draw(value)
    if shape == "tail":
        return f"{draw(value)}/{draw(step)}"
    span = f"{draw(value)}-{draw(value)}"
    return span if shape == "range" else f"{span}/{draw(step)}"


@st.composite
def _field(
    draw: st.DrawFn, low: int, high: int, names: list[str], special: st.SearchStrategy[str] | None = None
) -> str:
    """A list of items; one that begins with a star has numbers and names only."""
    item, star = _item(low, high, names), st.integers(1, high + 3).map(lambda step: f"*/{step}")
    if draw(st.integers(0, 2)) == 0:
        return ",".join([draw(st.just("*") | star), *draw(st.lists(item, max_size=1))])
    anything = item | star | special if special is not None else item | star
    first = draw(item if special is None else item | special)
    return ",".join([first, *draw(st.lists(anything, max_size=2))])


minute_fields = st.one_of(_field(0, 59, []), st.sampled_from(["*", "0", "30", "*/5", "*/20", "0-59", "0,15,30,45"]))
hour_fields = st.one_of(_field(0, 23, []), st.sampled_from(["*", "0-23", "0", "1", "2", "23", "22-3", "*/2", "0-3"]))
month_fields = _field(1, 12, MONTHS)
dom_fields = _field(1, 31, [], st.sampled_from(["L", "LW", "l", "lw", "Lw"])) | st.just("?")
dow_fields = st.just("?") | _field(
    0,
    7,
    DAYS,
    st.builds("{}{}".format, _value(0, 7, DAYS), st.sampled_from(["L", "l", "#1", "#2", "#3", "#4", "#5"])),
)
_gaps = st.sampled_from([" ", " ", "  ", "\t"])
aliases = st.sampled_from(["@hourly", "@daily", "@Midnight", "@weekly", "@monthly", "@yearly", "@ANNUALLY"])


@st.composite
def _expressions(draw: st.DrawFn, *days: st.SearchStrategy[str]) -> str:
    fields = [draw(minute_fields), draw(hour_fields), *(draw(field) for field in days)]
    return draw(_gaps).join(fields)


# Most days are named, so that there is something to compare within a few of them.
expressions = _expressions(
    st.sampled_from(["*", "*", "?", "1-31", "*/2"]) | dom_fields,
    st.just("*"),
    st.sampled_from(["*", "*", "?", "0-7", "mon-sat", "fri-mon"]) | dow_fields,
)
# All shapes, and few days.
sparse_expressions = _expressions(dom_fields, st.just("*") | month_fields, dow_fields) | aliases
# Days alone.
day_rules = st.tuples(dom_fields, month_fields | st.just("*"), dow_fields).map(
    lambda fields: f"0 12 {' '.join(fields)}"
)


@st.composite
def windows(draw: st.DrawFn) -> str | None:
    """Hours of the day, overnight perhaps; many are near the hours at which clocks change."""
    minutes = st.integers(0, 24 * 60 - 1) | st.sampled_from([0, 1, 60, 90, 120, 150, 180, 1380, 1381, 1410, 1439])
    start, end = draw(minutes), draw(minutes | st.just(24 * 60))
    if start == end or draw(st.booleans()):
        return None
    return f"{start // 60:02}:{start % 60:02}-{end // 60:02}:{end % 60:02}"


excluded_days: st.SearchStrategy[list[str]] = st.just([]) | st.lists(st.sampled_from(WEEKDAYS), max_size=6)


@st.composite
def limits(draw: st.DrawFn) -> dict[str, Any]:
    """A place, and what narrows a spec down there."""
    return {"timezone": draw(zones), "only_between": draw(windows()), "not_on": draw(excluded_days)}


@st.composite
def intervals(draw: st.DrawFn) -> timedelta:
    """From some seconds to some days, with fractions too."""
    micros = st.integers(20_000_000, 3 * 86_400_000_000)
    usual = st.sampled_from([30, 60, 300, 900, 1800, 3000, 3600, 5400, 7200, 21_600, 43_200, 86_400, 129_600])
    return draw(usual.map(lambda seconds: timedelta(seconds=seconds)) | micros.map(lambda n: timedelta(microseconds=n)))
