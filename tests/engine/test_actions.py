"""What actions answer and what that makes of a run, by real runs.

Covers app.actions.builtin.flow, app.actions.builtin.schedules, app.actions.context.
"""

import re
from typing import Any

import pytest
from aiohttp import web
from sqlalchemy import text

from app.config import Settings
from app.persistence.database import Database
from tests.support.carillon import Carillon, Json, fire_and_read
from tests.support.http_sink import Sink

LOG = {"id": "say", "type": "core.log", "config": {"message": "{{ trigger.payload.words }}"}}


def node(kind: str, node_id: str = "work", **config: Any) -> Json:
    """A node of an action."""
    return {"id": node_id, "type": kind, "config": config}


async def test_the_catalog_is_listed_with_its_schemas(carillon: Carillon) -> None:
    """Name, version, scope, whether it is safe to retry, and what its configuration must be."""
    actions = {one["name"]: one for one in (await carillon.call("GET", "/actions/"))["items"]}
    assert {"core.http_request", "core.delay", "core.noop", "core.fail", "core.log"} <= actions.keys()
    assert {
        "core.history.purge",
        "core.schedules.pause",
        "core.schedules.resume",
        "core.schedules.run",
    } <= actions.keys()
    assert (["core.http_ping"], "1", "external", "core") == tuple(
        actions["core.http_request"][name] for name in ("aliases", "version", "scope", "origin")
    )
    assert ("owner", False) == (actions["scheduler_tools"]["scope"], actions["scheduler_tools"]["retry_safe"])
    assert all(one["description"] and one["config_schema"] for one in actions.values())
    await carillon.with_token("").call("GET", "/actions/", 401)


async def test_the_catalog_can_fill_a_palette(carillon: Carillon) -> None:
    """Triggers, actions and tools, each with title, category, icon and colour, and the schema of what it returns."""
    entries = {one["name"]: one for one in (await carillon.call("GET", "/actions/"))["items"]}
    assert sorted(entries) == list(entries)
    kinds = {name: entries[name]["kind"] for name in ("trigger_schedule", "core.noop", "scheduler_tools")}
    assert {"trigger_schedule": "trigger", "core.noop": "action", "scheduler_tools": "tool"} == kinds
    for entry in entries.values():
        assert all(entry[name] for name in ("title", "description", "category", "icon")), entry["name"]
        assert re.fullmatch("#[0-9a-f]{6}", entry["color"])
        assert "outputs" in entry
    trigger = entries["trigger_schedule"]
    assert ["scheduled_job_id", "name"] == list(trigger["config_schema"]["$defs"]["TriggerConfig"]["properties"])
    assert "payload" in trigger["outputs"]["$defs"]["ScheduleEvent"]["properties"]
    tools = entries["scheduler_tools"]["config_schema"]
    assert "tool" == tools["discriminator"]["propertyName"]


async def test_outputs_feed_later_nodes(carillon: Carillon, settings: Settings, database: Database, sink: Sink) -> None:
    """With their types; the payload, the schedule and the slot can be named too."""
    body = {"id": "{{ nodes.fetch.output.body.ok }}", "who": "{{ trigger.payload.who }}", "at": "{{ slot }}"}
    workflow = await carillon.workflow(
        node("core.http_request", "fetch", url=sink.url, method="GET"),
        node("core.http_request", "tell", url=f"{sink.url}/{{{{ schedule.name }}}}", json=body),
    )
    schedule = await carillon.schedule(workflow, name="nightly", trigger_payload={"who": ["Ada"]})
    execution = await fire_and_read(carillon, settings, database, schedule)
    assert "success" == execution["status"]
    told = sink.calls[-1]
    assert "/nightly" == told.path
    assert {"id": True, "who": ["Ada"], "at": execution["scheduled_for"]} == told.json


