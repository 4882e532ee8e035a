"""The OpenAPI document tells the truth: all that exists is in it, and all of it behaves as it says."""

import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from html import unescape
from html.parser import HTMLParser
from itertools import count
from typing import Any
from uuid import uuid4
from zlib import crc32

import asyncpg
import pytest
import requests
import schemathesis
import uvicorn
from schemathesis.checks import load_all_checks
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.generation.meta import CaseMetadata
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.specs.openapi.checks import allow_header_conformance, ignored_auth, positive_data_acceptance

from app.config import Settings, load_settings
from app.embedded import EmbeddedPostgres, EmbeddedValkey
from app.wiring import wire_api
from tests.support.carillon import ADMIN_TOKEN, Carillon, Json
from tests.support.hypothesis_examples import FACTOR
from tests.support.unconnected_api import APPLICATION, DOCUMENT

ApiCase = schemathesis.Case[Any]
ID = "00000000-0000-4000-8000-000000000000"
AUTHORIZATION = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
LOGIN = "POST /api/v1/session/"
CALLS = {
    *("GET /api/v1/me/", "GET /api/v1/users/", "POST /api/v1/users/", "DELETE /api/v1/tokens/{token_id}/"),
    *("GET /api/v1/users/{user_id}/tokens/", "POST /api/v1/users/{user_id}/tokens/"),
    *(f"{method} /api/v1/users/{{user_id}}/" for method in ("GET", "PATCH", "DELETE")),
    *("GET /api/v1/tokens/", "POST /api/v1/tokens/", "POST /api/v1/tokens/{token_id}/rotate/"),
    *("GET /api/v1/session/", LOGIN, "DELETE /api/v1/session/", "POST /api/v1/session/codes/"),
    *("GET /api/v1/leases/", "POST /api/v1/leases/"),
    *(f"{method} /api/v1/leases/{{lease_id}}/" for method in ("GET", "PATCH")),
    *(f"POST /api/v1/leases/{{lease_id}}/{verb}/" for verb in ("approve", "adopt", "revoke")),
    *("GET /api/v1/sessions/", "DELETE /api/v1/sessions/{session_id}/"),
    *("GET /api/v1/teams/", "POST /api/v1/teams/"),
    *(f"{method} /api/v1/teams/{{team_id}}/" for method in ("GET", "PATCH", "DELETE")),
    *("GET /api/v1/teams/{team_id}/members/", "POST /api/v1/teams/{team_id}/members/"),
    *(f"{method} /api/v1/teams/{{team_id}}/members/{{user_id}}/" for method in ("PATCH", "DELETE")),
    *("GET /api/v1/workflows/", "POST /api/v1/workflows/"),
    *(f"{method} /api/v1/workflows/{{workflow_id}}/" for method in ("GET", "PATCH", "DELETE")),
    "GET /api/v1/workflows/{workflow_id}/history/",
    *(f"{method} /api/v1/workflows/by-key/{{key}}/" for method in ("GET", "PUT", "DELETE")),
    *(f"{method} /api/v1/schedules/by-key/{{key}}/" for method in ("GET", "PUT", "DELETE")),
    *("GET /api/v1/schedules/", "POST /api/v1/schedules/"),
    *("POST /api/v1/schedules/batch/", "POST /api/v1/schedules/batch-delete/"),
    *(f"{method} /api/v1/schedules/{{schedule_id}}/" for method in ("GET", "PATCH", "DELETE")),
    *(
        f"POST /api/v1/schedules/{{schedule_id}}/{verb}/"
        for verb in ("pause", "resume", "revive", "run", "plan", "skip", "backfill")
    ),
    "DELETE /api/v1/schedules/{schedule_id}/skip/",
    *(f"GET /api/v1/schedules/{{schedule_id}}/{part}/" for part in ("runs", "ledger", "slots", "explain", "history")),
    *("GET /api/v1/upcoming/", "GET /api/v1/schedules/{schedule_id}/upcoming/", "GET /api/v1/timezones/"),
    *("GET /api/v1/upcoming.ics", "GET /api/v1/schedules/{schedule_id}/upcoming.ics"),
    *("POST /api/v1/forecast/", "POST /api/v1/forecast/spread/"),
    *("POST /api/v1/workflows/validate/", "POST /api/v1/executions/{execution_id}/again/"),
    *("GET /api/v1/slots/", "POST /api/v1/apply/", "GET /api/v1/export/"),
    *("POST /api/v1/schedules/bulk/", "GET /api/v1/operations/", "GET /api/v1/operations/{operation_id}/"),
    *(f"POST /api/v1/operations/{{operation_id}}/{verb}/" for verb in ("pause", "resume", "cancel", "undo")),
    *("POST /api/v1/schedules/preview/", "GET /api/v1/breakers/", "GET /api/v1/breakers/{workflow_id}/"),
    "POST /api/v1/breakers/{workflow_id}/reset/",
    *("GET /api/v1/executions/", "GET /api/v1/executions/{execution_id}/"),
    *(f"POST /api/v1/executions/{{execution_id}}/{verb}/" for verb in ("cancel", "complete", "heartbeat")),
    *("GET /api/v1/entity-types/", "GET /api/v1/search/"),
    *("GET /api/v1/actions/", "GET /api/v1/settings/", "PATCH /api/v1/settings/"),
    *("GET /api/v1/signing-key/", "POST /api/v1/signing-key/rotate/"),
    "GET /api/v1/audit/",
    *("GET /api/v1/overview/", "GET /api/v1/workers/", "GET /api/v1/live/"),
    *("GET /api/v1/stats/outcomes/", "GET /api/v1/stats/lateness/"),
    *("GET /api/cron/run", "POST /api/cron/run"),
    *("GET /api/v1/limits/", "POST /api/v1/limits/"),
    *(f"{method} /api/v1/limits/{{limit_name}}/" for method in ("GET", "PATCH", "DELETE")),
    *("GET /api/v1/notifications/", "POST /api/v1/notifications/"),
    *(f"{method} /api/v1/notifications/{{notification_id}}/" for method in ("GET", "PATCH", "DELETE")),
    "GET /api/v1/notifications/{notification_id}/deliveries/",
    *("GET /api/v1/webhooks/", "POST /api/v1/webhooks/"),
    *(f"{method} /api/v1/webhooks/{{webhook_id}}/" for method in ("GET", "PATCH", "DELETE")),
    *("GET /api/v1/calendars/", "POST /api/v1/calendars/"),
    *(f"{method} /api/v1/calendars/{{calendar_name}}/" for method in ("GET", "PATCH", "DELETE")),
    "POST /api/v1/calendars/{calendar_name}/plan/",
    *("GET /api/v1/secrets/", "POST /api/v1/secrets/"),
    *(f"{method} /api/v1/secrets/{{secret_name}}/" for method in ("PUT", "DELETE")),
    *("GET /.well-known/jwks.json", "GET /.well-known/openid-configuration"),
    *("GET /health/live", "GET /health/ready", "GET /metrics"),
}
# For these a body or a query that fits its schema may be refused; no schema could say so.
BEYOND_SCHEMAS = re.compile(
    r"NUL characters cannot be stored"
    r"|At most 1500 steps are returned|At most 2016 buckets|A forecast covers at most"
    r"|is not a host\."
    r"|has no valid port\."
    r"|There is no user (or team )?-?[0-9]+\."
    r"|There is no such user|The workflow belongs to"
    r"|Expected an integer.*, got a decimal number"  # 1.0 is an integer to JSON Schema
    r"|The year must be between|The end must not be before|At the edge of the calendar"
    r"|There is no such workflow|There is no such schedule|There is no such team|There is no user or team"
    r"|The path names the key|is not a label\.|has the key\."
    r"|One of .* is needed|Exactly one of|Expected a duration|The duration is|The shortest interval|is too long"
    r"|Expected five fields|field cannot be|field has|No date fits|There is no timezone"
    r"|Expected a window|The hours go|The window is empty|Expected a weekday|Every day of the week"
    r"|The time is past by|The time is before|A slot at or after this time|The spec has no slot"
    r"|The URL has no host|The URL contains a blank|The host or the port of the URL|The `url` has no host"
    r"|The header .* cannot be set|The name .* is not valid|The template"
    r"|Name workflows, labels or a namespace|A token of the kind `feed`"
    r"|This field is required|The time is in the future|Expected a rate|The rate must be between"
    r"|is no slot that is still to come|`from` and `to` are needed both|The span has more than"
    r"|The lease \d+ has no such schedule|Your own token ends sooner"
    r"|Expected one line of|The time is past\. Choose|Exactly one of `token` and `code`"
    r"|Name the user who gets|Name the user or the team that gets"
    r"|`cursor` does not belong to this list"
    r"|line \d+: |The namespace has no workflow|The namespace has one of this name"
    r"|The action `.*` (does not take|needs) this argument"
    r"|There is no limit '|A limit needs|`burst` belongs to"
    r"|Expected parts such as|is not a part of a rule|FREQ |There is no calendar|There are no holidays|iCalendar file"
    r"|Expected 1 to 100 letters|is not a date: expected|does not exist: expected|ends before it begins|years must be"
    r"|is used \d+ times|There is no action|There is no node|form a cycle"
)
# Their bodies have a spec at the top.
SPEC_PATHS = {f"/api/v1/schedules/{part}" for part in ("", "preview/", "{schedule_id}/", "{schedule_id}/plan/")}
APPLY = "/api/v1/apply/"
# Its drafts have specs far below the top.
FORECAST = "/api/v1/forecast/"
DECLARED: Json = {
    "namespace": "n",
    "workflows": [{"name": "w", "nodes": [{"id": "start", "type": "trigger_schedule"}]}],
}
# Only a worker lets a schedule die or carries out an operation, and only a target has the token of a callback.
NEVER_SUCCEED = {
    "POST /api/v1/schedules/{schedule_id}/revive/",
    "POST /api/v1/operations/{operation_id}/undo/",
    *(f"POST /api/v1/executions/{{execution_id}}/{verb}/" for verb in ("complete", "heartbeat")),
}

