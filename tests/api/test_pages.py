"""Long lists in parts: from a cursor on, and counted as far as that is cheap."""

import pytest

from app.persistence import pages
from tests.carillon import Carillon


@pytest.mark.parametrize("path", ["/schedules/", "/executions/"])
async def test_a_cursor_visits_everything_once_whatever_comes_meanwhile(carillon: Carillon, path: str) -> None:
    """New ones stand before it, so that nothing is shown twice or left out."""
    workflow = await carillon.workflow()

    async def another() -> str:
        schedule = await carillon.schedule(workflow)
        run = await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)
        found: str = schedule["id"] if path == "/schedules/" else run["id"]
        return found

    made = [await another() for _ in range(7)]
    seen: list[str] = []
    cursor = {}
    while True:
        part = await carillon.call("GET", path, params={"limit": 3, **cursor})
        seen += [item["id"] for item in part["items"]]
        if part["next_cursor"] is None:
            break
        cursor = {"cursor": part["next_cursor"]}
        await another()
    assert list(reversed(made)) == seen


@pytest.mark.parametrize("cursor", ["x", "bm9wZQ", "WzEsMl0", "bnVsbA", "WyJhIiwiYiJd"])
async def test_a_cursor_that_is_none_is_refused(standing: Carillon, cursor: str) -> None:
    """By its name."""
    problem = await standing.call("GET", "/schedules/", 422, params={"cursor": cursor})
    assert "cursor" == problem["errors"][0]["field"]


async def test_a_long_list_is_not_counted_to_the_end(carillon: Carillon, monkeypatch: pytest.MonkeyPatch) -> None:
    """The total is a guess then, and says so."""
    workflow = await carillon.workflow()
    for _ in range(5):
        await carillon.schedule(workflow)
    exact = await carillon.call("GET", "/schedules/", params={"workflow_id": workflow["id"]})
    monkeypatch.setattr(pages, "COUNTED", 3)
    guessed = await carillon.call("GET", "/schedules/", params={"workflow_id": workflow["id"], "status": "active"})
    assert (5, False) == (exact["total"], exact["total_is_estimate"])
    assert guessed["total"] >= 4
    assert guessed["total_is_estimate"]
