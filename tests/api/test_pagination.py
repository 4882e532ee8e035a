"""Long lists in parts: from a cursor on, and counted as far as that is cheap.

Covers app.persistence.pagination, app.api.cursors.
"""

import json
from base64 import urlsafe_b64encode

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from app.persistence import pagination, schedule_lists
from tests.support.carillon import Carillon
from tests.support.hypothesis_examples import examples


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
    cursor: dict[str, str] = {}
    while True:
        part = await carillon.call("GET", path, params={"limit": 3, **cursor})
        seen += [item["id"] for item in part["items"]]
        if part["next_cursor"] is None:
            break
        cursor = {"cursor": part["next_cursor"]}
        await another()
    assert list(reversed(made)) == seen


@pytest.mark.parametrize(
    ("lists", "others"),
    [
        (["/workflows/", "/users/", "/teams/"], ["/breakers/", "/tokens/", "/limits/"]),
        (["/executions/", "/audit/", "/operations/", "/schedules/{schedule}/runs/"], ["/timezones/"]),
        (["/schedules/", "/schedules/?sort=created_at", "/schedules/?sort=-next_run_at", "/schedules/?sort=name"], []),
    ],
)
async def test_a_cursor_of_another_list_is_refused(standing: Carillon, lists: list[str], others: list[str]) -> None:
    """Their positions look alike: with the cursor of another list, or order, rows would silently be left out."""
    schedule = await _two_of_everything(standing)
    paths = [path.format(schedule=schedule) for path in lists]
    for path in paths:
        cursor = (await standing.call("GET", path, params={"limit": 1, **_query(path)}))["next_cursor"]
        for other in [*paths, *others]:
            expected = 200 if other == path else 422
            answer = await standing.call("GET", other, expected, params={"cursor": cursor, **_query(other)})
            if expected == 422:
                text = "`cursor` does not belong to this list. Start again without it."
                assert [{"field": "cursor", "message": text}] == answer["errors"]


def _query(path: str) -> dict[str, str]:
    """The parameters in a path: httpx drops them where others are given."""
    return dict([path.partition("?")[2].split("=")]) if "?" in path else {}


async def _two_of_everything(client: Carillon) -> str:
    workflow = await client.workflow()
    schedules = [await client.schedule(workflow) for _ in range(2)]
    for number, schedule in enumerate(schedules):
        path = f"/schedules/{schedule['id']}/run/"
        await client.call("POST", path, 202)
        await client.call("POST", path, 202, json={"if_running": "allow"})
        await client.call("POST", "/teams/", 201, json={"name": f"team-{schedule['id']}"})
        await client.call("POST", "/users/", 201, json={"username": f"user-{number}-{schedule['id']}"})
        await client.call("POST", "/workflows/", 201, json={"name": "w", "nodes": workflow["nodes"]})
        await client.call("POST", "/schedules/bulk/", 202, json={"action": "pause", "ids": [schedule["id"]]})
    found: str = schedules[0]["id"]
    return found


async def test_the_usual_order_is_the_same_list_by_its_name(standing: Carillon) -> None:
    """The first page may be asked for without `sort`."""
    await _two_of_everything(standing)
    cursor = (await standing.call("GET", "/schedules/", params={"limit": 1}))["next_cursor"]
    await standing.call("GET", "/schedules/", params={"cursor": cursor, "sort": "-created_at"})


@pytest.mark.parametrize(
    "path",
    [
        *("/schedules/", "/schedules/?sort=name", "/schedules/?sort=-next_run_at", "/schedules/?q=nightly"),
        *("/workflows/", "/executions/", "/schedules/{schedule}/runs/", "/audit/"),
    ],
)
async def test_a_full_last_page_has_no_cursor(carillon: Carillon, path: str) -> None:
    """Whether there is more does not show in the number of items: a cursor must not lead to an empty page."""
    mia = await carillon.member()
    workflow = await mia.workflow()
    schedules = [await mia.schedule(workflow, name=f"nightly-{number}") for number in range(3)]
    await mia.workflow()
    for _ in range(2):
        await mia.call("POST", f"/schedules/{schedules[0]['id']}/run/", 202, json={"if_running": "allow"})
    path = path.format(schedule=schedules[0]["id"])
    whole = await mia.call("GET", path, params={"limit": 500, **_query(path)})
    for limit in {1, len(whole["items"])} - {0}:
        part = await mia.call("GET", path, params={"limit": limit, **_query(path)})
        has_more = limit < len(whole["items"])
        assert (limit, has_more) == (len(part["items"]), part["next_cursor"] is not None)
    everything = await carillon.call("GET", path, params={"limit": 500, **_query(path)})
    last = await carillon.call("GET", path, params={"limit": len(everything["items"]) or 1, **_query(path)})
    assert last["next_cursor"] is None


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
    monkeypatch.setattr(pagination, "COUNTED", 3)
    monkeypatch.setattr(schedule_lists, "COUNTED", 3)
    guessed = await carillon.call("GET", "/schedules/", params={"workflow_id": workflow["id"], "status": "active"})
    assert (5, False) == (exact["total"], exact["total_is_estimate"])
    assert guessed["total"] >= 4
    assert guessed["total_is_estimate"]


