"""Quotas for each user, and the largest values that an object may have.

Covers app.persistence.quotas, app.persistence.users, app.services.admission.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from app.config import Settings, SettingsError, load_settings
from app.domain.limits import DEFAULT_CAPS
from app.domain.run_ids import first_id_at
from app.engine.housekeeping import Housekeeper
from app.persistence.database import Database
from app.wiring import limits_of
from tests.support.api_server import serving
from tests.support.carillon import Carillon, Json, engine_of, fire_and_read, make_due, until

URL = "https://example.com/hook"
NODES = [{"id": "start", "type": "trigger_schedule"}]
EVERY = {"name": "s", "interval_seconds": 300}

Opened = Callable[..., AbstractAsyncContextManager[Carillon]]


@pytest.fixture
def serving_with(settings: Settings) -> Opened:
    """The API with other settings."""

    @asynccontextmanager
    async def opened(**changes: Any) -> AsyncIterator[Carillon]:
        async with serving(replace(settings, **changes)) as client:
            yield client

    return opened


async def made(client: Carillon, kind: str) -> tuple[str, Json]:
    """The path and the body of one more object of a kind."""
    if kind == "schedules":
        found = (await client.call("GET", "/workflows/"))["items"]
        workflow = found[0] if found else await client.workflow()
        return "/schedules/", {**EVERY, "workflow_id": workflow["id"]}
    bodies: dict[str, Json] = {
        "workflows": {"name": "w", "nodes": NODES},
        "webhooks": {"url": URL, "interval_minutes": 5},
        "notifications": {"url": URL},
    }
    return f"/{kind}/", bodies[kind]


@pytest.mark.parametrize("kind", ["schedules", "workflows", "webhooks", "notifications"])
async def test_a_quota_holds_for_each_user(serving_with: Opened, kind: str) -> None:
    """The next one is 409 with the numbers, for admins too; others have their own, and one less makes room."""
    async with serving_with(**{f"quota_{kind}": 2}) as carillon:
        mia = await carillon.member()
        for client in (carillon, mia):
            path, body = await made(client, kind)
            first, _ = [await client.call("POST", path, 201, json=body) for _ in range(2)]
            problem = await client.call("POST", path, 409, json=body)
            assert ("quota_exceeded", 2, 2) == (problem["code"], problem["limit"], problem["used"])
            assert f"may have 2 {kind} and has 2" in problem["detail"]
            await client.call("DELETE", f"{path}{first['id']}/", 204)
            await client.call("POST", path, 201, json=body)


@pytest.mark.parametrize("kind", ["schedules", "workflows", "webhooks", "notifications"])
async def test_a_quota_holds_for_each_team(serving_with: Opened, kind: str) -> None:
    """Beside those of its members, in a batch too."""
    async with serving_with(**{f"quota_{kind}": 1}) as carillon:
        mia = await carillon.member()
        team = await mia.call("POST", "/teams/", 201, json={"name": "ops"})
        path, body = await made(mia, kind)
        if kind != "workflows":
            await mia.call("POST", path, 201, json=body)
        own = {**body, "team_id": team["id"]}
        if kind == "schedules":
            own["workflow_id"] = (await mia.workflow(team_id=team["id"]))["id"]
            problem = await mia.call("POST", "/schedules/batch/", 409, json={"schedules": [own, own]})
            assert ("quota_exceeded", 1, 0) == (problem["code"], problem["limit"], problem["used"])
        await mia.call("POST", path, 201, json=own)
        problem = await mia.call("POST", path, 409, json=own)
        assert ("quota_exceeded", 1, 1) == (problem["code"], problem["limit"], problem["used"])


@pytest.mark.parametrize("kind", ["schedules", "workflows", "webhooks", "notifications"])
async def test_concurrent_requests_do_not_pass_a_quota(settings: Settings, kind: str) -> None:
    """By two processes of the API at once: as many are made as there is room for."""
    limited = replace(settings, **{f"quota_{kind}": 3})
    async with serving(limited) as one, serving(limited) as other:
        path, body = await made(one, kind)
        answers = await asyncio.gather(
            *(client.request("POST", path, json=body) for client in (one, other) for _ in range(8))
        )
        statuses = sorted(answer.status_code for answer in answers)
        assert [201] * 3 + [409] * 13 == statuses


async def test_a_batch_fits_into_the_quota_as_a_whole(serving_with: Opened) -> None:
    """``used`` is what there is; nothing of a batch that does not fit is made."""
    async with serving_with(quota_schedules=5) as carillon:
        workflow = await carillon.workflow()
        body = {**EVERY, "workflow_id": workflow["id"]}
        await carillon.call("POST", "/schedules/batch/", 201, json={"schedules": [body] * 3})
        problem = await carillon.call("POST", "/schedules/batch/", 409, json={"schedules": [body] * 3})
        assert ("quota_exceeded", 5, 3) == (problem["code"], problem["limit"], problem["used"])
        await carillon.call("POST", "/schedules/batch/", 422, json={"schedules": [body] * 3 + [{}]})
        await carillon.call("POST", "/schedules/batch/", 201, json={"schedules": [body] * 2})


async def test_the_tool_keeps_the_quota(settings: Settings, database: Database) -> None:
    """A workflow that makes schedules fails when there is no room."""
    limited = replace(settings, quota_schedules=2)
    async with serving(limited) as carillon:
        arguments = {**EVERY, "workflow_id": (await carillon.workflow())["id"]}
        tool = {"id": "make", "type": "scheduler_tools"}
        node = {**tool, "config": {"tool": "create_schedule", "arguments": arguments}}
        schedule = await carillon.schedule(await carillon.workflow(node))
        async with engine_of(limited) as engine:
            for _ in range(2):
                due = await make_due(database, schedule)
                await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
        runs = await carillon.runs(schedule)
        assert ["success", "failed"] == [run["status"] for run in runs]
        assert "The owner may have 2 schedules and has 2." in runs[1]["error"]


async def test_without_a_quota_nothing_is_counted(carillon: Carillon, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default for schedules and workflows: creating them costs no further question."""

    async def counted(*_: Any) -> Any:
        raise AssertionError("counted without a quota")

    monkeypatch.setattr("app.persistence.users.lock_and_count", counted)
    await carillon.schedule()


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"max_retries": 1001}, "max_retries"),
        ({"timeout_seconds": 30 * 86_400 + 1}, "timeout_seconds"),
        ({"trigger_payload": {"s": "x" * 65_536}}, "trigger_payload"),
    ],
)
async def test_a_schedules_values_have_bounds(carillon: Carillon, values: Json, field: str) -> None:
    """422 on POST, in a batch and on PATCH; the largest values are accepted."""
    workflow = await carillon.workflow()
    body = {**EVERY, "workflow_id": workflow["id"]}
    problem = await carillon.call("POST", "/schedules/", 422, json={**body, **values})
    assert [field] == [error["field"] for error in problem["errors"]]
    batch = {"schedules": [body, {**body, **values}]}
    problem = await carillon.call("POST", "/schedules/batch/", 422, json=batch)
    assert [f"schedules[1].{field}"] == [error["field"] for error in problem["errors"]]
    largest = {"max_retries": 1000, "timeout_seconds": 30 * 86_400, "trigger_payload": {"s": "x" * (65_536 - 8)}}
    schedule = await carillon.call("POST", "/schedules/", 201, json={**body, **largest})
    problem = await carillon.call("PATCH", f"/schedules/{schedule['id']}/", 422, json=values)
    assert [field] == [error["field"] for error in problem["errors"]]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"max_retries": 1001}, "max_retries"),
        ({"timeout_seconds": 30 * 86_400 + 1}, "timeout_seconds"),
        ({"payload": {"s": "x" * 65_536}}, "payload"),
    ],
)
async def test_a_webhooks_values_have_bounds(carillon: Carillon, values: Json, field: str) -> None:
    """422 on POST and on PATCH."""
    body = {"url": URL, "interval_minutes": 5}
    problem = await carillon.call("POST", "/webhooks/", 422, json={**body, **values})
    assert [field] == [error["field"] for error in problem["errors"]]
    webhook = await carillon.call("POST", "/webhooks/", 201, json=body)
    problem = await carillon.call("PATCH", f"/webhooks/{webhook['id']}/", 422, json=values)
    assert [field] == [error["field"] for error in problem["errors"]]


