"""``/schema``: the OpenAPI document, and a page that lists the calls without loading anything from elsewhere."""

from base64 import b64encode
from functools import lru_cache
from hashlib import sha256
from html import escape
from typing import Any

import msgspec
from litestar import Litestar, MediaType, Router
from litestar.datastructures import ResponseHeader
from litestar.openapi.plugins import OpenAPIRenderPlugin

from app.api.openapi import document
from app.api.requests import AnyRequest

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
