"""``/api/v1/schedules`` as a client sees it.

Covers app.api.problems, app.domain.errors, app.engine.schedule_changes, app.services.schedules,
app.services.validation, app.services.views.schedules.
"""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from app.domain.schedules import EDITABLE
from app.persistence.database import Database
from tests.support.carillon import Carillon, Json, moment

NOBODY = "00000000-0000-4000-8000-000000000001"
READABLE = {
    *("id", "name", "description", "workflow_id", "trigger_node_id", "user_profile_id", "owner_kind", "owner_id"),
    *("team_id", "health", "workflow_name", "namespace", "paused_until", "lease_id"),
    "interval_seconds",
    *("start_at", "end_at", "total_repeats", "max_retries", "backoff_base_seconds", "timeout_seconds", "catch_up"),
    *("every", "cron", "at", "after", "timezone", "jitter_seconds", "only_between", "not_on", "spec_description"),
    *(
        "misfire_grace_seconds",
        "if_running",
        "max_queued",
        "trigger_payload",
        "status",
        "status_reason",
        "current_repeat",
    ),
    *("current_retry", "run_count", "error_count", "last_run_at", "next_run_at", "last_error", "next_slot"),
    *("last_error_at", "last_outcome", "last_attempt_at", "last_execution_id"),
    *("last_fired_at", "last_success_at", "last_success_execution_id", "dead_at", "created_at", "updated_at"),
}


async def test_creating_plans_the_first_run(carillon: Carillon) -> None:
    """201, the object, its defaults, one interval from creation."""
    schedule = await carillon.schedule()
    assert READABLE | {*EDITABLE} == schedule.keys()
    assert ("active", "", 0, 3, 600, {}) == (
        schedule["status"],
        schedule["status_reason"],
        schedule["total_repeats"],
        schedule["max_retries"],
        schedule["timeout_seconds"],
        schedule["trigger_payload"],
    )
    assert timedelta(seconds=300) == moment(schedule["next_run_at"]) - moment(schedule["created_at"])
    assert schedule == await carillon.get(schedule)


async def test_paths_work_with_and_without_the_trailing_slash(carillon: Carillon) -> None:
    """No redirect in between."""
    schedule = await carillon.schedule()
    for path in ("/schedules", "/schedules/", f"/schedules/{schedule['id']}", f"/schedules/{schedule['id']}/"):
        await carillon.call("GET", path)
    await carillon.call("POST", f"/schedules/{schedule['id']}/pause")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 256}, "name"),
        ({"name": None}, "name"),
        ({"interval_seconds": 0}, "interval_seconds"),
        ({"interval_seconds": -1}, "interval_seconds"),
        ({"interval_seconds": "300"}, "interval_seconds"),
        ({"interval_seconds": 1.5}, "interval_seconds"),
        ({"interval_seconds": 10**30}, "interval_seconds"),
        ({"interval_seconds": True}, "interval_seconds"),
        ({"total_repeats": -1}, "total_repeats"),
        ({"max_retries": -1}, "max_retries"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"backoff_base_seconds": 0}, "backoff_base_seconds"),
        ({"misfire_grace_seconds": -1}, "misfire_grace_seconds"),
        ({"if_running": "explode"}, "if_running"),
        ({"catch_up": 5}, "catch_up"),
        ({"trigger_payload": []}, "trigger_payload"),
        ({"trigger_payload": "x"}, "trigger_payload"),
        ({"start_at": "tomorrow"}, "start_at"),
        ({"start_at": "2026-01-01T00:00:00"}, "start_at"),
        ({"end_at": "9999-12-31T23:59:59Z"}, "end_at"),
        ({"start_at": "0001-01-01T00:00:00+14:00"}, "start_at"),
        ({"start_at": "2027-01-02T00:00:00Z", "end_at": "2027-01-01T00:00:00Z"}, "end_at"),
        ({"colour": "red"}, "colour"),
        ({"status": "active"}, "status"),
        ({"run_count": 5}, "run_count"),
        ({"name": "a\x00b"}, "name"),
        ({"trigger_payload": {"deep": ["x", {"k": "\x00"}]}}, "trigger_payload.deep[1].k"),
    ],
)
async def test_bad_values_are_422_and_name_the_field(standing: Carillon, change: Json, field: str) -> None:
    """On POST, and on PATCH alike."""
    schedule = await standing.schedule()
    body = {"name": "s", "workflow_id": schedule["workflow_id"], "interval_seconds": 300, **change}
    for method, path in (("POST", "/schedules/"), ("PATCH", f"/schedules/{schedule['id']}/")):
        sent = body if method == "POST" else change
        response = await standing.request(method, path, json=sent)
        problem = response.json()
        assert (422, "validation") == (response.status_code, problem["code"]), response.text
        assert "application/problem+json" == response.headers["content-type"]
        assert field in [error["field"] for error in problem["errors"]]


