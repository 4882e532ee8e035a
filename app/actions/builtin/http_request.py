"""``core.http_request``: send an HTTP request with the event or with a configured body."""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType
from multidict import CIMultiDict
from yarl import URL

from app.actions.catalog import Action, ActionFailedError, Awaiting, Blocked, Waiting
from app.actions.context import ActionContext, NoIssuerError, PlainContext, RefusedError
from app.actions.http_client import Answer, CallFailedError, cannot_be_sent
from app.domain.field_errors import EXPECTED
from app.domain.http_urls import HttpUrl
from app.domain.permits import LimitName, LimitOfCall
from app.domain.trigger_event import Event, rfc3339
from app.http1.requests import InvalidRequestError, RequestHead, request_head

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
StatusCode = Annotated[int, msgspec.Meta(ge=100, le=599)]
HeaderName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,200}\Z",
        extra={EXPECTED: "1 to 200 letters, digits and characters that HTTP allows in the name of a header"},
    ),
]
HeaderValue = Annotated[
    str,
    msgspec.Meta(pattern=r"^[^\r\n\x00]*\Z", max_length=8000, extra={EXPECTED: "one line of at most 8000 characters"}),
]

CONNECTION_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect"}
)
# Methods that send no body unless one is configured.
BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
SHOWN_BODY_CHARACTERS = 200
AUTHORIZATION = "authorization"
MOST_BODY_BYTES = 1024 * 1024
STARTED = 202


class OidcAuth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Send a token that Carillon signs: the target needs no secret to verify it."""

    # The `aud` of the token: what the target expects, usually its own URL.
    audience: Annotated[
        str,
        msgspec.Meta(
            pattern=r"^[^\s\x00-\x1f\x7f]{1,500}\Z",
            extra={EXPECTED: "1 to 500 characters without blanks, usually the URL of the target"},
        ),
    ]


class Auth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the call proves to the target where it comes from."""

    oidc: OidcAuth


class HttpRequestConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """The request to send, and which response statuses count as success."""

    url: HttpUrl
    method: Method = "POST"
    headers: dict[HeaderName, HeaderValue] = msgspec.field(default_factory=dict)
    json: Any = UNSET
    body: str | UnsetType = UNSET
    # An empty list would make every response a failure.
    expect_status: StatusCode | Annotated[list[StatusCode], msgspec.Meta(min_length=1)] | None = None
    # The target answers 202 and reports the result later.
    await_callback: bool = False
    auth: Auth | UnsetType = UNSET
    # The name of a limit, or its name and the key of the bucket.
    limit: LimitName | LimitOfCall | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Refuse two bodies, two authorizations, a URL without a host, and headers that belong to the connection."""
        if self.json is not UNSET and self.body is not UNSET:
            raise ValueError("give either `json` or `body`, not both")
        if not URL(self.url).host:
            raise ValueError("the `url` has no host")
        reserved = sorted(name for name in self.headers if name.lower() in CONNECTION_HEADERS)
        if reserved:
            raise ValueError(f"the header {reserved[0]} cannot be set: remove it")
        if self.auth is not UNSET and any(name.lower() == AUTHORIZATION for name in self.headers):
            raise ValueError("give either `auth` or the header Authorization, not both")

    @cached_property
    def head(self) -> RequestHead:
        """Return the head of its requests. It is built once for all runs of a node without templates.

        Header names ignore case; the node's headers replace our Content-Type.
        """
        headers = CIMultiDict(self._content_type)
        headers.update(self.headers)
        return request_head(self.method, self.url, headers)

    @property
    def _content_type(self) -> dict[str, str]:
        if self.body is not UNSET:
            return {"Content-Type": "text/plain; charset=utf-8"}
        return {} if self.json is UNSET and self.method in BODILESS else {"Content-Type": "application/json"}

    def accepts(self, status: int) -> bool:
        """Return whether this response status means success."""
        if self.expect_status is None:
            return 200 <= status < 300  # noqa: PLR2004 - any 2xx
        return status in (self.expect_status if isinstance(self.expect_status, list) else [self.expect_status])


AnyContext = ActionContext | PlainContext


async def http_request(config: HttpRequestConfig, context: ActionContext) -> Any:
    """Send the request, within its limit and the owner's quota; fail unless the response has an expected status."""
    limit = _limit(config)
    if limit is None and not context.limit.has_quota:
        return await _send(config, context)
    try:
        if not await context.limit.enter(limit):
            return Waiting()
    except RefusedError as error:
        raise ActionFailedError(str(error)) from None
    result = None
    try:
        result = await _send(config, context)
    finally:
        # The target of a call that awaits its callback still works.
        if not isinstance(result, Awaiting):
            await context.limit.leave()
    return result


def _limit(config: HttpRequestConfig) -> LimitOfCall | None:
    if isinstance(config.limit, UnsetType):
        return None
    return LimitOfCall(config.limit) if isinstance(config.limit, str) else config.limit


