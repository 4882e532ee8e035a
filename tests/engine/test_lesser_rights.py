"""A run has only the rights that both owners have: the schedule's and the workflow's.

Covers app.services.action_ports.
"""

from functools import partial
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from app.config import Settings
from app.engine.ticks import TickEngine
from app.persistence.database import Database
from app.persistence.row_cache import SubjectCache
from tests.engine.test_parked_runs import wait, wake_up
from tests.support.carillon import Carillon, Json, engine_of, http_node, make_due, until, working
from tests.support.http_sink import Sink


def node(kind: str, **config: Any) -> Json:
    """The one node of a workflow."""
    return {"id": "work", "type": kind, "config": config}


async def on_a_members_workflow(carillon: Carillon, mia: Carillon, action: Json) -> Json:
    """An admin's schedule on a workflow of the member's."""
    workflow = await mia.workflow(action)
    return await carillon.schedule(workflow, name="deputy", workflow_owner=workflow["user_profile_id"], max_retries=9)


async def fired(carillon: Carillon, engine: TickEngine, database: Database, schedule: Json) -> Json:
    """Fire a schedule by hand; its latest execution."""
    due = await make_due(database, schedule)
    await engine.execute_scheduled_job(UUID(schedule["id"]), due["generation"])
    run = (await carillon.runs(schedule))[-1]
    execution: Json = await carillon.call("GET", f"/executions/{run['id']}/")
    return execution


async def set_role(database: Database, username: str, role: str) -> None:
    """Give a user another role."""
    async with database.transaction() as connection:
        await connection.execute(
            text("UPDATE user_profiles SET role = :role WHERE username = :name"), {"role": role, "name": username}
        )


def names_of(execution: Json) -> list[str]:
    """The schedules that ``list_schedules`` has found."""
    return sorted(one["name"] for one in execution["nodes"][0]["output"]["schedules"])


async def test_an_admins_schedule_lists_what_the_workflows_owner_may_see(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """At the first run and at those that find both owners in the worker's cache; a changed role counts at once."""
    mia = await carillon.member()
    await carillon.schedule(name="admin's")
    await mia.schedule(name="mia's")
    deputy = await on_a_members_workflow(carillon, mia, node("scheduler_tools", tool="list_schedules"))
    async with engine_of(settings) as engine:
        for _ in range(3):
            assert ["mia's"] == names_of(await fired(carillon, engine, database, deputy))
        await set_role(database, "mia", "admin")
        assert ["admin's", "deputy", "mia's"] == names_of(await fired(carillon, engine, database, deputy))
        assert ["admin's", "deputy", "mia's"] == names_of(await fired(carillon, engine, database, deputy))
        await set_role(database, "mia", "member")
        assert ["mia's"] == names_of(await fired(carillon, engine, database, deputy))
        assert ["mia's"] == names_of(await fired(carillon, engine, database, deputy))


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("scheduler_tools", {"tool": "stop_schedule", "arguments": {"schedule_id": "VICTIM"}}),
        ("scheduler_tools", {"tool": "pause_schedule", "arguments": {"schedule_id": "VICTIM"}}),
        ("core.schedules.pause", {"schedule_id": "VICTIM"}),
        ("core.schedules.resume", {"schedule_id": "VICTIM"}),
        ("core.schedules.run", {"schedule_id": "VICTIM"}),
    ],
)
async def test_a_member_cannot_reach_the_schedules_of_others_through_an_admins(
    carillon: Carillon, settings: Settings, database: Database, kind: str, config: Json
) -> None:
    """They look as if they did not exist; nothing happens to them."""
    mia = await carillon.member()
    victim = await carillon.schedule(name="victim")
    filled = {**config, **({"arguments": {"schedule_id": victim["id"]}} if "arguments" in config else {})}
    filled |= {"schedule_id": victim["id"]} if "schedule_id" in config else {}
    deputy = await on_a_members_workflow(carillon, mia, node(kind, **filled))
    async with engine_of(settings) as engine:
        execution = await fired(carillon, engine, database, deputy)
    assert ("failed", "Node 'work': There is no such schedule.") == (execution["status"], execution["error"])
    assert ("active", []) == ((await carillon.get(victim))["status"], await carillon.runs(victim))


