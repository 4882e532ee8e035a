"""A corpus of raw responses goes through our client and through aiohttp, and their verdicts are compared.

Where they differ, ``DIFFERENCES`` says what each makes of it and why ours is right. Covers app.http1.response.
"""

import asyncio
from collections import Counter

import aiohttp
import msgspec

from app.http1.connections import ConnectionPool, tls_context
from app.http1.response import IncompleteResponseError, InvalidResponseError
from tests.http1.corpus import CAP, Case, cases
from tests.support.raw_responses import RawServer, raw_server
from tests.support.requests import get_request

CASES = cases()
PATIENCE_SECONDS = 60.0
# For responses that never end.
SHORT_SECONDS = 1.0


class Verdict(msgspec.Struct, frozen=True):
    """What a client makes of a response: its status and body, or the kind of error."""

    kind: str
    status: int = 0
    body: bytes = b""
    truncated: bool = False

    def __str__(self) -> str:
        """The status and the size of the body, or the kind of error."""
        if self.kind != "ok":
            return self.kind
        return f"{self.status}, {len(self.body)} bytes{', cut' if self.truncated else ''}"


# By case: our verdict, aiohttp's, and why ours is right.
AFTER = "bytes after a complete response do not change it; the connection is not used again"
BYTES = "what counts is the size of the head, not the number of its headers or the length of one"
BOUNDED = "no response may take memory or time without bound"
STATUS_COUNTS = "the target has done its work; a body in a coding that was not asked for is kept as it came"
CODING = "no transfer encoding was asked for, so the body would be read wrongly"
DIFFERENCES: dict[str, tuple[str, str, str]] = {
    "status line b'HTTP/1.1 000 OK' of 15": ("invalid", "0, 2 bytes", "there is no status below 100"),
    "status line b'HTTP/1.1 099 OK' of 15": ("invalid", "99, 2 bytes", "there is no status below 100"),
    "status 204": ("204, 0 bytes", "invalid", AFTER),
    "status 304": ("304, 0 bytes", "invalid", AFTER),
    "length b'0'": ("200, 0 bytes", "invalid", AFTER),
    "a body that is longer than its length": ("200, 1 bytes", "invalid", AFTER),
    "chunks: garbage after the end": ("200, 2 bytes", "invalid", AFTER),
    "transfer encoding of 204": ("204, 0 bytes", "invalid", AFTER),
    "transfer encoding of 304": ("304, 0 bytes", "invalid", AFTER),
    "HEAD: a body": ("200, 0 bytes", "invalid", AFTER),
    "HEAD: chunks with a body": ("200, 0 bytes", "invalid", AFTER),
    "length b'18446744073709551615'": ("incomplete", "200, 0 bytes", "the largest length is a length, not none"),
    **{
        f"transfer encoding {value!r}": ("invalid", f"200, {size} bytes", CODING)
        for value, size in {
            b"gzip": 12,
            b"gzip, chunked": 2,
            b"chunked, gzip": 12,
            b"chunked, chunked": 2,
            b"chunked,": 12,
            b",chunked": 2,
            b"xchunked": 12,
            b"chunkedx": 12,
            b"chunked;q=1": 12,
            b"chunked\t": 12,
            b"\x0bchunked": 12,
            b'"chunked"': 12,
            b"": 12,
            b"chunked identity": 12,
            b"trailers": 12,
        }.items()
    },
    "transfer encoding gzip, then chunked": ("invalid", "200, 2 bytes", CODING),
    "transfer encoding chunked, then gzip": ("invalid", "200, 12 bytes", CODING),
    "old websockets": ("200, 2 bytes", "invalid", "a header that means nothing here is no error"),
    "headers: 200": ("200, 2 bytes", "invalid", BYTES),
    "headers: 5000": ("200, 2 bytes", "invalid", BYTES),
    "headers: one of 9,000 bytes": ("200, 2 bytes", "invalid", BYTES),
    "headers: 10,000 folded lines": ("200, 2 bytes", "invalid", BYTES),
    "headers: 70,000 blanks": ("invalid", "200, 2 bytes", BYTES),
    "coding: br": ("200, 190 bytes", "invalid", STATUS_COUNTS),
    "coding: zstd": ("200, 190 bytes", "invalid", STATUS_COUNTS),
    "interim: a flood": ("invalid", "200, 2 bytes", BOUNDED),
    "endless blanks in a header": ("invalid", "no end", BOUNDED),
    "endless line ends": ("invalid", "no end", BOUNDED),
    "endless interim responses": ("invalid", "no end", BOUNDED),
    "endless extension of a chunk": ("invalid", "no end", BOUNDED),
    "endless size of a chunk": ("invalid", "no end", BOUNDED),
}
UNBOUNDED = {name for name, verdicts in DIFFERENCES.items() if verdicts[1] == "no end"}