async def test_what_is_stored_beyond_the_bounds_stays_usable(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """It can be edited in other fields, also by a client that sends the old values back, and it fires."""
    schedule = await carillon.schedule()
    webhook = await carillon.call("POST", "/webhooks/", 201, json={"url": URL, "interval_minutes": 5})
    async with database.transaction() as connection:
        for table, payload in (("scheduled_jobs", "trigger_payload"), ("webhooks", "payload")):
            await connection.execute(
                text(
                    f"UPDATE {table} SET max_retries = 5000, timeout_seconds = 9999999, "
                    f"{payload} = jsonb_build_object('s', repeat('x', 70000))"
                )
            )
    path = f"/schedules/{schedule['id']}/"
    stored = await carillon.get(schedule)
    same = {name: stored[name] for name in ("max_retries", "timeout_seconds", "trigger_payload")}
    renamed = await carillon.call("PATCH", path, json={"name": "renamed", **same})
    assert ("renamed", 5000, same["trigger_payload"]) == tuple(
        renamed[name] for name in ("name", "max_retries", "trigger_payload")
    )
    await carillon.call("PATCH", path, 422, json={"max_retries": 5001})
    await carillon.call("PATCH", f"/webhooks/{webhook['id']}/", json={"name": "renamed", "max_retries": 5000})
    async with engine_of(settings) as engine:
        due = await make_due(database, schedule)
        await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    assert ["success"] == [run["status"] for run in await carillon.runs(schedule)]


async def test_settings_raise_the_bounds(serving_with: Opened) -> None:
    """For those who need more."""
    raised = {"max_retries_limit": 2000, "timeout_seconds_limit": 9_999_999, "payload_bytes_limit": 100_000}
    async with serving_with(**raised) as carillon:
        values: Json = {"max_retries": 2000, "timeout_seconds": 9_999_999, "trigger_payload": {"s": "x" * 90_000}}
        await carillon.schedule(**values)
        workflow = await carillon.workflow()
        over = {**EVERY, "workflow_id": workflow["id"], "max_retries": 2001}
        await carillon.call("POST", "/schedules/", 422, json=over)


async def test_the_document_shows_the_default_bounds(standing: Carillon) -> None:
    """In OpenAPI, for POST and PATCH of schedules and webhooks."""
    document = (await standing.raw("GET", "/schema/openapi.json")).json()
    for name in ("ScheduleInput", "ScheduleChanges", "WebhookInput", "WebhookChanges"):
        properties = document["components"]["schemas"][name]["properties"]
        assert (1000, 2_592_000) == (properties["max_retries"]["maximum"], properties["timeout_seconds"]["maximum"])
    assert DEFAULT_CAPS == limits_of(Settings()).caps


@pytest.mark.parametrize("name", ["QUOTA_SCHEDULES", "QUOTA_PARKED_RUNS", "MAX_RETRIES_LIMIT"])
def test_a_bad_limit_is_refused_at_the_start(name: str) -> None:
    """By name."""
    with pytest.raises(SettingsError, match=f"CARILLON_{name}"):
        load_settings({f"CARILLON_{name}": "-1"})


async def test_an_admin_gives_single_owners_other_quotas(serving_with: Opened) -> None:
    """They are shown and audited; owners of a team cannot set them; without them the settings hold again."""
    async with serving_with(quota_schedules=1) as carillon:
        mia = await carillon.member()
        team = await mia.call("POST", "/teams/", 201, json={"name": "ops"})
        assert {} == team["quotas"]
        workflow = await mia.workflow(team_id=team["id"])
        path, body = "/schedules/", {**EVERY, "workflow_id": workflow["id"], "team_id": team["id"]}
        quotas = {"quotas": {"schedules": 2, "history_days": 7}}
        await mia.call("PATCH", f"/teams/{team['id']}/", 403, json=quotas)
        changed = await carillon.call("PATCH", f"/teams/{team['id']}/", json=quotas)
        assert quotas["quotas"] == changed["quotas"] == (await mia.call("GET", f"/teams/{team['id']}/"))["quotas"]
        (event, *_) = (await carillon.call("GET", "/audit/", params={"action": "team_changed"}))["items"]
        assert {"quotas": {"from": {}, "to": quotas["quotas"]}} == event["changes"]

        async def is_refused() -> Json | None:
            answer = await mia.request("POST", path, json=body)
            # The process may know the old quota for a second.
            return answer.json() if answer.status_code == 409 and answer.json()["limit"] == 2 else None

        problem = await until(is_refused)
        assert 2 == problem["used"]
        await carillon.call("PATCH", f"/teams/{team['id']}/", json={"quotas": {}})
        assert {} == (await mia.call("GET", f"/teams/{team['id']}/"))["quotas"]


async def test_quotas_of_a_user_are_checked(carillon: Carillon) -> None:
    """Unknown names and negative numbers are refused; the built-in admin may have quotas, too."""
    me = await carillon.call("GET", "/me/")
    for wrong in ({"lunches": 1}, {"schedules": -1}, {"schedules": "many"}):
        await carillon.call("PATCH", f"/users/{me['id']}/", 422, json={"quotas": wrong})
    changed = await carillon.call("PATCH", f"/users/{me['id']}/", json={"quotas": {"runs_at_once": 3}})
    assert {"runs_at_once": 3} == changed["quotas"]


_MAKE_OLD = text("UPDATE workflow_executions SET id = :id, finished_at = :at WHERE scheduled_job_id = :job")
_OLD_ENTRY = text(
    "INSERT INTO ledger_entries (scheduled_job_id, first_slot, last_slot, slot_count, outcome, reason) "
    "VALUES (:job, :at, :at, 1, 'missed', 'down')"
)


async def test_history_of_an_owner_is_deleted_after_the_days_of_its_quota(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """The history of others is kept."""
    team = await carillon.call("POST", "/teams/", 201, json={"name": "ops"})
    await carillon.call("PATCH", f"/teams/{team['id']}/", json={"quotas": {"history_days": 7}})
    own = await carillon.schedule()
    of_team = await carillon.schedule(await carillon.workflow(team_id=team["id"]), team_id=team["id"])
    for schedule in (own, of_team):
        await fire_and_read(carillon, settings, database, schedule)
    old = datetime.now(UTC) - timedelta(days=8)
    async with database.transaction() as connection:
        for number, schedule in enumerate((own, of_team)):
            values = {"job": UUID(schedule["id"]), "at": old, "id": UUID(int=first_id_at(old).int + number)}
            await connection.execute(_MAKE_OLD, values)
            await connection.execute(_OLD_ENTRY, values)
    await Housekeeper(database, 30).keep_weeks()
    assert [1, 0] == [len(await carillon.runs(schedule)) for schedule in (own, of_team)]
    entries = [await carillon.ledger(schedule) for schedule in (own, of_team)]
    assert [1, 0] == [[entry["reason"] for entry in of_one].count("down") for of_one in entries]
