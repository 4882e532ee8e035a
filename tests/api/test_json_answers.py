"""Answers in JSON are those that Litestar's own responses would be."""

from typing import Any

import msgspec
import pytest
from litestar import Request, Response
from litestar.datastructures import Cookie

from app.api.json_answers import JsonAnswer


class View(msgspec.Struct):
    """What an answer shows."""

    name: str = "Glockenspiel ♪"


async def messages(response: Response[Any], **declared: Any) -> list[dict[str, Any]]:
    """What is sent for a response of a handler that declares this."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append({**message, "headers": sorted(message.get("headers", []))})

    request: Request[Any, Any, Any] = Request({"type": "http", "headers": []})  # type: ignore[arg-type]
    await response.to_asgi_response(None, request, **declared)(request.scope, request.receive, send)
    return sent


@pytest.mark.parametrize(
    ("content", "given", "declared"),
    [
        (View(), {}, {}),
        (msgspec.Raw(b'{"a":1}'), {"headers": {"ETag": '"1"'}}, {"headers": {"Cache-Control": "no-store"}}),
        ([View()], {"headers": {"Cache-Control": "private"}}, {"headers": {"Cache-Control": "no-store"}}),
        (View(), {"status_code": 202}, {"status_code": 201, "media_type": "application/json"}),
        (View(), {}, {"status_code": 201, "cookies": [Cookie("session", "secret")]}),
        (View(), {"media_type": "application/problem+json", "status_code": 409}, {}),
        ("text", {"media_type": "text/plain"}, {}),
        (b"bytes", {}, {"media_type": "application/json"}),
        (None, {"status_code": 304, "headers": {"ETag": '"1"'}}, {}),
        (None, {}, {"status_code": 204}),
    ],
)
async def test_an_answer_is_that_of_litestar(content: Any, given: dict[str, Any], declared: dict[str, Any]) -> None:
    """Status, headers and body, whether it is sent by ourselves or left to Litestar."""
    assert await messages(Response(content, **given), **declared) == await messages(
        JsonAnswer(content, **given), **declared
    )
