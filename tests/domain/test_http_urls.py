"""URLs that can be called."""

import pytest

from app.domain.http_urls import url_problem


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://example.com/hook?a=1", ""),
        ("http://127.0.0.1:8080", ""),
        ("http://[::1]/x", ""),
        ("http://münchen.example/", ""),
        ("http://", "The URL has no host."),
        ("ftp://example.com", "The URL has no host."),
        ("http:///path", "The URL has no host."),
        ("http://a b/", "The URL contains a blank."),
        ("http://example.com/\n", "The URL contains a blank."),
        ("http://example.com:99999/", "The host or the port of the URL is not valid."),
        ("http://[::1", "The host or the port of the URL is not valid."),
    ],
)
def test_what_is_wrong_with_a_url(url: str, problem: str) -> None:
    """In words, or nothing."""
    assert problem == url_problem(url)
