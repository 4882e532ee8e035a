"""The header ``Idempotency-Key``: a POST that is sent again gets the first answer again."""

from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Response
from litestar.connection import ASGIConnection
from litestar.types import Message
from litestar.types import Scope as AsgiScope

from app.api.handlers import once_for_each_handler
from app.domain.access import Actor
from app.domain.errors import FieldError, InvalidError
from app.domain.idempotency import StoredAnswer, hash_request, is_sound
from app.services.idempotency import Claim, IdempotencyService

HEADER = "idempotency-key"
REPLAYED = "Idempotency-Replayed"
_STATE_KEY = "idempotent_request"
# The headers of an answer that are given again.
_KEPT_HEADERS = (b"content-type", b"etag", b"location", b"cache-control")
_encode = msgspec.json.Encoder(order="deterministic").encode


class Replay(Exception):
    """The answer to a request is known already."""

    def __init__(self, answer: StoredAnswer) -> None:
        """Hold the answer."""
        super().__init__()
        self.answer = answer


class _Request(msgspec.Struct):
    """A request under a key, and its answer as far as it has been sent."""

    claim: Claim
    status: int = 0
    headers: dict[str, str] = {}
    body: bytes = b""


async def begin_idempotent(connection: ASGIConnection[Any, Any, Any, Any], actor: Actor, body: bytes) -> None:
    """Note a request with a key, or raise ``Replay`` if it was answered before."""
    key = connection.headers[HEADER]
    if not is_sound(key):
        raise InvalidError(FieldError("Idempotency-Key", "Expected 1 to 255 printable ASCII characters."))
    if holds_secret(connection.route_handler):
        message = "The answer to this call holds a secret, and is not stored. Send it without a key."
        raise InvalidError(FieldError("Idempotency-Key", message))
    service: IdempotencyService = connection.app.state.idempotency
    claim = Claim(actor.user_id, key)
    reach = _encode((actor.token_scope, actor.restriction))
    request_hash = hash_request(connection.url.path.rstrip("/").encode(), connection.scope["query_string"], body, reach)
    answer = await service.begin(claim, request_hash)
    if answer is not None:
        raise Replay(answer)
    connection.scope["state"][_STATE_KEY] = _Request(claim)


@once_for_each_handler
def holds_secret(handler: Any) -> bool:
    """Return whether the answer of a handler holds a token or a key, so that nothing on its way may store it."""
    controls = [one for one in handler.resolve_response_headers() if one.name.lower() == "cache-control"]
    return any("no-store" in (control.value or "") for control in controls)


def on_replay(_request: Any, replay: Replay) -> Response[bytes]:
    """Give the first answer again."""
    answer = replay.answer
    return Response(
        answer.body or b"",
        status_code=answer.status or HTTPStatus.OK,
        headers={**answer.headers, REPLAYED: "true"},
        media_type=answer.headers.get("content-type"),
    )


def is_idempotent(scope: AsgiScope) -> bool:
    """Return whether the answer to a request has to be kept."""
    return _STATE_KEY in scope["state"]


async def keep_answer(message: Message, scope: AsgiScope) -> None:
    """Store the answer to a request with a key before its last part is sent."""
    request: _Request = scope["state"][_STATE_KEY]
    if message["type"] == "http.response.start":
        request.status = message["status"]
        named = ((name.lower(), value) for name, value in message["headers"])
        request.headers = {name.decode(): value.decode("latin-1") for name, value in named if name in _KEPT_HEADERS}
    elif message["type"] == "http.response.body":
        request.body += message["body"]
        if not message["more_body"]:
            del scope["state"][_STATE_KEY]
            service: IdempotencyService = scope["litestar_app"].state.idempotency
            await service.finish(request.claim, request.status, request.headers, request.body)
