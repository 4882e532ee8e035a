"""Secrets of a run: looked up when a node names them, and redacted from everything that is stored or logged."""

import html
import re
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from yarl import URL

from app.actions.http_client import Answer, CallFailedError, HttpCaller
from app.actions.template_rules import TemplateProblemError
from app.domain.secrets import EnvironmentSecret, Secret
from app.http1.requests import RequestHead

HIDDEN = "***"
# Shorter secrets are not searched for in encoded form: they would be found in every text by chance.
LEAST_BYTES_TO_ENCODE = 4
# How many layers of escapes are removed: for example a URL inside JSON inside a string.
MOST_ROUNDS = 3
# The longest spelling of one byte: "%25XX" twice escaped, or "\\u00XX".
LONGEST_ESCAPE = 9

_HEX = "[0-9a-fA-F]"
_CONTINUED = "%[89abAB]" + _HEX
# One match is one character: percent-encoded UTF-8, escapes of JSON and Python, HTML references, and bytes that are
# not UTF-8 (as ``surrogateescape`` leaves them).
_ESCAPE = re.compile(
    rf"%[fF][0-7](?:{_CONTINUED}){{3}}|%[eE]{_HEX}(?:{_CONTINUED}){{2}}|%[cdCD]{_HEX}{_CONTINUED}|%{_HEX}{{2}}"
    rf"|\\u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}|\\u{_HEX}{{4}}|\\x{_HEX}{{2}}|\\[\"'\\/bfnrt]"
    rf"|&\#[0-9]{{1,7}};|&\#[xX]{_HEX}{{1,6}};|&[a-zA-Z]{{2,31}};|[\udc80-\udcff]"
)
_BASE64_BEFORE = re.compile(r"[a-z0-9+/_-]{1,2}\Z")
_BASE64_AFTER = re.compile(r"[a-z0-9+/_-]{0,2}={0,2}")
_CONTROL = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class Redactor:
    """Redacts secrets in JSON values, in all their usual spellings."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """Prepare the spellings of the secrets to look for; blank secrets are ignored."""
        secrets = tuple(secrets)
        spellings = {spelling for secret in secrets for spelling in _spellings(secret)}
        self._spellings = sorted(spellings, key=len, reverse=True)
        self._in_base64 = {spelling for secret in secrets for spelling in _base64_spellings(secret)}

    @staticmethod
    def longest_spelling(secrets: Iterable[str]) -> int:
        """Return how many bytes the longest secret may take in its longest spelling."""
        return max((len(secret.encode(errors="surrogatepass")) for secret in secrets), default=0) * LONGEST_ESCAPE

    def hidden(self, value: Any) -> Any:
        """Return a JSON value without the secrets; a value that is nested too deeply is redacted whole."""
        try:
            return self._hidden(value)
        except RecursionError:
            return HIDDEN

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._hidden_text(value)
        if isinstance(value, list | tuple):
            return [self._hidden(item) for item in value]
        if isinstance(value, dict):
            return {self._hidden(key): self._hidden(item) for key, item in value.items()}
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value if self._hidden_text(str(value)) == str(value) else HIDDEN
        return value

    def _hidden_text(self, text: str) -> str:
        spans = sorted(self._spans(text))
        if not spans:
            return text
        parts, end = [], 0
        for start, stop in spans:
            if start >= end:
                parts += [text[end:start], HIDDEN]
            end = max(end, stop)
        return "".join((*parts, text[end:]))

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where secrets are: in the text itself, and with its escapes removed layer by layer."""
        layers: list[_Unescaped] = []
        for _ in range(MOST_ROUNDS + 1):
            lower = _lower(text)
            for spelling in self._spellings:
                for start, stop in _occurrences(lower, spelling):
                    span = _widened(lower, start, stop) if spelling in self._in_base64 else (start, stop)
                    yield _traced_back(*span, layers)
            if _ESCAPE.search(text) is None:
                return
            layers.append(_Unescaped(text))
            text = layers[-1].text


class _Unescaped:
    """A text with one layer of escapes removed, and the original positions of its characters."""

    def __init__(self, text: str) -> None:
        parts: list[str] = []
        # From the i-th position of the new text on, characters are those from the i-th position of the old one on.
        self._new, self._old = [0], [0]
        end = length = 0
        for match in _ESCAPE.finditer(text):
            before, character = text[end : match.start()], _character(match.group())
            parts += [before, character]
            length += len(before)
            end = match.end()
            self._new += [length, length + len(character)]
            self._old += [match.start(), end]
            length += len(character)
        parts.append(text[end:])
        self.text = "".join(parts)

    def start_of(self, position: int) -> int:
        """Return where the character at a position begins in the original text."""
        index = bisect_right(self._new, position) - 1
        # A position inside an escape maps to the start of the escape.
        is_escape = index % 2 == 1
        return self._old[index] if is_escape else self._old[index] + position - self._new[index]

    def end_of(self, position: int) -> int:
        """Return where the character before a position ends in the original text."""
        index = bisect_right(self._new, position - 1) - 1
        if index % 2 == 1:
            return self._old[index + 1]
        return self._old[index] + position - self._new[index]


