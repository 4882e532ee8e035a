"""Responses of raw bytes: valid, odd and hostile ones, by families. Names are unique."""

import gzip
import zlib
from collections.abc import Iterator

import msgspec

CAP = 64 * 1024
BOMB_BYTES = 4 * 1024 * 1024
TWO = b"Content-Length: 2\r\n\r\nhi"
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


class Case(msgspec.Struct, frozen=True):
    """A response as it is sent, and what the server does then."""

    name: str
    data: bytes
    method: str = "GET"
    # The server closes the connection after the data; otherwise it waits for the client to do so.
    closes: bool = True
    # It sends the data in pieces of this many bytes, each in a packet of its own; 0: all at once.
    piece_bytes: int = 0
    # It repeats these bytes without end after the data.
    repeated: bytes = b""
    # No response is expected: the test waits for a short time only.
    is_endless: bool = False


def cases() -> list[Case]:
    """Return all cases."""
    families = (
        *(status_lines(), statuses(), lengths(), chunks(), transfer_encodings(), connections(), headers()),
        *(codings(), interim_responses(), bodies(), closed_early(), head_requests(), endless_responses()),
    )
    return [case for family in families for case in family]


def status_lines() -> Iterator[Case]:
    """The first line, and what comes before it."""
    lines = [
        *(b"HTTP/1.1 200 OK", b"HTTP/1.1 200 ", b"HTTP/1.1 200", b"HTTP/1.0 200 OK", b"http/1.1 200 OK"),
        *(b"HTTP/1.1  200 OK", b"HTTP/1.1 200  OK", b"HTTP/1.1\t200 OK", b" HTTP/1.1 200 OK", b"HTTP/1.1 200\tOK"),
        *(b"HTTP/1.1 20 OK", b"HTTP/1.1 2000 OK", b"HTTP/1.1 +20 OK", b"HTTP/1.1 2O0 OK", b"HTTP/1.1 -200 OK"),
        *(b"HTTP/1.1 000 OK", b"HTTP/1.1 099 OK", b"HTTP/1.1 600 OK", b"HTTP/1.1 999 OK", b"HTTP/1.1 OK"),
        *(b"HTTP/1.1 200 " + b"x" * 8_000, b"HTTP/1.1 200 " + b"x" * 100_000, b"HTTP/1.1 200 O\x00K"),
        *(b"HTTP/1.1 200 \xff\xfe", "HTTP/1.1 200 größe".encode(), b"HTTP/1.1 200 O\x01K", b"HTTP/1.1 200 OK\r"),
        *(b"HTTP/1.2 200 OK", b"HTTP/2 200 OK", b"HTTP/2.0 200 OK", b"HTTP/3.0 200 OK", b"HTTP/0.9 200 OK"),
        *(b"HTTP/1. 200 OK", b"HTTP/11.1 200 OK", b"HTTP/1.1.1 200 OK", b"HTTP/1.10 200 OK", b"HTP/1.1 200 OK"),
        *(b"HTTP/a.b 200 OK", b"HTTP 200 OK", b"ICY 200 OK", b"RTSP/1.0 200 OK", b"SSH-2.0-OpenSSH_9.2"),
        *(b"220 mail.example ESMTP", b"GET / HTTP/1.1", b"\x15\x03\x01\x00\x02\x02\x28", b'{"status": 200}', b"\x00"),
        *(b"\r\nHTTP/1.1 200 OK", b"\r\n\r\nHTTP/1.1 200 OK", b"\nHTTP/1.1 200 OK", b"\xef\xbb\xbfHTTP/1.1 200 OK"),
        *(b"HTTP/1.1 200 OK\x0b", b"<html>", b"+PONG", b"-ERR unknown command", b"HTTP/1.1 200 OK HTTP/1.1"),
    ]
    for line in lines:
        yield Case(f"status line {line[:40]!r} of {len(line)}", line + b"\r\n" + TWO)


