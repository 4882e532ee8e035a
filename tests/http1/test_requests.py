"""Requests as bytes: what every one has, and what cannot be smuggled into one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from app.http1.requests import InvalidRequestError, build_request, parse_target
from tests.support.hypothesis_examples import examples
from tests.support.requests import get_request


def lines(data: bytes) -> list[bytes]:
    """The lines of a head."""
    return data.partition(b"\r\n\r\n")[0].split(b"\r\n")


def test_a_request_has_its_headers_once() -> None:
    """Those of the caller replace the usual ones, in whatever case they are written."""
    request = get_request("http://a.test/x?y=1", "POST", b"{}", {"content-type": "a/b", "USER-AGENT": "me", "X": "y"})
    assert [
        *(b"POST /x?y=1 HTTP/1.1", b"Host: a.test", b"content-type: a/b", b"USER-AGENT: me", b"X: y"),
        *(b"Accept: */*", b"Accept-Encoding: gzip, deflate", b"Content-Length: 2"),
    ] == lines(request.data)
    assert request.data.endswith(b"\r\n\r\n{}")


@pytest.mark.parametrize(
    ("method", "body", "expected"),
    [("GET", b"", []), ("HEAD", b"", []), ("POST", b"", [b"0"]), ("DELETE", b"", [b"0"]), ("GET", b"x", [b"1"])],
)
def test_an_empty_body_is_announced_where_one_is_usual(method: str, body: bytes, expected: list[bytes]) -> None:
    """Servers wait for the length of a POST, and refuse one of a GET."""
    sent = lines(get_request("http://a.test/", method, body).data)
    assert expected == [line.split(b": ")[1] for line in sent if line.startswith(b"Content-Length")]


@pytest.mark.parametrize(
    ("url", "host", "port", "authority", "resource"),
    [
        ("http://a.test", "a.test", 80, "a.test", "/"),
        ("https://A.test:8443/a b?c=d e#f", "a.test", 8443, "a.test:8443", "/a%20b?c=d+e"),
        ("http://[::1]:8000/", "::1", 8000, "[::1]:8000", "/"),
        ("https://bücher.test/ü", "xn--bcher-kva.test", 443, "xn--bcher-kva.test", "/%C3%BC"),
        ("http://a.test:80/a/%2e%2e/b%2Fc", "a.test", 80, "a.test", "/b%2Fc"),
        ("http://u:p@a.test./", "a.test.", 80, "a.test", "/"),
    ],
)
def test_the_parts_of_a_url(url: str, host: str, port: int, authority: str, resource: str) -> None:
    """As browsers understand it."""
    target = parse_target(url)
    parts = (target.host, target.port, target.authority)
    assert (host, port, authority) == parts
    assert resource == target.resource


def test_the_user_of_a_url_becomes_an_authorization() -> None:
    """Beside a header Authorization it is refused."""
    assert b"Authorization: Basic dTpwIHc=" in lines(get_request("http://u:p%20w@a.test/").data)
    with pytest.raises(InvalidRequestError):
        get_request("http://u:p@a.test/", headers={"authorization": "Bearer x"})


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a.test",
        "/x",
        "ftp://a.test/",
        "http://",
        "http:///x",
        "http://a.test:99999/",
        "http://[::1/",
        "http://a:b:c@/",
    ],
)
def test_a_url_that_cannot_be_called_is_refused_without_quoting_it(url: str) -> None:
    """It may contain secrets."""
    with pytest.raises(InvalidRequestError) as caught:
        parse_target(url)
    assert not url or url not in str(caught.value)


@pytest.mark.parametrize(
    "headers",
    [
        {"A": "b\r\nC: d"},
        {"A": "b\nC: d"},
        {"A": "b\rC: d"},
        {"A": "b\x00"},
        {"A": "\x7f"},
        {"A": "\ud800"},
        {"A\r\nB": "c"},
        {"A: b\r\nC": "d"},
        {"A:": "b"},
        {"A B": "c"},
        {"": "b"},
        {"": "b", "A": "c"},
        {"Ä": "b"},
        {"Content-Length": "5"},
        {"transfer-encoding": "chunked"},
    ],
)
def test_headers_that_could_be_read_as_something_else_are_refused(headers: dict[str, str]) -> None:
    """Another header, another body, another request."""
    with pytest.raises(InvalidRequestError):
        get_request("http://a.test/", headers=headers)


@pytest.mark.parametrize("method", ["", "GET /x HTTP/1.1\r\nA:", "G T", "GÄT", "GET\n"])
def test_a_method_is_a_word(method: str) -> None:
    """Nothing can follow it in its line."""
    with pytest.raises(InvalidRequestError):
        get_request("http://a.test/", method)


@examples(150)
@given(st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=4), st.binary(max_size=20))
def test_any_headers_are_refused_or_arrive_as_lines_of_their_own(headers: dict[str, str], body: bytes) -> None:
    """The head has one line for each, and the body follows it."""
    folded = {name.lower(): value for name, value in headers.items()}
    try:
        request = build_request("POST", "http://a.test/", CIMultiDict(folded), body)
    except InvalidRequestError:
        return
    head, _, rest = request.data.partition(b"\r\n\r\n")
    assert body == rest
    given_lines = {f"{name}: {value}".encode() for name, value in folded.items()}
    assert given_lines <= set(head.split(b"\r\n"))
    usual = {"accept", "accept-encoding", "user-agent", "host"} - folded.keys()
    has_type = bool(body) and "content-type" not in folded
    assert 2 + len(folded) + len(usual) + has_type == len(head.split(b"\r\n"))
