"""The schedules of a plugin, through the port that it is handed.

Covers app.persistence.plugin_schedules, app.services.plugin_schedules, app.services.plugin_wishes.
"""

import asyncio
import os
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace
from sqlalchemy import text

from app.actions.builtin import BUILTIN
from app.actions.catalog import Catalog
from app.actions.secrets import SecretStore
from app.config import Settings
from app.engine.housekeeping import Housekeeper
from app.engine.ringing import Ringer
from app.persistence.database import Database
from app.plugin import (
    CatchUp,
    EnsureMode,
    IfRunning,
    PluginScheduleChanges,
    PluginScheduleInput,
    RefusedError,
)
from app.queue.bell import Bell, RedisPool
from app.services.admission import admission_of
from app.services.executions import ManualRunService
from app.services.plugin_schedules import Collaborators, PluginSchedules
from app.services.schedules import ScheduleService
from app.services.workflows import WorkflowService
from tests.support.carillon import FAIL, Carillon, Json, engine_of, make_due, until, working

WANTED = PluginScheduleInput(name="nightly", action="core.noop", cron="0 3 * * *")
NOBODY = UUID(int=1)


@pytest.fixture
def own(database: Database, redis: RedisPool) -> PluginSchedules:
    """The schedules of the plugin ``x``."""
    ringer = Ringer(Bell(redis))
    admission = admission_of(Catalog(BUILTIN), SecretStore(os.environ))
    return PluginSchedules(
        "x",
        Collaborators(
            database=database,
            ringer=ringer,
            schedules=ScheduleService(database, ringer),
            workflows=WorkflowService(database, ringer, admission),
            manual_runs=ManualRunService(database, ringer),
        ),
        may_schedule=True,
    )


async def shown(carillon: Carillon) -> dict[str, Json]:
    """Return the plugin's schedules as an admin sees them, by name."""
    items = (await carillon.call("GET", "/schedules/"))["items"]
    return {one["name"]: one for one in items if one["owner_kind"] == "plugin"}


async def test_every_field_that_users_have(carillon: Carillon, own: PluginSchedules) -> None:
    """Created, shown and changed."""
    wanted = PluginScheduleInput(
        name="all",
        action="core.noop",
        every="1h",
        timezone="Europe/Berlin",
        jitter_seconds=30,
        only_between="08:00-18:00",
        not_on=["saturday", 7],
        total_repeats=5,
        max_retries=1,
        backoff_base_seconds=10,
        timeout_seconds=20,
        catch_up=CatchUp.RUN_ONCE,
        misfire_grace_seconds=5,
        if_running=IfRunning.QUEUE,
        max_queued=3,
        payload={"a": 1},
    )
    made = await own.create(wanted)
    assert (3600.0, ("saturday", "sunday"), {"a": 1}) == (made.interval_seconds, made.not_on, made.payload)
    row = (await shown(carillon))["all"]
    same = ("jitter_seconds", "only_between", "catch_up", "if_running", "max_queued", "backoff_base_seconds")
    assert [getattr(wanted, name) for name in same] == [row[name] for name in same]
    changed = await own.update(made.id, PluginScheduleChanges(after="3d", only_between=None, end_at=None, not_on=[]))
    assert ("3d", None, None, ()) == (changed.after, changed.interval_seconds, changed.only_between, changed.not_on)
    assert changed == await own.get(made.id)
    assert changed == await own.find("all")
    assert [changed] == await own.list()
    assert await own.find("none") is None


async def test_its_state_is_changed(
    carillon: Carillon, own: PluginSchedules, settings: Settings, database: Database
) -> None:
    """Paused, resumed, run, revived; refusals are in words, and schedules of others are not there."""
    made = await own.create(replace(WANTED, max_retries=0))
    paused = await own.pause(made.id, "stock-taking")
    assert ("paused", "manual") == (paused.status, paused.status_reason)
    with pytest.raises(RefusedError, match="Cannot pause job with status 'paused'"):
        await own.pause(made.id)
    assert "active" == (await own.resume(made.id)).status
    run = await own.run(made.id)
    with pytest.raises(RefusedError, match="if_running is 'skip'"):
        await own.run(made.id)
    assert run.id != (await own.run(made.id, IfRunning.ALLOW)).id
    with pytest.raises(RefusedError, match="Cannot revive job with status 'active'"):
        await own.revive(made.id)
    row = (await shown(carillon))["nightly"]
    notes = [(one["action"], one["by"], one["note"]) for one in await carillon.history(row)]
    assert [("created", ""), ("paused", "stock-taking"), ("resumed", "")] == [(one[0], one[2]) for one in notes]
    assert {"plugin:x"} == {one[1] for one in notes}
    await carillon.call(
        "PATCH", f"/workflows/{made.workflow_id}/", json={"nodes": [*_start(), FAIL], "edges": _edges()}
    )

    async def nothing_runs() -> bool:
        return all(one["finished_at"] for one in await carillon.runs(row))

    async with working(settings):
        await until(nothing_runs)
    due = await make_due(database, row)
    async with engine_of(settings) as engine:
        await engine.execute_scheduled_job(made.id, due["generation"])
    dead = await own.get(made.id)
    assert ("dead", "failed", "Node 'work': boom") == (dead.status, dead.last_outcome, dead.last_error)
    assert "active" == (await own.revive(made.id)).status
    mine = UUID((await carillon.schedule())["id"])
    for refused in (own.get(mine), own.pause(mine), own.resume(mine), own.revive(mine), own.run(mine), own.get(NOBODY)):
        with pytest.raises(RefusedError, match="The plugin has no such schedule"):
            await refused


