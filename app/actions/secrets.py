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

HIDDEN = "***"
# Shorter ones would be found in every text by chance.
LEAST_BYTES_TO_ENCODE = 4
# Escapes within escapes: a URL inside JSON inside a string.
MOST_ROUNDS = 3
# The longest spelling of one byte: "%25XX" twice escaped, or "\\u00XX".
LONGEST_ESCAPE = 9

_HEX = "[0-9a-fA-F]"
_CONTINUED = "%[89abAB]" + _HEX
# One match is one character: percent-encoded UTF-8, JSON's and Python's escapes, references of HTML, and bytes that
# are not UTF-8 (as ``surrogateescape`` leaves them).
_ESCAPE = re.compile(
    rf"%[fF][0-7](?:{_CONTINUED}){{3}}|%[eE]{_HEX}(?:{_CONTINUED}){{2}}|%[cdCD]{_HEX}{_CONTINUED}|%{_HEX}{{2}}"
    rf"|\\u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}|\\u{_HEX}{{4}}|\\x{_HEX}{{2}}|\\[\"'\\/bfnrt]"
    rf"|&\#[0-9]{{1,7}};|&\#[xX]{_HEX}{{1,6}};|&[a-zA-Z]{{2,31}};|[\udc80-\udcff]"
)
_BASE64_BEFORE = re.compile(r"[a-z0-9+/_-]{1,2}\Z")
_BASE64_AFTER = re.compile(r"[a-z0-9+/_-]{0,2}={0,2}")
_CONTROL = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class Redactor:
    """Takes some secrets out of JSON values."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """Blank ones cannot be hidden."""
        secrets = tuple(secrets)
        spellings = {spelling for secret in secrets for spelling in _spellings(secret)}
        self._spellings = sorted(spellings, key=len, reverse=True)
        self._in_base64 = {spelling for secret in secrets for spelling in _base64_spellings(secret)}

    @staticmethod
    def longest_spelling(secrets: Iterable[str]) -> int:
        """How many bytes the longest secret may take in its longest spelling."""
        return max((len(secret.encode(errors="surrogatepass")) for secret in secrets), default=0) * LONGEST_ESCAPE

    def hidden(self, value: Any) -> Any:
        """The same JSON value without the secrets; of one too deep to look through nothing is left."""
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
        """Where secrets are, in the text as it is and with its escapes taken away, layer by layer."""
        layers: list[_Unescaped] = []
        for _ in range(MOST_ROUNDS + 1):
            lower = _lower(text)
            for spelling in self._spellings:
                for start, stop in _found(lower, spelling):
                    span = _widened(lower, start, stop) if spelling in self._in_base64 else (start, stop)
                    yield _traced_back(*span, layers)
            if _ESCAPE.search(text) is None:
                return
            layers.append(_Unescaped(text))
            text = layers[-1].text


class _Unescaped:
    """A text without one layer of escapes, and where its characters were."""

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
        """Where the character at a position began."""
        index = bisect_right(self._new, position) - 1
        # Within an escape of several characters it is the escape that begins.
        is_escape = index % 2 == 1
        return self._old[index] if is_escape else self._old[index] + position - self._new[index]

    def end_of(self, position: int) -> int:
        """Where the character before a position ended."""
        index = bisect_right(self._new, position - 1) - 1
        if index % 2 == 1:
            return self._old[index + 1]
        return self._old[index] + position - self._new[index]


def _traced_back(start: int, stop: int, layers: list[_Unescaped]) -> tuple[int, int]:
    for layer in reversed(layers):
        start, stop = layer.start_of(start), layer.end_of(stop)
    return start, stop


def _widened(text: str, start: int, stop: int) -> tuple[int, int]:
    """With the characters of base64 around it that hold bits of its first and last bytes, and the padding."""
    before, after = _BASE64_BEFORE.search(text[max(0, start - 2) : start]), _BASE64_AFTER.match(text, stop)
    return start - (len(before[0]) if before else 0), after.end() if after else stop


def _found(text: str, wanted: str) -> Iterator[tuple[int, int]]:
    at = text.find(wanted)
    while at >= 0:
        yield at, at + len(wanted)
        at = text.find(wanted, at + 1)


def _lower(text: str) -> str:
    """In lower case, at the same length: one letter would become two."""
    return text.replace("\u0130", "I").lower()


def _spellings(secret: str) -> Iterator[str]:
    """What to look for, in lower case: itself, as a form sends it, in base64 at any place of a text, in hexadecimal."""
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
    """It in base64, in lower case, at each of the three places in which it may begin within a text."""
    raw = secret.strip().encode(errors="surrogatepass")
    if len(raw) < LEAST_BYTES_TO_ENCODE:
        return
    for before in range(3):
        encoded = b64encode(bytes(before) + raw).decode().rstrip("=")
        # Without the characters that hold bits of what stands before and after.
        core = encoded[(0, 2, 3)[before] : (before + len(raw)) * 8 // 6].lower()
        yield core
        yield core.replace("+", "-").replace("/", "_")


def _unescaped(secret: str) -> Iterator[str]:
    """What is left of a secret that has escapes itself where those of a text are taken away."""
    for _ in range(MOST_ROUNDS):
        if _ESCAPE.search(secret) is None:
            return
        secret = _Unescaped(secret).text
        if len(secret.strip()) >= LEAST_BYTES_TO_ENCODE:
            yield _lower(secret)


def _character(escape: str) -> str:
    """The character that an escape stands for; itself, if there is none."""
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

# Finds those of these secrets that there are for whoever the run acts for.
Find = Callable[[frozenset[str]], Awaitable[Mapping[str, Secret]]]


class SecretStore:
    """Secrets by name: from the environment, or from files in a folder, as Kubernetes mounts them."""

    def __init__(self, environ: Mapping[str, str], folder: str = "") -> None:
        """A blank folder means the environment alone."""
        self._environ = environ
        self._folder = Path(folder) if folder else None

    def find(self, name: str) -> EnvironmentSecret | None:
        """The secret of this name, with the hosts that it is meant for, if there is one."""
        value = None if name.endswith(HOSTS_SUFFIX) else self._get(name)
        if value is None:
            return None
        hosts = self._get(name + HOSTS_SUFFIX)
        listed = None if hosts is None else tuple(part.strip() for part in hosts.split(",") if part.strip())
        return EnvironmentSecret(value, listed)

    def _get(self, name: str) -> str | None:
        found = self._environ.get(ENV_PREFIX + name)
        if found is not None or self._folder is None or not _is_plain(name):
            return found
        path = self._folder / name
        try:
            return path.read_bytes()[:LARGEST_FILE_BYTES].decode().rstrip("\n")
        except (OSError, UnicodeDecodeError):
            return None


class RunSecrets:
    """The secrets of one run: what was shown to any of its nodes is hidden in all that the run leaves behind."""

    def __init__(self, find: Find, username: str, possible: Callable[[], frozenset[str]]) -> None:
        """Nothing is read until a node names one; ``possible`` are all that the nodes of the run name."""
        self._find = find
        self._username = username
        self._possible = possible
        self._hider: Redactor | None = None
        self._shown: dict[str, Secret] = {}

    async def show(self, names: frozenset[str]) -> list[Secret]:
        """These secrets, for a node; refused if one of them is not there."""
        found = await self._find(names)
        missing = sorted(names - found.keys())
        if missing:
            raise TemplateProblemError(f"There is no secret '{missing[0]}' for the user '{self._username}'.")
        self._remember(found.values())
        return list(found.values())

    async def foresee(self) -> list[Secret]:
        """All secrets that the run was or will be shown, as far as they are there; they are hidden from now on."""
        names = self._possible()
        if names:
            self._remember((await self._find(names)).values())
        return list(self._shown.values())

    def hidden(self, value: Any) -> Any:
        """The same JSON value without the secrets that were shown."""
        return value if self._hider is None else self._hider.hidden(value)

    def _remember(self, secrets: Iterable[Secret]) -> None:
        self._shown |= {secret.name: secret for secret in secrets}
        if self._shown:
            self._hider = Redactor(secret.value for secret in self._shown.values())


class BoundCaller:
    """The outgoing calls of a node that was shown secrets: to their allowed hosts only, with answers without them."""

    def __init__(
        self, caller: "HttpCaller | BoundCaller", secrets: Iterable[Secret], hidden: Callable[[Any], Any]
    ) -> None:
        """Call by this client."""
        self._caller = caller
        self._secrets = tuple(secrets)
        self._hidden = hidden

    async def call(self, method: str, url: str, *rest: Any, **options: Any) -> Answer:
        """One call and its answer, as ``HttpCaller.call`` makes it; nothing is sent to a host that is not allowed."""
        self._require_allowed(url)
        try:
            answer = await self._caller.call(method, url, *rest, **{**options, "hidden": self._hidden})
        except CallFailedError as error:
            raise CallFailedError(self._hidden(str(error))) from error
        return self._without_secrets(answer)

    def _require_allowed(self, url: str) -> None:
        try:
            host, port = URL(url).raw_host or "", URL(url).port
        except ValueError:
            raise CallFailedError("The URL cannot be read.") from None
        for secret in self._secrets:
            if not secret.may_go_to(host, port):
                raise CallFailedError(secret.refusal(self._hidden(host)))

    def _without_secrets(self, answer: Answer) -> Answer:
        """Hidden here, before any action can cut what came back and keep a part of a secret."""
        body = answer.body
        if answer.truncated:
            # What was cut off may have been the rest of a secret.
            body = body[: max(0, len(body) - Redactor.longest_spelling(secret.value for secret in self._secrets))]
        text = self._hidden(body.decode(errors="surrogateescape"))
        headers = {name: self._hidden(value) for name, value in answer.headers.items()}
        return Answer(answer.status, headers, text.encode(errors="surrogateescape"), answer.truncated)


def _is_plain(name: str) -> bool:
    """Whether a name cannot lead out of the folder."""
    return name.replace("_", "").replace("-", "").replace(".", "").isalnum() and not name.startswith(".")
