"""The OpenAPI document, and the page that lists all calls and explains all fields.

Paths, parameters, summaries, tags and security come from Litestar. The schemas of bodies and responses are replaced by
msgspec's: Litestar's leave out forbidden fields and some bounds. What each field and parameter means is taken from
``app.api.field_descriptions``. What a signature cannot say stands in a handler's ``opt``:

- ``errors``: statuses of problems beside the usual ones;
- ``other_statuses``: statuses with the same response as the usual one;
- ``other_responses``: statuses with another response, by its type;
- ``other_media_types``: further types of content that ``Accept`` can ask for, each with the type that describes it;
- ``empty_statuses``: statuses without a body;
- ``body_schema``: the type that describes the body, where the handler reads it as a looser one;
- ``if_match``: whether the call obeys ``If-Match``, beside those that change or delete an object with an ETag.

Headers and descriptions come from ``app.api.operation_details``, examples from ``app.api.openapi_examples``.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from html import escape
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Litestar, MediaType, Response, Router
from litestar.datastructures import ResponseHeader
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.plugins import OpenAPIRenderPlugin

from app.api.etags import TAGGED
from app.api.field_descriptions import FIELDS, PARAMETERS, description_of
from app.api.openapi_examples import add_examples
from app.api.operation_details import ETAG_HEADER, NOT_MODIFIED, REPLAYED_HEADER, OperationDetails
from app.api.problems import PROBLEM_TYPE, Problem
from app.api.requests import MAY_BE_MISSING, AnyRequest
from app.services.inputs import Input

DESCRIPTION = "Recurring workflows over HTTP. Postgres decides, Redis rings the bell."
SECURITY_SCHEMES = {"bearer": {"type": "http", "scheme": "bearer"}}
# For the router whose calls need a token.
NEEDS_TOKEN: list[dict[str, list[str]]] = [{"bearer": []}]
PROBLEMS = {
    400: "The body is not valid JSON, or the object's state does not allow the operation.",
    401: "The bearer token is missing or not valid.",
    403: "The role, or the token in use, does not allow this.",
    404: "The object does not exist, or it is not yours.",
    409: "The request conflicts with another change, the workflow belongs to another user, or a quota is used up: "
    "see `code`.",
    412: "The object is not in the version that `If-Match` names, or it exists and `If-None-Match: *` forbids that.",
    413: "The body is too large.",
    422: "Some values are not valid; `errors` names each of them.",
    429: "This token or address has sent too many requests, or this user too many at once.",
    500: "An internal error occurred. The server's log has the details.",
    503: "The database cannot be reached, or the query took too long. Try again later.",
}
RETRY_AFTER = {"Retry-After": {"description": "In seconds.", "required": True, "schema": {"type": "integer"}}}
PROBLEM_HEADERS = {
    401: {"WWW-Authenticate": {"required": True, "schema": {"const": "Bearer"}}},
    429: RETRY_AFTER,
    503: RETRY_AFTER,
}
# Every call refuses parameters that it does not know.
QUERY_ERRORS = (422,)
# Problems of every call with a token, and those that a path and a body add.
COMMON_ERRORS = (401, 429, 503)
PATH_ERRORS = (404,)
BODY_ERRORS = (400, 413, 422)

Json = dict[str, Any]


@lru_cache(maxsize=1)
def document(app: Litestar) -> Json:
    """Return the whole document as JSON values."""
    schema: Json = app.openapi_schema.to_schema()
    operations = list(_operations(app, schema["paths"]))
    types = _described_types(call.handler for call in operations)
    described, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    refs = dict(zip(types, described, strict=True))
    _describe_fields(schemas)
    tagged = {call.path for call in operations if _response_type(call.handler) in TAGGED}
    for call in operations:
        _mend(call, call.path in tagged, refs)
        add_examples(call.operation, schemas)
    schema["paths"] = {_with_slash(path): item for path, item in schema["paths"].items()}
    schema["components"] = {
        "schemas": schemas,
        "responses": _problem_responses(refs[Problem]),
        "securitySchemes": SECURITY_SCHEMES,
    }
    return schema


# The option of a handler below /api/v1 that needs no token, unlike the others there.
NEEDS_NO_TOKEN = "needs_no_token"  # noqa: S105 - the name of an option


def operation_id(handler: HTTPRouteHandler, _method: Any, _path: Any) -> str:
    """Return the name of a call: its first tag and the name of its handler."""
    return f"{handler.resolve_tags()[0]}_{handler.handler_name}".replace(" ", "_")


def _describe_fields(schemas: Json) -> None:
    """Say of every field what it means; a description that its type has already, such as a bound, follows."""
    for component, schema in schemas.items():
        for field, described in schema.get("properties", {}).items():
            texts = (description_of(FIELDS, component, field), described.get("description"))
            described["description"] = " ".join(filter(None, texts))


class _Call(msgspec.Struct, frozen=True):
    """A call of the API: its path and method, its handler, and its part of the document."""

    path: str
    method: str
    handler: HTTPRouteHandler
    operation: Json


def _operations(app: Litestar, paths: Json) -> Iterator[_Call]:
    for route in app.routes:
        for handler in getattr(route, "route_handlers", ()):
            for method in handler.http_methods:
                operation = paths.get(route.path_format, {}).get(method.lower())
                if operation is not None:
                    yield _Call(route.path_format, method, handler, operation)


def _described_types(handlers: Iterable[HTTPRouteHandler]) -> list[Any]:
    types = [
        kind
        for handler in handlers
        for kind in (
            *(_body_type(handler), _response_type(handler), *_other_types(handler)),
            *_parameter_enums(handler),
        )
    ]
    return list(dict.fromkeys([Problem, *(kind for kind in types if kind is not None)]))


def _other_types(handler: HTTPRouteHandler) -> Iterator[Any]:
    """Yield the types of the responses beside the usual one."""
    for option in ("other_responses", "other_media_types"):
        yield from handler.opt.get(option, {}).values()


def _parameter_enums(handler: HTTPRouteHandler) -> Iterator[Any]:
    """Yield the enumerations whose values parameters of the query may have."""
    for field in handler.parsed_fn_signature.parameters.values():
        for kind in (field, *field.inner_types):
            if kind.is_subclass_of(StrEnum):
                yield kind.annotation


def _body_type(handler: HTTPRouteHandler) -> Any:
    """Return the type of the body, or None if the handler has none or accepts only an empty object."""
    field = handler.parsed_data_field
    kind = None if field is None else handler.opt.get("body_schema", field.annotation)
    return None if kind is Input else kind


def _response_type(handler: HTTPRouteHandler) -> Any:
    returned = handler.parsed_fn_signature.return_type
    kind = returned.inner_types[0] if returned.is_subclass_of(Response) else returned
    return None if kind.is_none_type else kind.annotation


def _mend(call: _Call, has_tag: bool, refs: dict[Any, Json]) -> None:  # noqa: FBT001 - of the object of the path
    """Replace what Litestar describes wrongly in one operation, and add what it does not know."""
    handler, operation = call.handler, call.operation
    operation.pop("requestBody", None)
    if handler.opt.get(NEEDS_NO_TOKEN):
        operation.pop("security", None)
    body, field = _body_type(handler), handler.parsed_data_field
    if body is not None and field is not None:
        content = {"application/json": {"schema": refs[body]}}
        operation["requestBody"] = {"required": MAY_BE_MISSING not in field.metadata, "content": content}
    for parameter in operation.get("parameters", ()):
        parameter["schema"] = _without_null(parameter["schema"])
        parameter["description"] = description_of(PARAMETERS, operation["tags"][0], parameter["name"])
    shows_tag = _response_type(handler) in TAGGED
    details = OperationDetails(handler, call.method, has_tag=has_tag, shows_tag=shows_tag)
    operation["description"] = details.description(operation.get("description"), operation.get("parameters", []))
    operation["responses"] = _responses(handler, refs, details) | _problem_refs(handler, operation, details.problems)
    if details.headers:
        operation["parameters"] = [*operation.get("parameters", ()), *details.headers]


def _without_null(schema: Json) -> Json:
    """Return the schema of a parameter without the null that Litestar adds to optional ones."""
    given: Json = next((option for option in schema.get("oneOf", ()) if option != {"type": "null"}), {})
    return {name: value for name, value in schema.items() if name != "oneOf"} | given


def _responses(handler: HTTPRouteHandler, refs: dict[Any, Json], details: OperationDetails) -> Json:
    kind = _response_type(handler)
    media_type = (handler.media_type or MediaType.JSON).split(";")[0]
    others = {name: {"schema": refs[other]} for name, other in handler.opt.get("other_media_types", {}).items()}
    kinds = dict.fromkeys((handler.status_code, *handler.opt.get("other_statuses", ())), kind)
    kinds |= handler.opt.get("other_responses", {})
    empty: Json = {
        str(status): {"description": HTTPStatus(status).phrase} for status in handler.opt.get("empty_statuses", ())
    }
    if details.may_be_known:
        empty[str(NOT_MODIFIED)] = {"description": HTTPStatus(NOT_MODIFIED).phrase, "headers": ETAG_HEADER}
    replayed = REPLAYED_HEADER if details.takes_key else {}
    return {
        str(status): {
            "description": HTTPStatus(status).phrase,
            **({"headers": headers} if (headers := (ETAG_HEADER if kind in TAGGED else {}) | replayed) else {}),
            **({} if kind is None else {"content": {media_type: {"schema": refs[kind]}, **others}}),
        }
        for status, kind in kinds.items()
    } | empty


def _problem_refs(handler: HTTPRouteHandler, operation: Json, added: set[int]) -> Json:
    """Return the problems that a call may be answered with."""
    statuses = {*QUERY_ERRORS, *handler.opt.get("errors", ()), *added}
    if "security" in operation:
        places = {parameter["in"] for parameter in operation.get("parameters", ())}
        statuses.update(COMMON_ERRORS)
        statuses.update(PATH_ERRORS if "path" in places else ())
        statuses.update(BODY_ERRORS if "requestBody" in operation else ())
    return {str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in sorted(statuses)}


def _problem_responses(ref: Json) -> Json:
    content = {PROBLEM_TYPE: {"schema": ref}}
    return {
        f"Problem{status}": {"description": text, "headers": PROBLEM_HEADERS.get(status, {}), "content": content}
        for status, text in PROBLEMS.items()
    }


def _with_slash(path: str) -> str:
    """Return the path of an API call with a trailing slash, unless it names a file; both ways are accepted."""
    return f"{path}/" if path.startswith("/api/v1/") and not path.endswith(".ics") else path


STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
h2{margin-top:2rem;text-transform:capitalize}code{background:#f3f3f3;padding:.1rem .3rem;border-radius:3px}
td{padding:.25rem .75rem .25rem 0;vertical-align:top}b{font-family:monospace}"""
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Carillon API</title><style>{style}</style>
<h1>Carillon API {version}</h1><p>{description}</p>
<p>Send <code>Authorization: Bearer TOKEN</code>. The whole contract as
<a href="/schema/openapi.json">OpenAPI 3.1</a>.</p>{sections}<h2>Fields</h2>{objects}</html>"""


_STYLE_HASH = b64encode(sha256(STYLE.encode()).digest()).decode()
# The page runs no script, loads nothing and may not be framed; its only style is allowed by its hash.
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


def schema_router() -> Router:
    """Return the router of ``/schema``, which adds the security headers."""
    headers = [ResponseHeader(name=name, value=value) for name, value in HEADERS.items()]
    return Router("/schema", route_handlers=[], response_headers=headers, include_in_schema=False)


class DocumentPlugin(OpenAPIRenderPlugin):
    """Serves the document at ``/schema/openapi.json``."""

    def __init__(self) -> None:
        """Serve it as ``application/json``, which every tool accepts."""
        super().__init__(path="/openapi.json", media_type=MediaType.JSON)

    def render(self, request: AnyRequest, _schema: dict[str, Any]) -> bytes:
        """Return the mended document instead of Litestar's own."""
        return _encoded(request.app)


