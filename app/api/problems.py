"""The mapping of errors to responses: ``application/problem+json`` (RFC 9457) for every error."""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException
from msgspec import UNSET, UnsetType

from app.domain.access import Actor
from app.domain.errors import (
    CarillonError,
    ConflictError,
    FieldError,
    ForbiddenError,
    ForeignWorkflowError,
    InsufficientScopeError,
    InvalidError,
    LeaseExhaustedError,
    NotFoundError,
    PreconditionFailedError,
    QuotaExceededError,
    ShareUsedUpError,
    UnauthenticatedError,
    UnavailableError,
    WrongStateError,
)
from app.domain.idempotency import IdempotencyMismatchError, InProgressError
from app.observability.logs import LogThrottle
from app.persistence.database import unreachable_reason
from app.services.audit import AuditService
from app.services.identity_providers import ProviderUnavailableError
from app.services.validation import MalformedError

PROBLEM_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 2

log = structlog.get_logger(__name__)
_throttle = LogThrottle()

_STATUS: dict[type[CarillonError], HTTPStatus] = {
    MalformedError: HTTPStatus.BAD_REQUEST,
    WrongStateError: HTTPStatus.BAD_REQUEST,
    UnauthenticatedError: HTTPStatus.UNAUTHORIZED,
    ForbiddenError: HTTPStatus.FORBIDDEN,
    NotFoundError: HTTPStatus.NOT_FOUND,
    ConflictError: HTTPStatus.CONFLICT,
    PreconditionFailedError: HTTPStatus.PRECONDITION_FAILED,
    IdempotencyMismatchError: HTTPStatus.UNPROCESSABLE_ENTITY,
    InProgressError: HTTPStatus.CONFLICT,
    ForeignWorkflowError: HTTPStatus.CONFLICT,
    QuotaExceededError: HTTPStatus.CONFLICT,
    LeaseExhaustedError: HTTPStatus.CONFLICT,
    InvalidError: HTTPStatus.UNPROCESSABLE_ENTITY,
    ShareUsedUpError: HTTPStatus.TOO_MANY_REQUESTS,
    UnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    ProviderUnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
}
# Attributes of errors that a response shows as members of the problem.
_MEMBERS = ("workflow_owner", "limit", "used", "left", "extended_by")
_CODES = {
    HTTPStatus.BAD_REQUEST: "malformed",
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "too_large",
}


class Problem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An error. ``code`` is stable, ``detail`` is for people."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldError] = []
    workflow_owner: int | UnsetType = UNSET
    limit: int | UnsetType = UNSET
    used: int | UnsetType = UNSET
    left: dict[str, int | None] | UnsetType = UNSET
    extended_by: str | UnsetType = UNSET


class CrossSiteError(ForbiddenError):
    """A request with the cookie of a session may have been caused by a page of another site."""

    code = "cross_site"
    message = (
        "A call with the cookie of a session must come from a page of this server: `Sec-Fetch-Site: same-origin`, "
        "or an equal `Origin`."
    )
    not_json = "The body of a call with the cookie of a session must be JSON: send `Content-Type: application/json`."


class TooManyRequestsError(Exception):
    """A token or an address is over its rate limit."""

    message = "This token or address has sent too many requests. Retry after the seconds in `Retry-After`."

    def __init__(self, retry_after: int) -> None:
        """Store after how many seconds a request is accepted again."""
        self.retry_after = retry_after
        super().__init__()


def problem(status: HTTPStatus, code: str, detail: str, errors: Sequence[FieldError] = (), **members: Any) -> Problem:
    """Return the body of an error."""
    return Problem(
        type=f"urn:carillon:problem:{code}",
        title=status.phrase,
        status=status,
        detail=detail,
        code=code,
        errors=list(errors),
        **members,
    )


def problem_response(
    status: HTTPStatus,
    code: str,
    detail: str,
    errors: Sequence[FieldError] = (),
    headers: Mapping[str, str] | None = None,
    **members: Any,
) -> Response[Problem]:
    """Return the response for an error."""
    content = problem(status, code, detail, errors, **members)
    return Response(content, status_code=status, media_type=PROBLEM_TYPE, headers=dict(headers or {}))


def status_of(error: CarillonError) -> HTTPStatus:
    """Return the status of the response for an error that our own code raised."""
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), HTTPStatus.BAD_REQUEST)


def problem_of(error: CarillonError) -> Problem:
    """Return the body for an error that our own code raised."""
    errors = list(error.errors) if isinstance(error, InvalidError | ForeignWorkflowError) else []
    members = {name: vars(error)[name] for name in _MEMBERS if name in vars(error)}
    return problem(status_of(error), error.code, error.detail, errors, **members)


