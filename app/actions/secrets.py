"""Secrets that templates name: read when they are needed, never stored, never shown."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ENV_PREFIX = "CARILLON_SECRET_"
HIDDEN = "***"
LARGEST_FILE_BYTES = 64 * 1024


class SecretStore:
    """Secrets by name: from the environment, or from files in a folder, as Kubernetes mounts them."""

    def __init__(self, environ: Mapping[str, str], folder: str = "") -> None:
        """A blank folder means the environment alone."""
        self._environ = environ
        self._folder = Path(folder) if folder else None

    def get(self, name: str) -> str | None:
        """The secret of this name, if there is one."""
        found = self._environ.get(ENV_PREFIX + name)
        if found is not None or self._folder is None or not _is_plain(name):
            return found
        path = self._folder / name
        try:
            return path.read_bytes()[:LARGEST_FILE_BYTES].decode().rstrip("\n")
        except (OSError, UnicodeDecodeError):
            return None


class RevealedSecrets(Mapping[str, str]):
    """The secrets as one run sees them. It remembers which it has shown, so that they can be hidden again."""

    def __init__(self, store: SecretStore) -> None:
        """Nothing is read until it is asked for."""
        self._store = store
        self._shown: set[str] = set()

    def __getitem__(self, name: str) -> str:
        """A secret, or ``KeyError``."""
        found = self._store.get(name)
        if found is None:
            raise KeyError(name)
        if found:
            self._shown.add(found)
        return found

    def __iter__(self) -> Iterator[str]:
        """They cannot be listed."""
        return iter(())

    def __len__(self) -> int:
        """Nor counted."""
        return 0

    def hidden(self, value: Any) -> Any:
        """The same JSON value without the secrets that were shown."""
        if not self._shown:
            return value
        if isinstance(value, str):
            for secret in sorted(self._shown, key=len, reverse=True):
                value = value.replace(secret, HIDDEN)
            return value
        if isinstance(value, list):
            return [self.hidden(item) for item in value]
        if isinstance(value, dict):
            return {self.hidden(key): self.hidden(item) for key, item in value.items()}
        return value


def _is_plain(name: str) -> bool:
    """Whether a name cannot lead out of the folder."""
    return name.replace("_", "").replace("-", "").replace(".", "").isalnum() and not name.startswith(".")