async def test_secrets_are_sent_and_never_kept(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in outputs, not in errors, not in the database at all."""
    monkeypatch.setenv("CARILLON_SECRET_TOKEN", "hush-hush-1")
    echo = {"Authorization": "Bearer {{ secret.TOKEN }}"}
    workflow = await carillon.workflow(
        node("core.http_request", "tell", url=sink.url, headers=echo),
        node("core.log", "say", message="the answer is {{ nodes.tell.output.body.echo }}"),
        node("core.http_request", "fail", url="http://127.0.0.1:1/{{ secret.TOKEN }}"),
    )

    async def echoed(request: web.Request) -> web.StreamResponse:
        return web.json_response({"echo": request.headers["Authorization"]})

    sink.answer = echoed
    execution = await fire_and_read(carillon, settings, database, await carillon.schedule(workflow))
    assert "Bearer hush-hush-1" == sink.calls[0].headers["authorization"]
    assert {"message": "the answer is Bearer ***"} == execution["nodes"][1]["output"]
    assert "failed" == execution["status"]
    assert "hush-hush-1" not in repr(execution)
    async with database.transaction() as connection:
        runs = (await connection.execute(text("SELECT * FROM workflow_executions"))).all()
    assert "hush-hush-1" not in repr(runs)


@pytest.mark.parametrize(
    ("config", "status", "words"),
    [
        ({"message": "{{ trigger.payload.nothing }}"}, "blocked", "cannot be filled in"),
        ({"message": "{{ trigger.payload.number }}"}, "blocked", "The configuration is not valid"),
    ],
)
async def test_what_cannot_be_read_at_run_time_is_blocked(
    carillon: Carillon, settings: Settings, database: Database, config: Json, status: str, words: str
) -> None:
    """The repeat ends, no retry is spent, and the error names the node."""
    workflow = await carillon.workflow(node("core.log", **config))
    schedule = await carillon.schedule(workflow, trigger_payload={"number": 5})
    execution = await fire_and_read(carillon, settings, database, schedule)
    assert (status, True) == (execution["status"], words in execution["error"])
    after = await carillon.get(schedule)
    assert (1, 0, 0, 0) == (after["current_repeat"], after["current_retry"], after["run_count"], after["error_count"])


async def test_a_noop_says_what_it_stands_for(carillon: Carillon, settings: Settings, database: Database) -> None:
    """Its description may be a template, and is the output; without one there is no output."""
    workflow = await carillon.workflow(
        node("core.noop", "silent"), node("core.noop", "said", description="{{ trigger.payload.command }}")
    )
    schedule = await carillon.schedule(workflow, trigger_payload={"command": "echo '{{ hi }}'"})
    execution = await fire_and_read(carillon, settings, database, schedule)
    outputs = {one["node_id"]: one["output"] for one in execution["nodes"]}
    assert ("success", None) == (execution["status"], outputs["silent"])
    assert {"description": "echo '{{ hi }}'"} == outputs["said"]


async def test_a_missing_handler_is_skipped_with_a_reason(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """A plugin that is gone, say: never a crash, and the nodes after it do not run."""
    workflow = await carillon.workflow(node("core.noop"), node("core.log", "say", message="after"))
    async with database.transaction() as connection:
        await connection.execute(
            text("UPDATE workflows SET nodes = replace(nodes::text, 'core.noop', 'gone.away')::jsonb")
        )
    execution = await fire_and_read(carillon, settings, database, await carillon.schedule(workflow))
    assert ("skipped", "Node 'work': There is no action 'gone.away' on this worker.") == (
        execution["status"],
        execution["error"],
    )
    assert ["work"] == [one["node_id"] for one in execution["nodes"]]


async def test_old_history_is_purged_and_nothing_old_is_skipped(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """Only the owner's, up to the limit; the purge's own run stays."""
    mia = await carillon.member("mia")
    other, mine = await carillon.schedule(), await mia.schedule()
    for schedule in (other, mine, mine, mine):
        await fire_and_read(carillon, settings, database, schedule)
    async with database.transaction() as connection:
        await connection.execute(
            text(
                "UPDATE workflow_executions SET id = CAST(lpad(to_hex(CAST(1000 * extract(epoch FROM "
                "scheduled_for - interval '40 days') AS bigint)), 12, '0') "
                "|| right(replace(CAST(id AS text), '-', ''), 20) AS uuid), "
                "scheduled_for = scheduled_for - interval '40 days', "
                "started_at = started_at - interval '40 days', finished_at = finished_at - interval '40 days'"
            )
        )
    purge = await mia.schedule(await mia.workflow(node("core.history.purge", older_than_days=30, limit=2)))
    counts = [(await fire_and_read(mia, settings, database, purge))["nodes"][0]["output"] for _ in range(2)]
    assert [{"deleted": 2}, {"deleted": 1}] == counts
    assert (1, 0) == (len(await carillon.runs(other)), len(await mia.runs(mine)))
    assert "skipped" == (await fire_and_read(mia, settings, database, purge))["status"]


async def test_schedules_act_on_schedules_as_their_owner(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """Pause, resume and run; what belongs to others is not there."""
    mia = await carillon.member("mia")
    target, foreign = await mia.schedule(), await carillon.schedule()

    async def acted(kind: str, target_id: str, **config: Any) -> Json:
        workflow = await mia.workflow(node(f"core.schedules.{kind}", schedule_id=target_id, **config))
        return await fire_and_read(mia, settings, database, await mia.schedule(workflow, max_retries=0))

    assert "success" == (await acted("pause", target["id"], note="by a schedule"))["status"]
    assert "paused" == (await mia.get(target))["status"]
    assert ("mia", "by a schedule") == ((await mia.history(target))[-1]["by"], (await mia.history(target))[-1]["note"])
    assert "failed" == (await acted("pause", target["id"]))["status"]
    assert "success" == (await acted("resume", target["id"]))["status"]
    assert "success" == (await acted("run", target["id"]))["status"]
    assert ["manual"] == [run["trigger"] for run in await mia.runs(target)]
    refused = await acted("pause", foreign["id"])
    assert ("failed", "Node 'work': There is no such schedule.") == (refused["status"], refused["error"])


async def test_the_five_tools(carillon: Carillon, settings: Settings, database: Database) -> None:
    """Create, list, pause, resume, stop: with templates and outputs of nodes before."""
    mia = await carillon.member("mia")
    plain = await mia.workflow()
    made = {"name": "made", "workflow_id": plain["id"], "every": "{{ trigger.payload.every }}"}
    its_id = {"schedule_id": "{{ nodes.make.output.id }}"}
    workflow = await mia.workflow(
        node("scheduler_tools", "make", tool="create_schedule", arguments=made),
        node("scheduler_tools", "halt", tool="pause_schedule", arguments=its_id),
        node("scheduler_tools", "look", tool="list_schedules", arguments={"status": "paused"}),
        node("scheduler_tools", "go", tool="resume_schedule", arguments=its_id),
        node("scheduler_tools", "stop", tool="stop_schedule", arguments=its_id),
    )
    schedule = await mia.schedule(workflow, trigger_payload={"every": "7m"})
    execution = await fire_and_read(mia, settings, database, schedule)
    assert "success" == execution["status"], execution["error"]
    outputs = {one["node_id"]: one["output"] for one in execution["nodes"]}
    assert (420, "active") == (outputs["make"]["interval_seconds"], outputs["make"]["status"])
    assert [outputs["make"]["id"]] == [one["id"] for one in outputs["look"]["schedules"]]
    assert {"stopped": outputs["make"]["id"]} == outputs["stop"]
    await mia.call("GET", f"/schedules/{outputs['make']['id']}/", 404)


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("create_schedule", {"name": "x", "workflow_id": 999, "every": "5m"}, "There is no such workflow."),
        ("stop_schedule", {"schedule_id": "00000000-0000-4000-8000-000000000000"}, "There is no such schedule."),
    ],
)
async def test_a_tool_that_is_refused_says_why(
    carillon: Carillon, settings: Settings, database: Database, tool: str, arguments: Json, words: str
) -> None:
    """As a failure of its node."""
    workflow = await carillon.workflow(node("scheduler_tools", tool=tool, arguments=arguments))
    execution = await fire_and_read(carillon, settings, database, await carillon.schedule(workflow))
    assert ("failed", True) == (execution["status"], words in execution["error"]), execution["error"]


async def test_arguments_from_templates_are_checked_when_they_are_filled_in(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """Arguments that turn out wrong block the run, as any other configuration does."""
    arguments = {"schedule_id": "{{ trigger.payload.id }}"}
    workflow = await carillon.workflow(node("scheduler_tools", tool="pause_schedule", arguments=arguments))
    schedule = await carillon.schedule(workflow, trigger_payload={"id": "soon"})
    execution = await fire_and_read(carillon, settings, database, schedule)
    error = "Node 'work': The configuration is not valid: arguments.schedule_id: Expected a UUID."
    assert ("blocked", error) == (execution["status"], execution["error"])


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"url": "{{ oops"}, "nodes[1].config.url"),
        ({"url": "https://example.com", "json": {"a": ["{{ range(9) }}"]}}, "nodes[1].config.json.a[0]"),
        ({"url": "https://example.com", "method": "BREW"}, "nodes[1].config.method"),
        ({"url": "{{ secret.URL }}", "timeout": 5}, "nodes[1].config.timeout"),
    ],
)
async def test_a_bad_configuration_is_refused_on_write(standing: Carillon, config: Json, field: str) -> None:
    """422 naming the node and the field."""
    nodes = [{"id": "start", "type": "trigger_schedule"}, node("core.http_request", "call", **config)]
    body = {"name": "w", "nodes": nodes, "edges": [{"from": "start", "to": "call"}]}
    problem = await standing.call("POST", "/workflows/", 422, json=body)
    assert [field] == [error["field"] for error in problem["errors"]]
    assert "Node 'call'" in problem["errors"][0]["message"]


async def test_a_template_may_stand_where_its_value_will_fit(
    carillon: Carillon, settings: Settings, database: Database
) -> None:
    """A number from the payload, where a number is wanted."""
    workflow = await carillon.workflow(node("core.delay", seconds="{{ trigger.payload.wait }}"))
    schedule = await carillon.schedule(workflow, trigger_payload={"wait": 0})
    assert "success" == (await fire_and_read(carillon, settings, database, schedule))["status"]
