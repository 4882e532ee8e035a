"""Responses: bytes are parsed within bounds, and the result is the same however the bytes are split."""

import zlib

import httptools
import msgspec

# Everything before the body, interim responses (1xx) included.
MOST_HEAD_BYTES = 64 * 1024
# All bytes after the head, for each byte of the body that is kept; chunks of one byte take six.
MOST_BYTES_PER_KEPT_BYTE = 32
# A compressed body can consist of many compressed parts, one after another.
MOST_COMPRESSED_PARTS = 1024
# No other encoding was asked for. ``identity``, of old servers, is none: the body ends with the connection.
TRANSFER_ENCODINGS = frozenset({b"chunked", b"identity"})
CONTINUE, SWITCHING_PROTOCOLS, SUCCESS, NO_CONTENT, NOT_MODIFIED = 100, 101, 200, 204, 304


class ExchangeError(Exception):
    """A request got no complete and valid response."""

    code = "exchange_failed"


class InvalidResponseError(ExchangeError):
    """The response is not valid HTTP/1.1, or it exceeds a bound."""

    code = "invalid_response"


class IncompleteResponseError(ExchangeError):
    """The connection was closed before the response was complete."""

    code = "incomplete_response"


class Response(msgspec.Struct, frozen=True, gc=False):
    """A response; its names of headers are in lower case, and ``truncated`` says that the body was longer."""

    status: int
    headers: dict[str, str]
    body: bytes
    truncated: bool


class ResponseReader:
    """Parses one response. ``feed`` it until it returns the response, and ``end`` it if the connection ends before."""

    # The connection can be used again after this response.
    is_reusable = False
    _received_bytes = 0
    # Of the response, once its head is complete; interim responses do not count.
    _status = 0
    _ends_with_connection = False
    _inflater: "Inflater | None" = None
    _response: Response | None = None

    def __init__(self, *, is_head: bool, most_body_bytes: int) -> None:
        """``is_head``: the response is one to a HEAD request and has no body, whatever its headers say."""
        self._is_head = is_head
        self._most_body_bytes = most_body_bytes
        self._most_rest_bytes = most_body_bytes * MOST_BYTES_PER_KEPT_BYTE
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._parser = httptools.HttpResponseParser(self)
        # Old servers end lines with LF, fold headers and pad the sizes of chunks. None of that is ambiguous here.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    def feed(self, data: bytes) -> Response | None:
        """Parse the next bytes; return the response once it is complete."""
        while data and self._response is None:
            room = MOST_HEAD_BYTES + (self._most_rest_bytes if self._status else 0) - self._received_bytes
            if room <= 0:
                raise InvalidResponseError("it is too long")
            self._parse(data[:room])
            data = data[room:]
        return self._response

    def end(self) -> Response:
        """Return the response when the connection has ended; raise ``IncompleteResponseError`` if parts are missing."""
        if self._response is None:
            if not self._ends_with_connection:
                raise IncompleteResponseError
            self._require_complete_body()
            self._finish()
        return self._response  # type: ignore[return-value] # it is set by now

    def _parse(self, data: bytes) -> None:
        self._received_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.is_reusable = False
            if self._response is None:
                raise InvalidResponseError(str(error)) from error

    def on_message_begin(self) -> None:
        """Note that further bytes follow a complete response: they belong to no request."""
        self.is_reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; trailers are ignored."""
        if self._status:
            return
        if b"\x00" in value:
            raise InvalidResponseError("a header contains NUL")
        field = name.decode("latin-1").lower()
        if field == "transfer-encoding" and value.rstrip(b" ").lower() not in TRANSFER_ENCODINGS:
            raise InvalidResponseError("the transfer encoding is not known")
        self._headers[field] = value.decode(errors="replace").rstrip(" \t")

    def on_headers_complete(self) -> None:
        """Decide where the body ends and whether it is compressed."""
        status, headers = self._parser.get_status_code(), self._headers
        if status < CONTINUE:
            raise InvalidResponseError("the status is not valid")
        if status < SUCCESS and status != SWITCHING_PROTOCOLS:
            self._headers = {}
            return
        self._status = status
        if self._is_head or status == SWITCHING_PROTOCOLS:
            self._finish()
            return
        has_length = "content-length" in headers or headers.get("transfer-encoding", "").lower() == "chunked"
        self._ends_with_connection = not has_length and status not in {NO_CONTENT, NOT_MODIFIED}
        coding = headers.get("content-encoding")
        if coding is not None and coding.lower() in {"gzip", "deflate"}:
            self._inflater = Inflater(coding.lower())

    def on_body(self, data: bytes) -> None:
        """Add to the body, until it is longer than what is kept."""
        if self._response is not None:
            return
        if self._inflater is not None:
            data = self._inflater.inflate(data, self._most_body_bytes + 1 - len(self._body))
        self._body += data
        if len(self._body) > self._most_body_bytes:
            self._finish(truncated=True)

    def on_message_complete(self) -> None:
        """Finish, unless this was an interim response."""
        if self._status and self._response is None:
            self._require_complete_body()
            self._finish()
            self.is_reusable = self._parser.should_keep_alive()

    def _require_complete_body(self) -> None:
        if self._inflater is not None and not self._inflater.is_complete:
            raise InvalidResponseError("the compressed body is not complete")

    def _finish(self, *, truncated: bool = False) -> None:
        body = bytes(self._body[: self._most_body_bytes])
        self._response = Response(self._status, self._headers, body, truncated)


class Inflater:
    """Decompresses a body piece by piece, each within a bound."""

    def __init__(self, coding: str) -> None:
        """``coding`` is gzip or deflate; the latter with the header of zlib or, from wrong servers, without it."""
        self._coding = coding
        self._wbits = 16 + zlib.MAX_WBITS
        self._parts = 0
        self._stream: zlib._Decompress | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the data may end here. Of gzip a part is taken, too: many servers do not end it."""
        return self._coding == "gzip" or self._stream is None or self._stream.eof

    def inflate(self, data: bytes, most_bytes: int) -> bytes:
        """Return what comes out of the next bytes, at most so much of it; the rest is dropped."""
        inflated = b""
        while data and len(inflated) < most_bytes:
            if self._stream is None or self._stream.eof:
                self._stream = self._next_stream(data)
            try:
                inflated += self._stream.decompress(data, most_bytes - len(inflated))
            except zlib.error as error:
                raise InvalidResponseError("the body cannot be decompressed") from error
            data = self._stream.unused_data
        return inflated

    def _next_stream(self, data: bytes) -> "zlib._Decompress":
        self._parts += 1
        if self._parts > MOST_COMPRESSED_PARTS:
            raise InvalidResponseError("the body has too many compressed parts")
        if self._parts == 1 and self._coding == "deflate":
            has_header = data[0] & 0xF == zlib.DEFLATED
            self._wbits = zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS
        return zlib.decompressobj(self._wbits)