def _start() -> list[Json]:
    return [{"id": "start", "type": "trigger_schedule"}]


def _edges() -> list[Json]:
    return [{"from": "start", "to": "work"}]


async def test_an_admins_edit_survives_a_restart(carillon: Carillon, own: PluginSchedules) -> None:
    """The fields that were edited stay, the others follow the plugin, and a pause is not lifted."""
    made = await own.ensure(WANTED)
    assert made is not None
    path = f"/schedules/{made.id}"
    await carillon.call("PATCH", f"{path}/", json={"cron": "0 4 * * *", "name": "renamed"})
    await carillon.call("POST", f"{path}/pause/")
    again = await own.ensure(WANTED)
    assert again is not None
    assert (made.id, "renamed", "0 4 * * *", "paused") == (again.id, again.name, again.cron, again.status)
    assert "paused" == (await carillon.history({"id": made.id}))[-1]["action"]
    upgraded = await own.ensure(replace(WANTED, cron="0 5 * * *", max_retries=9, version=2))
    assert upgraded is not None
    assert ("0 4 * * *", 9, "paused", 2) == (upgraded.cron, upgraded.max_retries, upgraded.status, upgraded.version)
    last = (await carillon.history({"id": made.id}))[-1]
    assert ("plugin:x", {"max_retries": {"from": 3, "to": 9}}) == (last["by"], last["changes"])
    assert "The plugin asked for other values; those set by others were kept: cron." == last["note"]
    assert upgraded == await own.find("nightly")


async def test_a_conflict_without_a_change_is_told_once(carillon: Carillon, own: PluginSchedules) -> None:
    """The history has an entry that says who won, and no second one at the next start."""
    made = await own.ensure(WANTED)
    assert made is not None
    await carillon.call("PATCH", f"/schedules/{made.id}/", json={"cron": "0 4 * * *"})
    for _ in range(2):
        await own.ensure(replace(WANTED, cron="0 5 * * *"))
    *_, edit, told = await carillon.history({"id": made.id})
    assert ("admin", {}, "changed") == (edit["by"], told["changes"], told["action"])
    assert told["note"].endswith("were kept: cron.")


async def test_a_plugin_that_enforces_wins(carillon: Carillon, own: PluginSchedules) -> None:
    """Its values come back, the workflow's too; the history says over what. A pause stays."""
    made = await own.ensure(WANTED)
    assert made is not None
    await carillon.call("PATCH", f"/schedules/{made.id}/", json={"cron": "0 4 * * *"})
    nodes = {"nodes": [*_start(), FAIL], "edges": _edges()}
    await carillon.call("PATCH", f"/workflows/{made.workflow_id}/", json=nodes)
    kept = await own.ensure(WANTED)
    assert kept is not None
    assert ("0 4 * * *", "core.fail") == (kept.cron, kept.action)
    await carillon.call("POST", f"/schedules/{made.id}/pause/")
    won = await own.ensure(WANTED, EnsureMode.ENFORCE)
    assert won is not None
    assert ("0 3 * * *", "core.noop", "paused") == (won.cron, won.action, won.status)
    last = (await carillon.history({"id": made.id}))[-1]
    assert "The plugin's values replaced those set by others: cron, nodes." == last["note"]
    of_workflow = (await carillon.call("GET", f"/workflows/{made.workflow_id}/history/"))["items"]
    assert ("plugin:x", last["note"]) == (of_workflow[0]["by"], of_workflow[0]["note"])