def on_refused(request: Request[Any, Any, Any], error: CarillonError) -> Response[Problem]:
    """Return the response for an error that our own code raised."""
    status = status_of(error)
    headers = {}
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, ForbiddenError):
        _count_denial(request, error)
    if isinstance(error, ShareUsedUpError | ProviderUnavailableError):
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    if isinstance(error, UnavailableError):
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
        if _throttle.should_log("request_unavailable"):
            log.warning("request_unavailable", error=unreachable_reason(error))
    return Response(problem_of(error), status_code=status, media_type=PROBLEM_TYPE, headers=headers)


def _count_denial(request: Request[Any, Any, Any], error: ForbiddenError) -> None:
    """Count for the audit log that a role, a token or a session did not reach far enough."""
    actor: Actor | None = request.scope.get("user")
    if actor is not None:
        audit: AuditService = request.app.state.audit
        if isinstance(error, InsufficientScopeError):
            audit.count_denial(actor, error.scope)
        else:
            audit.count_refused_call(actor, error.code)


def on_invalid_parameter(request: Request[Any, Any, Any], error: ValidationException) -> Response[Problem]:
    """Return the response for parameters of a path or query that Litestar refused."""
    reasons = error.extra if isinstance(error.extra, list) else []
    named = [(str(reason.get("key", "")), str(reason.get("message", ""))) for reason in reasons]
    errors = [FieldError(name, f"{_plain(message)}{_allowed_values(request, name)}") for name, message in named]
    return problem_response(HTTPStatus.UNPROCESSABLE_ENTITY, InvalidError.code, InvalidError.message, errors)


_KINDS = {"int": "an integer", "str": "a text", "uuid": "a UUID", "bool": "true or false"}
_BOUNDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
_WRONG_TYPE = re.compile(r"Expected `(\w+)[^`]*`, got `[^`]*`.*")
_OUT_OF_BOUNDS = re.compile(r"Expected `(\w+)[^`]*` (>=|<=|>|<) (\S+?)(?: - at .*)?")
_WRONG_LENGTH = re.compile(r"Expected `\w+[^`]*` of length (>=|<=|>|<) (\S+?)(?: - at .*)?")


def _plain(message: str) -> str:
    """Return the text of a parameter's error in words, without types and expressions of the code."""
    if match := _WRONG_TYPE.fullmatch(message):
        return f"Expected {_KINDS.get(match[1], 'another value')}."
    if match := _OUT_OF_BOUNDS.fullmatch(message):
        return f"Expected {_KINDS.get(match[1], 'a value')} of {_BOUNDS[match[2]]} {match[3]}."
    if match := _WRONG_LENGTH.fullmatch(message):
        return f"Expected {_BOUNDS[match[1]]} {match[2]} characters."
    if "matching regex" in message:
        return "The value has characters that are not allowed here."
    return "Expected a UUID." if message.startswith("Invalid UUID") else message.partition(" - at ")[0]


def _allowed_values(request: Request[Any, Any, Any], name: str) -> str:
    """Return the values that a parameter can have, as a sentence; empty unless it is an enum."""
    field = request.route_handler.parsed_fn_signature.parameters.get(name)
    kinds = () if field is None else (field.annotation, *(inner.annotation for inner in field.inner_types))
    values = [str(value) for kind in kinds if isinstance(kind, type) and issubclass(kind, StrEnum) for value in kind]
    return f". Allowed: {', '.join(filter(None, values))}." if values else ""


_DETAILS = {
    HTTPStatus.NOT_FOUND: "There is nothing at this path. `/schema` lists all calls.",
    HTTPStatus.METHOD_NOT_ALLOWED: "This path does not accept this method. The header `Allow` lists those it accepts.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is larger than the API accepts. Send less at once.",
}


def on_http_error(_request: Request[Any, Any, Any], error: HTTPException) -> Response[Problem]:
    """Return the response for what the framework refuses: an unknown path, a wrong method, a large body."""
    status = HTTPStatus(error.status_code)
    code = _CODES.get(status, "refused")
    # Where the framework only repeats the name of the status, say what to do.
    detail = _DETAILS.get(status, status.phrase) if error.detail in {"", status.phrase} else error.detail
    return problem_response(status, code, detail, headers=error.headers)


def on_too_many(_request: Request[Any, Any, Any], error: TooManyRequestsError) -> Response[Problem]:
    """Return the response for a request over a rate limit."""
    headers = {"Retry-After": str(error.retry_after)}
    return problem_response(HTTPStatus.TOO_MANY_REQUESTS, "too_many_requests", error.message, headers=headers)


def on_crash(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    """Return the response for a defect of ours: the traceback goes to the log, not to the client."""
    log.error("request_failed", method=request.method, path=request.url.path, exc_info=error)
    return problem_response(
        HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "An internal error occurred. The server's log has the details."
    )


HANDLERS: dict[int | type[Exception], Any] = {
    CarillonError: on_refused,
    ValidationException: on_invalid_parameter,
    HTTPException: on_http_error,
    TooManyRequestsError: on_too_many,
    Exception: on_crash,
}
