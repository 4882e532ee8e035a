"""Secrets that templates name: found when a node needs them, sent, and hidden in all that is kept."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from yarl import URL

from app.actions.http_client import Answer, CallFailedError, HttpCaller
from app.actions.secrets import HIDDEN, Hider
from app.actions.template_rules import TemplateProblemError
from app.domain.secrets import EnvironmentSecret, Secret

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
        self._hider: Hider | None = None
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
            self._hider = Hider(secret.value for secret in self._shown.values())


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
            body = body[: max(0, len(body) - Hider.longest_spelling(secret.value for secret in self._secrets))]
        text = self._hidden(body.decode(errors="surrogateescape"))
        headers = {name: self._hidden(value) for name, value in answer.headers.items()}
        return Answer(answer.status, headers, text.encode(errors="surrogateescape"), answer.truncated)


def _is_plain(name: str) -> bool:
    """Whether a name cannot lead out of the folder."""
    return name.replace("_", "").replace("-", "").replace(".", "").isalnum() and not name.startswith(".")