@pytest.mark.parametrize("missing", ["name", "workflow_id", "interval_seconds"])
async def test_a_missing_field_is_named(standing: Carillon, missing: str) -> None:
    """422."""
    body = {"name": "s", "workflow_id": 1, "interval_seconds": 300}
    del body[missing]
    problem = await standing.call("POST", "/schedules/", 422, json=body)
    assert [missing] == [error["field"] for error in problem["errors"]]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b'{"name": "\xff"}', 400),
        (b"[" * 2000 + b"]" * 2000, 400),
        (b'{"a":' * 2000 + b"1" + b"}" * 2000, 400),
        (b'{"trigger_payload":' + b"[" * 300 + b"]" * 300 + b"}", 400),
        (b"[]", 422),
        (b"5", 422),
        (b"null", 422),
        (b"", 422),
        (b'{"name": "\\ud800"}', 400),
        (b'{"name": NaN}', 400),
        (b" " * 300_000, 413),
    ],
)
async def test_garbage_is_refused_and_never_a_5xx(standing: Carillon, content: bytes, status: int) -> None:
    """Malformed, too deep, too large, not an object."""
    response = await standing.request("POST", "/schedules/", content=content)
    assert status == response.status_code, response.text
    assert "application/problem+json" == response.headers["content-type"]
    assert {"type", "title", "status", "detail", "code"} <= response.json().keys()


async def test_an_unknown_or_foreign_workflow_is_404(carillon: Carillon) -> None:
    """They look the same."""
    mine = await carillon.workflow()
    member = await carillon.member()
    for workflow_id in (mine["id"], 987_654):
        body = {"name": "s", "workflow_id": workflow_id, "interval_seconds": 1}
        problem = await member.call("POST", "/schedules/", 404, json=body)
        assert "There is no such workflow." == problem["detail"]


async def test_lists_are_newest_first_with_filters_and_pages(carillon: Carillon) -> None:
    """And a total."""
    workflow = await carillon.workflow()
    made = [await carillon.schedule(workflow, name=f"s{k}") for k in range(3)]
    other = await carillon.schedule()
    await carillon.call("POST", f"/schedules/{made[0]['id']}/pause/")
    listed = await carillon.call("GET", "/schedules/")
    assert [other["id"], *(one["id"] for one in reversed(made))] == [one["id"] for one in listed["items"]]
    assert 4 == listed["total"]
    page = await carillon.call("GET", "/schedules/", params={"limit": 2, "offset": 1})
    assert ([made[2]["id"], made[1]["id"]], 4) == ([one["id"] for one in page["items"]], page["total"])
    paused = await carillon.call("GET", "/schedules/", params={"status": "paused"})
    assert [made[0]["id"]] == [one["id"] for one in paused["items"]]
    its = await carillon.call("GET", "/schedules/", params={"workflow_id": workflow["id"]})
    assert 3 == its["total"]


async def ids(client: Carillon, **params: Any) -> list[str]:
    """List schedules, and check that the total is that of the filter."""
    page = await client.call("GET", "/schedules/", params=params)
    assert len(page["items"]) == page["total"]
    return [item["id"] for item in page["items"]]


