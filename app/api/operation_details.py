"""What the OpenAPI document says of a call beside its signature: the headers that act on it, and who may make it."""

from typing import Any

from litestar.handlers import HTTPRouteHandler

from app.api.etags import IF_MATCH
from app.api.idempotency import holds_secret
from app.api.requests import ACTOR, RESTRICTABLE, required_scope

Json = dict[str, Any]

_TAG_EXAMPLE = '"5f0c2a9e"'
_HEADERS: dict[str, Json] = {
    "If-Match": {
        "description": "The `ETag` of the version that you know, or several of them. If the object has another one, "
        "the status is 412.",
        "schema": {"type": "string", "examples": [_TAG_EXAMPLE]},
    },
    "If-None-Match": {
        "description": "The `ETag` of the answer that you have. If it is still the same, the status is 304.",
        "schema": {"type": "string", "examples": [_TAG_EXAMPLE]},
    },
    "If-None-Match: *": {
        "description": "`*`: only create the object. If it exists, the status is 412.",
        "schema": {"type": "string", "examples": ["*"]},
    },
    "Idempotency-Key": {
        "description": "A name for this request. Sent again within 24 hours with the same body it gets the first "
        "answer again, with `Idempotency-Replayed: true`; with another body the status is 422.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[\x21-\x7e]+$"},
    },
}
ETAG_HEADER = {"ETag": {"description": "The version of the object.", "required": True, "schema": {"type": "string"}}}
REPLAYED_HEADER = {
    "Idempotency-Replayed": {
        "description": "`true` if this is the first answer to the same request again.",
        "schema": {"type": "string", "enum": ["true"]},
    }
}
PRECONDITION_FAILED, NOT_MODIFIED, CONFLICT = 412, 304, 409


class OperationDetails:
    """What acts on one call. ``has_tag`` says whether the object of its path has an ETag, ``shows_tag`` its answer."""

    def __init__(self, handler: HTTPRouteHandler, method: str, *, has_tag: bool, shows_tag: bool) -> None:
        self._handler = handler
        self._method = method
        self._has_actor = ACTOR in handler.parsed_fn_signature.parameters
        self.shows_tag = shows_tag
        self.takes_if_match = bool(handler.opt.get(IF_MATCH)) or (has_tag and method in {"PATCH", "PUT", "DELETE"})
        self.takes_key = method == "POST" and self._has_actor and not holds_secret(handler)
        self.may_be_known = shows_tag and method == "GET"

    @property
    def headers(self) -> list[Json]:
        """Return the headers of requests as parameters."""
        names = {
            "If-Match": self.takes_if_match,
            "If-None-Match": self.may_be_known,
            "If-None-Match: *": self.takes_if_match and self._method == "PUT",
            "Idempotency-Key": self.takes_key,
        }
        return [
            {"name": name.partition(":")[0], "in": "header", "required": False, **_HEADERS[name]}
            for name, is_taken in names.items()
            if is_taken
        ]

    @property
    def problems(self) -> set[int]:
        """Return the statuses of problems that the headers add."""
        added = {PRECONDITION_FAILED: self.takes_if_match, CONFLICT: self.takes_key}
        return {status for status, is_added in added.items() if is_added}

    def description(self, written: str | None, parameters: list[Json]) -> str:
        """Return who may make the call and how its headers act, after what was written about it."""
        names = {parameter["name"] for parameter in parameters}
        sentences = [written or ""]
        if self._has_actor:
            sentences.append(f"Needs the scope `{required_scope(self._handler)}`.")
            sentences.append("" if self._handler.opt.get(RESTRICTABLE) else "Restricted tokens cannot make this call.")
        elif not written:
            sentences.append("Needs no token.")
        if "cursor" in names:
            sentences.append("A page ends with `next_cursor`: pass it as `cursor` to get the next one.")
        if self.takes_if_match:
            sentences.append("With `If-Match`, a change on the basis of an old version is refused with 412.")
        if self.takes_key:
            sentences.append("With `Idempotency-Key`, it can be sent again safely.")
        return " ".join(filter(None, sentences))
