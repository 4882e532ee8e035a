"""Answers are bounded in bytes: a page ends before it grows large, and lists leave payloads out unless asked.

Covers app.services.listing.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from app.config import Settings
from app.persistence.database import Database
from app.persistence.pagination import MOST_OFFSET, PAGE_BYTES
from tests.support.api_server import serving
from tests.support.carillon import Carillon, Json

# Of one item; more than five of them do not fit on a page.
LARGE = "x" * 200_000
SMALL_PAYLOAD = {"text": "y" * 1000}


@pytest.fixture
async def carillon(settings: Settings) -> AsyncIterator[Carillon]:
    """An API that takes larger payloads than the default allows."""
    async with serving(replace(settings, payload_bytes_limit=2 * len(LARGE))) as client:
        yield client


async def every_page(carillon: Carillon, path: str, **params: Any) -> list[list[Json]]:
    """All pages of a list, by its cursors; each of them within its bound."""
    pages: list[list[Json]] = []
    cursor: dict[str, str] = {}
    while True:
        response = await carillon.request("GET", path, params={**params, **cursor})
        assert 200 == response.status_code, response.text
        answer = response.json()
        assert len(response.content) <= PAGE_BYTES + 1000 or 1 == len(answer["items"])
        pages.append(answer["items"])
        if answer["next_cursor"] is None:
            return pages
        cursor = {"cursor": answer["next_cursor"]}


async def test_lists_of_schedules_leave_payloads_out(carillon: Carillon) -> None:
    """One schedule by itself still shows its own."""
    schedule = await carillon.schedule(trigger_payload=SMALL_PAYLOAD)
    (item,) = (await carillon.call("GET", "/schedules/"))["items"]
    shown = await carillon.get(schedule)
    assert SMALL_PAYLOAD == shown.pop("trigger_payload")
    assert shown == item


async def test_fields_say_what_a_list_shows(carillon: Carillon) -> None:
    """The id is always there, and the payload if it is named."""
    schedule = await carillon.schedule(name="named", trigger_payload=SMALL_PAYLOAD)
    (few,) = (await carillon.call("GET", "/schedules/", params={"fields": "name,status"}))["items"]
    (whole,) = (await carillon.call("GET", "/schedules/", params={"fields": "trigger_payload"}))["items"]
    assert {"id": schedule["id"], "name": "named", "status": "active"} == few
    assert {"id": schedule["id"], "trigger_payload": SMALL_PAYLOAD} == whole


@pytest.mark.parametrize("fields", ["nonsense", "name,", "", "name,generation", "name;status"])
async def test_a_field_that_there_is_not_is_refused(standing: Carillon, fields: str) -> None:
    """By the name of the parameter."""
    problem = await standing.call("GET", "/schedules/", 422, params={"fields": fields})
    assert "fields" == problem["errors"][0]["field"]


async def test_a_page_with_payloads_ends_at_its_bytes(carillon: Carillon, database: Database) -> None:
    """And goes on by its cursor, with nothing left out; the total stays that of the whole list."""
    workflow = await carillon.workflow()
    made = [(await carillon.schedule(workflow, trigger_payload={"text": LARGE}))["id"] for _ in range(12)]
    pages = await every_page(carillon, "/schedules/", fields="trigger_payload", limit=500)
    assert list(reversed(made)) == [item["id"] for page in pages for item in page]
    assert len(pages) > 2
    answer = await carillon.call("GET", "/schedules/", params={"fields": "trigger_payload", "limit": 500})
    assert 12 == answer["total"]


async def test_an_item_larger_than_a_page_is_shown_alone(carillon: Carillon, database: Database) -> None:
    """A page has one item at least, so that a cursor always goes on."""
    schedule = await carillon.schedule()
    async with database.transaction() as connection:
        statement = "UPDATE scheduled_jobs SET trigger_payload = jsonb_build_object('text', repeat('x', 2000000))"
        await connection.execute(text(statement))
    pages = await every_page(carillon, "/schedules/", fields="trigger_payload")
    assert [[schedule["id"]]] == [[item["id"] for item in page] for page in pages]


async def test_workflows_are_shown_a_page_at_a_time(carillon: Carillon) -> None:
    """Their graphs are large."""
    node = {"id": "log", "type": "core.noop", "config": {}}
    names = []
    for number in range(12):
        body = {"id": "call", "type": "core.http_request", "config": {"url": "http://x.test/", "body": LARGE}}
        names.append(f"w{number}")
        await carillon.workflow(node, body, name=names[-1])
    pages = await every_page(carillon, "/workflows/", limit=500)
    assert list(reversed(names)) == [item["name"] for page in pages for item in page]
    assert len(pages) > 2


async def test_runs_are_shown_a_page_at_a_time(carillon: Carillon) -> None:
    """They show the payloads that they had."""
    schedule = await carillon.schedule(trigger_payload={"text": LARGE}, if_running="allow")
    path = f"/schedules/{schedule['id']}/run/"
    made = [(await carillon.call("POST", path, 202))["id"] for _ in range(12)]
    pages = await every_page(carillon, f"/schedules/{schedule['id']}/runs/", limit=500)
    assert list(reversed(made)) == [item["id"] for page in pages for item in page]
    assert len(pages) > 2


async def test_a_history_is_shown_a_page_at_a_time(carillon: Carillon) -> None:
    """A change of a payload shows it twice."""
    schedule = await carillon.schedule(trigger_payload={"text": LARGE})
    for number in range(6):
        payload = {"text": f"{number}{LARGE}"}
        await carillon.call("PATCH", f"/schedules/{schedule['id']}/", json={"trigger_payload": payload})
    pages = await every_page(carillon, f"/schedules/{schedule['id']}/history/", limit=500)
    assert ["changed"] * 6 + ["created"] == [item["action"] for page in pages for item in page]
    assert len(pages) > 2


async def test_an_offset_is_bounded_and_says_what_to_use_instead(standing: Carillon) -> None:
    """On every list that has one."""
    for path in ("/schedules/", "/executions/", "/workflows/", "/webhooks/"):
        await standing.call("GET", path, params={"offset": MOST_OFFSET})
        problem = await standing.call("GET", path, 422, params={"offset": MOST_OFFSET + 1})
        assert ("offset", True) == (problem["errors"][0]["field"], "cursor" in problem["errors"][0]["message"])