async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
    """Send the case whose number is the path of the request."""
    case = CASES[int(request.split(b" ", 2)[1].lstrip(b"/"))]
    size = case.piece_bytes or len(case.data) or 1
    for start in range(0, len(case.data), size):
        writer.write(case.data[start : start + size])
        await writer.drain()
        if case.piece_bytes:
            await asyncio.sleep(0)
    while case.repeated:
        writer.write(case.repeated * 20)
        await writer.drain()
    if case.closes:
        writer.close()


async def by_ours(pool: ConnectionPool, server: RawServer, number: int, case: Case) -> Verdict:
    """Ask for a case by our client."""
    try:
        async with asyncio.timeout(SHORT_SECONDS if case.is_endless else PATIENCE_SECONDS):
            response = await pool.send(
                get_request(f"{server.url}/{number}", case.method), [("127.0.0.1", server.port)], CAP
            )
    except InvalidResponseError:
        return Verdict("invalid")
    except IncompleteResponseError:
        return Verdict("incomplete")
    except OSError as error:
        return Verdict("no end" if isinstance(error, TimeoutError) else "lost")
    return Verdict("ok", response.status, response.body, response.truncated)


async def by_aiohttp(session: aiohttp.ClientSession, server: RawServer, number: int, case: Case) -> Verdict:
    """Ask for a case by aiohttp, which is told to read as much."""
    try:
        async with (
            asyncio.timeout(SHORT_SECONDS if case.is_endless or case.name in UNBOUNDED else PATIENCE_SECONDS),
            session.request(case.method, f"{server.url}/{number}", allow_redirects=False) as response,
        ):
            body = bytearray()
            while len(body) <= CAP and (chunk := await response.content.read(CAP + 1 - len(body))):
                body += chunk
            if len(body) > CAP:
                response.close()
    except TimeoutError:
        return Verdict("no end")
    except aiohttp.ClientResponseError:
        return Verdict("invalid")
    except aiohttp.ServerDisconnectedError:
        return Verdict("incomplete")
    except aiohttp.ClientPayloadError as error:
        return Verdict("incomplete" if "Not enough data" in f"{error} {error.__cause__}" else "invalid")
    except aiohttp.ClientOSError:
        return Verdict("lost")
    return Verdict("ok", response.status, bytes(body[:CAP]), len(body) > CAP)


async def test_both_clients_make_the_same_of_every_response() -> None:
    """Or the corpus says why they differ."""
    async with raw_server(answer) as server:
        pool = ConnectionPool(tls_context(), 1000)
        ours = await asyncio.gather(*(by_ours(pool, server, number, case) for number, case in enumerate(CASES)))
        await pool.close()
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
            theirs = await asyncio.gather(
                *(by_aiohttp(session, server, number, case) for number, case in enumerate(CASES))
            )
        async with asyncio.timeout(PATIENCE_SECONDS):
            await server.all_closed()
    differences = {
        case.name: (str(our), str(their)) for case, our, their in zip(CASES, ours, theirs, strict=True) if our != their
    }
    assert {name: verdicts[:2] for name, verdicts in DIFFERENCES.items()} == differences


def test_the_corpus_is_large_and_names_are_unique() -> None:
    """And every difference is one of a case."""
    names = Counter(case.name for case in CASES)
    assert [] == [name for name, count in names.items() if count > 1]
    assert len(names) > 200
    assert set() == DIFFERENCES.keys() - names.keys()