async def test_filters_by_reason_and_owner(carillon: Carillon, database: Database) -> None:
    """Exact, combined with each other and with the others; a member sees only their own, whatever is asked."""
    mia = await carillon.member("mia")
    mine, paused = await carillon.schedule(), await carillon.schedule()
    hers = await mia.schedule()
    for client, schedule in ((carillon, paused), (mia, hers)):
        await client.call("POST", f"/schedules/{schedule['id']}/pause/")
    other = await carillon.schedule(total_repeats=1)
    async with database.transaction() as connection:
        statement = text("UPDATE scheduled_jobs SET owner_kind = 'plugin', owner_id = 'cms' WHERE id = :id")
        await connection.execute(statement, {"id": UUID(other["id"])})
    assert [hers["id"], paused["id"]] == await ids(carillon, status_reason="manual")
    assert [] == await ids(carillon, status_reason="poisoned")
    assert [paused["id"]] == await ids(carillon, status_reason="manual", owner_id=mine["owner_id"])
    assert [paused["id"]] == await ids(
        carillon,
        status_reason="manual",
        status="paused",
        owner_kind="user",
        limit=500,
        owner_id=mine["owner_id"],
        workflow_id=paused["workflow_id"],
    )
    assert [other["id"]] == await ids(carillon, owner_kind="plugin")
    assert [other["id"]] == await ids(carillon, owner_kind="plugin", owner_id="cms")
    assert [] == await ids(carillon, owner_kind="user", owner_id="cms")
    assert [hers["id"], paused["id"], mine["id"]] == await ids(carillon, owner_kind="user")
    assert [hers["id"]] == await ids(mia, status_reason="manual")
    assert [] == await ids(mia, owner_id=mine["owner_id"])


async def test_an_owner_is_named_by_id_or_username(carillon: Carillon) -> None:
    """In lists and in operations on many; a member learns nothing of others by their names."""
    mia = await carillon.member("mia")
    mine, hers = await carillon.schedule(), await mia.schedule()
    assert [hers["id"]] == await ids(carillon, owner_id="mia") == await ids(carillon, owner_id=hers["owner_id"])
    assert [mine["id"]] == await ids(carillon, owner_id="admin", owner_kind="user")
    assert [] == await ids(carillon, owner_id="nobody") == await ids(mia, owner_id="admin")
    wanted = {"action": "pause", "filter": {"owner_id": "mia"}, "dry_run": True}
    assert 1 == (await carillon.call("POST", "/schedules/bulk/", json=wanted))["count"]
    assert [] == await ids(mia, owner_kind="plugin")


async def test_pages_of_a_filter_follow_each_other(carillon: Carillon) -> None:
    """By their cursors."""
    workflow = await carillon.workflow()
    made = [await carillon.schedule(workflow) for _ in range(5)]
    for schedule in made[1:]:
        await carillon.call("POST", f"/schedules/{schedule['id']}/pause/")
    filters = {"status_reason": "manual", "owner_kind": "user", "owner_id": made[0]["owner_id"], "limit": 3}
    first = await carillon.call("GET", "/schedules/", params=filters)
    rest = await carillon.call("GET", "/schedules/", params={**filters, "cursor": first["next_cursor"]})
    assert [one["id"] for one in reversed(made[1:])] == [one["id"] for one in (*first["items"], *rest["items"])]
    assert (4, None) == (first["total"], rest["next_cursor"])


async def test_an_unknown_value_of_a_filter_is_told_the_known_ones(standing: Carillon) -> None:
    """So that a client need not look them up."""
    params = {"status": "sleepy", "status_reason": "tired", "owner_kind": "robot"}
    problem = await standing.call("GET", "/schedules/", 422, params=params)
    told = {error["field"]: error["message"].partition("Allowed: ")[2] for error in problem["errors"]}
    assert "active, paused, done, dead." == told["status"]
    of_schedules = "manual, repeat_limit, exhausted, end_reached, max_retries, invalid_spec, poisoned"
    assert f"{of_schedules}, awaiting_review, lease_expired, lease_revoked." == told["status_reason"]
    assert "user, plugin." == told["owner_kind"]


@pytest.mark.parametrize(
    "params",
    [
        {"limit": 0},
        {"limit": 501},
        {"limit": "x"},
        {"offset": -1},
        {"offset": 10**30},
        {"status": "sleepy"},
        {"status": "null"},
        {"status_reason": "tired"},
        {"owner_kind": "robot"},
        {"owner_id": "\x00"},
        {"owner_id": "x" * 256},
        {"workflow_id": "x"},
        {"workflow_id": 10**30},
    ],
)
async def test_bad_parameters_are_422(standing: Carillon, params: dict[str, Any]) -> None:
    """The parameter is named."""
    problem = await standing.call("GET", "/schedules/", 422, params=params)
    assert list(params) == [error["field"] for error in problem["errors"]]


