"""Bytes of a response: whatever they are and however they are split, they become a response or a known error."""

import gzip
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http1.response import IncompleteResponseError, Inflater, InvalidResponseError, Response, ResponseReader
from tests.http1.corpus import CAP, Case, cases
from tests.support.hypothesis_examples import examples

# Those of the corpus that a test can repeat often.
CASES = [case for case in cases() if len(case.data) < 1_500]
OK = b"HTTP/1.1 200 OK\r\n"


def parse(pieces: Iterable[bytes], *, is_head: bool = False, cap: int = CAP) -> Response | str:
    """Return the response that these bytes are, if the connection ends after them, or the kind of error."""
    reader = ResponseReader(is_head=is_head, most_body_bytes=cap)
    try:
        for piece in pieces:
            if response := reader.feed(piece):
                return response
        return reader.end()
    except InvalidResponseError:
        return "invalid"
    except IncompleteResponseError:
        return "incomplete"


def split(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """Return data in pieces that begin at these places."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[begin:end] for begin, end in pairwise(places)]


cuts = st.lists(st.integers(0, 10_000), max_size=20)


@examples(150)
@given(st.sampled_from(CASES), cuts)
def test_the_splits_of_a_response_do_not_matter(case: Case, places: list[int]) -> None:
    """Packets end anywhere."""
    is_head = case.method == "HEAD"
    whole = parse([case.data], is_head=is_head)
    assert whole == parse(split(case.data, places), is_head=is_head)
    assert whole == parse((case.data[at : at + 1] for at in range(len(case.data))), is_head=is_head)


@examples(150)
@given(st.sampled_from(CASES), st.lists(st.tuples(st.integers(0, 10_000), st.binary(max_size=4)), max_size=5), cuts)
def test_damaged_responses_are_judged_the_same_however_they_are_split(
    case: Case, damages: list[tuple[int, bytes]], places: list[int]
) -> None:
    """And nothing but the two errors of responses is raised."""
    data = case.data
    for place, put in damages:
        at = place % (len(data) + 1)
        data = data[:at] + put + data[at + len(put) :]
    assert parse([data]) == parse(split(data, places))


@examples(150)
@given(
    st.sampled_from([b"", OK, OK + b"A: ", OK + b"\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\n"]), st.binary(), cuts
)
def test_any_bytes_are_a_response_or_an_error(start: bytes, rest: bytes, places: list[int]) -> None:
    """The same one however they are split."""
    assert parse([start + rest]) == parse(split(start + rest, places))


@examples(100)
@given(st.binary(max_size=300), st.integers(0, 300), cuts, st.sampled_from(["length", "chunks", "end", "gzip"]))
def test_a_body_arrives_as_it_was_sent_up_to_the_cap(body: bytes, cap: int, places: list[int], form: str) -> None:
    """With a length, in chunks, until the end of the connection, and compressed."""
    if form == "length":
        data = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
    elif form == "chunks":
        parts = [piece for piece in split(body, places) if piece]
        data = OK + b"Transfer-Encoding: chunked\r\n\r\n"
        data += b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in parts) + b"0\r\n\r\n"
    elif form == "gzip":
        packed = gzip.compress(body)
        data = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed
    else:
        data = OK + b"\r\n" + body
    response = parse(split(data, places), cap=cap)
    assert isinstance(response, Response)
    assert (200, body[:cap], len(body) > cap) == (response.status, response.body, response.truncated)


def test_names_of_headers_are_in_lower_case_and_the_last_of_several_counts() -> None:
    """Values have no blanks around them; bytes that are not UTF-8 are replaced."""
    head = b"X-One: 1 \t\r\nx-one: 2\r\nEmpty:\r\nFolded: a\r\n b\r\nOdd: \xff\r\nContent-Length: 0\r\n\r\n"
    response = parse([OK + head])
    assert isinstance(response, Response)
    assert {"x-one": "2", "empty": "", "folded": "a b", "odd": "\ufffd", "content-length": "0"} == response.headers


def test_headers_of_interim_responses_and_trailers_are_not_those_of_the_response() -> None:
    """They cannot change what was decided by the head."""
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Type: a/b\r\n\r\n"
    response = parse([early + OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nContent-Type: c/d\r\n\r\n"])
    assert isinstance(response, Response)
    assert ({"transfer-encoding": "chunked"}, b"hi") == (response.headers, response.body)


@pytest.mark.parametrize(
    ("data", "is_reusable"),
    [
        (OK + b"Content-Length: 2\r\n\r\nhi", True),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n", True),
        (OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nhi", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", False),
        (OK + b"Content-Length: 2\r\n\r\nhi, and more", False),
        (OK + b"Content-Length: 2\r\n\r\nhi" + OK, False),
        (OK + b"Content-Length: 99999\r\n\r\n" + b"x" * 99_999, False),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", False),
    ],
)
def test_a_connection_is_used_again_only_if_nothing_can_be_left_on_it(data: bytes, is_reusable: bool) -> None:
    """A second response that nobody asked for must not answer the next request."""
    reader = ResponseReader(is_head=False, most_body_bytes=CAP)
    assert reader.feed(data) is not None
    assert is_reusable == reader.is_reusable


def test_a_bomb_is_not_inflated_beyond_the_cap() -> None:
    """64 MiB of zeros are 64 KiB of gzip; no more than the cap of them is ever in memory."""
    packed = gzip.compress(bytes(2**26))
    assert 1000 == len(Inflater("gzip").inflate(packed, 1000))
    assert 1000 == len(Inflater("gzip").inflate(gzip.compress(b"x" * 900) * 3, 1000))
    data = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed
    response = parse([data])
    assert isinstance(response, Response)
    assert (CAP, True) == (len(response.body), response.truncated)