@lru_cache(maxsize=1)
def _encoded(app: Litestar) -> bytes:
    """Encode the document once: responses to slow readers share the same bytes."""
    return msgspec.json.encode(document(app))


class PagePlugin(OpenAPIRenderPlugin):
    """Serves the calls and fields as a page at ``/schema``."""

    def __init__(self) -> None:
        """Serve it at the root of the schema router."""
        super().__init__(path="/")

    def render(self, request: AnyRequest, _schema: dict[str, Any]) -> bytes:
        """Return the page."""
        return _encoded_page(request.app)


@lru_cache(maxsize=1)
def _encoded_page(app: Litestar) -> bytes:
    return page(document(app)).encode()


def page(schema: Json) -> str:
    """Return the HTML page for a document: the calls by their tags, then the fields of bodies and responses."""
    calls: dict[str, list[str]] = {}
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            cells = (f"<b>{method.upper()}</b>", f"<code>{escape(path)}</code>", _call_text(operation))
            calls.setdefault(operation["tags"][0], []).append(_row(*cells))
    tables = "".join(f"<h2>{escape(tag)}</h2><table>{''.join(rows)}</table>" for tag, rows in calls.items())
    objects = "".join(
        _object_section(name, component)
        for name, component in sorted(schema["components"]["schemas"].items())
        if "properties" in component
    )
    info = schema["info"]
    return PAGE.format(
        style=STYLE,
        version=escape(info["version"]),
        description=escape(info["description"]),
        sections=tables,
        objects=objects,
    )


