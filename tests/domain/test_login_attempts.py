"""Login attempts: derived values, the cookie, and pages to return to."""

from datetime import UTC, datetime, timedelta

import pytest

from app.domain.errors import InvalidError
from app.domain.login_attempts import LoginAttempt, begin_attempt, is_local_path, read_attempt

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECRET = "s" * 43


def attempt(return_to: str = "/console/", secret: str = SECRET) -> LoginAttempt:
    """Return an attempt that has just begun."""
    return begin_attempt(secret, return_to, NOW)


def test_the_cookie_brings_the_attempt_back() -> None:
    """With all that is derived from it."""
    begun = attempt("/console/schedules?status=paused#x")
    assert begun == read_attempt(begun.cookie)


def test_what_is_derived_differs_and_does_not_show_the_secret() -> None:
    """By purpose, secret, time and page."""
    begun = attempt()
    later = begin_attempt(SECRET, "/console/", NOW + timedelta(seconds=1))
    others = [attempt("/other"), attempt(secret="t" * 43), later]
    derived = [text for one in (begun, *others) for text in (one.state, one.nonce, one.verifier, one.challenge)]
    assert len(derived) == len(set(derived))
    assert SECRET not in "".join(derived)


def test_an_answer_is_accepted_for_ten_minutes_and_for_its_own_attempt() -> None:
    """A later one, one of another attempt and one for a changed cookie are not."""
    begun = attempt()
    assert begun.is_answered_by(begun.state, NOW + timedelta(seconds=599))
    assert not begun.is_answered_by(begun.state, NOW + timedelta(seconds=600))
    assert not begun.is_answered_by(attempt("/other").state, NOW)
    assert not begun.is_answered_by("", NOW)
    assert not begun.is_answered_by("\ud800", NOW)
    later = read_attempt(begun.cookie.replace(str(begun.began_at), str(begun.began_at + 600)))
    assert later is not None
    assert not later.is_answered_by(begun.state, NOW + timedelta(seconds=700))


@pytest.mark.parametrize("path", ["/", "/console/", "/console/schedules?x=//y#z", "/a\"b'c<d>"])
def test_paths_on_this_server_are_local(path: str) -> None:
    """With query and fragment."""
    assert is_local_path(path)
    assert path == attempt(path).return_to


@pytest.mark.parametrize(
    "path",
    [
        *("", "console", "//evil.example", "///evil.example", "/\\evil.example", "\\\\evil.example", "/a\\b"),
        *("https://evil.example", "javascript:alert(1)", "/\t/evil.example", "/\n/evil.example", " /x", "/x y", "/ü"),
        *("/\x00", "data:text/html,x", "/" + "x" * 1000),
    ],
)
def test_other_pages_are_refused(path: str) -> None:
    """A login must not be the way to another site."""
    assert not is_local_path(path)
    with pytest.raises(InvalidError):
        attempt(path)


@pytest.mark.parametrize(
    "cookie", ["", "x", *(f"{SECRET}.{end}" for end in ("1.", "x.Lw", "1.Ly9ldmls", "1._w", "1.L")), "a.1.Lw"]
)
def test_a_broken_cookie_is_no_attempt(cookie: str) -> None:
    """Nor one that leads to another host."""
    assert read_attempt(cookie) is None
