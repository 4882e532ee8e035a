"""Requests: the parts of a URL that matter for a call, and the bytes that are sent."""

import base64
import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec
from multidict import CIMultiDict
from yarl import URL

USER_AGENT = "Carillon"
# Of methods without a meaning for a body an empty one is not announced.
BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
CACHED_URLS = 1024

# Headers that decide where the body ends, among names of which each stands on a line.
_LENGTHS = re.compile(r"^(?:transfer-encoding|content-length)$", re.IGNORECASE | re.MULTILINE)
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# With one of these a value could end its line and begin another header.
_FORBIDDEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class InvalidRequestError(ValueError):
    """A request cannot be sent: its URL, its method or one of its headers is not valid."""

    code = "invalid_request"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a URL."""

    is_tls: bool
    # A name, as it is looked up, or an address without brackets.
    host: str
    port: int
    # The value of the Host header: the port stands there only if it is not the scheme's own.
    authority: str
    # Path and query, percent-encoded.
    resource: str
    # The value of the Authorization header for the user and password of the URL, if it has them.
    authorization: str


class Request(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request that is ready to be sent."""

    target: Target
    data: bytes
    is_head: bool
    # The connection may be used again, as far as the sender is concerned.
    is_kept: bool


@lru_cache(maxsize=CACHED_URLS)
def parse_target(url: str) -> Target:
    """Return the parts of a URL; raise ``InvalidRequestError``, without the URL, if it cannot be called."""
    try:
        parts = URL(url)
        host, port, authority = parts.raw_host, parts.port, parts.host_port_subcomponent
        authorization = _basic(parts)
    except ValueError as error:
        raise InvalidRequestError("the URL is not valid") from error
    if parts.scheme not in {"http", "https"} or not host or not port or not authority:
        raise InvalidRequestError("the URL is not one of HTTP with a host")
    return Target(
        is_tls=parts.scheme == "https",
        host=host,
        port=port,
        authority=authority,
        resource=parts.raw_path_qs,
        authorization=authorization,
    )


def _basic(parts: URL) -> str:
    if not parts.raw_user and not parts.raw_password:
        return ""
    user = parts.user or ""
    if ":" in user:
        raise InvalidRequestError("the user of the URL contains a colon")
    return "Basic " + base64.b64encode(f"{user}:{parts.password or ''}".encode("latin-1")).decode()


class RequestHead(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a request that is the same in every call: where it goes, and headers that do not change."""

    method: str
    url: str
    target: Target
    # The request line and the headers, each with the end of its line.
    text: str
    headers: CIMultiDict[str]

    def request(self, further: Mapping[str, str], body: bytes) -> Request:
        """Return a request with further headers and a body; headers of the same name replace those of the head."""
        if self.headers and any(name in self.headers for name in further):
            merged = CIMultiDict(self.headers)
            merged.update(further)
            return request_head(self.method, self.url, merged).request({}, body)
        if further:
            _require_valid(further)
        lines = [self.text, *(f"{name}: {value}\r\n" for name, value in further.items())]
        if body and "content-type" not in self.headers:
            lines.append("Content-Type: application/octet-stream\r\n")
        has_length = body or self.method not in BODILESS
        lines.append(f"Content-Length: {len(body)}\r\n\r\n" if has_length else "\r\n")
        try:
            data = "".join(lines).encode() + body
        except UnicodeEncodeError as error:
            raise InvalidRequestError("the value of a header is not text") from error
        return Request(
            target=self.target,
            data=data,
            is_head=self.method == "HEAD",
            is_kept="connection" not in self.headers,
        )


def request_head(method: str, url: str, headers: CIMultiDict[str]) -> RequestHead:
    """Return the head of requests; raise ``InvalidRequestError`` if a header could be read as something else.

    ``headers`` replace those that every request has; they decide neither on the length of the body nor on its encoding.
    """
    if not _TOKEN.fullmatch(method):
        raise InvalidRequestError("the method is not valid")
    target = parse_target(url)
    _require_valid(headers)
    lines = [f"{method} {target.resource} HTTP/1.1\r\n"]
    if "host" not in headers:
        lines.append(f"Host: {target.authority}\r\n")
    lines += [f"{name}: {value}\r\n" for name, value in headers.items()]
    lines += _usual_headers(target, headers)
    return RequestHead(method=method, url=url, target=target, text="".join(lines), headers=headers)


def build_request(method: str, url: str, headers: CIMultiDict[str], body: bytes) -> Request:
    """Return a request as bytes; raise ``InvalidRequestError`` if a header could be read as something else."""
    return request_head(method, url, headers).request({}, body)


def _require_valid(headers: Mapping[str, str]) -> None:
    # One search in all names, and one in all values: there are a dozen of each in every call.
    if headers and ("" in headers or not _TOKEN.fullmatch("".join(headers))):
        raise InvalidRequestError("the name of a header is not valid")
    if _FORBIDDEN.search("".join(headers.values())):
        raise InvalidRequestError("the value of a header contains a control character")
    if _LENGTHS.search("\n".join(headers)):
        raise InvalidRequestError("the length of the body cannot be given as a header")


def _usual_headers(target: Target, headers: CIMultiDict[str]) -> list[str]:
    """Return the lines of the headers that every request has, unless they are given."""
    lines = []
    if target.authorization:
        if "authorization" in headers:
            raise InvalidRequestError("there is a header Authorization and a user in the URL")
        lines.append(f"Authorization: {target.authorization}\r\n")
    if "accept" not in headers:
        lines.append("Accept: */*\r\n")
    if "accept-encoding" not in headers:
        lines.append("Accept-Encoding: gzip, deflate\r\n")
    if "user-agent" not in headers:
        lines.append(f"User-Agent: {USER_AGENT}\r\n")
    return lines