def _traced_back(start: int, stop: int, layers: list[_Unescaped]) -> tuple[int, int]:
    for layer in reversed(layers):
        start, stop = layer.start_of(start), layer.end_of(stop)
    return start, stop


def _widened(text: str, start: int, stop: int) -> tuple[int, int]:
    """Return a span with the base64 characters around it that hold bits of its first and last bytes, and padding."""
    before, after = _BASE64_BEFORE.search(text[max(0, start - 2) : start]), _BASE64_AFTER.match(text, stop)
    return start - (len(before[0]) if before else 0), after.end() if after else stop


def _occurrences(text: str, spelling: str) -> Iterator[tuple[int, int]]:
    start = text.find(spelling)
    while start >= 0:
        yield start, start + len(spelling)
        start = text.find(spelling, start + 1)


def _lower(text: str) -> str:
    """Return the text in lower case at the same length: U+0130 alone would become two characters."""
    return text.replace("\u0130", "I").lower()


def _spellings(secret: str) -> Iterator[str]:
    """Yield what to look for, in lower case: the secret itself, form-encoded, in base64 at any offset, and in hex."""
    whole = _lower(secret.strip())
    if not whole:
        return
    yield whole
    yield whole.replace(" ", "+")
    raw = secret.strip().encode(errors="surrogatepass")
    if len(raw) < LEAST_BYTES_TO_ENCODE:
        return
    yield from _unescaped(secret.strip())
    yield raw.hex()
    yield from _base64_spellings(secret)


