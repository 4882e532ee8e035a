"""``/api/v1/session`` and ``sessions``: browsers log in, see where they are logged in, and log out."""

from typing import Any

from litestar import Controller, Response, delete, get, post
from litestar.datastructures import Cookie
from litestar.di import NamedDependency
from litestar.params import JSONBody

from app.api.cookies import cookie_for, refuse_cross_site
from app.api.openapi import NEEDS_NO_TOKEN
from app.api.requests import (
    NO_STORE,
    RESTRICTABLE,
    SCOPE,
    Acting,
    AnyRequest,
    Cursor,
    Id,
    Limit,
    check_query,
    client_address,
    counting_failures,
    listed,
)
from app.domain.access import Scope
from app.services.inputs import SessionInput
from app.services.sessions import Browser, SessionService
from app.services.users import UserService
from app.services.views import CurrentSessionView, SessionCodeView, SessionList

Sessions = NamedDependency[SessionService]


class LoginController(Controller):
    """Logging in, which needs no token in a header."""

    path = "/session"
    tags = ("sessions",)
    guards = (check_query,)

    @post(
        "/",
        status_code=204,
        opt={"errors": (400, 401, 403, 413, 422, 429, 503), NEEDS_NO_TOKEN: True},
        summary="Exchange a token or a one-time code for a session. The answer sets a cookie that no script can read.",
    )
    async def login(
        self, request: AnyRequest, session_service: Sessions, data: JSONBody[SessionInput]
    ) -> Response[None]:
        refuse_cross_site(request, by_cookie=False)
        browser = Browser(client_address(request), request.headers.get("user-agent", ""))
        async with counting_failures(request):
            secret = await session_service.login(data, browser)
        return _with_cookie(cookie_for(request, secret))


class SessionController(Controller):
    """The sessions of a user."""

    tags = ("sessions",)

    @get("/session", opt={RESTRICTABLE: True}, summary="Return who is logged in, and how far that reaches.")
    async def read(self, actor: Acting, user_service: NamedDependency[UserService]) -> CurrentSessionView:
        return await user_service.current(actor)

    @delete(
        "/session",
        opt={SCOPE: Scope.READ, RESTRICTABLE: True},
        summary="Log out: end the session, and delete its cookie.",
    )
    async def logout(self, request: AnyRequest, actor: Acting, session_service: Sessions) -> Response[None]:
        await session_service.logout(actor)
        return _with_cookie(cookie_for(request, None))

    @post(
        "/session/codes",
        opt={SCOPE: Scope.READ},
        response_headers=NO_STORE,
        summary="Create a code that can be exchanged for a session of yours once, within ten minutes.",
    )
    async def create_code(self, actor: Acting, session_service: Sessions) -> SessionCodeView:
        return await session_service.create_code(actor)

    @get("/sessions", summary="List your sessions, newest first.")
    async def list_all(
        self, actor: Acting, session_service: Sessions, limit: Limit = 100, cursor: Cursor = None
    ) -> SessionList:
        return await session_service.list(actor, listed(limit, cursor, counts=False))

    @delete("/sessions/{session_id:int}", opt={SCOPE: Scope.READ}, summary="End a session.")
    async def remove(self, actor: Acting, session_service: Sessions, session_id: Id) -> None:
        await session_service.end(actor, session_id)


def _with_cookie(cookie: Cookie) -> Response[Any]:
    return Response(None, status_code=204, cookies=[cookie], headers={"Cache-Control": "no-store"})