@pytest.mark.parametrize("name", ["from", "to"])
@pytest.mark.parametrize(
    "value",
    [
        "2026-01-01",
        "2026-01-01T00:00:00",
        "1767225600",
        "null",
        "",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
    ],
)
async def test_the_ledger_wants_moments(standing: Carillon, name: str, value: str) -> None:
    """With an offset, and within the calendar."""
    schedule = await standing.schedule()
    path = f"/schedules/{schedule['id']}/ledger/"
    problem = await standing.call("GET", path, 422, params={name: value})
    assert [name] == [error["field"] for error in problem["errors"]]
    await standing.call("GET", path, params={"from": "0001-01-01T00:00:00Z", "to": "9999-12-31T23:59:59Z"})


@pytest.mark.parametrize("path", ["/schedules/nonsense/", f"/schedules/{NOBODY}/", f"/schedules/{NOBODY}/runs/"])
async def test_unknown_ids_are_404(standing: Carillon, path: str) -> None:
    """As problems."""
    problem = await standing.call("GET", path, 404)
    assert "not_found" == problem["code"]


async def test_patch_moves_the_tick_of_an_active_schedule(carillon: Carillon) -> None:
    """At once, and only if the cadence changes."""
    schedule = await carillon.schedule()
    path = f"/schedules/{schedule['id']}/"
    renamed = await carillon.call("PATCH", path, json={"name": "other", "interval_seconds": 300})
    assert ("other", schedule["next_run_at"]) == (renamed["name"], renamed["next_run_at"])
    moved = await carillon.call("PATCH", path, json={"interval_seconds": 60})
    assert moment(moved["next_run_at"]) < moment(schedule["next_run_at"])
    assert moment(moved["updated_at"]) + timedelta(seconds=60) >= moment(moved["next_run_at"])


async def test_patch_can_move_a_schedule_to_another_workflow_of_mine(carillon: Carillon) -> None:
    """A foreign one is 404."""
    schedule, workflow = await carillon.schedule(), await carillon.workflow()
    path = f"/schedules/{schedule['id']}/"
    assert workflow["id"] == (await carillon.call("PATCH", path, json={"workflow_id": workflow["id"]}))["workflow_id"]
    await carillon.call("PATCH", path, 404, json={"workflow_id": 987_654})


async def test_pause_and_resume(carillon: Carillon) -> None:
    """Resumed, it fires one interval from then, not at the old time."""
    schedule = await carillon.schedule()
    path = f"/schedules/{schedule['id']}"
    paused = await carillon.call("POST", f"{path}/pause/", json={"note": "maintenance"})
    assert ("paused", "manual", None) == (paused["status"], paused["status_reason"], paused["next_run_at"])
    problem = await carillon.call("POST", f"{path}/pause/", 400)
    assert "Cannot pause job with status 'paused'." == problem["detail"]
    resumed = await carillon.call("POST", f"{path}/resume/")
    assert "active" == resumed["status"]
    assert moment(resumed["next_run_at"]) > moment(schedule["next_run_at"])
    problem = await carillon.call("POST", f"{path}/resume/", 400)
    assert "Cannot resume job with status 'active'." == problem["detail"]


async def test_only_the_dead_are_revived(carillon: Carillon) -> None:
    """400 for the living."""
    schedule = await carillon.schedule()
    problem = await carillon.call("POST", f"/schedules/{schedule['id']}/revive/", 400)
    assert "Cannot revive job with status 'active'." == problem["detail"]


@pytest.mark.corner("manual run")
async def test_a_manual_run_obeys_if_running(carillon: Carillon) -> None:
    """409 while one is under way, unless the call overrides it."""
    schedule = await carillon.schedule()
    path = f"/schedules/{schedule['id']}/run/"
    await carillon.call("POST", path, 202)
    assert "conflict" == (await carillon.call("POST", path, 409))["code"]
    await carillon.call("POST", path, 202, json={"if_running": "allow"})


@pytest.mark.corner("DELETE")
async def test_deleting_takes_the_history_along(carillon: Carillon) -> None:
    """204, then 404, and the executions are gone."""
    schedule = await carillon.schedule()
    execution = await carillon.call("POST", f"/schedules/{schedule['id']}/run/", 202)
    await carillon.call("DELETE", f"/schedules/{schedule['id']}/", 204)
    await carillon.call("GET", f"/schedules/{schedule['id']}/", 404)
    await carillon.call("DELETE", f"/schedules/{schedule['id']}/", 404)
    await carillon.call("GET", f"/executions/{execution['id']}/", 404)