def _base64_spellings(secret: str) -> Iterator[str]:
    """Yield the secret in base64, in lower case, at each of the three offsets at which it may begin in a text."""
    raw = secret.strip().encode(errors="surrogatepass")
    if len(raw) < LEAST_BYTES_TO_ENCODE:
        return
    for before in range(3):
        encoded = b64encode(bytes(before) + raw).decode().rstrip("=")
        # Without the characters that hold bits of neighbouring bytes.
        core = encoded[(0, 2, 3)[before] : (before + len(raw)) * 8 // 6].lower()
        yield core
        yield core.replace("+", "-").replace("/", "_")


def _unescaped(secret: str) -> Iterator[str]:
    """Yield what is left of a secret that itself contains escapes, once the escapes of a text are removed."""
    for _ in range(MOST_ROUNDS):
        if _ESCAPE.search(secret) is None:
            return
        secret = _Unescaped(secret).text
        if len(secret.strip()) >= LEAST_BYTES_TO_ENCODE:
            yield _lower(secret)


def _character(escape: str) -> str:
    """Return the character that an escape stands for, or the escape itself if it stands for none."""
    if escape[0] == "%":
        return bytes.fromhex(escape.replace("%", "")).decode(errors="replace")
    if escape[0] == "&":
        return html.unescape(escape)
    if escape[0] != "\\":
        return chr(ord(escape) - 0xDC00)
    if len(escape) == 2:  # noqa: PLR2004 - a backslash and a letter or sign
        return _CONTROL.get(escape[1], escape[1])
    codes = [int(code[1:], 16) for code in escape.split("\\")[1:]]
    if len(codes) == 1:
        return chr(codes[0])
    high, low = codes
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


__all__ = ["HIDDEN", "BoundCaller", "RunSecrets", "SecretStore"]

ENV_PREFIX = "CARILLON_SECRET_"
HOSTS_SUFFIX = "__HOSTS"
LARGEST_FILE_BYTES = 64 * 1024

# Returns those of the named secrets that exist for the user that the run acts for.
Find = Callable[[frozenset[str]], Awaitable[Mapping[str, Secret]]]


class SecretStore:
    """Secrets from the environment, or from files in a folder as Kubernetes mounts them."""

    def __init__(self, environ: Mapping[str, str], folder: str = "") -> None:
        """Without a folder, only the environment is read."""
        self._environ = environ
        self._folder = Path(folder) if folder else None

    def find(self, name: str) -> EnvironmentSecret | None:
        """Return the secret of this name with its allowed hosts, or None if there is none."""
        value = None if name.endswith(HOSTS_SUFFIX) else self._get(name)
        if value is None:
            return None
        hosts = self._get(name + HOSTS_SUFFIX)
        listed = None if hosts is None else tuple(part.strip() for part in hosts.split(",") if part.strip())
        return EnvironmentSecret(value, listed)

    def _get(self, name: str) -> str | None:
        value = self._environ.get(ENV_PREFIX + name)
        if value is not None or self._folder is None or not _is_plain(name):
            return value
        path = self._folder / name
        try:
            return path.read_bytes()[:LARGEST_FILE_BYTES].decode().rstrip("\n")
        except (OSError, UnicodeDecodeError):
            return None


class RunSecrets:
    """The secrets of one run: those that any node used are redacted in everything that the run stores or logs."""

    def __init__(self, find: Find, username: str, possible: Callable[[], frozenset[str]]) -> None:
        """Read nothing until a node names a secret; ``possible`` returns all names that the run's nodes use."""
        self._find = find
        self._username = username
        self._possible = possible
        self._hider: Redactor | None = None
        self._shown: dict[str, Secret] = {}
        self._others: list[str] = []

    async def show(self, names: frozenset[str]) -> list[Secret]:
        """Return these secrets for a node; raise ``TemplateProblemError`` if one of them does not exist."""
        secrets = await self._find(names)
        missing = sorted(names - secrets.keys())
        if missing:
            raise TemplateProblemError(f"There is no secret '{missing[0]}' for the user '{self._username}'.")
        self._remember(secrets.values())
        return list(secrets.values())

    async def foresee(self) -> list[Secret]:
        """Return all existing secrets that the run has used or may use; they are redacted from now on."""
        names = self._possible()
        if names:
            self._remember((await self._find(names)).values())
        return list(self._shown.values())

    def hidden(self, value: Any) -> Any:
        """Return a JSON value without the secrets that the run has used."""
        return value if self._hider is None else self._hider.hidden(value)

    def hide(self, value: str) -> None:
        """Redact one more value from now on: a token that was made for the run."""
        self._others.append(value)
        self._remember(())

    def _remember(self, secrets: Iterable[Secret]) -> None:
        self._shown |= {secret.name: secret for secret in secrets}
        if self._shown or self._others:
            self._hider = Redactor([*(secret.value for secret in self._shown.values()), *self._others])


class BoundCaller:
    """The HTTP client of a node with secrets: it calls only their allowed hosts, and redacts them in responses."""

    def __init__(
        self, caller: "HttpCaller | BoundCaller", secrets: Iterable[Secret], hidden: Callable[[Any], Any]
    ) -> None:
        """Make calls by ``caller``, and redact by ``hidden``."""
        self._caller = caller
        self._secrets = tuple(secrets)
        self._hidden = hidden

    async def call(self, method: str, url: str, *rest: Any, **options: Any) -> Answer:
        """Send a request as ``HttpCaller.call`` does; raise ``CallFailedError`` if the host is not allowed."""
        self._require_allowed(url)
        return await self._redacted(self._caller.call(method, url, *rest, **{**options, "hidden": self._hidden}))

    async def send(self, head: RequestHead, *rest: Any, **options: Any) -> Answer:
        """Send a request as ``HttpCaller.send`` does; raise ``CallFailedError`` if the host is not allowed."""
        self._require_allowed(head.url)
        return await self._redacted(self._caller.send(head, *rest, **{**options, "hidden": self._hidden}))

    async def _redacted(self, call: Awaitable[Answer]) -> Answer:
        try:
            answer = await call
        except CallFailedError as error:
            raise CallFailedError(self._hidden(str(error))) from error
        return self._without_secrets(answer)

    def _require_allowed(self, url: str) -> None:
        try:
            host, port = URL(url).raw_host or "", URL(url).port
        except ValueError:
            raise CallFailedError("The URL is not valid.") from None
        for secret in self._secrets:
            if not secret.may_go_to(host, port):
                raise CallFailedError(secret.refusal(self._hidden(host)))

    def _without_secrets(self, answer: Answer) -> Answer:
        """Redact a response before an action can cut it, because half a secret would not be recognised."""
        body = answer.body
        if answer.truncated:
            # The end may be the first part of a secret whose rest was cut off.
            body = body[: max(0, len(body) - Redactor.longest_spelling(secret.value for secret in self._secrets))]
        text = self._hidden(body.decode(errors="surrogateescape"))
        headers = {name: self._hidden(value) for name, value in answer.headers.items()}
        return Answer(answer.status, headers, text.encode(errors="surrogateescape"), answer.truncated)


def _is_plain(name: str) -> bool:
    """Return whether a name cannot lead out of the folder."""
    return name.replace("_", "").replace("-", "").replace(".", "").isalnum() and not name.startswith(".")