async def test_create_only_leaves_what_exists_alone(carillon: Carillon, own: PluginSchedules) -> None:
    """Also where nobody has changed it."""
    await own.ensure(WANTED, EnsureMode.CREATE_ONLY)
    again = await own.ensure(replace(WANTED, cron="0 5 * * *"), EnsureMode.CREATE_ONLY)
    assert again is not None
    assert "0 3 * * *" == again.cron
    assert 1 == len(await shown(carillon))


@pytest.mark.parametrize("what", ["schedules", "workflows"])
async def test_a_deleted_schedule_stays_deleted(carillon: Carillon, own: PluginSchedules, what: str) -> None:
    """Until a higher version is asked for, or the plugin insists; by way of its workflow too."""
    made = await own.ensure(WANTED)
    assert made is not None
    deleted = made.id if what == "schedules" else made.workflow_id
    await carillon.call("DELETE", f"/{what}/{deleted}/", 204)
    assert [None, None] == [await own.ensure(WANTED), await own.ensure(WANTED, EnsureMode.CREATE_ONLY)]
    assert {} == await shown(carillon)
    back = await own.ensure(replace(WANTED, version=2))
    assert back is not None
    (created,) = await carillon.history({"id": back.id})
    assert ("created", "Created again, after it was deleted.") == (created["action"], created["note"])
    await carillon.call("DELETE", f"/schedules/{back.id}/", 204)
    assert await own.ensure(replace(WANTED, version=2)) is None
    assert await own.ensure(WANTED, EnsureMode.ENFORCE) is not None


async def test_what_the_plugin_deletes_or_changes_itself_is_no_edit(own: PluginSchedules) -> None:
    """It can ask for it again, and its own change is not taken for somebody else's."""
    made = await own.ensure(WANTED)
    assert made is not None
    await own.update(made.id, PluginScheduleChanges(cron="0 4 * * *", config={}))
    again = await own.ensure(WANTED)
    assert again is not None
    assert "0 3 * * *" == again.cron
    await own.delete(made.id)
    fresh = await own.ensure(WANTED)
    assert fresh is not None
    assert made.id != fresh.id


async def test_a_schedule_of_an_earlier_release_is_adopted(
    carillon: Carillon, own: PluginSchedules, database: Database
) -> None:
    """Without a record of what was asked for, the history says which fields others have changed."""
    made = await own.create(WANTED)
    async with database.transaction() as connection:
        await connection.execute(text("DELETE FROM plugin_schedules"))
    await carillon.call("PATCH", f"/schedules/{made.id}/", json={"cron": "0 4 * * *"})
    adopted = await own.ensure(replace(WANTED, cron="0 5 * * *", max_retries=9))
    assert adopted is not None
    assert (made.id, "0 4 * * *", 9) == (adopted.id, adopted.cron, adopted.max_retries)


async def test_processes_that_start_at_once_ask_for_the_same(carillon: Carillon, own: PluginSchedules) -> None:
    """One schedule, and the same answer for all."""
    answers: list[Any] = await asyncio.gather(*(own.ensure(WANTED) for _ in range(5)))
    assert 1 == len({answer.id for answer in answers})
    (row,) = (await shown(carillon)).values()
    assert ["created"] == [one["action"] for one in await carillon.history(row)]


async def test_a_one_shot_that_is_over_is_not_refused(
    carillon: Carillon, own: PluginSchedules, database: Database
) -> None:
    """A plugin asks for the same at every start, also when the time has passed long ago."""
    wanted = replace(WANTED, cron=None, at=datetime.now(UTC) + timedelta(days=1))
    made = await own.ensure(wanted)
    assert made is not None
    past = replace(wanted, at=datetime.now(UTC) - timedelta(days=1))
    async with database.transaction() as connection:
        values = {"at": past.at, "stored": msgspec.json.encode(past.at).decode()}
        await connection.execute(text("UPDATE scheduled_jobs SET at = :at, anchor_at = :at"), values)
        await connection.execute(
            text("UPDATE plugin_schedules SET wanted = wanted || jsonb_build_object('at', CAST(:stored AS jsonb))"),
            values,
        )
    again = await own.ensure(past)
    assert again is not None
    assert (made.id, past.at) == (again.id, again.at)
    assert 1 == len(await carillon.history({"id": made.id}))


@pytest.mark.parametrize("mode", [EnsureMode.CREATE_ONLY, EnsureMode.ADOPT])
async def test_a_version_is_asked_for_once(carillon: Carillon, own: PluginSchedules, mode: EnsureMode) -> None:
    """What was deleted after version 2 was asked for does not come back for version 2, whatever the mode."""
    await own.ensure(WANTED, mode)
    second = await own.ensure(replace(WANTED, version=2), mode)
    assert second is not None
    assert second == await own.get(second.id)
    await carillon.call("DELETE", f"/schedules/{second.id}/", 204)
    assert await own.ensure(replace(WANTED, version=2), mode) is None


