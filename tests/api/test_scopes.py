"""Which scope each call needs: every route of the API has a row here, so that a new one without a row fails."""

from typing import Any
from uuid import uuid4

import httpx
import pytest
from litestar import Litestar
from litestar.routes import HTTPRoute

from app.api.problems import PROBLEM_TYPE
from app.api.requests import ACTOR, required_scope
from app.config import Settings
from app.domain.access import Scope
from app.wiring import wire_api
from tests.support.carillon import Carillon, Json

READ, OPERATE, WRITE, ADMIN = Scope
# By path and method, below /api/v1; routes without a user are not here.
NEEDED: dict[str, dict[str, Scope]] = {
    "/me": {"GET": READ},
    "/users": {"GET": ADMIN, "POST": ADMIN},
    "/users/{user_id:int}": {"GET": ADMIN, "PATCH": ADMIN, "DELETE": ADMIN},
    "/users/{user_id:int}/tokens": {"GET": ADMIN, "POST": ADMIN},
    "/teams": {"GET": READ, "POST": WRITE},
    "/teams/{team_id:int}": {"GET": READ, "PATCH": WRITE, "DELETE": WRITE},
    "/teams/{team_id:int}/members": {"GET": READ, "POST": WRITE},
    "/teams/{team_id:int}/members/{user_id:int}": {"PATCH": WRITE, "DELETE": WRITE},
    "/leases": {"GET": READ, "POST": WRITE},
    "/leases/{lease_id:int}": {"GET": READ, "PATCH": WRITE},
    "/leases/{lease_id:int}/approve": {"POST": WRITE},
    "/leases/{lease_id:int}/adopt": {"POST": WRITE},
    "/leases/{lease_id:int}/revoke": {"POST": WRITE},
    # A token makes and ends tokens that reach no further than itself.
    "/tokens": {"GET": READ, "POST": READ},
    "/tokens/{token_id:int}": {"DELETE": READ},
    "/tokens/{token_id:int}/rotate": {"POST": READ},
    "/session": {"GET": READ, "DELETE": READ},
    "/session/codes": {"POST": READ},
    "/sessions": {"GET": READ},
    "/sessions/{session_id:int}": {"DELETE": READ},
    "/actions": {"GET": READ},
    "/entity-types": {"GET": READ},
    "/workflows": {"GET": READ, "POST": WRITE},
    "/workflows/{workflow_id:int}": {"GET": READ, "PATCH": WRITE, "DELETE": WRITE},
    "/workflows/{workflow_id:int}/history": {"GET": READ},
    "/workflows/validate": {"POST": READ},
    "/workflows/by-key/{key:path}": {"GET": READ, "PUT": WRITE, "DELETE": WRITE},
    "/schedules/by-key/{key:path}": {"GET": READ, "PUT": WRITE, "DELETE": WRITE},
    "/schedules": {"GET": READ, "POST": WRITE},
    "/schedules/batch": {"POST": WRITE},
    "/schedules/batch-delete": {"POST": WRITE},
    "/schedules/preview": {"POST": READ},
    "/schedules/{schedule_id:uuid}/backfill": {"POST": OPERATE},
    "/schedules/{schedule_id:uuid}/skip": {"POST": OPERATE, "DELETE": OPERATE},
    "/schedules/{schedule_id:uuid}": {"GET": READ, "PATCH": WRITE, "DELETE": WRITE},
    "/schedules/{schedule_id:uuid}/pause": {"POST": OPERATE},
    "/schedules/{schedule_id:uuid}/resume": {"POST": OPERATE},
    "/schedules/{schedule_id:uuid}/revive": {"POST": OPERATE},
    "/schedules/{schedule_id:uuid}/run": {"POST": OPERATE},
    "/schedules/{schedule_id:uuid}/plan": {"POST": READ},
    "/schedules/{schedule_id:uuid}/runs": {"GET": READ},
    "/schedules/{schedule_id:uuid}/ledger": {"GET": READ},
    "/schedules/{schedule_id:uuid}/slots": {"GET": READ},
    "/slots": {"GET": READ},
    "/upcoming": {"GET": READ},
    "/upcoming.ics": {"GET": READ},
    "/schedules/{schedule_id:uuid}/upcoming": {"GET": READ},
    "/schedules/{schedule_id:uuid}/upcoming.ics": {"GET": READ},
    "/timezones": {"GET": READ},
    "/forecast": {"POST": READ},
    "/forecast/spread": {"POST": READ},
    "/apply": {"POST": WRITE},
    "/export": {"GET": READ},
    # Labels, fields, moves and deletions need more, which the service asks for.
    "/schedules/bulk": {"POST": OPERATE},
    "/operations": {"GET": READ},
    "/operations/{operation_id:uuid}": {"GET": READ},
    "/operations/{operation_id:uuid}/pause": {"POST": OPERATE},
    "/operations/{operation_id:uuid}/resume": {"POST": OPERATE},
    "/operations/{operation_id:uuid}/cancel": {"POST": OPERATE},
    "/operations/{operation_id:uuid}/undo": {"POST": OPERATE},
    "/schedules/{schedule_id:uuid}/explain": {"GET": READ},
    "/schedules/{schedule_id:uuid}/history": {"GET": READ},
    "/executions": {"GET": READ},
    "/executions/{execution_id:uuid}": {"GET": READ},
    "/executions/{execution_id:uuid}/cancel": {"POST": OPERATE},
    "/executions/{execution_id:uuid}/again": {"POST": OPERATE},
    "/search": {"GET": READ},
    "/breakers": {"GET": READ},
    "/breakers/{workflow_id:int}": {"GET": READ},
    "/breakers/{workflow_id:int}/reset": {"POST": OPERATE},
    "/limits": {"GET": READ, "POST": WRITE},
    "/limits/{limit_name:str}": {"GET": READ, "PATCH": WRITE, "DELETE": WRITE},
    "/notifications": {"GET": READ, "POST": WRITE},
    "/notifications/{notification_id:int}": {"GET": READ, "PATCH": WRITE, "DELETE": WRITE},
    "/notifications/{notification_id:int}/deliveries": {"GET": READ},
    "/webhooks": {"GET": READ, "POST": WRITE},
    "/webhooks/{webhook_id:int}": {"GET": READ, "PATCH": WRITE, "DELETE": WRITE},
    "/calendars": {"GET": READ, "POST": WRITE},
    "/calendars/{calendar_name:str}": {"GET": READ, "PATCH": WRITE, "DELETE": WRITE},
    "/calendars/{calendar_name:str}/plan": {"POST": READ},
    "/secrets": {"GET": READ, "POST": WRITE},
    "/secrets/{secret_name:str}": {"PUT": WRITE, "DELETE": WRITE},
    "/settings": {"GET": ADMIN, "PATCH": ADMIN},
    # Whoever has the key can sign.
    "/signing-key": {"GET": WRITE},
    "/signing-key/rotate": {"POST": WRITE},
    "/audit": {"GET": READ},
    "/overview": {"GET": READ},
    "/stats/outcomes": {"GET": READ},
    "/stats/lateness": {"GET": READ},
    "/workers": {"GET": ADMIN},
    "/live": {"GET": READ},
}
# A stream goes on until it is closed: tests/api/test_live.py.
STREAMS = {"/live"}
CALLS = [
    (method, path, scope)
    for path, methods in NEEDED.items()
    for method, scope in methods.items()
    if path not in STREAMS
]


