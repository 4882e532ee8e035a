"""Documents applied and exported over HTTP, by the code of the commands.

Covers app.services.views.declarations.
"""

from datetime import UTC, datetime, timedelta

import pytest
import yaml

from app.persistence.database import Database
from app.persistence.sql_batches import fetch
from tests.support.carillon import Carillon, Json, moment
from tests.support.declarations import NIGHTLY

DOCUMENT: Json = yaml.safe_load(NIGHTLY)


def acts(answer: Json) -> list[tuple[str, str, str]]:
    """Return what was done to which object."""
    return [(step["act"], step["kind"], step["name"]) for step in answer["steps"]]


async def apply(carillon: Carillon, expected: int = 200, **body: object) -> Json:
    """Apply documents."""
    answer: Json = await carillon.call("POST", "/apply/", expected, json=body)
    return answer


@pytest.mark.parametrize("body", [{"yaml": NIGHTLY}, {"documents": [DOCUMENT]}])
async def test_documents_are_applied_as_by_the_command(carillon: Carillon, body: Json) -> None:
    """A second time nothing changes; a difference is shown with both values."""
    first = await apply(carillon, **body)
    assert [("create", "workflow", "report"), ("create", "schedule", "nightly")] == acts(first)
    assert {"create": 2} == first["counts"]
    (schedule,) = (await carillon.call("GET", "/schedules/"))["items"]
    assert ("nightly", "shop", 60, True) == (
        schedule["name"],
        schedule["namespace"],
        schedule["interval_seconds"],
        schedule["next_run_at"] is not None,
    )
    assert {"keep": 2} == (await apply(carillon, **body))["counts"]
    changed = await apply(carillon, yaml=NIGHTLY.replace("1m", "2m"), dry_run=True)
    (step,) = [step for step in changed["steps"] if step["act"] == "change"]
    assert [{"path": "interval_seconds", "from": 60.0, "to": 120.0}] == step["differences"]
    assert 60 == (await carillon.get(schedule))["interval_seconds"]


async def test_a_dry_run_stores_nothing(carillon: Carillon) -> None:
    """And says what would be created."""
    answer = await apply(carillon, documents=[DOCUMENT], dry_run=True)
    assert (True, {"create": 2}) == (answer["dry_run"], answer["counts"])
    assert 0 == (await carillon.call("GET", "/workflows/"))["total"]


async def test_what_is_not_declared_any_more_is_left_or_pruned(carillon: Carillon) -> None:
    """Only within the namespaces of the documents."""
    await apply(carillon, yaml=NIGHTLY)
    await carillon.schedule()
    less = {**DOCUMENT, "schedules": []}
    assert ("leave", "schedule", "nightly") in acts(await apply(carillon, documents=[less]))
    assert ("delete", "schedule", "nightly") in acts(await apply(carillon, documents=[less], prune=True))
    assert ["s"] == [one["name"] for one in (await carillon.call("GET", "/schedules/"))["items"]]


async def test_all_errors_are_named_and_nothing_is_stored(carillon: Carillon) -> None:
    """With the line of a text, or the index of a document."""
    bad = NIGHTLY.replace("1m", "nonsense")
    refused = await apply(carillon, 422, yaml=bad)
    (error,) = refused["errors"]
    assert "yaml" == error["field"]
    assert error["message"].startswith("line 11: schedule 'nightly': every: ")
    refused = await apply(carillon, 422, documents=[DOCUMENT, {"namespace": "b", "schedules": [{"name": "x"}]}])
    assert {"documents[1]"} == {error["field"] for error in refused["errors"]}
    assert 0 == (await carillon.call("GET", "/workflows/"))["total"]


async def test_what_fails_last_takes_all_back(carillon: Carillon) -> None:
    """A workflow that is still used cannot be pruned: then nothing else of the documents is stored either."""
    await apply(carillon, yaml=NIGHTLY)
    (workflow,) = (await carillon.call("GET", "/workflows/"))["items"]
    await carillon.schedule(workflow, name="other")
    other = {"namespace": "shop", "workflows": [{**DOCUMENT["workflows"][0], "name": "new"}]}
    refused = await apply(carillon, 422, documents=[other], prune=True)
    assert "'other'" in refused["errors"][0]["message"]
    assert ["report"] == [one["name"] for one in (await carillon.call("GET", "/workflows/"))["items"]]


@pytest.mark.parametrize("body", [{}, {"yaml": NIGHTLY, "documents": [DOCUMENT]}, {"yaml": "a: [", "prune": True}])
async def test_what_is_no_document_is_refused(standing: Carillon, body: Json) -> None:
    """Both, neither, and text that is not YAML."""
    await apply(standing, 422, **body)


