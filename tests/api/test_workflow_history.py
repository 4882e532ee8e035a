"""The history of a workflow: every change, by whom, when, and what it was before and after.

Covers app.domain.revisions, app.persistence.revisions.
"""

import pytest

from app.persistence import revisions
from tests.support.carillon import Carillon, Json
from tests.support.declarations import NIGHTLY, applying


async def history(client: Carillon, workflow: Json, **params: object) -> Json:
    """A page of it, newest first."""
    page: Json = await client.call("GET", f"/workflows/{workflow['id']}/history/", params=params)
    return page


async def test_every_change_stands_in_the_history(carillon: Carillon) -> None:
    """Who, when and what; a change by an admin names the admin, and values that are equal are no change."""
    mia = await carillon.member()
    workflow = await mia.workflow()
    path = f"/workflows/{workflow['id']}/"
    nodes = [*workflow["nodes"][:1], {"id": "work", "type": "core.fail", "config": {}}]
    await mia.call("PATCH", path, json={"name": "other", "active": True})
    unchanged = await mia.call("PATCH", path, json={"name": "other"})
    changed = await carillon.call("PATCH", path, json={"nodes": nodes, "max_concurrent_runs": 2})
    assert unchanged["updated_at"] < changed["updated_at"]
    page = await history(mia, workflow)
    newest, renamed, created = page["items"]
    assert page["next_cursor"] is None
    assert [("changed", "admin"), ("changed", "mia"), ("created", "mia")] == [
        (one["action"], one["by"]) for one in (newest, renamed, created)
    ]
    assert ({}, {"name": {"from": "w", "to": "other"}}) == (created["changes"], renamed["changes"])
    assert {
        "nodes": {"from": workflow["nodes"], "to": nodes},
        "max_concurrent_runs": {"from": None, "to": 2},
    } == newest["changes"]
    assert (workflow["user_profile_id"], changed["updated_at"]) == (renamed["user_profile_id"], newest["at"])
    assert {"at", "by", "user_profile_id", "action", "changes", "note"} == newest.keys()
    assert page == await history(carillon, workflow)


async def test_only_owners_and_admins_see_it(carillon: Carillon) -> None:
    """For everybody else the workflow does not exist; with the workflow its history is gone."""
    mia = await carillon.member()
    workflow = await carillon.workflow()
    await mia.call("GET", f"/workflows/{workflow['id']}/history/", 404)
    await carillon.call("DELETE", f"/workflows/{workflow['id']}/", 204)
    await carillon.call("GET", f"/workflows/{workflow['id']}/history/", 404)


@pytest.mark.parametrize(
    ("page_bytes", "limit", "lengths"), [(10_000, 2, [2, 2, 2, 1]), (96, 100, [3, 3, 1]), (1, 100, [1] * 7)]
)
async def test_pages_end_by_number_and_by_bytes(
    carillon: Carillon, monkeypatch: pytest.MonkeyPatch, page_bytes: int, limit: int, lengths: list[int]
) -> None:
    """A change here has 32 bytes. A cursor goes on where the page before ended; all of it comes, once."""
    workflow = await carillon.workflow()
    for number in range(6):
        await carillon.call("PATCH", f"/workflows/{workflow['id']}/", json={"name": f"n{number}"})
    every = (await history(carillon, workflow))["items"]
    monkeypatch.setattr(revisions, "PAGE_BYTES", page_bytes)
    pages = await _pages(carillon, workflow, limit)
    assert (lengths, every) == ([len(page) for page in pages], [item for page in pages for item in page])


async def _pages(carillon: Carillon, workflow: Json, limit: int) -> list[list[Json]]:
    """The items of each page, from the first to the last."""
    pages: list[list[Json]] = []
    cursor: Json = {}
    while True:
        page = await history(carillon, workflow, limit=limit, **cursor)
        pages.append(page["items"])
        if page["next_cursor"] is None:
            return pages
        cursor = {"cursor": page["next_cursor"]}


async def test_old_changes_are_kept_without_their_values(carillon: Carillon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who, when and which fields stay; repeated edits of a large workflow do not fill the disk."""
    monkeypatch.setattr(revisions, "KEPT_WHOLE", 2)
    workflow = await carillon.workflow()
    for number in range(4):
        await carillon.call("PATCH", f"/workflows/{workflow['id']}/", json={"name": f"n{number}"})
    items = (await history(carillon, workflow))["items"]
    whole, old, (created,) = items[:2], items[2:4], items[4:]
    assert ["n3", "n2"] == [one["changes"]["name"]["to"] for one in whole]
    assert [({"name": {}}, revisions.NOT_KEPT, "admin")] * 2 == [
        (one["changes"], one["note"], one["by"]) for one in old
    ]
    assert ("created", {}, "") == (created["action"], created["changes"], created["note"])


@pytest.mark.parametrize("cursor", ["x", "e30", "MA", "OTk5OTk5OTk5OTk5OTk5OTk5OTk", "IjEi"])
async def test_a_bad_cursor_is_422(carillon: Carillon, cursor: str) -> None:
    """Whatever is in it: nothing, an object, 0, a number that is too large, a string."""
    workflow = await carillon.workflow()
    problem = await carillon.call("GET", f"/workflows/{workflow['id']}/history/", 422, params={"cursor": cursor})
    assert ["cursor"] == [error["field"] for error in problem["errors"]]


async def test_changes_by_files_stand_in_it(carillon: Carillon) -> None:
    """By the name of the namespace; a file that changes nothing leaves no trace."""
    async with applying(carillon.settings) as apply:
        for text in (NIGHTLY, NIGHTLY, NIGHTLY.replace("core.noop", "core.fail")):
            assert [] == (await apply(text)).problems
    (workflow,) = (await carillon.call("GET", "/workflows/"))["items"]
    changed, created = (await history(carillon, workflow))["items"]
    assert ("apply:shop", "created", None) == (created["by"], created["action"], created["user_profile_id"])
    assert ("apply:shop", ["nodes"]) == (changed["by"], list(changed["changes"]))
