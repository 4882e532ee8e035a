"""``/api/v1/session`` and ``sessions``: browsers log in, see where they are logged in, and log out."""

from html import escape
from typing import Annotated, Any

from litestar import Controller, MediaType, Response, delete, get, post
from litestar.datastructures import Cookie
from litestar.di import NamedDependency
from litestar.params import JSONBody, QueryParameter
from msgspec.structs import replace

from app.api.cookies import cookie_for, login_attempt, login_cookie, origin_for_browser, refuse_cross_site
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
    count_login,
    counting_failures,
    listed,
    set_via,
)
from app.domain.access import Scope
from app.domain.audit import Via
from app.domain.login_attempts import DEFAULT_PATH, MOST_PATH_CHARACTERS
from app.services.inputs import SessionInput
from app.services.sessions import Browser, SessionService
from app.services.single_sign_on import LoginAnswer, SingleSignOn
from app.services.users import UserService
from app.services.views import CurrentSessionView, SessionCodeView, SessionList

Sessions = NamedDependency[SessionService]
SignOn = NamedDependency[SingleSignOn]
# Codes of some providers are tokens themselves.
AnswerText = Annotated[str | None, QueryParameter(max_length=8192)]
# It goes on by a page of our own. A browser that comes from the provider by redirects alone counts as sent by another
# site, and would not send the session's cookie, which is strict.
GO_ON_PAGE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Logged in</title>'
    '<meta http-equiv="refresh" content="0; url={path}"></head><body><a href="{path}">Continue</a></body></html>'
)
GO_ON_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class LoginController(Controller):
    """Logging in, which needs no token in a header."""

    path = "/session"
    tags = ("sessions",)
    guards = (check_query,)

    @post(
        "/",
        status_code=204,
        opt={"errors": (400, 401, 403, 409, 413, 422, 429, 503), NEEDS_NO_TOKEN: True},
        summary="Exchange a token or a one-time code for a session. The answer sets a cookie that no script can read.",
    )
    async def login(
        self, request: AnyRequest, session_service: Sessions, data: JSONBody[SessionInput]
    ) -> Response[None]:
        refuse_cross_site(request, by_cookie=False)
        set_via(Via.CONSOLE)
        await count_login(request)
        async with counting_failures(request):
            secret = await session_service.login(data, _browser(request))
        return _with_cookie(cookie_for(request, secret))


class SingleSignOnController(Controller):
    """Logging in at the identity provider. Browsers navigate here; these are no calls of programs."""

    path = "/session/oidc"
    include_in_schema = False

    @get("/start", status_code=302, guards=(check_query,))
    async def start(
        self,
        request: AnyRequest,
        single_sign_on: SignOn,
        return_to: Annotated[str, QueryParameter(max_length=MOST_PATH_CHARACTERS)] = DEFAULT_PATH,
    ) -> Response[None]:
        """Send the browser to the identity provider to log in, and afterwards to ``return_to``."""
        await count_login(request)
        begun = await single_sign_on.start(origin_for_browser(request), return_to)
        headers = {"Location": begun.url, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
        return Response(None, status_code=302, headers=headers, cookies=[login_cookie(request, begun.cookie)])

    @get("/callback", media_type=MediaType.HTML)
    async def callback(
        self,
        request: AnyRequest,
        single_sign_on: SignOn,
        code: AnswerText = None,
        login_state: Annotated[str | None, QueryParameter(name="state", max_length=500)] = None,
        issuer: Annotated[str | None, QueryParameter(name="iss", max_length=2000)] = None,
        error: AnswerText = None,
    ) -> Response[str]:
        """Finish a login: the identity provider sends the browser here. The response sets the session's cookie."""
        # Providers add parameters of their own, so that unknown ones are not refused here.
        answer = LoginAnswer(code=code or "", state=login_state or "", issuer=issuer, error=error)
        # Before the provider is called: whoever has no account can send any answer.
        await count_login(request)
        origin, attempt = origin_for_browser(request), login_attempt(request)
        async with counting_failures(request):
            logged_in = await single_sign_on.finish(origin, attempt, answer, _browser(request))
        return Response(
            GO_ON_PAGE.format(path=escape(logged_in.return_to)),
            media_type=MediaType.HTML,
            headers=GO_ON_HEADERS,
            cookies=[cookie_for(request, logged_in.secret), login_cookie(request, None)],
        )


class SessionController(Controller):
    """The sessions of a user."""

    tags = ("sessions",)

    @get("/session", opt={RESTRICTABLE: True}, summary="Return who is logged in, and how far that reaches.")
    async def read(
        self, request: AnyRequest, actor: Acting, user_service: NamedDependency[UserService], single_sign_on: SignOn
    ) -> CurrentSessionView:
        logout_url = await single_sign_on.logout_url(actor, origin_for_browser(request))
        return replace(await user_service.current(actor), logout_url=logout_url)

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


def _browser(request: AnyRequest) -> Browser:
    return Browser(client_address(request), request.headers.get("user-agent", ""))


def _with_cookie(cookie: Cookie) -> Response[Any]:
    return Response(None, status_code=204, cookies=[cookie], headers={"Cache-Control": "no-store"})