def routes(app: Litestar) -> dict[str, dict[str, Scope]]:
    """Return the scopes of all routes that know a user, by path and method."""
    found: dict[str, dict[str, Scope]] = {}
    for route in app.routes:
        if not isinstance(route, HTTPRoute) or not route.path.startswith("/api/v1"):
            continue
        for handler in route.route_handlers:
            if ACTOR in handler.parsed_fn_signature.parameters:
                scopes = {str(method): required_scope(handler) for method in handler.http_methods - {"HEAD", "OPTIONS"}}
                found.setdefault(route.path.removeprefix("/api/v1"), {}).update(scopes)
    return found


def filled(path: str) -> str:
    """Return a path with ids of nothing in it."""
    for shape, value in ((":uuid}", str(uuid4())), (":int}", "987654"), (":str}", "NOTHING"), (":path}", "a/b")):
        while shape in path:
            end = path.index(shape)
            path = f"{path[: path.rindex('{', 0, end)]}{value}{path[end + len(shape) :]}"
    return f"{path}/"


def code_of(response: httpx.Response) -> str:
    """Return the code of a problem; empty if the answer is none."""
    return str(response.json()["code"]) if response.headers.get("content-type") == PROBLEM_TYPE else ""


async def token_with(carillon: Carillon, *scopes: Scope, **terms: Any) -> Carillon:
    """Return a client with a token of the built-in admin that has these scopes."""
    made: Json = await carillon.call("POST", "/tokens/", 201, json={"name": "t", "scopes": list(scopes), **terms})
    return carillon.with_token(made["token"])


def test_every_route_has_a_row(settings: Settings) -> None:
    """With the scope that its handler declares."""
    assert NEEDED == routes(wire_api(settings))


@pytest.mark.parametrize("scope", Scope)
async def test_every_call_is_refused_below_its_scope_and_only_there(carillon: Carillon, scope: Scope) -> None:
    """As an admin: nothing but the token stands in the way. 403 comes before the body is read, and names the scope."""
    holder = await token_with(carillon, scope)
    for method, path, needed in CALLS:
        response = await holder.request(method, filled(path), content=b"not json")
        denied = (response.status_code, code_of(response))
        if scope.includes(needed):
            assert (403, "insufficient_scope") != denied, (method, path)
        else:
            assert (403, "insufficient_scope") == denied, (method, path, response.text)
            assert f"`{needed}`" in response.json()["detail"]


async def test_a_member_has_no_scope_of_admins(carillon: Carillon) -> None:
    """Their role forbids it, whatever their token says."""
    mia = await carillon.member()
    for method, path, needed in CALLS:
        response = await mia.request(method, filled(path), content=b"not json")
        assert (needed is ADMIN) == (response.status_code == 403), (method, path)
