"""Lists of schedules by what they have: parts of names, labels, health, namespaces, kinds, ids; in several orders.

Covers app.domain.labels, app.services.schedule_views.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from app.config import Settings
from app.persistence.database import Database
from app.persistence.schedule_lists import Sort
from tests.support.carillon import Carillon, Json, fire_and_read
from tests.support.declarations import applying

FAILING = {"id": "work", "type": "core.fail", "config": {"message": "no"}}


async def names(client: Carillon, **params: Any) -> list[str]:
    """Return the names of the schedules that a list has, from all of its pages."""
    found: list[str] = []
    params = {"limit": 2, **params}
    while True:
        page: Json = await client.call("GET", "/schedules/", params=params)
        found += [item["name"] for item in page["items"]]
        assert not page["next_cursor"] or page["total"] >= len(found)
        if page["next_cursor"] is None:
            assert "offset" in params or page["total"] == len(found)
            return found
        params["cursor"] = page["next_cursor"]


async def test_a_part_of_a_name_a_key_or_the_id(carillon: Carillon) -> None:
    """In any case of letters; signs that mean something to LIKE mean themselves."""
    workflow = await carillon.workflow()
    for name, key in (("Nightly report", None), ("100% of_it", "shop/x"), ("other", "REPORTS"), ("a\\b", None)):
        await carillon.schedule(workflow, name=name, key=key)
    assert ["other", "Nightly report"] == await names(carillon, q="report")
    assert ["100% of_it"] == await names(carillon, q="% of_")
    assert ["100% of_it"] == await names(carillon, q="SHOP/")
    assert ["a\\b"] == await names(carillon, q="\\")
    assert [] == await names(carillon, q="_x_")
    schedule = await carillon.schedule(workflow, name="by id")
    assert ["by id"] == await names(carillon, q=schedule["id"]) == await names(carillon, ids=schedule["id"])
    assert [] == await names(await carillon.member(), q="report")
    await carillon.call("GET", "/schedules/", 422, params={"q": ""})


async def test_a_search_follows_changes(carillon: Carillon) -> None:
    """Of the name and of the key; a text that lies partly in one and partly in the other is in neither."""
    schedule = await carillon.schedule(name="first", key="one")
    path = f"/schedules/{schedule['id']}/"
    for changes, gone, found in (({"name": "SECOND"}, "first", "second"), ({"key": "two"}, "one", "TWO")):
        await carillon.call("PATCH", path, json=changes)
        assert ([], ["SECOND"]) == (await names(carillon, q=gone), await names(carillon, q=found, sort="name"))
    assert [] == await names(carillon, q="two\nsecond", sort="name")
    await carillon.call("PATCH", path, json={"name": "two\nlines"})
    for sort in Sort:
        assert ["two\nlines"] == await names(carillon, q="TWO\nLines", sort=sort)
    await carillon.call("DELETE", path, 204)
    assert [] == await names(carillon, q="lines")


async def test_the_host_that_a_workflow_calls(carillon: Carillon) -> None:
    """The whole host in any case of letters, not a part of another; an operation takes the same filter."""
    for host in ("db.example", "other-db.example"):
        call = {"id": "call", "type": "core.http_request", "config": {"url": f"http://{host}:8080/x"}}
        await carillon.schedule(await carillon.workflow(call), name=host)
    await carillon.schedule(name="calls nothing")
    assert ["db.example"] == await names(carillon, target_host="DB.example")
    assert [] == await names(carillon, target_host="example")
    pause = {"action": "pause", "filter": {"target_host": "db.example"}, "dry_run": True}
    assert 1 == (await carillon.call("POST", "/schedules/bulk/", json=pause))["count"]


async def test_labels(carillon: Carillon) -> None:
    """All that are named must fit; a PATCH replaces them; names and values are those of Kubernetes."""
    workflow = await carillon.workflow()
    await carillon.schedule(workflow, name="a", labels={"team": "shop", "example.org/env": "prod"})
    both = await carillon.schedule(workflow, name="b", labels={"team": "shop", "tier": ""})
    await carillon.schedule(workflow, name="c")
    assert ["b", "a"] == await names(carillon, label="team=shop")
    assert ["a"] == await names(carillon, label=["team=shop", "example.org/env=prod"])
    assert ["b"] == await names(carillon, label="tier=")
    assert [] == await names(carillon, label="team=other")
    patched = await carillon.call("PATCH", f"/schedules/{both['id']}/", json={"labels": {"x": "y"}})
    assert {"x": "y"} == patched["labels"]
    assert {"from": both["labels"], "to": {"x": "y"}} == (await carillon.history(both))[-1]["changes"]["labels"]
    for label in ("team", "=x", "a b=c", "a=b c"):
        assert (
            "label" == (await carillon.call("GET", "/schedules/", 422, params={"label": label}))["errors"][0]["field"]
        )


@pytest.mark.parametrize(
    "labels",
    [
        {"": "x"},
        {"a b": "x"},
        {"-a": "x"},
        {"a/b/c": "x"},
        {"UPPER.example/x": "x"},
        {"x" * 64: "x"},
        {"x": "y" * 64},
        {"x": "a b"},
        {"x": 1},
        {"x": None},
        {f"k{number}": "v" for number in range(33)},
        [],
    ],
)
async def test_what_is_no_label_is_refused(carillon: Carillon, labels: Any) -> None:
    """Of schedules and of workflows alike, by name."""
    schedule = await carillon.schedule()
    refused = await carillon.call("PATCH", f"/schedules/{schedule['id']}/", 422, json={"labels": labels})
    assert all(error["field"].startswith("labels") for error in refused["errors"])
    await carillon.call("PATCH", f"/workflows/{schedule['workflow_id']}/", 422, json={"labels": labels})


async def test_kinds(carillon: Carillon) -> None:
    """By how they say when they are due."""
    specs: dict[str, Json] = {
        "interval": {"every": "5m"},
        "cron": {"cron": "@daily"},
        "once": {"at": "2040-01-01T00:00:00Z"},
        "monthly": {"every": "monthly"},
        "rrule": {"rrule": "FREQ=MONTHLY;BYDAY=2TU"},
    }
    for name, spec in specs.items():
        await carillon.schedule(name=name, **spec)
    await carillon.schedule(name="later", after="3d")
    for kind in ("interval", "cron", "monthly", "rrule"):
        assert [kind] == await names(carillon, kind=kind)
    assert ["later", "once"] == await names(carillon, kind="once")
    await carillon.call("GET", "/schedules/", 422, params={"kind": "never"})


async def test_namespaces(carillon: Carillon, settings: Settings) -> None:
    """Of the file that declares a schedule; it shows it."""
    await carillon.schedule(name="by hand")
    declared = """
    namespace: shop
    workflows: [{name: w, nodes: [{id: start, type: trigger_schedule}]}]
    schedules: [{name: declared, workflow: w, every: 5m}]
    """
    async with applying(settings) as apply:
        assert [] == (await apply(declared)).problems
    assert ["declared"] == await names(carillon, namespace="shop")
    assert [] == await names(carillon, namespace="other")
    items = (await carillon.call("GET", "/schedules/", params={"fields": "name,namespace,workflow_name"}))["items"]
    assert [("declared", "shop"), ("by hand", None)] == [(item["name"], item["namespace"]) for item in items]
    assert {"w"} == {item["workflow_name"] for item in items}


async def test_a_kind_in_the_order_of_names_follows_edits(carillon: Carillon) -> None:
    """With a text and without one: an edit may make another kind of it, or another name."""
    made = {name: await carillon.schedule(name=name) for name in ("b", "a")}
    assert ["a", "b"] == await names(carillon, kind="interval", sort="name")
    path = f"/schedules/{made['a']['id']}/"
    await carillon.call("PATCH", path, json={"interval_seconds": None, "cron": "0 5 * * *"})
    for kind, expected in (("interval", ["b"]), ("cron", ["a"]), ("once", [])):
        assert expected == await names(carillon, kind=kind, sort="name")
    for change, kind in (
        ({"cron": None, "at": "2040-01-01T00:00:00Z"}, "once"),
        ({"at": None, "after": "1h"}, "once"),
        ({"after": None, "every": "monthly"}, "monthly"),
        ({"every": None, "rrule": "FREQ=DAILY"}, "rrule"),
        ({"rrule": None, "interval_seconds": 60}, "interval"),
    ):
        await carillon.call("PATCH", path, json=change)
        assert ["a"] == await names(carillon, kind=kind, q="a", sort="name"), change
    await carillon.call("PATCH", path, json={"name": "c"})
    assert ["b", "c"] == await names(carillon, kind="interval", sort="name")


async def test_health(carillon: Carillon, settings: Settings, database: Database) -> None:
    """The same word in the list, in the filter and of one schedule; every schedule has one."""
    workflow, failing = await carillon.workflow(), await carillon.workflow(FAILING)
    made = {name: await carillon.schedule(workflow, name=name) for name in ("never_ran", "paused", "late", "silent")}
    for name, flow in (("healthy", workflow), ("failing", failing)):
        made[name] = await carillon.schedule(flow, name=name, max_retries=5)
        await fire_and_read(carillon, settings, database, made[name])
    made["done"] = await carillon.schedule(workflow, name="done", at="2040-01-01T00:00:00Z")
    await carillon.call("POST", f"/schedules/{made['paused']['id']}/pause/")
    made["invalid"] = await carillon.schedule(workflow, name="invalid")
    now = datetime.now(UTC)
    async with database.transaction() as connection:
        for name, overdue in (("late", 60), ("silent", 3 * 300 + 10)):
            at = now - timedelta(seconds=overdue)
            await connection.execute(
                text("UPDATE scheduled_jobs SET next_slot = :at, next_run_at = :at WHERE name = :name"),
                {"at": at, "name": name},
            )
        await connection.execute(
            text(
                "UPDATE scheduled_jobs SET status = 'paused', status_reason = 'invalid_spec', next_slot = NULL, "
                "next_run_at = NULL WHERE name = 'invalid'"
            )
        )
        await connection.execute(
            text(
                "UPDATE scheduled_jobs SET status = 'done', status_reason = 'exhausted', next_slot = NULL, "
                "next_run_at = NULL WHERE name = 'done'"
            )
        )
    shown = (await carillon.call("GET", "/schedules/", params={"fields": "name,health"}))["items"]
    assert {name: name for name in made} == {item["name"]: item["health"] for item in shown}
    for name, schedule in made.items():
        assert [name] == await names(carillon, health=name), name
        assert [name] == await names(carillon, health=name, sort="name"), name
        assert name == (await carillon.get(schedule))["health"]
        assert [] == await names(await carillon.member(f"m{name}"), health=name)
    assert [] == await names(carillon, health="dead")
    assert ["late"] == await names(carillon, health="late", q="ate", workflow_id=workflow["id"])


async def test_marks_follow_runs(carillon: Carillon, settings: Settings, database: Database) -> None:
    """A schedule is marked until it runs, while it fails, and no longer than it exists."""
    workflow = await carillon.workflow(FAILING)
    schedule = await carillon.schedule(workflow, max_retries=5)

    async def marks() -> list[tuple[str, int]]:
        async with database.reading() as connection:
            rows = await connection.execute(text("SELECT mark, workflow_id FROM schedule_marks"))
            return [(row.mark, row.workflow_id) for row in rows]

    assert [("never_ran", workflow["id"])] == await marks()
    await fire_and_read(carillon, settings, database, schedule)
    assert [("failing", workflow["id"])] == await marks()
    other = await carillon.workflow()
    await carillon.call("PATCH", f"/schedules/{schedule['id']}/", json={"workflow_id": other["id"]})
    assert [("failing", other["id"])] == await marks()
    await fire_and_read(carillon, settings, database, schedule)
    assert [] == await marks()
    await carillon.schedule(other, name="new")
    await carillon.call("DELETE", f"/workflows/{other['id']}/", 204)
    assert [] == await marks()


@pytest.mark.parametrize("sort", Sort)
async def test_every_order_page_by_page(carillon: Carillon, settings: Settings, database: Database, sort: Sort) -> None:
    """Over all owners; schedules without the value come last, and no page repeats or leaves out one."""
    mia = await carillon.member()
    team = await mia.call("POST", "/teams/", 201, json={"name": "ops"})
    made = []
    for number, name in enumerate(("b", "d", "a", "c", "a", "e")):
        own = {"team_id": team["id"]} if number % 2 else {}
        workflow = await mia.workflow(**own)
        made.append(await mia.schedule(workflow, name=name, interval_seconds=300 + 60 * ((number * 5) % 7), **own))
    await mia.call("POST", f"/schedules/{made[1]['id']}/pause/")
    await mia.call("POST", f"/schedules/{made[2]['id']}/pause/")
    await fire_and_read(carillon, settings, database, made[3])
    await fire_and_read(carillon, settings, database, made[0])
    items = [await mia.get(schedule) for schedule in made]
    with_value = [item for item in items if item[sort.field] is not None]
    without = [item for item in items if item[sort.field] is None]
    with_value.sort(key=lambda item: (item[sort.field], item["id"]), reverse=sort.is_descending)
    without.sort(key=lambda item: item["id"], reverse=sort.is_descending)
    expected = [item["id"] for item in (*with_value, *without)]
    for limit in (1, 2, 4, 50):
        found: list[str] = []
        params: dict[str, Any] = {"sort": sort, "limit": limit, "fields": "id"}
        while True:
            page = await mia.call("GET", "/schedules/", params=params)
            found += [item["id"] for item in page["items"]]
            if page["next_cursor"] is None:
                break
            params["cursor"] = page["next_cursor"]
        assert expected == found, limit
    skipped = await mia.call("GET", "/schedules/", params={"sort": sort, "offset": 3, "fields": "id"})
    assert expected[3:] == [item["id"] for item in skipped["items"]]
    of_team = await mia.call("GET", "/schedules/", params={"sort": sort, "team_id": team["id"], "fields": "id"})
    team_ids = {schedule["id"] for schedule in made if schedule["team_id"]}
    assert [one for one in expected if one in team_ids] == [item["id"] for item in of_team["items"]]


async def test_a_cursor_of_another_order_is_refused(carillon: Carillon) -> None:
    """It does not belong to the list."""
    for name in ("a", "b"):
        await carillon.schedule(name=name)
    page = await carillon.call("GET", "/schedules/", params={"limit": 1, "sort": "name"})
    await carillon.call("GET", "/schedules/", 422, params={"limit": 1, "cursor": page["next_cursor"]})
    await carillon.call("GET", "/schedules/", 422, params={"sort": "size"})