async def test_a_process_of_an_earlier_version_undoes_nothing(carillon: Carillon, own: PluginSchedules) -> None:
    """While a plugin is upgraded, old processes start too."""
    await own.ensure(replace(WANTED, version=2, cron="0 4 * * *"))
    old = await own.ensure(WANTED)
    assert old is not None
    assert ("0 4 * * *", 2) == (old.cron, old.version)
    await carillon.call("DELETE", f"/schedules/{old.id}/", 204)
    assert [None, None] == [await own.ensure(WANTED), await own.ensure(replace(WANTED, version=2))]


async def test_a_schedule_of_an_earlier_release_can_be_deleted(
    carillon: Carillon, own: PluginSchedules, database: Database
) -> None:
    """Asking for it once makes the record by which it stays deleted."""
    made = await own.create(WANTED)
    async with database.transaction() as connection:
        await connection.execute(text("DELETE FROM plugin_schedules"))
    await own.ensure(WANTED, EnsureMode.CREATE_ONLY)
    await carillon.call("DELETE", f"/schedules/{made.id}/", 204)
    assert await own.ensure(WANTED, EnsureMode.CREATE_ONLY) is None


async def test_an_edit_during_ensure_is_seen_whole(
    carillon: Carillon, own: PluginSchedules, database: Database
) -> None:
    """The plugin waits for the workflow's lock; what an admin changes meanwhile is not overwritten."""
    made = await own.ensure(WANTED)
    assert made is not None
    async with database.transaction() as connection:
        await connection.execute(text("SELECT FROM workflows WHERE id = :id FOR UPDATE"), {"id": made.workflow_id})
        asking = asyncio.create_task(own.ensure(replace(WANTED, cron="0 5 * * *")))

        async def waits() -> bool:
            async with database.transaction() as other:
                waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
                return bool((await other.execute(waiting)).scalar_one())

        await until(waits)
        await carillon.call("PATCH", f"/schedules/{made.id}/", json={"cron": "0 23 * * *"})
    ensured = await asking
    assert ensured is not None
    assert "0 23 * * *" == ensured.cron
    assert "were kept: cron." in (await carillon.history({"id": made.id}))[-1]["note"]


async def test_a_workflow_that_was_replaced_is_left_alone(carillon: Carillon, own: PluginSchedules) -> None:
    """The plugin is told instead of being answered as if it were done."""
    made = await own.ensure(WANTED)
    assert made is not None
    renamed = {"nodes": [*_start(), {**FAIL, "id": "other"}], "edges": [{"from": "start", "to": "other"}]}
    await carillon.call("PATCH", f"/workflows/{made.workflow_id}/", json=renamed)
    with pytest.raises(RefusedError, match="The workflow of this schedule was replaced"):
        await own.update(made.id, PluginScheduleChanges(config={}))


async def test_a_schedule_renamed_to_another_name_of_the_plugin_is_not_adopted(
    carillon: Carillon, own: PluginSchedules
) -> None:
    """It is still the one that was asked for under its first name."""
    made = await own.ensure(WANTED)
    assert made is not None
    await carillon.call("PATCH", f"/schedules/{made.id}/", json={"name": "other"})
    with pytest.raises(RefusedError, match="already has a schedule of this name"):
        await own.ensure(replace(WANTED, name="other"))
    assert made.id == (await own.list())[0].id


async def test_records_that_say_nothing_are_deleted(
    carillon: Carillon, own: PluginSchedules, database: Database
) -> None:
    """A plugin that makes a schedule for each article leaves no trace of those that are gone."""
    for mode in (EnsureMode.ENFORCE, EnsureMode.ADOPT):
        made = await own.ensure(replace(WANTED, name=mode), mode)
        assert made is not None
        await carillon.call("DELETE", f"/schedules/{made.id}/", 204)
    await own.ensure(replace(WANTED, name="there"), EnsureMode.ENFORCE)
    await Housekeeper(database, 0).keep_weeks()
    async with database.transaction() as connection:
        names = await connection.execute(text("SELECT name FROM plugin_schedules ORDER BY name"))
    assert ["adopt", "there"] == list(names.scalars())


async def test_the_audit_log_names_the_plugin(carillon: Carillon, own: PluginSchedules) -> None:
    """For its workflow and its schedule, by the way `plugin`."""
    await own.ensure(WANTED)
    told = (await carillon.call("GET", "/audit/", params={"via": "plugin"}))["items"]
    assert [("plugin:x", "schedule_created"), ("plugin:x", "workflow_created")] == [
        (event["actor"], event["action"]) for event in told
    ]