def statuses() -> Iterator[Case]:
    """Statuses with a body; two of them never have one."""
    for status in (
        *(200, 201, 202, 203, 204, 205, 206, 226, 300, 301, 302, 303, 304, 305, 307, 308),
        *(400, 401, 403, 404, 405, 408, 410, 413, 418, 421, 425, 429, 431, 451, 500, 501, 502, 503, 504, 511, 599),
    ):
        yield Case(f"status {status}", b"HTTP/1.1 %d X\r\nLocation: http://127.0.0.1:1/\r\n" % status + TWO)
    for status in (204, 304):
        yield Case(f"status {status} without a length", b"HTTP/1.1 %d X\r\n\r\n" % status, closes=False)


def lengths() -> Iterator[Case]:
    """Content-Length: odd, wrong and doubled."""
    for value in (
        *(b"0", b"2", b"02", b"0002", b"2 ", b"2\t", b" \t 2", b"+2", b"-2", b"-0", b"2.0", b"2,2", b"2, 2", b"2,3"),
        *(b"0x2", b"2a", b"a2", b"", b" ", b"2 2", b"1e1", b'"2"', b"99999999999999999999", b"18446744073709551615"),
        *(b"18446744073709551616", b"9223372036854775807", b"\xef\xbc\x92", b"2;", b"2\x00", b"1_0", b"2\x0b"),
    ):
        yield Case(f"length {value!r}", OK + b"Content-Length: " + value + b"\r\n\r\nhi")
    yield Case("two equal lengths", OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi")
    yield Case("two different lengths", OK + b"Content-Length: 2\r\nContent-Length: 1\r\n\r\nhi")
    yield Case("two lengths in another case", OK + b"Content-Length: 1\r\ncontent-length: 2\r\n\r\nhi")
    yield Case("a length with a blank before the colon", OK + b"Content-Length : 2\r\n\r\nhi")
    yield Case("a length in upper case", OK + b"CONTENT-LENGTH:2\r\n\r\nhi")
    yield Case("a length with an underscore", OK + b"Content_Length: 1\r\n\r\nhi")
    yield Case("a length that is folded", OK + b"Content-Length:\r\n 2\r\n\r\nhi")
    yield Case("a body that is shorter than its length", OK + b"Content-Length: 5\r\n\r\nhi")
    yield Case("a body that is longer than its length", OK + b"Content-Length: 1\r\n\r\nhi")
    yield Case("a second response after the first", OK + TWO + OK + TWO)
    yield Case("no body of the announced one", OK + b"Content-Length: 2\r\n\r\n")


def chunks() -> Iterator[Case]:
    """Chunked bodies: valid, odd, broken, and with trailers."""
    for name, body in {
        "one": b"2\r\nhi\r\n" + LAST,
        "two": b"1\r\nh\r\n1\r\ni\r\n" + LAST,
        "none": LAST,
        "upper case": b"A\r\n0123456789\r\n" + LAST,
        "lower case": b"a\r\n0123456789\r\n" + LAST,
        "leading zeros": b"0002\r\nhi\r\n" + LAST,
        "many leading zeros": b"0" * 40 + b"2\r\nhi\r\n" + LAST,
        "last of many zeros": b"2\r\nhi\r\n0000\r\n\r\n",
        "an extension": b"2;a=b\r\nhi\r\n" + LAST,
        "an extension without a value": b"2;a\r\nhi\r\n" + LAST,
        "an empty extension": b"2;\r\nhi\r\n" + LAST,
        "a quoted extension": b'2;a="b;c"\r\nhi\r\n' + LAST,
        "an extension after a blank": b"2 ;a=b\r\nhi\r\n" + LAST,
        "a long extension": b"2;a=" + b"x" * 20_000 + b"\r\nhi\r\n" + LAST,
        "an extension with LF": b"2;a=b\nhi\r\n" + LAST,
        "an extension with NUL": b"2;a=\x00\r\nhi\r\n" + LAST,
        "a blank after the size": b"2 \r\nhi\r\n" + LAST,
        "blanks after the size": b"2     \r\nhi\r\n" + LAST,
        "a tab after the size": b"2\t\r\nhi\r\n" + LAST,
        "a blank before the size": b" 2\r\nhi\r\n" + LAST,
        "a prefix 0x": b"0x2\r\nhi\r\n" + LAST,
        "a plus": b"+2\r\nhi\r\n" + LAST,
        "a minus": b"-2\r\nhi\r\n" + LAST,
        "no hexadecimal": b"g\r\nhi\r\n" + LAST,
        "an empty size": b"\r\nhi\r\n" + LAST,
        "a size with an underscore": b"0_2\r\nhi\r\n" + LAST,
        "the largest size": b"FFFFFFFFFFFFFFFF\r\nhi\r\n" + LAST,
        "a size that overflows": b"10000000000000002\r\nhi\r\n" + LAST,
        "a size of many digits": b"F" * 200 + b"\r\nhi\r\n" + LAST,
        "LF after the size": b"2\nhi\r\n" + LAST,
        "LF after the data": b"2\r\nhi\n" + LAST,
        "LF everywhere": b"2\nhi\n0\n\n",
        "CR after the size": b"2\rhi\r\n" + LAST,
        "no end after the data": b"2\r\nhi" + LAST,
        "more data than the size": b"2\r\nhiho\r\n" + LAST,
        "less data than the size": b"4\r\nhi\r\n" + LAST,
        "line ends in the data": b"6\r\nh\r\ni\r\n\r\n" + LAST,
        "no last chunk": b"2\r\nhi\r\n",
        "half a last chunk": b"2\r\nhi\r\n0\r\n",
        "half an end": b"2\r\nhi\r\n0\r\n\r",
        "a cut size": b"2\r\nhi\r\n1",
        "cut data": b"5\r\nhi",
        "a trailer": b"2\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n",
        "a folded trailer": b"2\r\nhi\r\n0\r\nX-Sum: 1\r\n 2\r\n\r\n",
        "a trailer without a colon": b"2\r\nhi\r\n0\r\nX-Sum\r\n\r\n",
        "a length as a trailer": b"2\r\nhi\r\n0\r\nContent-Length: 5\r\n\r\n",
        "a transfer encoding as a trailer": b"2\r\nhi\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "a status as a trailer": b"2\r\nhi\r\n0\r\nHTTP/1.1 500 X\r\n\r\n",
        "many trailers": b"2\r\nhi\r\n0\r\n" + b"X-Sum: 1\r\n" * 100 + b"\r\n",
        "a second response": b"2\r\nhi\r\n" + LAST + OK + TWO,
        "garbage after the end": b"2\r\nhi\r\n" + LAST + b"garbage",
        "chunks of one byte": b"1\r\nx\r\n" * 2_000 + LAST,
        "chunks of one byte beyond the cap": b"1\r\nx\r\n" * (CAP + 10) + LAST,
        "a chunk of the cap": b"10000\r\n" + b"x" * CAP + b"\r\n" + LAST,
        "a chunk beyond the cap": b"10001\r\n" + b"x" * (CAP + 1) + b"\r\n" + LAST,
    }.items():
        yield Case(f"chunks: {name}", CHUNKED + body)
    yield Case("chunks: one, kept open", CHUNKED + b"2\r\nhi\r\n" + LAST, closes=False)
    yield Case("chunks: byte by byte", CHUNKED + b"2;a=b\r\nhi\r\n0\r\nX: y\r\n\r\n", piece_bytes=1)


def transfer_encodings() -> Iterator[Case]:
    """Transfer-Encoding: odd values, several, and a length beside it."""
    body = b"\r\n\r\n2\r\nhi\r\n" + LAST
    for value in (
        *(
            b"chunked",
            b"Chunked",
            b"CHUNKED",
            b" chunked",
            b"chunked ",
            b"chunked\t",
            b"\tchunked",
            b"identity",
            b"gzip",
        ),
        *(b"gzip, chunked", b"chunked, gzip", b"chunked, chunked", b"chunked,", b",chunked", b"xchunked", b"chunkedx"),
        *(b"chunked;q=1", b"chu\x00nked", b"\x0bchunked", b'"chunked"', b"", b"chunked identity", b"trailers"),
    ):
        yield Case(f"transfer encoding {value!r}", OK + b"Transfer-Encoding: " + value + body)
    te, length = b"Transfer-Encoding: chunked\r\n", b"Content-Length: 2\r\n"
    yield Case("transfer encoding twice", OK + te + te[:-2] + body)
    yield Case("transfer encoding gzip, then chunked", OK + b"Transfer-Encoding: gzip\r\n" + te[:-2] + body)
    yield Case("transfer encoding chunked, then gzip", OK + te + b"Transfer-Encoding: gzip" + body)
    yield Case("transfer encoding and a length", OK + te + length[:-2] + body)
    yield Case("a length and transfer encoding", OK + length + te[:-2] + body)
    yield Case("transfer encoding with a blank before the colon", OK + b"Transfer-Encoding : chunked" + body)
    yield Case("transfer encoding, folded", OK + b"Transfer-Encoding:\r\n chunked" + body)
    yield Case("transfer encoding of HTTP/1.0", b"HTTP/1.0 200 OK\r\n" + te[:-2] + body)
    yield Case("transfer encoding of 204", b"HTTP/1.1 204 X\r\n" + te[:-2] + body)
    yield Case("transfer encoding of 304", b"HTTP/1.1 304 X\r\n" + te[:-2] + body)


def connections() -> Iterator[Case]:
    """Connection and Keep-Alive."""
    for value in (b"close", b"keep-alive", b"CLOSE", b"close, keep-alive", b"keep-alive, close", b"upgrade", b"", b"x"):
        yield Case(f"connection {value!r}", OK + b"Connection: " + value + b"\r\n" + TWO)
    for hint in (
        b"timeout=5",
        b"timeout=0",
        b"timeout=-1",
        b"timeout=999999999999",
        b"max=1",
        b"timeout=5, max=100",
        b"?",
    ):
        yield Case(f"keep alive {hint!r}", OK + b"Keep-Alive: " + hint + b"\r\n" + TWO)
    yield Case("HTTP/1.0 kept", b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + TWO, closes=False)
    yield Case("close without a length", OK + b"Connection: close\r\n\r\nhi")
    yield Case("kept without a length", OK + b"Connection: keep-alive\r\n\r\nhi")
    yield Case("an upgrade that was not asked for", OK + b"Connection: upgrade\r\nUpgrade: h2c\r\n" + TWO)
    yield Case("old websockets", OK + b"Sec-WebSocket-Key1: 1\r\n" + TWO)


def headers() -> Iterator[Case]:
    """The lines of a head."""
    for name, lines in {
        "folded": b"A: b\r\n c\r\n",
        "folded by a tab": b"A: b\r\n\tc\r\n",
        "folded twice": b"A: b\r\n c\r\n d\r\n",
        "folded to nothing": b"A:\r\n \r\n",
        "folded at the start": b" A: b\r\n",
        "no colon": b"A\r\n",
        "no name": b": b\r\n",
        "a blank in the name": b"A B: c\r\n",
        "a blank before the colon": b"A : b\r\n",
        "a tab before the colon": b"A\t: b\r\n",
        "brackets in the name": b"A[]: b\r\n",
        "NUL in the name": b"A\x00: b\r\n",
        "8 bits in the name": "Ä: b\r\n".encode(),
        "NUL in the value": b"A: b\x00c\r\n",
        "CR in the value": b"A: b\rc\r\n",
        "CR CR LF": b"A: b\r\r\n",
        "LF CR": b"A: b\n\rB: c\r\n",
        "LF": b"A: b\nB: c\n",
        "control characters in the value": b"A: \x01\x02\x1f\r\n",
        "DEL in the value": b"A: \x7f\r\n",
        "8 bits in the value": b"A: \xff\xfe\r\n",
        "UTF-8 in the value": "A: größe\r\n".encode(),
        "an empty value": b"A:\r\n",
        "a blank value": b"A:    \r\n",
        "blanks around the value": b"A: \t b \t \r\n",
        "a colon": b":\r\n",
        "colons": b"A: b: c: d\r\n",
        "the same twice": b"A: b\r\nA: c\r\n",
        "cookies": b"Set-Cookie: a=1; Path=/\r\nSet-Cookie: b=2\r\nSet-Cookie: \x01\r\n",
        "100": b"".join(b"X-%d: y\r\n" % number for number in range(100)),
        "200": b"".join(b"X-%d: y\r\n" % number for number in range(200)),
        "5000": b"".join(b"X-%d: y\r\n" % number for number in range(5_000)),
        "one of 8,000 bytes": b"A: " + b"x" * 8_000 + b"\r\n",
        "one of 9,000 bytes": b"A: " + b"x" * 9_000 + b"\r\n",
        "one of 70,000 bytes": b"A: " + b"x" * 70_000 + b"\r\n",
        "a name of 5,000 bytes": b"A" * 5_000 + b": b\r\n",
        "a name of 70,000 bytes": b"A" * 70_000 + b": b\r\n",
        "70,000 blanks": b"A:" + b" " * 70_000 + b"b\r\n",
        "10,000 folded lines": b"A: b\r\n" + b" c\r\n" * 10_000,
        "content type json": b"Content-Type: application/json\r\n",
        "a date and a server": b"Date: Wed, 18 Nov 2026 04:42:20 GMT\r\nServer: nginx\r\nVary: *\r\n",
        "a refresh": b"Refresh: 0; url=http://169.254.169.254/\r\n",
        "an alternative service": b'Alt-Svc: h3=":443"\r\n',
    }.items():
        yield Case(f"headers: {name}", OK + lines + TWO)
    yield Case("headers: LF only", b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi")
    yield Case("headers: CR only", b"HTTP/1.1 200 OK\rContent-Length: 2\r\rhi")
    yield Case("headers: an end of LF", OK + b"Content-Length: 2\r\n\nhi")
    yield Case("headers: an end of CR", OK + b"Content-Length: 2\r\n\rhi")
    yield Case("headers: none", OK + b"\r\n", closes=True)
    yield Case("headers: byte by byte", OK + b"A: b\r\n c\r\n" + TWO, piece_bytes=1)


def _content(coding: bytes, body: bytes) -> bytes:
    return OK + b"Content-Encoding: %s\r\nContent-Length: %d\r\n\r\n" % (coding, len(body)) + body


def codings() -> Iterator[Case]:
    """Compressed bodies, whole, broken, and larger than anybody wants."""
    text = b"hello, hello, hello" * 10
    packed, deflated = gzip.compress(text), zlib.compress(text)
    raw = zlib.compress(text, wbits=-15)
    bomb = gzip.compress(bytes(BOMB_BYTES))
    for name, coding, body in (
        ("gzip", b"gzip", packed),
        ("gzip in upper case", b"GZIP", packed),
        ("gzip with blanks", b"  gzip  ", packed),
        ("x-gzip", b"x-gzip", packed),
        ("gzip twice", b"gzip, gzip", gzip.compress(packed)),
        ("identity", b"identity", text),
        ("nothing", b"", text),
        ("unknown", b"rot13", text),
        ("br", b"br", text),
        ("zstd", b"zstd", text),
        ("deflate", b"deflate", deflated),
        ("deflate without the header of zlib", b"deflate", raw),
        ("gzip that is none", b"gzip", text),
        ("deflate that is none", b"deflate", b"\xff" * 40),
        ("deflate that is gzip", b"deflate", packed),
        ("gzip that is deflate", b"gzip", deflated),
        ("gzip, cut in its data", b"gzip", packed[:-12]),
        ("gzip, cut in its end", b"gzip", packed[:-4]),
        ("gzip, cut in its header", b"gzip", packed[:5]),
        ("deflate, cut", b"deflate", deflated[:-6]),
        ("deflate without a header, cut", b"deflate", raw[:-1]),
        ("gzip with a wrong sum", b"gzip", packed[:-8] + b"\x00\x00\x00\x00" + packed[-4:]),
        ("gzip with a wrong size", b"gzip", packed[:-4] + b"\x00\x00\x00\x01"),
        ("gzip and garbage", b"gzip", packed + b"garbage"),
        ("gzip and NULs", b"gzip", packed + bytes(20)),
        ("deflate and garbage", b"deflate", deflated + b"garbage"),
        ("gzip of two parts", b"gzip", packed + packed),
        ("deflate of two parts", b"deflate", deflated + deflated),
        ("gzip of 1,000 empty parts", b"gzip", gzip.compress(b"") * 1_000 + packed),
        ("gzip of 2,000 empty parts", b"gzip", gzip.compress(b"") * 2_000 + packed),
        ("gzip of nothing", b"gzip", b""),
        ("deflate of nothing", b"deflate", b""),
        ("gzip of an empty text", b"gzip", gzip.compress(b"")),
        ("a bomb of gzip", b"gzip", bomb),
        ("a bomb of deflate", b"deflate", zlib.compress(bytes(BOMB_BYTES))),
        ("a bomb in a bomb", b"gzip", gzip.compress(bomb)),
        ("a bomb that is cut", b"gzip", bomb[:-12]),
        ("gzip of the cap", b"gzip", gzip.compress(b"x" * CAP)),
        ("gzip beyond the cap", b"gzip", gzip.compress(b"x" * (CAP + 1))),
        ("gzip of parts beyond the cap", b"gzip", gzip.compress(b"x" * (CAP - 1)) + packed),
    ):
        yield Case(f"coding: {name}", _content(coding, body))
    chunked = OK + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in packed)
    yield Case("coding: gzip in chunks of one byte", chunked + pieces + LAST)
    yield Case("coding: gzip byte by byte", _content(b"gzip", packed), piece_bytes=1)
    yield Case("coding: deflate until the end", OK + b"Content-Encoding: deflate\r\n\r\n" + deflated)
    yield Case("coding: deflate until an early end", OK + b"Content-Encoding: deflate\r\n\r\n" + deflated[:-6])
    yield Case("coding: gzip until an early end", OK + b"Content-Encoding: gzip\r\n\r\n" + packed[:-12])
    yield Case("coding: gzip and deflate", OK + b"Content-Encoding: deflate\r\n" + _content(b"gzip", packed)[len(OK) :])
    yield Case("coding: gzip of 204", b"HTTP/1.1 204 X\r\nContent-Encoding: gzip\r\n\r\n", closes=False)


def interim_responses() -> Iterator[Case]:
    """Responses before the response."""
    last = OK + TWO
    for status in (100, 102, 103, 104, 150, 199):
        yield Case(f"interim {status}", b"HTTP/1.1 %d X\r\nLink: </a>\r\n\r\n" % status + last, closes=False)
    yield Case("interim: ten", b"HTTP/1.1 100 Continue\r\n\r\n" * 10 + last)
    yield Case("interim: different ones", b"HTTP/1.1 100 X\r\n\r\nHTTP/1.1 103 Y\r\nA: b\r\n\r\n" + last)
    yield Case("interim: a flood", b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000 + last)
    yield Case("interim: nothing after it", b"HTTP/1.1 100 Continue\r\n\r\n")
    yield Case("interim: cut", b"HTTP/1.1 100 Continue\r\n")
    yield Case("interim: with a length of 0", b"HTTP/1.1 100 X\r\nContent-Length: 0\r\n\r\n" + last)
    yield Case("interim: with a body", b"HTTP/1.1 100 X\r\n" + TWO + last)
    yield Case("interim: with chunks", b"HTTP/1.1 100 X\r\nTransfer-Encoding: chunked\r\n\r\n" + last)
    yield Case("interim: byte by byte", b"HTTP/1.1 100 X\r\n\r\n" + last, piece_bytes=1)
    yield Case("interim: close", b"HTTP/1.1 100 X\r\nConnection: close\r\n\r\n" + last)
    yield Case("interim: of HTTP/1.0", b"HTTP/1.0 100 X\r\n\r\n" + last)
    yield Case("switched protocols", b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
    yield Case("switched protocols and data", b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello")
    yield Case("switched protocols to nothing", b"HTTP/1.1 101 X\r\n\r\n")


def bodies() -> Iterator[Case]:
    """Bodies around the cap, with a length and until the end."""
    for size in (0, 1, 1_000, CAP - 1, CAP, CAP + 1, 300_000):
        body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        yield Case(f"a body of {size}", OK + b"Content-Length: %d\r\n\r\n" % size + body, closes=False)
        yield Case(f"a body of {size} until the end", OK + b"\r\n" + body)
    yield Case("a body in small packets", OK + b"Content-Length: 300\r\n\r\n" + b"x" * 300, piece_bytes=7)
    yield Case("a body of NULs", OK + b"Content-Length: 5\r\n\r\n\x00\x00\x00\x00\x00")
    yield Case("a body of HTTP", OK + b"Content-Length: %d\r\n\r\n" % len(OK + TWO) + OK + TWO)


def closed_early() -> Iterator[Case]:
    """A response that is cut at every seventh byte."""
    whole = OK + b"Content-Type: text/plain\r\nContent-Length: 10\r\n\r\n0123456789"
    for end in range(0, len(whole), 7):
        yield Case(f"cut after {end} bytes", whole[:end])


def head_requests() -> Iterator[Case]:
    """Responses to HEAD have no body, whatever they say."""
    for name, data in {
        "a length": OK + b"Content-Length: 1000\r\n\r\n",
        "no length": OK + b"\r\n",
        "chunks": CHUNKED,
        "a body": OK + TWO,
        "chunks with a body": CHUNKED + b"2\r\nhi\r\n" + LAST,
        "gzip": OK + b"Content-Encoding: gzip\r\nContent-Length: 100\r\n\r\n",
        "204": b"HTTP/1.1 204 X\r\n\r\n",
        "404": b"HTTP/1.1 404 X\r\nContent-Length: 9\r\n\r\n",
        "an interim response": b"HTTP/1.1 100 X\r\n\r\n" + OK + b"Content-Length: 9\r\n\r\n",
    }.items():
        yield Case(f"HEAD: {name}", data, method="HEAD", closes=False)
    yield Case("HEAD: cut", OK + b"Content-Len", method="HEAD")
    yield Case("HEAD: garbage", b"garbage\r\n\r\n", method="HEAD")


def endless_responses() -> Iterator[Case]:
    """Responses that do not end: some are bounded by what they send, the others by the time of the call."""
    yield Case("endless body", OK + b"Content-Length: 99999999\r\n\r\n", repeated=b"x" * 1_000)
    yield Case("endless body without a length", OK + b"\r\n", repeated=b"x" * 1_000)
    yield Case("endless chunks", CHUNKED, repeated=b"5\r\nhello\r\n")
    yield Case("endless headers", OK, repeated=b"X-More: 1\r\n")
    yield Case("endless header value", OK + b"A: ", repeated=b"x" * 100)
    yield Case("endless header name", OK, repeated=b"x" * 100)
    yield Case("endless status line", b"HTTP/1.1 200 ", repeated=b"x" * 100)
    yield Case("endless blanks in a header", OK + b"A:", repeated=b" " * 100)
    yield Case("endless folded lines", OK + b"A: b\r\n", repeated=b" c\r\n" * 10)
    yield Case("endless line ends", b"", repeated=b"\r\n" * 50)
    yield Case("endless interim responses", b"", repeated=b"HTTP/1.1 100 X\r\n\r\n")
    yield Case("endless extension of a chunk", CHUNKED + b"2;a=", repeated=b"x" * 1_000)
    yield Case("endless trailers", CHUNKED + b"2\r\nhi\r\n0\r\n", repeated=b"X-More: 1\r\n" * 50)
    yield Case("endless size of a chunk", CHUNKED, repeated=b"0" * 1_000)
    yield Case("endless empty parts of gzip", OK + b"Content-Encoding: gzip\r\n\r\n", repeated=gzip.compress(b"") * 20)
    yield Case("nothing at all", b"", closes=False, is_endless=True)
    yield Case("half a status line", b"HTTP/1.1 2", closes=False, is_endless=True)
    yield Case("half a head", OK + b"A: b\r\n", closes=False, is_endless=True)
    yield Case("no body yet", OK + b"Content-Length: 2\r\n\r\n", closes=False, is_endless=True)
    yield Case("half a body", OK + b"Content-Length: 9\r\n\r\nhi", closes=False, is_endless=True)
    yield Case("a body without an end", OK + b"\r\nhi", closes=False, is_endless=True)
    yield Case("half a chunk", CHUNKED + b"9\r\nhi", closes=False, is_endless=True)
    yield Case("an interim response only", b"HTTP/1.1 100 X\r\n\r\n", closes=False, is_endless=True)
