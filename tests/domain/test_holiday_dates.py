"""Public holidays by the names of countries."""

import sys

import pytest

from app.domain.calendars import Calendar
from app.domain.holiday_dates import HolidaySpans, _dates, canonical_holidays


@pytest.mark.parametrize(
    ("name", "stored", "day", "holiday"),
    [
        ("DE", "DE", "2026-10-03", "German Unity Day"),
        ("de-be", "DE-BE", "2026-03-08", "Women's Day"),
        (" US-ca ", "US-CA", "2026-07-04", "Independence Day"),
        ("xnys", "XNYS", "2026-12-25", "Christmas Day"),
    ],
)
def test_countries_their_parts_and_exchanges(name: str, stored: str, day: str, holiday: str) -> None:
    """Names are stored in upper case; holidays have English names on every machine."""
    assert stored == canonical_holidays(name)
    spans = {f"{span.start:%Y-%m-%d}": span.entry for span in HolidaySpans(stored).spans(2026)}
    assert holiday == spans[day]


@pytest.mark.parametrize("name", ["", "XX", "DE-XX", "Germany", "DE-BE-1", "D", "holidays:DE"])
def test_unknown_names_are_refused(name: str) -> None:
    """With an example of what is allowed."""
    with pytest.raises(
        ValueError, match=r"There are no holidays for '.*'. Use a country such as 'DE', or a part: 'DE-BE'."
    ):
        canonical_holidays(name)


def test_without_the_package_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is an extra: a calendar that needs it is a problem, not an error."""
    _dates.cache_clear()
    monkeypatch.setitem(sys.modules, "holidays", None)
    expected = "Public holidays need the package 'holidays': install carillon[holidays]."
    with pytest.raises(ValueError, match="install carillon") as caught:
        canonical_holidays("DE")
    assert expected == str(caught.value)
    assert f"Calendar 'closed': {expected}" == Calendar(name="closed", holidays="DE").problem
