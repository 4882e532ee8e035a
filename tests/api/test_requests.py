"""How requests are authenticated and how their bodies are read (`app.api.requests`).

Covers app.api.handlers.
"""

import gc
from typing import Any

import pytest
from litestar import Litestar

from app.config import Settings
from tests.support.api_server import serving
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


async def test_an_application_that_was_closed_is_forgotten(settings: Settings) -> None:
    """What is known of its handlers goes with them, so that a process may start many."""

    def applications() -> int:
        gc.collect()
        return sum(type(one) is Litestar for one in gc.get_objects())

    before = applications()
    async with serving(settings, is_kept=False) as client:
        await client.call("POST", "/users/", 201, json={"username": "mia"}, headers={"Idempotency-Key": "k"})
        assert before + 1 == applications()
    assert before == applications()


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
    assert ["workflow_id", "interval_seconds"] == [error["field"] for error in problem["errors"]]


@pytest.mark.parametrize(
    ("path", "body", "errors"),
    [
        (
            "/schedules/",
            {"name": "   ", "workflow_id": 1, "crn": "* * * * *", "if_running": "wait"},
            {
                "name": "Expected a string of 1 to 255 characters that are not all white space.",
                "crn": "There is no field 'crn'. Did you mean 'cron'?",
                "if_running": "Expected one of 'skip', 'queue', 'cancel', 'allow'.",
            },
        ),
        ("/schedules/", {}, {"name": "This field is required.", "workflow_id": "This field is required."}),
        ("/schedules/", [], {"": "Expected an object, got an array."}),
        (
            "/schedules/batch/",
            {"schedules": [{"name": 5}, 7]},
            {
                "schedules[0].name": "Expected a string of 1 to 255 characters that are not all white space, "
                "got an integer.",
                "schedules[0].workflow_id": "This field is required.",
                "schedules[1]": "Expected an object, got an integer.",
            },
        ),
        (
            "/users/",
            {"username": "a b", "role": "boss"},
            {
                "username": "Expected 1 to 255 letters, digits, `_`, `.`, `@` and `-` that begin with a letter or a "
                "digit.",
                "role": "Expected one of 'admin', 'member'.",
            },
        ),
        (
            "/workflows/",
            {"name": "\t", "nodes": [{"id": "a"}], "edges": [{"from": "a", "to": "b", "via": "c"}]},
            {
                "name": "Expected a string of 1 to 255 characters that are not all white space.",
                "nodes[0].type": "This field is required.",
                "edges[0].via": "There is no field 'via'.",
            },
        ),
    ],
)
async def test_all_errors_of_a_body_are_named_in_plain_words(
    standing: Carillon, path: str, body: Any, errors: dict[str, str]
) -> None:
    """With the values that are allowed, and no regular expressions."""
    problem = await standing.call("POST", path, 422, json=body)
    assert ("validation", "Some fields are not valid.") == (problem["code"], problem["detail"])
    assert errors == {error["field"]: error["message"] for error in problem["errors"]}


@pytest.mark.parametrize("path", [f"/executions/{ID}/cancel/", "/breakers/1/reset/"])
async def test_a_call_without_a_body_refuses_a_broken_one(carillon: Carillon, path: str) -> None:
    """What is JSON is ignored, as ever."""
    for content in (b"{bad", b"\xff", b"[" * 5000):
        refused = await carillon.request("POST", path, content=content, headers=JSON)
        assert (400, "malformed") == (refused.status_code, refused.json()["code"])
    for content in (b"", b"{}", b'{"note": "x"}'):
        answer = await carillon.request("POST", path, content=content, headers=JSON)
        assert 404 == answer.status_code, answer.text
