"""Requests for tests of the HTTP client."""

from multidict import CIMultiDict

from app.http1.requests import Request, build_request


def get_request(url: str, method: str = "GET", body: bytes = b"", headers: dict[str, str] | None = None) -> Request:
    """Return a request to this URL."""
    return build_request(method, url, CIMultiDict(headers or {}), body)