async def test_a_foreign_workflow_costs_a_plain_tick_no_further_read(
    carillon: Carillon, settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both owners are read once; after that the claim says that they are unchanged."""
    mia = await carillon.member()
    deputy = await on_a_members_workflow(carillon, mia, node("core.noop"))
    reads = 0
    read = SubjectCache.read

    async def counted(*arguments: Any) -> Any:
        nonlocal reads
        reads += 1
        return await read(*arguments)

    monkeypatch.setattr(SubjectCache, "read", counted)
    async with engine_of(settings) as engine:
        for _ in range(4):
            assert "success" == (await fired(carillon, engine, database, deputy))["status"]
    assert 1 == reads


async def test_an_admins_schedule_creates_as_the_workflows_owner(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """What is made is the member's; a workflow of somebody else is not there, named or not."""
    mia = await carillon.member()
    hers, foreign = await mia.workflow(), await carillon.workflow()
    made = {"name": "made", "workflow_id": hers["id"], "every": "7m"}
    deputy = await on_a_members_workflow(carillon, mia, node("scheduler_tools", tool="create_schedule", arguments=made))
    named = {**made, "workflow_id": foreign["id"], "workflow_owner": foreign["user_profile_id"]}
    thief = await on_a_members_workflow(carillon, mia, node("scheduler_tools", tool="create_schedule", arguments=named))
    async with engine_of(settings) as engine:
        created = (await fired(carillon, engine, database, deputy))["nodes"][0]["output"]
        refused = await fired(carillon, engine, database, thief)
    assert hers["user_profile_id"] == created["user_profile_id"]
    assert ("failed", "Node 'work': There is no such workflow.") == (refused["status"], refused["error"])


async def test_an_admins_schedule_purges_only_what_is_the_workflows_owners(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """Ended executions of others stay."""
    mia = await carillon.member()
    other, mine = await carillon.schedule(), await mia.schedule()
    purge = node("core.history.purge", older_than_days=0)
    deputy = await on_a_members_workflow(carillon, mia, purge)
    async with engine_of(settings) as engine:
        for schedule in (other, mine):
            await fired(carillon, engine, database, schedule)
        await _age(database)
        execution = await fired(carillon, engine, database, deputy)
    assert {"deleted": 1} == execution["nodes"][0]["output"]
    assert (1, 0) == (len(await carillon.runs(other)), len(await mia.runs(mine)))


@pytest.mark.parametrize(("kind", "answer"), [("core.webhooks.retry", "retried"), ("core.webhooks.purge", "deleted")])
async def test_an_admins_schedule_handles_only_the_deliveries_of_the_workflows_owner(
    carillon: Carillon, settings: Settings, database: Database, kind: str, answer: str
) -> None:
    """Given up notices of others are neither tried again nor deleted."""
    mia = await carillon.member()
    for client in (carillon, mia):
        await client.call("POST", "/notifications/", 201, json={"url": "https://example.com/told"})
    async with database.transaction() as connection:
        await connection.execute(
            text(
                "INSERT INTO deliveries (notification_id, event, data, status, created_at) "
                "SELECT id, 'run_failed', '{}', 'failed', now() - interval '40 days' FROM notifications"
            )
        )
    deputy = await on_a_members_workflow(carillon, mia, node(kind))
    async with engine_of(settings) as engine:
        execution = await fired(carillon, engine, database, deputy)
    assert {answer: 1} == execution["nodes"][0]["output"]
    async with database.transaction() as connection:
        left = await connection.execute(
            text(
                "SELECT u.username FROM deliveries AS d JOIN notifications AS n ON n.id = d.notification_id "
                "JOIN user_profiles AS u ON u.id = n.user_profile_id WHERE d.status = 'failed'"
            )
        )
        assert ["admin"] == list(left.scalars())


async def test_two_members_have_no_rights_in_common(carillon: Carillon, settings: Settings, database: Database) -> None:
    """An admin who has become a member keeps the schedule, and its runs fail before their first node."""
    mia = await carillon.member()
    deputy = await on_a_members_workflow(carillon, mia, node("core.noop"))
    await set_role(database, "admin", "member")
    async with engine_of(settings) as engine:
        execution = await fired(carillon, engine, database, deputy)
    assert ("failed", []) == (execution["status"], execution["nodes"])
    assert "may not use this workflow" in execution["error"]
    assert execution["error"] == (await carillon.get(deputy))["last_error"]


async def test_a_removed_member_makes_no_call_for_the_team(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink
) -> None:
    """Neither by a new run nor by one that was parked before: nothing is signed with the team's key."""
    mia, eve = await carillon.member(), await carillon.member("eve")
    user = (await eve.call("GET", "/me/"))["id"]
    team = await mia.call("POST", "/teams/", 201, json={"name": "ops"})
    await mia.call("GET", "/signing-key/", params={"team_id": team["id"]})
    await mia.call("POST", f"/teams/{team['id']}/members/", 201, json={"user_id": user, "role": "editor"})
    calling, sleeping = [
        await eve.schedule(
            await mia.workflow(*before, http_node(sink.url), team_id=team["id"]),
            workflow_owner=team["id"],
            max_retries=9,
        )
        for before in ((), (wait(600),))
    ]
    async with engine_of(settings) as engine:
        assert "success" == (await fired(eve, engine, database, calling))["status"]
        assert 1 == len(sink.calls)
        parked = await fired(eve, engine, database, sleeping)
        assert "running" == parked["status"]
    await mia.call("DELETE", f"/teams/{team['id']}/members/{user}/", 204)
    await eve.call("PATCH", f"/schedules/{calling['id']}/", json={"trigger_payload": {"amount": 1_000_000}})
    await wake_up(database, sleeping)
    async with working(settings):
        run = await eve.call("POST", f"/schedules/{calling['id']}/run/", 202)
        for execution in (run, parked):
            ended = await until(partial(_failed, eve, execution))
            assert "may not use this workflow" in ended["error"]
    assert 1 == len(sink.calls)


async def _failed(client: Carillon, execution: Json) -> Json | None:
    shown: Json = await client.call("GET", f"/executions/{execution['id']}/")
    return shown if shown["status"] == "failed" else None


async def test_a_members_schedule_on_an_admins_workflow_acts_as_the_member(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """An admin's nodes have the rights of the schedule's owner only."""
    mia = await carillon.member()
    await carillon.schedule(name="admin's")
    schedule = await mia.schedule(name="mia's")
    workflow = await carillon.workflow(node("scheduler_tools", tool="list_schedules"))
    moved = {"workflow_id": workflow["id"], "workflow_owner": workflow["user_profile_id"]}
    await carillon.call("PATCH", f"/schedules/{schedule['id']}/", json=moved)
    async with engine_of(settings) as engine:
        assert ["mia's"] == names_of(await fired(carillon, engine, database, schedule))


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
async def test_members_cannot_raise_alarms_in_the_log(
    carillon: Carillon, settings: Settings, database: Database, level: str
) -> None:
    """Warnings and errors of a member's run are of level info and name the wanted level; admins' are as they say."""
    mia = await carillon.member()
    say = node("core.log", message="the house is on fire", level=level)
    schedules = [
        await carillon.schedule(await carillon.workflow(say)),
        await mia.schedule(await mia.workflow(say)),
        await on_a_members_workflow(carillon, mia, say),
    ]
    lines: list[Json] = []
    async with engine_of(settings) as engine:
        for schedule in schedules:
            with capture_logs() as events:
                await fired(carillon, engine, database, schedule)
            lines += [dict(event) for event in events if event["event"] == "workflow_logged"]
    shown = [(line["log_level"], line.get("wanted_level")) for line in lines]
    lowered = ("info", level) if level in {"warning", "error"} else (level, None)
    # Below the level of the log there is nothing to see.
    expected = [(level, None), lowered, lowered]
    assert (expected if level != "debug" else []) == [one for one in shown if one[0] != "debug"]
    assert all(line["words"] == "the house is on fire" for line in lines)


async def _age(database: Database) -> None:
    """Let all executions lie an hour back, their ids too: the time of the slot stands in them."""
    async with database.transaction() as connection:
        await connection.execute(
            text(
                "UPDATE workflow_executions SET id = CAST(lpad(to_hex(CAST(1000 * extract(epoch FROM "
                "scheduled_for - interval '1 hour') AS bigint)), 12, '0') "
                "|| right(replace(CAST(id AS text), '-', ''), 20) AS uuid), "
                "scheduled_for = scheduled_for - interval '1 hour', "
                "started_at = started_at - interval '1 hour', finished_at = finished_at - interval '1 hour'"
            )
        )


async def test_runs_of_a_team_have_the_teams_rights(carillon: Carillon, settings: Settings, database: Database) -> None:
    """They list and create for the team, and reach nothing of its members."""
    mia = await carillon.member()
    team = await mia.call("POST", "/teams/", 201, json={"name": "ops"})
    own = {"team_id": team["id"]}
    await mia.schedule(name="mia's")
    target = await mia.workflow(**own)
    arguments = {"name": "made", "workflow_id": target["id"], "interval_seconds": 60}
    listing = await mia.workflow(node("scheduler_tools", tool="list_schedules"), **own)
    making = await mia.workflow(node("scheduler_tools", tool="create_schedule", arguments=arguments), **own)
    async with engine_of(settings) as engine:
        made = await fired(mia, engine, database, await mia.schedule(making, name="maker", **own))
        assert "success" == made["status"], made
        found = await fired(mia, engine, database, await mia.schedule(listing, name="lister", **own))
    assert ["lister", "made", "maker"] == names_of(found)
    assert [team["id"]] == [
        one["team_id"] for one in (await mia.call("GET", "/schedules/"))["items"] if one["name"] == "made"
    ]


async def test_a_members_schedule_on_a_teams_workflow_acts_as_the_team(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """As long as the member may write in the team: a changed role counts at the next run."""
    mia, eve = await carillon.member(), await carillon.member("eve")
    user = (await eve.call("GET", "/me/"))["id"]
    team = await mia.call("POST", "/teams/", 201, json={"name": "ops"})
    members = f"/teams/{team['id']}/members/"
    await mia.call("POST", members, 201, json={"user_id": user, "role": "editor"})
    listing = await mia.workflow(node("scheduler_tools", tool="list_schedules"), team_id=team["id"])
    await mia.schedule(await mia.workflow(team_id=team["id"]), team_id=team["id"], name="team's")
    body = {"name": "eve's", "workflow_id": listing["id"], "interval_seconds": 300}
    await eve.call("POST", "/schedules/", 409, json=body)
    schedule = await eve.schedule(listing, name="eve's", workflow_owner=team["id"])
    async with engine_of(settings) as engine:
        for _ in range(2):
            assert ["team's"] == names_of(await fired(eve, engine, database, schedule))
        await mia.call("PATCH", f"{members}{user}/", json={"role": "operator"})
        for _ in range(2):
            refused = await fired(eve, engine, database, schedule)
            assert ("failed", []) == (refused["status"], refused["nodes"])


async def test_runs_of_a_member_do_not_reach_the_teams_of_the_member(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """A role in a team is for requests: a run has what its owner has."""
    mia = await carillon.member()
    team = await mia.call("POST", "/teams/", 201, json={"name": "ops"})
    shared = await mia.schedule(await mia.workflow(team_id=team["id"]), team_id=team["id"], name="team's")
    listing = await mia.workflow(node("scheduler_tools", tool="list_schedules"))
    stopping = await mia.workflow(
        node("scheduler_tools", tool="stop_schedule", arguments={"schedule_id": shared["id"]})
    )
    async with engine_of(settings) as engine:
        assert ["mine"] == names_of(await fired(mia, engine, database, await mia.schedule(listing, name="mine")))
        assert "failed" == (await fired(mia, engine, database, await mia.schedule(stopping)))["status"]
    await mia.get(shared)
