"""The link that opens the console and logs in once: a one-time code in the fragment of its address."""

import json
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

ANSWER_SECONDS = 5.0
HTTP_CREATED = 201
CODES_PATH = "/api/v1/session/codes/"


class LinkRefused(Exception):
    """The server gave no code; the text says why."""


def console_url(base_url: str, code: str = "") -> str:
    """Return the address of the console. Browsers never send a fragment, so that the code is in no server's log."""
    return f"{base_url.rstrip('/')}/console/" + (f"#code={code}" if code else "")


def console_link(base_url: str, token: str, connect_to: str = "") -> str:
    """Return a link with a new code for the user of the token; ``connect_to`` is another address of the same server."""
    return console_url(base_url, _new_code(connect_to or base_url, token))


def _new_code(base_url: str, token: str) -> str:
    connection = _connection(base_url)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        connection.request("POST", urlsplit(base_url).path.rstrip("/") + CODES_PATH, "{}", headers)
        response = connection.getresponse()
        body = response.read()
    except (OSError, HTTPException, ValueError) as error:
        raise LinkRefused(f"{base_url} does not answer ({error})") from error
    finally:
        connection.close()
    if response.status != HTTP_CREATED:
        raise LinkRefused(f"{base_url} answers {response.status}: {_detail(body)}")
    return str(json.loads(body)["code"])


def _connection(base_url: str) -> HTTPConnection:
    parts = urlsplit(base_url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=ANSWER_SECONDS)


def _detail(body: bytes) -> str:
    """Return the explanation in a problem, or the beginning of what was sent instead."""
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")[:200]
