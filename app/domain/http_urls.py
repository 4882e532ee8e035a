"""The URLs that Carillon calls: one type for all places where people write one."""

from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta

from app.domain.field_errors import EXPECTED

HttpUrl = Annotated[
    str,
    Meta(
        # `\s` differs between dialects of regular expressions for control characters.
        pattern=r"^https?://[^\s/\x00-\x20\x7f-\xa0]+",
        max_length=2000,
        examples=["https://example.com/hook"],
        extra={EXPECTED: "a URL of at most 2000 characters that begins with http:// or https:// and a host"},
    ),
]


def url_problem(url: str) -> str:
    """Return why a URL cannot be called, or an empty string."""
    if any(character.isspace() for character in url):
        return "The URL contains a blank."
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "The host or the port of the URL is not valid."
    return "" if parts.scheme in {"http", "https"} and host else "The URL has no host."
