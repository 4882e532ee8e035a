"""The OpenAPI document: paths and parameters from the routes, bodies and answers from the types themselves.

msgspec describes its types exactly, bounds and forbidden fields included; Litestar's own schemas lose some of that.
"""

from copy import deepcopy
from typing import Any

import msgspec
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler

from app.api.problems import PROBLEM_TYPE, Problem

BEARER = {"bearer": {"type": "http", "scheme": "bearer"}}
# Every call with a token may meet these; a body and a path add theirs.
COMMON_ERRORS = (401, 429, 503)
BODY_ERRORS = (400, 413, 422)
DESCRIPTION = "Recurring workflows over HTTP. Postgres decides, Redis rings the bell."


def document(app: Litestar, generated: dict[str, Any]) -> dict[str, Any]:
    """The whole document, as JSON values, from what Litestar has generated."""
    schema = deepcopy(generated)
    operations = list(_operations(app, schema))
    types = _types([handler for handler, _ in operations])
    (described, components) = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    refs = dict(zip(types, described, strict=True))
    for handler, operation in operations:
        _describe(handler, operation, refs)
    schema["components"] = {"schemas": components, "securitySchemes": BEARER}
    return schema


def _operations(app: Litestar, schema: dict[str, Any]) -> Any:
    for route in app.routes:
        for handler in getattr(route, "route_handlers", []):
            path = schema["paths"].get(route.path_format, {})
            for method in handler.http_methods:
                if method.lower() in path:
                    yield handler, path[method.lower()]


def _types(handlers: list[HTTPRouteHandler]) -> list[Any]:
    wanted: list[Any] = [Problem]
    for handler in handlers:
        for kind in (handler.opt.get("body"), _answer(handler)):
            if kind is not None and kind not in wanted:
                wanted.append(kind)
    return wanted


def _answer(handler: HTTPRouteHandler) -> Any:
    annotation = handler.parsed_fn_signature.return_type
    inner = annotation.inner_types[0].annotation if annotation.inner_types else annotation.annotation
    return None if inner in (None, type(None)) else inner


def _describe(handler: HTTPRouteHandler, operation: dict[str, Any], refs: dict[Any, Any]) -> None:
    answer = _answer(handler)
    content = {"application/json": {"schema": refs[answer]}} if answer is not None else None
    good = {"description": "Done", **({"content": content} if content else {})}
    operation["responses"] = {str(handler.status_code): good}
    for status in handler.opt.get("other_statuses", ()):
        operation["responses"][str(status)] = good
    if not handler.opt.get("open"):
        operation["security"] = [{"bearer": []}]
        for status in _errors(handler, operation):
            problem = {PROBLEM_TYPE: {"schema": refs[Problem]}}
            operation["responses"][str(status)] = {"description": "Refused", "content": problem}
    kind = handler.opt.get("body")
    if kind is not None:
        operation["requestBody"] = {
            "required": not handler.opt.get("body_optional", False),
            "content": {"application/json": {"schema": refs[kind]}},
        }


def _errors(handler: HTTPRouteHandler, operation: dict[str, Any]) -> list[int]:
    errors = {*COMMON_ERRORS, *handler.opt.get("errors", ())}
    places = {parameter["in"] for parameter in operation.get("parameters", ())}
    if "path" in places:
        errors.add(404)
    if "query" in places:
        errors.add(422)
    if handler.opt.get("body") is not None:
        errors.update(BODY_ERRORS)
    if "POST" in handler.http_methods and "path" in places:
        # An action that the state forbids.
        errors.add(400)
    return sorted(errors)
