"""Objects by what people type: an id, the beginning of an id, a key or a name."""

import re
from collections.abc import Sequence
from typing import Any

from app.cli.output import printable
from app.client.connection import API, Connection, path_part
from app.client.errors import ApiError, ClientError, Exit

MOST_CANDIDATES = 10
MOST_FOUND = 100
# The search takes shorter texts for words. Among more schedules than these, few of them name one schedule.
MOST_COMPARED = 10_000
NOT_FOUND = 404
_SHORT_BEGINNING = re.compile(r"[0-9a-fA-F]{1,5}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}")


def is_uuid(text: str) -> bool:
    """Return whether a text is the whole id of a schedule or a run."""
    return bool(_UUID.fullmatch(text))


def find_schedule(connection: Connection, text: str) -> str:
    """Return the id of a schedule."""
    return text if is_uuid(text) else str(_find(connection, "schedule", text))


def find_workflow(connection: Connection, text: str) -> int:
    """Return the id of a workflow."""
    if text.isascii() and text.isdigit():
        return int(text)
    return int(_find(connection, "workflow", text))


def find_run(text: str) -> str:
    """Return the id of a run, or refuse what cannot be one."""
    if is_uuid(text):
        return text
    raise ClientError(
        f"There is no run '{printable(text)}'.", Exit.NOT_FOUND, hint="Give its id: `carillon run list` shows them."
    )


def _find(connection: Connection, noun: str, text: str) -> Any:
    """Return the id of the one object with this name, key or beginning of the id; raise an error if there are more."""
    if not text.strip():
        raise ClientError(f"The name of the {noun} is empty.", Exit.BAD_INPUT)
    found = connection.get("/search/", {"q": text, "limit": MOST_FOUND})["items"]
    items = [item for item in found if item["type"] == noun]
    named = [item for item in items if item["name"] == text]
    if not named:
        named = [item for item in items if item["match"] == "id"]
    if len(named) > 1:
        raise _ambiguous(noun, text, named)
    if named:
        return named[0]["id"]
    by_key = _by_key(connection, noun, text)
    if by_key is not None:
        return by_key
    beginning = _by_short_beginning(connection, text) if noun == "schedule" else []
    if len(beginning) > 1:
        raise _ambiguous(noun, text, beginning)
    if not beginning:
        raise _unknown(noun, text, items)
    return beginning[0]["id"]


def _by_short_beginning(connection: Connection, text: str) -> list[Any]:
    """Return the schedules whose ids begin with a few characters."""
    if not _SHORT_BEGINNING.fullmatch(text):
        return []
    pages = connection.pages("/schedules/", {"fields": "id,name,status"}, MOST_COMPARED)
    return [item for page in pages for item in page.items if item["id"].startswith(text.lower())]


def _by_key(connection: Connection, noun: str, key: str) -> Any:
    path = f"{API}/{noun}s/by-key/{path_part(key)}/"
    try:
        return connection.send("GET", path).json()["id"]
    except ApiError as error:
        if error.status in {NOT_FOUND, 422}:
            return None
        raise


def _ambiguous(noun: str, text: str, items: Sequence[Any]) -> ClientError:
    lines = [f"{item['id']}  {printable(item['name'])}  {item['status']}" for item in items[:MOST_CANDIDATES]]
    if len(items) > MOST_CANDIDATES:
        lines.append(f"and {len(items) - MOST_CANDIDATES} more")
    return ClientError(
        f"'{printable(text)}' fits {len(items)} {noun}s.", Exit.BAD_INPUT, lines=lines, hint="Give the id instead."
    )


def _unknown(noun: str, text: str, items: Sequence[Any]) -> ClientError:
    similar = ", ".join(dict.fromkeys(printable(item["name"]) for item in items[:MOST_CANDIDATES]))
    hint = f"Similar: {similar}." if similar else f"`carillon {noun} list` shows those that you may see."
    return ClientError(f"There is no {noun} '{printable(text)}'.", Exit.NOT_FOUND, hint=hint)
