"""``/console/``: the files of the front end, the same page for all its addresses, and the headers of both."""

from typing import Any

from litestar import HttpMethod, Request, Response, Router
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.response import Redirect

from app.console.bundle import INDEX, BuiltFile, Bundle

ROOT = "/console/"
ASSETS = "assets/"
# A page may load what this server sends and nothing else; scripts and styles only as files.
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
# The names of assets change with their content.
FOREVER = "public, max-age=31536000, immutable"
NEVER = "no-store"
NOT_BUILT = (
    "The console is not built. Build it with `make console` (it needs Node.js, which `make setup` installs from a "
    "wheel), then load this page again. The API runs without it."
)
READING = [HttpMethod.GET, HttpMethod.HEAD]

AnyRequest = Request[Any, Any, Any]


def console_router(bundle: Bundle | None = None) -> Router:
    """Return the routes of the console; by default those of the bundle in this package."""
    bundle = bundle or Bundle()

    async def root(request: AnyRequest) -> Response[Any]:
        if not _is_browser(request):
            raise NotFoundException
        return Redirect(ROOT, headers={"Cache-Control": NEVER})

    async def index(request: AnyRequest) -> Response[Any]:
        return _page(bundle, request)

    async def file(request: AnyRequest, path: FromPath[str]) -> Response[Any]:
        name = path.removeprefix("/")
        found = bundle.file(name)
        if found is not None and name != INDEX:
            return _response(request, found, FOREVER if name.startswith(ASSETS) else NEVER)
        # A script that is gone must not be answered with a page: the browser would report a wrong type.
        if name.startswith(ASSETS) or not _is_browser(request):
            raise NotFoundException
        return _page(bundle, request)

    return Router(
        "/",
        route_handlers=[
            HTTPRouteHandler("/", http_method=READING, status_code=200)(root),
            HTTPRouteHandler("/console", http_method=READING, status_code=200)(index),
            HTTPRouteHandler("/console/{path:path}", http_method=READING, status_code=200)(file),
        ],
        include_in_schema=False,
    )


def _page(bundle: Bundle, request: AnyRequest) -> Response[Any]:
    found = bundle.file(INDEX)
    if found is None:
        headers = {**SECURITY_HEADERS, "Cache-Control": NEVER}
        return Response(NOT_BUILT, media_type="text/plain", status_code=503, headers=headers)
    return _response(request, found, NEVER)


def _response(request: AnyRequest, found: BuiltFile, cache_control: str) -> Response[Any]:
    headers = {**SECURITY_HEADERS, "Cache-Control": cache_control, "Vary": "Accept-Encoding"}
    encoding = found.encoding_for(request.headers.get("accept-encoding", ""))
    content = found.content
    if encoding is not None:
        headers["Content-Encoding"] = encoding
        content = found.encoded[encoding]
    return Response(content, media_type=found.media_type, headers=headers)


def _is_browser(request: AnyRequest) -> bool:
    """Return whether a request is for a page, not for a script, a picture or data."""
    return "text/html" in request.headers.get("accept", "")