CONDITIONS = ("If-Match", "If-None-Match", "Idempotency-Key")
UNSAFE = ("POST", "PUT", "PATCH", "DELETE")

SCHEMA = schemathesis.openapi.from_dict(
    DOCUMENT,
    config=schemathesis.Config.from_dict(
        {
            "seed": 1,
            "suppress-health-check": ["all"],
            "generation": {
                "deterministic": True,
                "max-examples": 20,
                "no-shrink": True,
                "database": "none",
                # Every call has the right token; ``ignored_auth`` takes it away by itself.
                "with-security-parameters": False,
            },
            # 413 is how a body that is too large is refused.
            "checks": {"negative_data_rejection": {"expected-statuses": [400, 404, 405, 409, 413, 422]}},
        }
    ),
)
EXCLUDED_CHECKS = [
    # ``fitting_data_is_accepted`` says the same with what no schema can say.
    positive_data_acceptance,
    # Litestar answers OPTIONS by itself and names only the method that it registered last.
    allow_header_conformance,
]


def operations() -> Iterator[tuple[str, Json]]:
    """Every call by its name, with its description."""
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def resolved(schema: Json) -> Json:
    """What a reference refers to."""
    found = DOCUMENT
    for step in schema["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    return found


async def test_the_document_is_served_to_everyone(carillon: Carillon) -> None:
    """As OpenAPI 3.1, without a token, and it is the one that the tests below hold against the API."""
    response = await carillon.raw("GET", "/schema/openapi.json")
    assert (200, "application/json") == (response.status_code, response.headers["content-type"])
    assert DOCUMENT == response.json()
    assert DOCUMENT["openapi"].startswith("3.1.")


def test_the_document_is_valid() -> None:
    """By the schema of OpenAPI 3.1 itself."""
    SCHEMA.validate()


def test_every_call_is_listed() -> None:
    """With a name of its own, a sentence, a tag, and the token that it needs."""
    assert CALLS == {name for name, _ in operations()}
    assert len(CALLS) == len({operation["operationId"] for _, operation in operations()})
    for name, operation in operations():
        assert operation["summary"].endswith(".")
        assert 1 == len(operation["tags"])
        needs_token = "/api/v1/" in name and name != LOGIN
        assert ([{"bearer": []}] if needs_token else None) == operation.get("security")


def test_nothing_else_is_there() -> None:
    """But for the document and its page, the console, the endpoint of agents, and the pages of a login."""
    paths = {path.rstrip("/") for path in DOCUMENT["paths"]}
    pages = [f"/api/v1/session/oidc/{name}" for name in ("callback", "start")]
    others = [one.path for one in APPLICATION.routes if one.path_format not in paths and "/schema" not in one.path]
    agents = ["/.well-known/oauth-protected-resource/mcp", "/mcp"]
    assert sorted(["/", *pages, *agents, "/console", "/console/{path:path}"]) == sorted(others)


def test_bodies_forbid_what_they_do_not_know() -> None:
    """Down to the last object, but for those that are the caller's own."""
    inputs = [
        body["content"]["application/json"]["schema"] for _, one in operations() if (body := one.get("requestBody"))
    ]
    seen: list[str] = []
    while inputs:
        match inputs.pop():
            case {"$ref": ref} as schema if ref not in seen:
                seen.append(ref)
                inputs.append(resolved(schema))
            case {"type": "object", "properties": properties} as schema:
                assert schema["additionalProperties"] is False
                inputs.extend(properties.values())
            case {"type": "array", "items": items}:
                inputs.append(items)
            case {"anyOf": options}:
                inputs.extend(options)
    assert {"WorkflowInput", "NodeInput", "Edge", "ScheduleInput", "ScheduleChanges", "RunInput"} <= {
        ref.rpartition("/")[2] for ref in seen
    }


@pytest.mark.parametrize("name", ["ScheduleInput", "ScheduleChanges"])
def test_bounds_are_told(name: str) -> None:
    """Of what is created and of what is changed alike."""
    fields = DOCUMENT["components"]["schemas"][name]["properties"]
    seconds = fields["interval_seconds"]["anyOf"][0]
    assert (1, 2**31 - 1) == (seconds["minimum"], seconds["maximum"])
    assert (0, 1) == (fields["max_retries"]["minimum"], fields["timeout_seconds"]["minimum"])
    assert (1, 255) == (fields["name"]["minLength"], fields["name"]["maxLength"])
    assert {"type": "string", "format": "date-time"} in fields["start_at"]["anyOf"]


def test_parameters_are_told() -> None:
    """With bounds, formats and defaults; nothing is null in a path or in a query."""
    listed = DOCUMENT["paths"]["/api/v1/schedules/"]["get"]["parameters"]
    schemas = {parameter["name"]: parameter["schema"] for parameter in listed}
    assert {"type": "integer", "minimum": 1, "maximum": 500, "default": 50} == schemas["limit"]
    assert {"active", "paused", "done", "dead"} == set(resolved(schemas["status"])["enum"])
    ledger = DOCUMENT["paths"]["/api/v1/schedules/{schedule_id}/ledger/"]["get"]["parameters"]
    formats = {parameter["name"]: parameter["schema"].get("format") for parameter in ledger}
    assert {"schedule_id": "uuid", "from": "date-time", "to": "date-time", "limit": None, "cursor": None} == formats


async def test_without_a_token_calls_are_refused_as_told(carillon: Carillon) -> None:
    """401 with what the document promises of it."""
    told = DOCUMENT["components"]["responses"]["Problem401"]
    for name, operation in operations():
        if "security" in operation:
            method, path = name.format(
                user_id=1,
                token_id=1,
                session_id=1,
                lease_id=1,
                team_id=1,
                workflow_id=1,
                schedule_id=ID,
                execution_id=ID,
                operation_id=ID,
                notification_id=1,
                webhook_id=1,
                secret_name="X",
                calendar_name="X",
                limit_name="X",
                key="k",
            ).split()
            response = await carillon.raw(method, path)
            assert (401, *told["content"]) == (response.status_code, response.headers["content-type"])
            assert told["headers"]["WWW-Authenticate"]["schema"]["const"] == response.headers["WWW-Authenticate"]


def header_names(operation: Json) -> set[str]:
    """Return the headers that a call takes."""
    return {parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "header"}


def test_a_stale_version_is_refused_where_the_document_says_so(world: "World") -> None:
    """By 412, of each call on one object, and of no other; the body is the document's example."""
    stale = {**AUTHORIZATION, "If-Match": '"stale"'}
    told, refused = set(), set()
    for name, operation in operations():
        method, path = name.split()
        if method not in UNSAFE or "{" not in path or operation["tags"] == ["callbacks"]:
            continue
        parameters = [one["name"] for one in operation["parameters"] if one["in"] == "path"]
        ids = {parameter: world.fresh(parameter) for parameter in parameters}
        world.join(ids)
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
        url = f"{world.address}{path.format(**ids)}"
        sent = None if body is None else world.filled(body, path)
        response = world.session.request(method, url, json=sent, headers=stale)
        assert response.status_code < 500
        if response.status_code == 412:
            refused.add(name)
        if "If-Match" in header_names(operation):
            told.add(name)
            assert "412" in operation["responses"]
    assert told == refused
    assert {"POST /api/v1/schedules/{schedule_id}/run/", "DELETE /api/v1/secrets/{secret_name}/"} <= told


class Links(HTMLParser):
    """Collects what a page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember every address, and every script."""
        self.found += [value or "" for name, value in attrs if name in {"src", "href", "srcset", "action"}]
        assert tag not in {"script", "iframe", "link", "img"}


async def test_the_page_lists_every_call_and_loads_nothing(carillon: Carillon) -> None:
    """It stands on its own, without a token and without a network."""
    response = await carillon.raw("GET", "/schema")
    assert (200, "text/html; charset=utf-8") == (response.status_code, response.headers["content-type"])
    links = Links()
    links.feed(response.text)
    assert ["/schema/openapi.json"] == links.found
    assert "url(" not in response.text
    assert "@import" not in response.text
    for path in DOCUMENT["paths"]:
        assert f"<code>{path}</code>" in response.text


async def test_the_page_explains_every_field_and_parameter(carillon: Carillon) -> None:
    """With the same texts as the document; calls name the objects that they take and return."""
    page = unescape(re.sub(r"</?code>", "", (await carillon.raw("GET", "/schema")).text))
    for _, operation in operations():
        for parameter in operation.get("parameters", ()):
            assert f"<td>{parameter['name']}</td><td>{parameter['description'].replace('`', '')}</td>" in page
    for component in DOCUMENT["components"]["schemas"].values():
        for name, field in component.get("properties", {}).items():
            assert f"<td>{name}</td><td>{field['description'].replace('`', '')}</td>" in page
    assert "takes ScheduleInput<br>returns ScheduleView" in page


class World:
    """What a case needs so that it is about something that exists."""

    def __init__(self, address: str, session: requests.Session) -> None:
        self.address = address
        self.session = session
        self.met: dict[str, set[int]] = {}
        self.workflow_id = self._workflow()
        body = {"documents": [DECLARED]}
        session.post(f"{address}/api/v1/apply/", json=body, headers=AUTHORIZATION).raise_for_status()

    def fill(self, case: ApiCase) -> None:
        """Put ids that exist wherever the case does not mean to be wrong; one in four keeps what was made up."""
        # No object has a version that was made up.
        for name in CONDITIONS:
            case.headers.pop(name, None)
        sent = repr((case.path_parameters, case.query, case.body))
        # What is applied is exported, and schemathesis reads no YAML with several documents.
        if not is_negative(case) and crc32(sent.encode()) % 4 == 0 and case.path not in {APPLY, FORECAST}:
            return
        if case.path_parameters and not meta_of(case).is_negative_at(ParameterLocation.PATH):
            case.path_parameters = {name: self.fresh(name) for name in case.path_parameters}
            self.join(case.path_parameters)
            if case.path.endswith("/resume/"):
                self._made(case.formatted_path.removeprefix("/api/v1").replace("/resume/", "/pause/"))
        if isinstance(case.body, dict) and not meta_of(case).is_negative_at(ParameterLocation.BODY):
            case.body = self.filled(case.body, case.path)
            if case.path in SPEC_PATHS:
                case.body = _sane(case.body)

    def filled(self, body: Json, path: str = "") -> Json:  # noqa: C901, PLR0911, PLR0912 - one for each kind of body
        """Return a body with ids that exist."""
        filled = {**body}
        if path == "/api/v1/leases/":
            # For a new user: the number of a user's tokens is bounded.
            return {**body, "user_id": self.fresh("user_id"), "workflows": [], "expires_at": "2900-01-01T00:00:00Z"}
        if path == "/api/v1/teams/{team_id}/members/":
            return {"user_id": self.fresh("user_id"), "role": "viewer"}
        if path == "/api/v1/schedules/bulk/":
            return {"action": "pause", "ids": [self._schedule()], "dry_run": bool(body.get("dry_run"))}
        if path.endswith("/backfill/"):
            span = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:00:00Z"}
            return {**span, "dry_run": bool(body.get("dry_run"))}
        if path.endswith("/skip/"):
            return {"next": 1}
        if path == FORECAST:
            # Of few schedules: other cases have made thousands.
            filled["filter"] = {"workflow_id": self.workflow_id}
        if path == APPLY:
            return {"documents": [DECLARED], "dry_run": bool(body.get("dry_run"))}
        if body.get("workflow_id") is not None:
            filled["workflow_id"] = self.workflow_id
        if body.get("schedule_id") is not None:
            filled["schedule_id"] = self._schedule()
        if body.get("changes"):
            filled["changes"] = [{"id": self._schedule(), "set": {"interval_seconds": 600}}]
        if isinstance(body.get("shared_with"), list):
            filled["shared_with"] = [1]
        if body.get("token") is not None:
            filled["token"] = ADMIN_TOKEN
        if isinstance(body.get("schedules"), list):
            filled["schedules"] = [_sane(self.filled(one)) for one in body["schedules"]]
        if body.get("schedule_ids"):
            filled["schedule_ids"] = [self._schedule(), *body["schedule_ids"][1:]]
        return filled

    def fresh(self, name: str) -> Any:  # noqa: C901, PLR0911, PLR0912 - one for each kind of thing
        """Return the id of a new object."""
        match name:
            case "user_id":
                return self._made("/users/", {"username": f"u{uuid4().hex}"})
            case "session_id":
                return self._session()
            case "team_id":
                return self._made("/teams/", {"name": uuid4().hex})
            case "key":
                return self._key()
            case "token_id":
                # Of a new user: the number of a user's tokens is bounded.
                return self._made(f"/users/{self.fresh('user_id')}/tokens/", {"name": "t"})
            case "lease_id":
                body = {"agent": "a", "expires_at": "2900-01-01T00:00:00Z", "user_id": self.fresh("user_id")}
                return self._made("/leases/", body)
            case "workflow_id":
                return self._workflow()
            case "schedule_id":
                return self._schedule()
            case "notification_id":
                return self._made("/notifications/", {"url": "https://example.com"})
            case "webhook_id":
                return self._made("/webhooks/", {"url": "https://example.com", "interval_minutes": 5})
            case "limit_name":
                return self._limit()
            case "secret_name":
                return self._secret()
            case "calendar_name":
                return self._made("/calendars/", {"name": uuid4().hex}, "name")
            case "operation_id":
                return self._made("/schedules/bulk/", {"action": "pause", "ids": [self._schedule()]})
            case "execution_id":
                return self._made(f"/schedules/{self._schedule()}/run/")
        raise AssertionError(f"nobody knows what a {name} is")

    def join(self, ids: Json) -> None:
        """Let a user belong to a team, where a path names both."""
        if {"team_id", "user_id"} <= ids.keys():
            body = {"user_id": ids["user_id"], "role": "viewer"}
            path = f"{self.address}/api/v1/teams/{ids['team_id']}/members/"
            self.session.post(path, json=body, headers=AUTHORIZATION).raise_for_status()

    def _key(self) -> str:
        """Return the key of a workflow and of a schedule."""
        key = uuid4().hex
        nodes = [{"id": "start", "type": "trigger_schedule"}]
        workflow_id = self._made("/workflows/", {"name": "w", "nodes": nodes, "key": key})
        self._made("/schedules/", {"name": "s", "workflow_id": workflow_id, "interval_seconds": 300, "key": key})
        return key

    def _session(self) -> int:
        tokens = f"{self.address}/api/v1/users/{self.fresh('user_id')}/tokens/"
        token = self.session.post(tokens, json={"name": "t"}, headers=AUTHORIZATION).json()["token"]
        login = f"{self.address}/api/v1/session/"
        self.session.post(login, json={"token": token}).raise_for_status()
        self.session.cookies.clear()
        headers = {"Authorization": f"Bearer {token}"}
        listed = self.session.get(f"{self.address}/api/v1/sessions/", headers=headers).json()
        return int(listed["items"][0]["id"])

    def _secret(self) -> str:
        url = f"{self.address}/api/v1/secrets/PLANT/"
        self.session.put(url, json={"value": "v"}, headers=AUTHORIZATION).raise_for_status()
        return "PLANT"

    def _limit(self) -> str:
        name = uuid4().hex
        body: Json = {"name": name, "max_concurrent": 1}
        self.session.post(f"{self.address}/api/v1/limits/", json=body, headers=AUTHORIZATION).raise_for_status()
        return name

    def _workflow(self) -> Any:
        return self._made("/workflows/", {"name": "w", "nodes": [{"id": "start", "type": "trigger_schedule"}]})

    def _schedule(self) -> Any:
        return self._made("/schedules/", {"name": "s", "workflow_id": self.workflow_id, "interval_seconds": 300})

    def _made(self, path: str, body: Json | None = None, key: str = "id") -> Any:
        response = self.session.post(f"{self.address}/api/v1{path}", json=body, headers=AUTHORIZATION)
        response.raise_for_status()
        return response.json()[key]


def _sane(body: Json) -> Json:
    """The same with a spec that says when, in words that no schema can tell from others."""
    nulls = ("every", "cron", "rrule", "at", "after", "only_between", "id")
    sane: Json = {**dict.fromkeys(nulls), "exclude_calendars": [], "only_calendars": []}
    sane |= {"timezone": "UTC", "not_on": ["sat"]}
    return body | {name: value for name, value in sane.items() if name in body} | {"interval_seconds": 300}


def meta_of(case: ApiCase) -> CaseMetadata:
    """Return how a case was made; every generated case says so."""
    assert case.meta is not None
    return case.meta


def is_negative(case: ApiCase) -> bool:
    """Whether a case is meant to be refused."""
    return meta_of(case).generation.mode.is_negative


def fitting_data_is_accepted(_context: object, response: schemathesis.Response, case: ApiCase) -> None:
    """What fits the document is refused only for what no schema can say."""
    if is_negative(case) or response.status_code not in {400, 422}:
        return
    problem = response.json()
    if problem["code"] != "wrong_state":
        assert [] == [error for error in problem["errors"] if not BEYOND_SCHEMAS.search(error["message"])]


@pytest.fixture(scope="module")
async def shared_settings(postgres: EmbeddedPostgres, valkey: EmbeddedValkey) -> AsyncIterator[Settings]:
    """One database for all calls; each case makes what it needs."""
    connection = await asyncpg.connect(host=str(postgres.socket_folder), user="carillon", database="postgres")
    await connection.execute("CREATE DATABASE test_openapi TEMPLATE carillon")
    yield load_settings(
        {
            "CARILLON_DATABASE_URL": postgres.url.replace("/carillon?", "/test_openapi?"),
            "CARILLON_REDIS_URL": valkey.url,
            "CARILLON_ADMIN_TOKEN": ADMIN_TOKEN,
            "CARILLON_PUBLIC_URL": "https://carillon.example",
            "CRON_RUN_TOKEN": ADMIN_TOKEN,
            "CARILLON_RATE_LIMIT_PER_MINUTE": "0",
            **{f"CARILLON_QUOTA_{kind}": "0" for kind in ("NOTIFICATIONS", "SCHEDULES", "WORKFLOWS")},
        }
    )
    await connection.execute("DROP DATABASE test_openapi WITH (FORCE)")
    await connection.close()


@pytest.fixture(scope="module")
def address(shared_settings: Settings) -> Iterator[str]:
    """The API in a thread with a loop of its own, as schemathesis blocks while it waits for an answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(wire_api(shared_settings), log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture
def world(address: str) -> Iterator[World]:
    """What exists; a call that never succeeds on it has not been tried."""
    with requests.Session() as session:
        session.trust_env = False
        made = World(address, session)
        yield made
        assert [] == [name for name, statuses in made.met.items() if min(statuses) >= 300 and name not in NEVER_SUCCEED]


# Of the cases that are to be refused, so many are tried of each call, and of the rest one in three; EXAMPLES=2: all.
ALL_REFUSALS, SAMPLED = 20, 3
WITHOUT_TOKEN = 5
# A stream goes on until it is closed.
TRIED = sorted(name for name, _ in operations() if name != "GET /api/v1/live/")


@pytest.mark.parametrize("name", TRIED)
def test_calls_behave_as_the_document_says(name: str, world: World) -> None:
    """Whatever is sent, the answer is one of those that are told, and what must not pass does not.

    The cases are made here: ``SCHEMA.parametrize`` makes those of all calls in every process that collects the tests.
    """
    method, path = name.split()
    refusals, tried = count(), count()

    def check(case: ApiCase) -> None:
        if is_negative(case) and (number := next(refusals)) >= ALL_REFUSALS and number % SAMPLED and FACTOR == 1:
            return
        world.fill(case)
        response = case.call_and_validate(
            base_url=world.address,
            session=world.session,
            headers=AUTHORIZATION,
            timeout=60,
            additional_checks=[fitting_data_is_accepted],
            # The answer without a token does not depend on the case: the check calls once more.
            excluded_checks=[*EXCLUDED_CHECKS, *([ignored_auth] if next(tried) >= WITHOUT_TOKEN else [])],
        )
        if not is_negative(case):
            world.met.setdefault(case.operation.label, set()).add(response.status_code)

    load_all_checks()
    build_operation_test(
        config=SCHEMA.config,
        operation=SCHEMA[path][method],
        test_func=check,
        given_kwargs={},
        feedback=FeedbackSources(),
    )()
    assert name in world.met
