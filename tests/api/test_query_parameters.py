"""Parameters of a query: those that a call does not know are refused, on every call (`app.api.requests`)."""

from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest
from msgspec.structs import replace

from app.config import Settings
from tests.support.api_server import serving
from tests.support.carillon import ADMIN_TOKEN, Carillon
from tests.support.unconnected_api import APPLICATION, DOCUMENT

CRON_TOKEN = "the-token-of-pings"
METRICS_TOKEN = "the-token-of-prometheus"
TOKENS = {"/api/cron/run": CRON_TOKEN, "/metrics": METRICS_TOKEN}
VALUES = {"UUID": "00000000-0000-4000-8000-000000000000", "int": "1", "str": "X", "Path": "a/b"}


def calls() -> Iterator[tuple[str, str]]:
    """Every method and path of the application, but for the pages of the documentation and of the console."""
    for route in APPLICATION.routes:
        path = route.path_format
        if path == "/" or path.startswith("/console"):
            continue
        for name, parameter in route.path_parameters.items():
            path = path.replace(f"{{{name}}}", VALUES[parameter.type.__name__])
        for handler in getattr(route, "route_handlers", ()):
            methods = handler.http_methods - {"OPTIONS"}
            yield from ((method, path) for method in methods if not path.startswith(("/schema", TAKES_ANY)))


LOGINS = (("POST", "/api/v1/session"), ("GET", "/api/v1/session/oidc/start"))
MAY_REPEAT = ("label",)
# Identity providers send browsers here with parameters of their own.
TAKES_ANY = "/api/v1/session/oidc/callback"


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[Carillon]:
    """An API in which every call that can have a token has one."""
    async with serving(replace(settings, cron_run_token=CRON_TOKEN, metrics_token=METRICS_TOKEN)) as client:
        yield client


async def test_every_call_refuses_parameters_that_it_does_not_know(api: Carillon) -> None:
    """With 422, by name; without a token it is 401, as with parameters that exist."""
    listed = sorted(calls())
    assert 50 < len(listed)
    for method, path in listed:
        stranger = await api.raw(method, path, params={"nonsense": "1"})
        needs_none = path.startswith(("/health", "/.well-known")) or (method, path) in LOGINS
        assert (422 if needs_none else 401) == stranger.status_code, (method, path)
        headers = {"Authorization": f"Bearer {TOKENS.get(path, ADMIN_TOKEN)}"}
        refused = await api.raw(method, path, params={"nonsense": "1"}, headers=headers)
        assert 422 == refused.status_code, (method, path, refused.text)
        problem = refused.json()
        assert ("validation", ["nonsense"]) == (problem["code"], [error["field"] for error in problem["errors"]])


async def test_every_documented_parameter_is_known(api: Carillon) -> None:
    """Whatever the value of it is worth, it is not refused as unknown; given twice, it is refused for that."""
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            parameters = operation.get("parameters", ())
            url = path
            for one in (one for one in parameters if one["in"] == "path"):
                url = url.replace(f"{{{one['name']}}}", VALUES["UUID" if "format" in one["schema"] else "int"])
            for name in (one["name"] for one in parameters if one["in"] == "query"):
                once = await api.raw(method, f"{url}?{name}=1", headers=api._headers)
                assert "does not take" not in once.text
                twice = await api.raw(method, f"{url}?{name}=1&{name}=1", headers=api._headers)
                assert 422 == twice.status_code, (url, twice.text)
                if name in MAY_REPEAT:
                    continue
                expected = [{"field": name, "message": "This parameter may be given only once."}]
                assert expected == twice.json()["errors"]


async def test_the_refusal_names_what_can_be_asked(standing: Carillon) -> None:
    """A misspelt filter is noticed; a call without parameters says so."""
    problem = await standing.call("GET", "/breakers/?cursr=x&limit=2", 422)
    assert [("cursr", "This call does not take this parameter. It takes: team_id, limit, cursor.")] == [
        (error["field"], error["message"]) for error in problem["errors"]
    ]
    problem = await standing.call("GET", "/me/?verbose", 422)
    assert "This call does not take this parameter. It takes none." == problem["errors"][0]["message"]


@pytest.mark.parametrize(
    "query", ["=", "=1", "%00=1", "%ff=%fe", "a", "&&a", "limit=1;offset=2", "LIMIT=1", "limit[]=1"]
)
async def test_odd_queries_are_refused_not_failures(standing: Carillon, query: str) -> None:
    """Whatever their bytes are."""
    await standing.call("GET", f"/schedules/?{query}", 422)


@pytest.mark.parametrize("query", ["", "&", "&&"])
async def test_an_empty_query_is_none(standing: Carillon, query: str) -> None:
    """As separators without parameters are."""
    await standing.call("GET", f"/schedules/?{query}")


async def test_the_documentation_ignores_parameters(standing: Carillon) -> None:
    """Links to it may carry anything."""
    for path in ("/schema", "/schema/openapi.json"):
        assert 200 == (await standing.raw("GET", path, params={"utm_source": "x"})).status_code


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=x", "Expected an integer."),
        ("limit=0", "Expected an integer of at least 1."),
        ("limit=501", "Expected an integer of at most 500."),
        ("workflow_id=", "Expected an integer."),
        (f"owner_id={'x' * 256}", "Expected at most 255 characters."),
        ("cursor=%21", "The value has characters that are not allowed here."),
        ("status=asleep", "Invalid enum value 'asleep'. Allowed: active, paused, done, dead."),
    ],
)
async def test_what_is_wrong_with_a_parameter_is_said_in_words(standing: Carillon, query: str, message: str) -> None:
    """Without the types and expressions of the code."""
    problem = await standing.call("GET", f"/schedules/?{query}", 422)
    assert [(query.partition("=")[0], message)] == [(one["field"], one["message"]) for one in problem["errors"]]


@pytest.mark.parametrize(
    ("path", "name"), [("/slots/", "schedule_ids"), ("/slots/?last=5", "schedule_ids"), ("/search/", "q")]
)
async def test_a_missing_parameter_is_named(standing: Carillon, path: str, name: str) -> None:
    """As a missing field of a body is."""
    problem = await standing.call("GET", path, 422)
    assert [{"field": name, "message": "This parameter is required."}] == problem["errors"]


async def test_a_bad_parameter_has_the_name_that_the_query_gives_it(standing: Carillon) -> None:
    """Not the one that the code has for it."""
    problem = await standing.call("GET", "/audit/?actor=%00", 422)
    assert ["actor"] == [error["field"] for error in problem["errors"]]


@pytest.mark.parametrize(("path", "name", "most"), [("/slots/", "schedule_ids", 100), ("/schedules/", "ids", 500)])
async def test_too_many_ids_are_refused_by_their_number(standing: Carillon, path: str, name: str, most: int) -> None:
    """Not by the number of their characters."""
    ids = ",".join(str(uuid4()) for _ in range(most + 1))
    problem = await standing.call("GET", f"{path}?{name}={ids}", 422)
    assert [{"field": name, "message": f"At most {most} ids can be given."}] == problem["errors"]


@pytest.mark.parametrize("path", ["/health/live", "/api/v1/session/"])
@pytest.mark.parametrize(("query", "expected"), [("", 204), ("?nonsense=1", 422)])
async def test_options_are_answered_with_and_without_a_query(
    standing: Carillon, path: str, query: str, expected: int
) -> None:
    """Also of calls without a token, whose parameters a guard checks before any handler."""
    assert expected == (await standing.raw("OPTIONS", f"{path}{query}")).status_code