def made_up(raw: bytes) -> str:
    """Something in the form of a cursor."""
    return urlsafe_b64encode(raw).decode().rstrip("=")


MOMENTS = [
    *("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999Z"),
    *("9999-12-31T23:59:59.999999-14:00", "infinity", "-infinity", "2026-01-01T00:00:00", "2026-02-30T00:00:00Z"),
]
NUMBERS = [0, -1, 2**31, 2**63, -(2**63), 2**64, 10**400, 1.5, True, None]
TEXTS = ["", "\x00", "a\x00b", "\ud800", "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"]
keys = st.one_of(
    st.sampled_from([*MOMENTS, *NUMBERS, *TEXTS]),
    st.datetimes(timezones=st.timezones() | st.none()).map(lambda moment: moment.isoformat()),
    *(st.integers(), st.uuids().map(str), st.text(max_size=20), st.lists(st.integers(), max_size=3)),
)
cursors = st.one_of(
    st.lists(keys, max_size=3).map(lambda values: made_up(json.dumps(values).encode())),
    keys.map(lambda value: made_up(json.dumps(value).encode())),
    st.binary(max_size=100).map(made_up),
    st.just(made_up(b"[" * 300)),
    st.text(max_size=30),
)
LISTS = [
    *("/schedules/", "/executions/", "/workflows/", "/webhooks/", "/notifications/", "/breakers/", "/users/"),
    *("/schedules/{schedule}/runs/", "/schedules/{schedule}/ledger/", "/schedules/{schedule}/history/"),
    *("/entity-types/", "/users/1/tokens/", "/notifications/{notification}/deliveries/"),
]


@pytest.fixture
async def paths(standing: Carillon) -> list[str]:
    """Every list, with something in it to compare with."""
    schedule = await standing.schedule()
    await standing.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    notification = await standing.call("POST", "/notifications/", 201, json={"url": "http://x.test/"})
    return [path.format(schedule=schedule["id"], notification=notification["id"]) for path in LISTS]


@settings(examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cursor=cursors)
@example(cursor=made_up(json.dumps([MOMENTS[1], TEXTS[-1]]).encode()))
@example(cursor=made_up(json.dumps([MOMENTS[3], TEXTS[-1]]).encode()))
@example(cursor=made_up(json.dumps([MOMENTS[6], TEXTS[-1]]).encode()))
@example(cursor=made_up(json.dumps([MOMENTS[1]]).encode()))
@example(cursor=made_up(json.dumps([MOMENTS[6], 1]).encode()))
@example(cursor=made_up(json.dumps([2**63]).encode()))
@example(cursor=made_up(json.dumps([2**31]).encode()))
async def test_a_made_up_cursor_is_a_place_or_is_refused(standing: Carillon, paths: list[str], cursor: str) -> None:
    """On no list does it make the server fail."""
    for path in paths:
        response = await standing.request("GET", path, params={"cursor": cursor})
        assert response.status_code in {200, 422}, (path, cursor, response.text)


@pytest.mark.parametrize("moment", MOMENTS[:4])
@pytest.mark.parametrize("name", ["from", "to"])
async def test_the_edge_of_the_calendar_is_no_failure(standing: Carillon, name: str, moment: str) -> None:
    """A ledger is asked for by moments too."""
    schedule = await standing.schedule()
    response = await standing.request("GET", f"/schedules/{schedule['id']}/ledger/", params={name: moment})
    assert response.status_code in {200, 422}, response.text