async def test_what_is_exported_can_be_applied(carillon: Carillon) -> None:
    """As YAML, or as JSON if the client asks for that."""
    assert {"documents": []} == await carillon.call("GET", "/export/", headers={"Accept": "application/json"})
    await apply(carillon, yaml=NIGHTLY)
    exported = await carillon.request("GET", "/export/", params={"namespace": "shop"})
    assert "application/yaml" in exported.headers["content-type"]
    assert {"keep": 2} == (await apply(carillon, yaml=exported.text))["counts"]
    as_json = await carillon.call("GET", "/export/", headers={"Accept": "application/json"})
    assert ["shop"] == [document["namespace"] for document in as_json["documents"]]
    assert {"keep": 2} == (await apply(carillon, documents=as_json["documents"]))["counts"]
    await carillon.call("GET", "/export/", 404, params={"namespace": "other"})


async def test_members_apply_and_export_what_is_theirs(carillon: Carillon) -> None:
    """A namespace of somebody else is refused without a name, and not exported."""
    mia = await carillon.member()
    await apply(carillon, yaml=NIGHTLY)
    refused = await apply(mia, 422, yaml=NIGHTLY)
    assert ["line 1: namespace: It belongs to another user."] == [error["message"] for error in refused["errors"]]
    await apply(mia, 422, documents=[{"namespace": "shop"}], prune=True)
    await mia.call("GET", "/export/", 404, params={"namespace": "shop"})
    own = {**DOCUMENT, "namespace": "mine"}
    assert {"create": 2} == (await apply(mia, documents=[own]))["counts"]
    (schedule,) = (await mia.call("GET", "/schedules/"))["items"]
    me = await mia.call("GET", "/me/")
    assert me["id"] == schedule["user_profile_id"]
    as_json = {"Accept": "application/json"}
    exported = await mia.call("GET", "/export/", headers=as_json)
    assert ["mine"] == [document["namespace"] for document in exported["documents"]]
    everything = await carillon.call("GET", "/export/", headers=as_json)
    assert ["mine", "shop"] == [document["namespace"] for document in everything["documents"]]


async def test_a_workflow_of_others_is_not_exported(carillon: Carillon, database: Database) -> None:
    """Even if a schedule of the member runs it."""
    mia = await carillon.member()
    await apply(mia, yaml=NIGHTLY)
    foreign = await carillon.workflow(name="secret")
    async with database.transaction() as connection:
        await fetch(connection, "UPDATE scheduled_jobs SET workflow_id = $1", foreign["id"])
    exported = await mia.call("GET", "/export/", headers={"Accept": "application/json"})
    assert "secret" not in str(exported)
    assert ["report"] == [one["name"] for one in exported["documents"][0]["workflows"]]


async def test_a_restricted_token_does_neither(carillon: Carillon) -> None:
    """A document may be about any workflow."""
    workflow = await carillon.workflow()
    terms = {"name": "t", "restrict": {"workflow_ids": [workflow["id"]]}}
    token = await carillon.call("POST", "/tokens/", 201, json=terms)
    restricted = carillon.with_token(token["token"])
    assert "restricted" == (await apply(restricted, 403, yaml=NIGHTLY))["code"]
    assert "restricted" == (await restricted.call("GET", "/export/", 403))["code"]


