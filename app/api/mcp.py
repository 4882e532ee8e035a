"""``/mcp``: the Model Context Protocol over HTTP, for agents."""

from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import msgspec
from litestar import Controller, Request, Response, get, post
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency
from litestar.handlers import BaseRouteHandler

from app.api.problems import CrossSiteError, on_refused, problem_of
from app.api.requests import LEASABLE, OWN_BODY, RESTRICTABLE, SCOPE, Acting, AnyRequest, check_query, check_request
from app.domain.access import Scope
from app.domain.errors import UnauthenticatedError
from app.mcp.protocol import RpcServer
from app.mcp.reading import Reading
from app.mcp.tools import Toolbox, ToolServices

METADATA_PATH = "/.well-known/oauth-protected-resource/mcp"
INSTRUCTIONS = (
    "Carillon fires workflows on schedules. Begin with lease_status: it says what you may make. To find out why "
    "something did not run, call list_schedules and explain_slot; the answer names the call that mends it. Check a "
    "spec with preview_schedule before create_schedule, and give each schedule a key."
)


def agent_server(services: ToolServices) -> RpcServer:
    """Return what answers the messages of agents."""
    toolbox = Toolbox(services, lambda error: msgspec.to_builtins(problem_of(error)))
    reading = Reading(services.queries, services.slots, services.executions)
    return RpcServer(
        {
            "tools/list": toolbox.list_tools,
            "tools/call": toolbox.call_tool,
            "resources/list": reading.list_resources,
            "resources/templates/list": reading.list_templates,
            "resources/read": reading.read_resource,
            "prompts/list": reading.list_prompts,
            "prompts/get": reading.get_prompt,
        },
        _describe,
    )


def _describe() -> dict[str, Any]:
    return {
        "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
        "serverInfo": {"name": "carillon", "title": "Carillon", "version": version("carillon")},
        "instructions": INSTRUCTIONS,
    }


def origin_of(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """Return the address under which clients reach the API."""
    public: str | None = connection.app.state.public_origin
    return public or str(connection.base_url).rstrip("/")


async def check_origin(connection: ASGIConnection[Any, Any, Any, Any], _handler: BaseRouteHandler) -> None:
    """Refuse a page of another site: it could use a server in the reach of the browser under a name of its own."""
    given = connection.headers.get("origin")
    if given is None:
        return
    own = {urlsplit(origin_of(connection)).netloc, connection.headers.get("host", "")}
    if urlsplit(given).netloc not in own:
        raise CrossSiteError


def on_unauthenticated(request: Request[Any, Any, Any], error: UnauthenticatedError) -> Response[Any]:
    """Return the response for a missing token, with where clients learn how to get one."""
    response = on_refused(request, error)
    response.headers["WWW-Authenticate"] = f'Bearer resource_metadata="{origin_of(request)}{METADATA_PATH}"'
    return response


class AgentController(Controller):
    """The endpoint of agents. Each request stands for itself: there are no sessions and no streams."""

    path = "/mcp"
    guards = (check_origin,)
    opt = {SCOPE: Scope.READ, RESTRICTABLE: True, LEASABLE: True}  # noqa: RUF012 - Litestar's way
    exception_handlers = {UnauthenticatedError: on_unauthenticated}  # noqa: RUF012 - Litestar's way
    include_in_schema = False

    @post("/", status_code=200, before_request=check_request, opt={OWN_BODY: True})
    async def answer(
        self, request: AnyRequest, actor: Acting, agent_server: NamedDependency[RpcServer]
    ) -> Response[Any]:
        """Answer one message."""
        reply = await agent_server.answer(actor, await request.body(), request.headers)
        body = b"" if reply.body is None else msgspec.json.encode(reply.body)
        return Response(body, status_code=reply.status, media_type="application/json")


class ProtectedResourceController(Controller):
    """What protects the endpoint of agents, for clients that look for a way to get a token."""

    guards = (check_query,)
    include_in_schema = False

    @get(METADATA_PATH, sync_to_thread=False)
    def describe(self, request: AnyRequest) -> dict[str, Any]:
        """Return the metadata of OAuth 2.0 for a protected resource (RFC 9728)."""
        return {
            "resource": f"{origin_of(request)}/mcp",
            "authorization_servers": list(request.app.state.login_issuers),
            "scopes_supported": [Scope.READ, Scope.OPERATE, Scope.WRITE],
            "bearer_methods_supported": ["header"],
            "resource_name": "Carillon",
        }