async def test_a_batch_is_created_all_or_none(carillon: Carillon) -> None:
    """Each bad one is named by its index, an unknown workflow too."""
    workflow = await carillon.workflow()
    good = {"name": "s", "workflow_id": workflow["id"], "interval_seconds": 60}
    made = await carillon.call("POST", "/schedules/batch/", 201, json={"schedules": [good] * 3})
    assert 3 == len({one["id"] for one in made["items"]})
    bad = [good, {**good, "interval_seconds": 0}, {**good, "workflow_id": 987_654}, {**good, "x": 1}]
    problem = await carillon.call("POST", "/schedules/batch/", 422, json={"schedules": bad})
    assert {"schedules[1].interval_seconds", "schedules[2].workflow_id", "schedules[3].x"} == {
        error["field"] for error in problem["errors"]
    }
    assert 3 == (await carillon.call("GET", "/schedules/"))["total"]


@pytest.mark.parametrize("count", [0, 1001])
async def test_a_batch_has_bounds(standing: Carillon, count: int) -> None:
    """1 to 1,000."""
    await standing.call("POST", "/schedules/batch/", 422, json={"schedules": [{}] * count})


async def test_batch_delete_takes_what_is_mine_and_ignores_the_rest(carillon: Carillon) -> None:
    """Unknown and foreign ids are not an error."""
    member = await carillon.member()
    foreign, mine = await carillon.schedule(), await member.schedule()
    ids = [foreign["id"], mine["id"], str(uuid4())]
    await member.call("POST", "/schedules/batch-delete/", 204, json={"schedule_ids": ids})
    await member.call("GET", f"/schedules/{mine['id']}/", 404)
    await carillon.get(foreign)


async def test_a_member_sees_and_changes_only_what_is_theirs(carillon: Carillon) -> None:
    """404 otherwise; an admin sees all."""
    member = await carillon.member()
    theirs, mine = await carillon.schedule(), await member.schedule()
    execution = await carillon.call("POST", f"/schedules/{theirs['id']}/run/", 202)
    path = f"/schedules/{theirs['id']}/"
    calls = [
        ("GET", path),
        ("PATCH", path),
        ("DELETE", path),
        *(("POST", f"{path}{verb}/") for verb in ("pause", "resume", "revive", "run")),
        *(("GET", f"{path}{part}/") for part in ("runs", "ledger")),
        ("GET", f"/workflows/{theirs['workflow_id']}/"),
        ("PATCH", f"/workflows/{theirs['workflow_id']}/"),
        ("DELETE", f"/workflows/{theirs['workflow_id']}/"),
        ("GET", f"/executions/{execution['id']}/"),
        ("POST", f"/executions/{execution['id']}/cancel/"),
    ]
    for method, target in calls:
        response = await member.request(method, target, json={} if method != "GET" else None)
        assert 404 == response.status_code, (method, target)
    listed = await member.call("GET", "/schedules/")
    assert [mine["id"]] == [one["id"] for one in listed["items"]]
    assert 0 == (await member.call("GET", "/executions/"))["total"]
    assert 1 == (await member.call("GET", "/workflows/"))["total"]
    assert 2 == (await carillon.call("GET", "/schedules/"))["total"]


async def test_instants_are_shown_in_utc(carillon: Carillon) -> None:
    """Whatever offset they were sent with, however strange."""
    schedule = await carillon.schedule(start_at="2030-01-01T00:00:00+02:00", end_at="2998-12-31T23:59:59-23:59")
    assert ("2029-12-31T22:00:00Z", "2029-12-31T22:00:00Z") == (schedule["start_at"], schedule["next_run_at"])
    assert schedule == await carillon.get(schedule)


async def test_a_schedule_that_is_deleted_meanwhile_is_404(carillon: Carillon) -> None:
    """Runs, edits and deletes at once never give a 5xx."""
    workflows = [await carillon.workflow() for _ in range(8)]
    for workflow in workflows:
        schedule = await carillon.schedule()
        path = f"/schedules/{schedule['id']}/"
        answers = await asyncio.gather(
            *(carillon.request("POST", f"{path}run/", json={"if_running": "allow"}) for _ in range(4)),
            *(carillon.request("PATCH", path, json={"workflow_id": workflow["id"]}) for _ in range(4)),
            carillon.request("DELETE", f"/workflows/{workflow['id']}/"),
            carillon.request("DELETE", path),
        )
        assert {answer.status_code for answer in answers} <= {200, 202, 204, 404}
