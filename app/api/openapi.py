"""The OpenAPI document: paths and parameters from the routes, bodies and answers from the types themselves.

msgspec describes its types exactly, bounds and forbidden fields included; Litestar's own schemas lose some of that.
What a signature cannot say stands in the handler's ``opt``: the type of the ``body`` and whether it is
``body_optional``, the ``errors`` beside the usual ones, ``other_statuses`` with the same answer, and ``open`` for a
call without a token.
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator
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

from app.api.problems import PROBLEM_TYPE, Problem
from app.api.requests import AnyRequest

DESCRIPTION = "Recurring workflows over HTTP. Postgres decides, Redis rings the bell."
BEARER = {"bearer": {"type": "http", "scheme": "bearer"}}
PROBLEMS = {
    400: "The body is not JSON, or the state does not allow this.",
    401: "There is no token, or it is not valid.",
    403: "This needs the role admin.",
    404: "There is no such thing, or it is not yours.",
    409: "Another change stands in the way, the workflow is somebody else's, or a quota is used up: see `code`.",
    413: "The body is too large.",
    422: "Some values are not valid; `errors` names each of them.",
    429: "This token or address has sent too many requests, or this user too many at once.",
    503: "The database cannot be reached right now, or a query took too long.",
}
RETRY_AFTER = {"Retry-After": {"description": "In seconds.", "required": True, "schema": {"type": "integer"}}}
PROBLEM_HEADERS = {
    401: {"WWW-Authenticate": {"required": True, "schema": {"const": "Bearer"}}},
    429: RETRY_AFTER,
    503: RETRY_AFTER,
}
# Every call with a token may meet these; a path, a query and a body add theirs.
COMMON_ERRORS = (401, 429, 503)
PATH_ERRORS = (404,)
QUERY_ERRORS = (422,)
BODY_ERRORS = (400, 413, 422)

Json = dict[str, Any]


@lru_cache(maxsize=1)
def document(app: Litestar) -> Json:
    """The whole document, as JSON values."""
    schema: Json = app.openapi_schema.to_schema()
    operations = list(_operations(app, schema["paths"]))
    kinds = _kinds(handler for handler, _ in operations)
    described, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    refs = dict(zip(kinds, described, strict=True))
    for handler, operation in operations:
        _describe(handler, operation, refs)
    schema["paths"] = {_spelled(path): item for path, item in schema["paths"].items()}
    schema["components"] = {"schemas": schemas, "responses": _problems(refs[Problem]), "securitySchemes": BEARER}
    return schema


def _operations(app: Litestar, paths: Json) -> Iterator[tuple[HTTPRouteHandler, Json]]:
    for route in app.routes:
        for handler in getattr(route, "route_handlers", ()):
            for method in handler.http_methods:
                operation = paths.get(route.path_format, {}).get(method.lower())
                if operation is not None:
                    yield handler, operation


def _kinds(handlers: Iterable[HTTPRouteHandler]) -> list[Any]:
    wanted = [kind for handler in handlers for kind in (handler.opt.get("body"), _answer(handler)) if kind is not None]
    return list(dict.fromkeys([Problem, *wanted]))


def _answer(handler: HTTPRouteHandler) -> Any:
    returned = handler.parsed_fn_signature.return_type
    kind = returned.inner_types[0] if returned.is_subclass_of(Response) else returned
    return None if kind.is_none_type else kind.annotation


def _describe(handler: HTTPRouteHandler, operation: Json, refs: dict[Any, Json]) -> None:
    operation["operationId"] = f"{operation['tags'][0]}_{handler.handler_name}"
    for parameter in operation.get("parameters", ()):
        parameter["schema"] = _given(parameter["schema"])
    operation["responses"] = _answers(handler, refs) | _refusals(handler, operation)
    if not handler.opt.get("open"):
        operation["security"] = [{name: []} for name in BEARER]
    if "body" in handler.opt:
        content = {"application/json": {"schema": refs[handler.opt["body"]]}}
        operation["requestBody"] = {"required": not handler.opt.get("body_optional"), "content": content}


def _given(schema: Json) -> Json:
    """What an optional parameter is when it is given; Litestar adds that it might be null."""
    given: Json = next((option for option in schema.get("oneOf", ()) if option != {"type": "null"}), {})
    return {name: value for name, value in schema.items() if name != "oneOf"} | given


def _answers(handler: HTTPRouteHandler, refs: dict[Any, Json]) -> Json:
    kind = _answer(handler)
    media_type = (handler.media_type or MediaType.JSON).split(";")[0]
    content = {} if kind is None else {"content": {media_type: {"schema": refs[kind]}}}
    statuses = (handler.status_code, *handler.opt.get("other_statuses", ()))
    return {str(status): {"description": HTTPStatus(status).phrase, **content} for status in statuses}


def _refusals(handler: HTTPRouteHandler, operation: Json) -> Json:
    if handler.opt.get("open"):
        return _named(handler.opt.get("errors", ()))
    places = {parameter["in"] for parameter in operation.get("parameters", ())}
    statuses = {*COMMON_ERRORS, *handler.opt.get("errors", ())}
    statuses.update(PATH_ERRORS if "path" in places else ())
    statuses.update(QUERY_ERRORS if "query" in places else ())
    statuses.update(BODY_ERRORS if "body" in handler.opt else ())
    return _named(statuses)


def _named(statuses: Iterable[int]) -> Json:
    return {str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in sorted(statuses)}


def _problems(ref: Json) -> Json:
    content = {PROBLEM_TYPE: {"schema": ref}}
    return {
        f"Problem{status}": {"description": words, "headers": PROBLEM_HEADERS.get(status, {}), "content": content}
        for status, words in PROBLEMS.items()
    }


def _spelled(path: str) -> str:
    """As the contract writes it; the API answers with and without the slash."""
    return f"{path}/" if path.startswith("/api/v1/") else path


STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
h2{margin-top:2rem;text-transform:capitalize}code{background:#f3f3f3;padding:.1rem .3rem;border-radius:3px}
td{padding:.25rem .75rem .25rem 0;vertical-align:top}b{font-family:monospace}"""
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Carillon API</title><style>{style}</style>
<h1>Carillon API {version}</h1><p>{description}</p>
<p>Send <code>Authorization: Bearer TOKEN</code>. The whole contract as
<a href="/schema/openapi.json">OpenAPI 3.1</a>.</p>{sections}</html>"""


_STYLE_HASH = b64encode(sha256(STYLE.encode()).digest()).decode()
# The page runs no script, loads nothing and is shown in no frame; its one style is known by its hash.
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
    """``/schema/openapi.json``."""

    def __init__(self) -> None:
        """Plain JSON, which every tool takes."""
        super().__init__(path="/openapi.json", media_type=MediaType.JSON)

    def render(self, request: AnyRequest, _litestars: dict[str, Any]) -> bytes:
        """Ours, which starts from Litestar's."""
        return _encoded(request.app)


@lru_cache(maxsize=1)
def _encoded(app: Litestar) -> bytes:
    """Encode the document once: readers that take their time share the same bytes."""
    return msgspec.json.encode(document(app))


class PagePlugin(OpenAPIRenderPlugin):
    """``/schema``."""

    def __init__(self) -> None:
        """At the root, so that it is the page one lands on."""
        super().__init__(path="/")

    def render(self, request: AnyRequest, _litestars: dict[str, Any]) -> bytes:
        """The list of calls."""
        return page(document(request.app)).encode()


def page(schema: dict[str, Any]) -> str:
    """The page for a document."""
    sections: dict[str, list[str]] = {}
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            row = f"<tr><td><b>{method.upper()}</b></td><td><code>{escape(path)}</code></td>"
            row += f"<td>{escape(operation['summary'])}</td></tr>"
            sections.setdefault(operation["tags"][0], []).append(row)
    tables = "".join(f"<h2>{escape(tag)}</h2><table>{''.join(rows)}</table>" for tag, rows in sections.items())
    info = schema["info"]
    return PAGE.format(
        style=STYLE, version=escape(info["version"]), description=escape(info["description"]), sections=tables
    )
