"""What each role in a team allows: creating objects for it, secrets and keys; and objects of teams in lists.

Every route about one object, by role, is in tests/api/test_who_may_what.py.
"""

import pytest

from tests.api.test_teams import member_with, team_of
from tests.api.test_who_may_what import WEBHOOK, objects_of
from tests.support.carillon import Carillon, Json

LISTS = ("/workflows/", "/schedules/", "/webhooks/", "/notifications/", "/executions/", "/breakers/", "/secrets/")


@pytest.mark.parametrize("role", ["viewer", "operator", "editor"])
async def test_who_creates_objects_for_a_team(carillon: Carillon, role: str) -> None:
    """Editors and owners; a team that one does not belong to looks as if it did not exist, and no user is a team."""
    mia = await carillon.member()
    team = await team_of(mia)
    client = await member_with(carillon, mia, team, role)
    workflow = await mia.workflow(team_id=team["id"])
    bodies: dict[str, Json] = {
        "/workflows/": {"name": "w", "nodes": [{"id": "start", "type": "trigger_schedule"}]},
        "/schedules/": {"name": "s", "workflow_id": workflow["id"], "interval_seconds": 60},
        "/webhooks/": WEBHOOK,
        "/notifications/": {"url": "http://127.0.0.1:9/"},
        "/secrets/": {"name": "KEY", "value": "v"},
    }
    for path, body in bodies.items():
        made = await client.call("POST", path, 201 if role == "editor" else 403, json={**body, "team_id": team["id"]})
        if role == "editor":
            assert team["id"] == made["team_id"]
        for unknown in (98765, (await client.call("GET", "/me/"))["id"]):
            for caller in (client, carillon):
                refused = await caller.call("POST", path, 404, json={**body, "team_id": unknown})
                assert "team" in refused["detail"], path
    batch = [{**bodies["/schedules/"], "team_id": team["id"]}, {**bodies["/schedules/"], "team_id": 98765}]
    await carillon.call("POST", "/schedules/batch/", 422, json={"schedules": batch})
    await mia.call("POST", "/schedules/batch/", 201, json={"schedules": batch[:1]})
    await mia.call("PATCH", f"/workflows/{workflow['id']}/", 422, json={"team_id": None})