async def _send(config: HttpRequestConfig, context: ActionContext) -> Any:
    body = _body(config, context)
    # Our run headers replace the node's.
    headers = _run_headers(context)
    if config.await_callback:
        headers |= await _callback_headers(context)
    if not isinstance(config.auth, UnsetType):
        try:
            headers["Authorization"] = await _bearer_token(config.auth, context)
        except NoIssuerError as error:
            return Blocked(str(error))
    context.require_lease()
    try:
        answer = await context.http.send(config.head, headers, body)
    except InvalidRequestError as error:
        raise ActionFailedError(str(cannot_be_sent(error))) from error
    except CallFailedError as error:
        raise ActionFailedError(str(error)) from error
    output = _output(answer)
    if config.await_callback:
        if answer.status == STARTED:
            return Awaiting(output)
        await context.callback.withdraw()
    if not config.accepts(answer.status):
        raise ActionFailedError(_refusal(config, answer, context))
    return output


def begin_http_request(
    config: HttpRequestConfig, context: PlainContext, on_end: Callable[[Any], None]
) -> Callable[[], None] | None:
    """Send the request on a kept connection, as ``http_request`` would, if no part of that has to wait."""
    if config.await_callback or not isinstance(config.auth, UnsetType):
        return None
    try:
        head, body = config.head, _body(config, context)
    except (InvalidRequestError, ActionFailedError):
        return None
    headers, answered = _run_headers(context), partial(_report, config, context, on_end)
    return context.caller.begin(head, headers, body, context.message_id, context.sender, answered)


def _report(
    config: HttpRequestConfig, context: PlainContext, on_end: Callable[[Any], None], answer: Answer | CallFailedError
) -> None:
    on_end(_result_of(config, context, answer))


def _result_of(config: HttpRequestConfig, context: AnyContext, answer: Answer | CallFailedError) -> Any:
    """Return the output that a response is, or the error."""
    if isinstance(answer, CallFailedError):
        return ActionFailedError(str(answer))
    try:
        is_accepted = config.accepts(answer.status)
        return _output(answer) if is_accepted else ActionFailedError(_refusal(config, answer, context))
    except Exception as error:  # noqa: BLE001 - it fails the run, and not the connection that called back
        return error


def _output(answer: Answer) -> dict[str, Any]:
    return {"status": answer.status, "body": answer.content(), "truncated": answer.truncated}


async def _callback_headers(context: ActionContext) -> dict[str, str]:
    invitation = await context.callback.invite()
    return {"X-Carillon-Callback-Url": invitation.url, "X-Carillon-Callback-Token": invitation.token}


async def _bearer_token(auth: Auth, context: ActionContext) -> str:
    token = await context.tokens.mint(auth.oidc.audience)
    # A target may send back what it received.
    context.secrets.hide(token)
    return f"Bearer {token}"


def _body(config: HttpRequestConfig, context: AnyContext) -> bytes:
    body = _encoded(config, context)
    if len(body) > MOST_BODY_BYTES:
        raise ActionFailedError(f"The body has {len(body)} bytes; at most {MOST_BODY_BYTES} are allowed.")
    return body


def _encoded(config: HttpRequestConfig, context: AnyContext) -> bytes:
    if not isinstance(config.body, UnsetType):
        return config.body.encode()
    if config.json is not UNSET:
        return msgspec.json.encode(config.json)
    if config.method in BODILESS:
        return b""
    if isinstance(context.event, Event):
        return context.event.encoded(context.attempt)
    event = {**context.event, "execution_id": str(context.execution_id), "attempt": context.attempt}
    return msgspec.json.encode(event)


def _run_headers(context: AnyContext) -> dict[str, str]:
    headers = {
        "Idempotency-Key": context.idempotency_key,
        "X-Carillon-Execution": str(context.execution_id),
        "X-Carillon-Slot": rfc3339(context.slot),
        "X-Carillon-Attempt": str(context.attempt),
    }
    if context.entity is None:
        headers["X-Carillon-Schedule"] = str(context.scheduled_job_id)
    else:
        headers["X-Carillon-Entity"] = quote(context.entity)
    return headers


def _refusal(config: HttpRequestConfig, answer: Answer, context: AnyContext) -> str:
    expected = config.expect_status if config.expect_status is not None else "2xx"
    # Redacted before it is cut: half a secret would not be recognised any more.
    text = context.hidden(answer.body.decode(errors="replace"))[:SHOWN_BODY_CHARACTERS]
    shown = f": {text}" if text else ""
    return f"{config.method} {_shown(config.url, context)} answered {answer.status}, expected {expected}{shown}"


def _shown(url: str, context: AnyContext) -> str:
    """Return a URL without its user, query and fragment; if secrets were filled in, only its origin."""
    shown = URL(url).with_user(None).with_query(None).with_fragment(None)
    return str(shown.origin() if context.was_shown_secrets else shown)


RESPONSE = {
    "title": "The response",
    "type": "object",
    "properties": {
        "status": {"type": "integer"},
        "body": {"description": "The body as JSON where it is JSON, else as text."},
        "truncated": {"type": "boolean"},
    },
    "required": ["status", "body", "truncated"],
}
CALLBACK = {"title": "With `await_callback`, the `output` that the target has reported"}

HTTP_REQUEST = Action(
    name="core.http_request",
    description="Send an HTTP request and check the status of the response.",
    config=HttpRequestConfig,
    handler=http_request,
    begin=begin_http_request,
    aliases=("core.http_ping",),
    secret_fields=("headers", "json", "body", "url"),
    needs_public_url=("auth",),
    takes_limit=True,
    title="HTTP request",
    category="HTTP",
    icon="globe",
    color="#1d4ed8",
    outputs={"anyOf": [RESPONSE, CALLBACK]},
)
