"""Names for the completion of the shell: asked for once, and kept for some seconds."""

import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec

from app import clock

FRESH_SECONDS = 30.0
ANSWER_SECONDS = 1.0
MOST_NAMES = 500


def schedules(context: Any) -> list[str]:
    """Return the names of schedules that begin with what was typed."""
    return _names("schedules", context)


def workflows(context: Any) -> list[str]:
    """Return the names of workflows that begin with what was typed."""
    return _names("workflows", context)


def contexts(context: Any) -> list[str]:
    """Return the names of stored contexts."""
    from app.client.contexts import read_contexts

    return [name for name in read_contexts(os.environ).contexts if name.startswith(context.incomplete)]


def _names(kind: str, context: Any) -> list[str]:
    """Return names from the cache or from the server; none if the server does not answer quickly."""
    from app.client import connection as connecting
    from app.client.contexts import Asked, find_target

    target = find_target(Asked(), os.environ)
    cache = _cache_file(f"{target.url} {target.token} {kind}")
    names = _cached(cache)
    if names is None:
        connecting.CONNECT_SECONDS = connecting.ANSWER_SECONDS = ANSWER_SECONDS
        with connecting.Connection(target) as connection:
            params = {"limit": MOST_NAMES, "fields": "name" if kind == "schedules" else None}
            names = [item["name"] for item in connection.get(f"/{kind}/", params)["items"]]
        _store(cache, names)
    return [name for name in dict.fromkeys(names) if name.startswith(context.incomplete)]


def _cache_file(subject: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "").strip()
    folder = Path(base) if base else Path(os.environ.get("HOME") or "~").expanduser() / ".cache"
    return folder / "carillon" / f"names-{hashlib.sha256(subject.encode()).hexdigest()[:32]}.json"


def _cached(path: Path) -> list[str] | None:
    try:
        if clock.now().timestamp() - path.stat().st_mtime > FRESH_SECONDS:
            return None
        return msgspec.json.decode(path.read_bytes(), type=list[str])
    except (OSError, msgspec.DecodeError):
        return None


def _store(path: Path, names: list[str]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(names))
    path.chmod(0o600)
