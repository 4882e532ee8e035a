"""How requests are authenticated and how their bodies are read (`app.api.requests`)."""

import pytest

from tests.support.carillon import ADMIN_TOKEN, Carillon

ID = "00000000-0000-4000-8000-000000000000"
JSON = {"Content-Type": "application/json"}
BODIES = {"malformed": b"{", "not UTF-8": b'{"name": "\xff"}', "too large": b'"' + b"x" * 300_000 + b'"'}


@pytest.mark.parametrize("path", ["/schedules/", f"/schedules/{ID}/pause/", f"/executions/{ID}/complete/"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_authentication_precedes_reading_the_body(carillon: Carillon, path: str, body: bytes) -> None:
    """A request without a token is refused for that, whatever its body."""
    response = await carillon.raw("POST", f"/api/v1{path}", content=body, headers=JSON)
    assert (401, "unauthenticated") == (response.status_code, response.json()["code"])


async def test_options_needs_no_token(carillon: Carillon) -> None:
    """A browser asks for the methods of a path before it has anything to prove."""
    assert 204 == (await carillon.raw("OPTIONS", "/api/v1/schedules/")).status_code


async def test_a_missing_body_is_an_empty_object(carillon: Carillon) -> None:
    """Calls without required fields accept it; others name the field that is missing."""
    schedule = await carillon.schedule()
    assert "paused" == (await carillon.call("POST", f"/schedules/{schedule['id']}/pause/"))["status"]
    problem = await carillon.call("POST", "/users/", 422)
    assert ["username"] == [error["field"] for error in problem["errors"]]


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/x-www-form-urlencoded"])
async def test_a_body_is_read_as_json_whatever_its_content_type(carillon: Carillon, content_type: str) -> None:
    """As 0.1.0 did: clients that forget the header still work."""
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": content_type}
    response = await carillon.raw("POST", "/api/v1/users/", content=b'{"username": "mia"}', headers=headers)
    assert 201 == response.status_code


async def test_a_text_is_not_a_number(carillon: Carillon) -> None:
    """Bodies are read strictly; Litestar alone would convert the text."""
    body = {"name": "s", "workflow_id": "1", "interval_seconds": "300"}
    problem = await carillon.call("POST", "/schedules/", 422, json=body)
    assert ["workflow_id"] == [error["field"] for error in problem["errors"]]