def _call_text(operation: Json) -> str:
    """Return what a call does, its parameters, and the objects that it takes and returns."""
    content = operation.get("requestBody", {}).get("content", {})
    taken = [_object_name(one) for one in content.values()]
    answers = (answer for status, answer in operation["responses"].items() if status.startswith("2"))
    returned = [_object_name(one) for answer in answers for one in answer.get("content", {}).values()]
    objects = (("takes", taken), ("returns", returned[:1]))
    named = "".join(f"<br>{verb} <code>{escape(name)}</code>" for verb, names in objects for name in names if name)
    parameters = "".join(
        _row(f"<code>{escape(one['name'])}</code>", _marked(one["description"]))
        for one in operation.get("parameters", ())
    )
    table = f"<details><summary>Parameters</summary><table>{parameters}</table></details>" if parameters else ""
    return f"{_marked(operation['summary'])}<br>{_marked(operation['description'])}{named}{table}"


def _object_name(content: Json) -> str:
    return str(content["schema"].get("$ref", "")).rpartition("/")[2]


def _object_section(name: str, component: Json) -> str:
    rows = (
        _row(f"<code>{escape(field)}</code>", _marked(described["description"]))
        for field, described in component["properties"].items()
    )
    return f"<details><summary><b>{escape(name)}</b></summary><table>{''.join(rows)}</table></details>"


def _row(*cells: str) -> str:
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _marked(text: str) -> str:
    """Return a text as HTML, with what stands in backticks as code."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", escape(text))