async def test_calendars_are_declared_exported_and_pruned(carillon: Carillon) -> None:
    """Schedules of the same document use them; a change plans these again, and one that is used is not pruned."""
    mia = await carillon.member()
    day = (datetime.now(UTC) + timedelta(days=1)).date()
    document: Json = {
        **DOCUMENT,
        "calendars": [{"name": "closed", "dates": [str(day)]}],
        "schedules": [
            {"name": "noon", "workflow": "report", "cron": "0 12 * * *", "exclude_calendars": ["closed"]},
            {"name": "other", "workflow": "report", "cron": "0 12 * * *", "only_calendars": ["own"]},
        ],
    }
    # One that is there already belongs to the file from now on.
    own = await mia.call("POST", "/calendars/", 201, json={"name": "own", "holidays": "DE"})
    document["calendars"].append({"name": "own", "holidays": "DE"})
    first = await apply(mia, documents=[document])
    assert {"create": 4, "keep": 1} == first["counts"]
    assert ("keep", "calendar", "own") in acts(first)
    assert own == await mia.call("GET", "/calendars/own/")
    noon = next(one for one in (await mia.call("GET", "/schedules/"))["items"] if one["name"] == "noon")
    assert day != moment(noon["next_slot"]).date()
    exported = await mia.request("GET", "/export/", params={"namespace": "shop"})
    assert {"keep": 5} == (await apply(mia, yaml=exported.text))["counts"]
    later = day + timedelta(days=1)
    changed: Json = {**document, "calendars": [{"name": "closed", "dates": [str(later)]}, document["calendars"][1]]}
    told = await apply(mia, documents=[changed])
    (step,) = [step for step in told["steps"] if step["act"] == "change"]
    assert [{"path": "dates[0]", "from": str(day), "to": str(later)}] == step["differences"]
    planned = await mia.call("GET", f"/schedules/{noon['id']}/upcoming/", params={"limit": 3})
    dates = {moment(item["slot"]).date() for item in planned["items"]}
    assert (True, False) == (day in dates, later in dates)
    events = (await mia.call("GET", "/audit/?object_type=calendar"))["items"]
    assert [("calendar_changed", "file"), ("calendar_created", "file")] == [
        (event["action"], event["via"]) for event in events[:2]
    ]
    less = {**document, "calendars": []}
    assert ("leave", "calendar", "closed") in acts(await apply(mia, documents=[less]))
    refused = await apply(mia, 422, documents=[less], prune=True)
    assert "1 schedule uses the calendar 'closed'" in refused["errors"][0]["message"]
    pruned = await apply(mia, documents=[{**less, "schedules": []}], prune=True)
    assert {("delete", "calendar", "closed"), ("delete", "calendar", "own")} <= set(acts(pruned))
    await mia.call("GET", "/calendars/closed/", 404)


async def test_calendars_that_cannot_be_declared_are_refused(carillon: Carillon) -> None:
    """By their names: public ones by members, those of another namespace, and what is no calendar."""
    mia = await carillon.member()
    shared = [{"name": "closed", "dates": ["--12-24"]}]
    await apply(mia, documents=[{"namespace": "a", "calendars": shared}])
    cases: list[tuple[Json, str]] = [
        ({"namespace": "b", "calendars": shared}, "calendar 'closed': name: The namespace 'a' declares it already."),
        ({"namespace": "b", "calendars": [{"name": "x", "public": True}]}, "calendar 'x': "),
        ({"namespace": "b", "calendars": [{"name": "x", "dates": ["2026-02-30"]}]}, "calendar 'x': dates: "),
        ({"namespace": "b", "calendars": [{"name": "x", "team_id": 1}]}, "calendar 'x': team_id: "),
    ]
    for document, expected in cases:
        refused = await apply(mia, 422, documents=[document])
        assert refused["errors"][0]["message"].startswith(expected), refused
    public = {"namespace": "c", "calendars": [{"name": "all", "public": True}]}
    assert {"create": 1} == (await apply(carillon, documents=[public]))["counts"]


async def test_limits_are_declared_exported_and_pruned(carillon: Carillon) -> None:
    """Workflows and schedules of the same document name them; one that is named is not pruned."""
    mia = await carillon.member()
    document: Json = {
        **DOCUMENT,
        "limits": [{"name": "shop", "max_concurrent": 2}, {"name": "slow", "rate": "10/m"}],
        "workflows": [{**DOCUMENT["workflows"][0], "limit": "slow"}],
        "schedules": [{**DOCUMENT["schedules"][0], "limit": "shop"}],
    }
    await mia.call("POST", "/limits/", 201, json={"name": "slow", "rate": "5/m"})
    first = await apply(mia, documents=[document])
    assert {("create", "limit", "shop"), ("change", "limit", "slow")} < set(acts(first))
    assert "10/m" == (await mia.call("GET", "/limits/slow/"))["rate"]
    exported = await mia.request("GET", "/export/", params={"namespace": "shop"})
    assert {"keep": 4} == (await apply(mia, yaml=exported.text))["counts"]
    wider: Json = {**document, "limits": [{"name": "shop", "max_concurrent": 5}, document["limits"][1]]}
    told = await apply(mia, documents=[wider])
    (step,) = [step for step in told["steps"] if step["act"] == "change"]
    assert [{"path": "max_concurrent", "from": 2, "to": 5}] == step["differences"]
    refused = await apply(mia, 422, documents=[{**document, "limits": []}], prune=True)
    assert {"'shop'", "'slow'"} == {error["message"].split()[3] for error in refused["errors"]}
    bad = {"namespace": "b", "limits": [{"name": "x"}]}
    assert "limit 'x': " in (await apply(mia, 422, documents=[bad]))["errors"][0]["message"]
    pruned = await apply(mia, documents=[{"namespace": "shop"}], prune=True)
    assert {("delete", "limit", "shop"), ("delete", "limit", "slow")} <= set(acts(pruned))
    assert [] == (await mia.call("GET", "/limits/"))["items"]