async def test_lists_have_what_is_ones_own_and_the_teams(carillon: Carillon) -> None:
    """Newest first over all owners, page by page and by offset; `team_id` chooses one team."""
    mia = await carillon.member()
    ops, dev = await team_of(mia), await team_of(mia, "dev")
    made = []
    for number in range(9):
        team_id = (None, ops["id"], dev["id"])[number % 3]
        made.append(await mia.schedule(await mia.workflow(team_id=team_id), team_id=team_id, name=str(number)))
    names = [str(number) for number in reversed(range(9))]
    whole = await mia.call("GET", "/schedules/")
    assert (names, 9, None) == ([one["name"] for one in whole["items"]], whole["total"], whole["next_cursor"])
    paged: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await mia.call("GET", "/schedules/", params={"limit": 2, **cursor})
        paged += [one["name"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert names == paged
    middle = await mia.call("GET", "/schedules/", params={"limit": 3, "offset": 4, "fields": "name,team_id"})
    assert ["4", "3", "2"] == [one["name"] for one in middle["items"]]
    assert [ops["id"], None, dev["id"]] == [one["team_id"] for one in middle["items"]]
    workflows = (await mia.call("GET", "/workflows/", params={"limit": 4}))["items"]
    assert [one["workflow_id"] for one in reversed(made)][:4] == [one["id"] for one in workflows]


async def test_every_list_takes_a_team(carillon: Carillon) -> None:
    """For members of the team and admins; others get an empty list, as for a team that does not exist."""
    mia, olaf = await carillon.member(), await carillon.member("olaf")
    team = await team_of(mia)
    ids = await objects_of(mia, team)
    await mia.call("POST", "/secrets/", 201, json={"name": "KEY", "value": "v", "team_id": team["id"]})
    await mia.schedule(await mia.workflow(breaker_threshold=3))
    for path in LISTS:
        params = {"team_id": team["id"]}
        for client in (mia, carillon):
            assert 1 == len((await client.call("GET", path, params=params))["items"]), path
        assert [] == (await olaf.call("GET", path, params=params))["items"], path
        for unknown in (98765, (await mia.call("GET", "/me/"))["id"]):
            assert [] == (await carillon.call("GET", path, params={"team_id": unknown}))["items"], path
        assert [] == (await olaf.call("GET", path))["items"], path
    by_schedule = {"scheduled_job_id": ids["schedule_id:uuid"]}
    assert 1 == len((await mia.call("GET", "/executions/", params=by_schedule))["items"])
    assert [] == (await olaf.call("GET", "/executions/", params=by_schedule))["items"]


async def test_only_what_may_be_deleted_is_deleted_together(carillon: Carillon) -> None:
    """Schedules of a team in which one only reads are ignored, like those of others."""
    mia = await carillon.member()
    team = await team_of(mia)
    vera = await member_with(carillon, mia, team, "viewer")
    shared = await mia.schedule(await mia.workflow(team_id=team["id"]), team_id=team["id"])
    own = await vera.schedule()
    await vera.call("POST", "/schedules/batch-delete/", 204, json={"schedule_ids": [shared["id"], own["id"]]})
    await mia.get(shared)
    await vera.call("GET", f"/schedules/{own['id']}/", 404)


async def test_a_notification_that_would_never_be_delivered_is_refused(carillon: Carillon) -> None:
    """Events of a workflow go to its owner and to admins; the refusal says how to ask for them."""
    mia = await carillon.member()
    team = await team_of(mia)
    workflow, own = await mia.workflow(team_id=team["id"]), await mia.schedule()
    schedules = [
        await mia.schedule(workflow, team_id=team["id"]),
        await mia.schedule(workflow, workflow_owner=team["id"]),
    ]
    for about in ({"workflow_id": workflow["id"]}, *({"schedule_id": one["id"]} for one in schedules)):
        body = {"url": "http://127.0.0.1:9/", **about}
        (error,) = (await mia.call("POST", "/notifications/", 422, json=body))["errors"]
        assert (next(iter(about)), True) == (error["field"], f"`team_id`: {team['id']}" in error["message"])
        await mia.call("POST", "/notifications/", 201, json={**body, "team_id": team["id"]})
        await carillon.call("POST", "/notifications/", 201, json=body)
    body = {"url": "http://127.0.0.1:9/", "schedule_id": own["id"]}
    await mia.call("POST", "/notifications/", 201, json=body)
    await mia.call("POST", "/notifications/", 422, json={**body, "team_id": team["id"]})


async def test_a_secret_is_shown_as_shared_with_those_who_can_use_it(carillon: Carillon) -> None:
    """With you, for your own workflows, or with a team of yours, for the team's."""
    mia = await carillon.member()
    team = await team_of(mia)
    user = (await mia.call("GET", "/me/"))["id"]
    shares: dict[str, Json] = {
        "HERS": {"shared_with": [user]},
        "TEAMS": {"shared_with": [team["id"]]},
        "BOTH": {"shared_with": [team["id"], user]},
        "ALL": {"shared_with": "all"},
    }
    for name, share in shares.items():
        await carillon.call("POST", "/secrets/", 201, json={"name": name, "value": "v", **share})
    await mia.call("POST", "/secrets/", 201, json={"name": "OWN", "value": "v", "team_id": team["id"]})
    shown = {one["name"]: one for one in (await mia.call("GET", "/secrets/"))["items"]}
    expected = {
        "HERS": (True, []),
        "TEAMS": (False, [team["id"]]),
        "BOTH": (True, [team["id"]]),
        "ALL": (True, [team["id"]]),
        "OWN": (False, []),
    }
    assert expected == {name: (one["shared_to_you"], one["shared_to_teams"]) for name, one in shown.items()}


async def test_secrets_and_signing_keys_of_a_team(carillon: Carillon) -> None:
    """Editors and owners change them; viewers see names. A secret can be shared with a team."""
    mia = await carillon.member()
    team = await team_of(mia)
    eve, vera = await member_with(carillon, mia, team, "editor"), await member_with(carillon, mia, team, "viewer")
    own = {"team_id": team["id"]}
    made = await eve.call("PUT", "/secrets/KEY/", 201, json={"value": "v", "allowed_hosts": ["example.com"], **own})
    assert (team["id"], team["id"], False) == (made["owner"], made["team_id"], made["shared_to_you"])
    await mia.call("PUT", "/secrets/KEY/", json={"value": "w", **own})
    await mia.call("POST", "/secrets/", 409, json={"name": "KEY", "value": "w", **own})
    assert ["KEY"] == [one["name"] for one in (await vera.call("GET", "/secrets/"))["items"]]
    await vera.call("PUT", "/secrets/KEY/", 403, json={"value": "w", **own})
    await vera.call("DELETE", "/secrets/KEY/", 403, params=own)
    await vera.call("GET", "/signing-key/", 403, params=own)
    await vera.call("POST", "/signing-key/rotate/", 403, params=own)
    key = await eve.call("GET", "/signing-key/", params=own)
    assert key == await mia.call("GET", "/signing-key/", params=own)
    assert key != await mia.call("GET", "/signing-key/")
    assert key["key"] == (await mia.call("POST", "/signing-key/rotate/", params=own))["previous"]["key"]
    await carillon.call("GET", "/signing-key/", 404, params={"team_id": (await mia.call("GET", "/me/"))["id"]})
    lent = {"name": "LENT", "value": "v", "allowed_hosts": ["example.com"], "shared_with": [team["id"]]}
    await carillon.call("POST", "/secrets/", 201, json=lent)
    shown = {one["name"]: one for one in (await vera.call("GET", "/secrets/"))["items"]}
    assert (False, [team["id"]], [team["id"]], None) == tuple(
        shown["LENT"][name] for name in ("shared_to_you", "shared_to_teams", "shared_with", "team_id")
    )
    call = {"id": "call", "type": "core.http_request", "config": {"url": "https://example.com/"}}
    for name in ("KEY", "LENT"):
        call["config"] = {"url": "https://example.com/", "headers": {"x": f"{{{{ secret.{name} }}}}"}}
        await eve.workflow(call, **own)
        await eve.call(
            "POST", "/workflows/", 422, json={"name": "w", "nodes": [{"id": "a", "type": "trigger_schedule"}, call]}
        )
    await eve.call("DELETE", "/secrets/KEY/", 204, params=own)
