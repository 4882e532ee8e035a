"""What actions really return fits the schemas that the catalog shows.

Covers app.actions.builtin.flow, app.actions.builtin.http_request.
"""

from typing import Any
from uuid import UUID

import jsonschema
import pytest
from aiohttp import web
from sqlalchemy import text

from app.config import Settings
from app.persistence.database import Database
from tests.support.carillon import Carillon, Json, fire_and_read
from tests.support.http_sink import Sink

# An action that is not here fails the first test.
CONFIGS: dict[str, list[Json]] = {
    "core.http_request": [{"url": "SINK"}, {"url": "SINK", "method": "HEAD"}, {"url": "SINK", "body": "{{ slot }}"}],
    "core.ping_sitemap": [{"urls": ["SINK"]}],
    "core.delay": [{"seconds": 0}, {"seconds": 0.5}],
    "core.noop": [{}, {"description": "d"}],
    "core.log": [{"message": "m"}],
    "core.schedules.pause": [{"schedule_id": "TARGET"}],
    "core.schedules.resume": [{"schedule_id": "PAUSED"}],
    "core.schedules.run": [{"schedule_id": "TARGET"}],
    "scheduler_tools": [
        {"tool": "create_schedule", "arguments": {"name": "n", "workflow_id": "WORKFLOW", "every": "monthly"}},
        {"tool": "pause_schedule", "arguments": {"schedule_id": "TARGET"}},
        {"tool": "resume_schedule", "arguments": {"schedule_id": "PAUSED"}},
        {"tool": "stop_schedule", "arguments": {"schedule_id": "TARGET"}},
        {"tool": "list_schedules"},
    ],
    "core.history.purge": [{"older_than_days": 0}],
    "core.callbacks.purge": [{"older_than_days": 0}],
    "core.webhooks.retry": [{}],
    "core.webhooks.purge": [{"older_than_days": 0}],
}
# They have no output.
WITHOUT_OUTPUT = {"core.fail"}


@pytest.fixture
async def entries(carillon: Carillon) -> dict[str, Json]:
    """The catalog by name, without triggers."""
    items = (await carillon.call("GET", "/actions/"))["items"]
    return {entry["name"]: entry for entry in items if entry["kind"] != "trigger"}


async def test_every_action_is_tried(entries: dict[str, Json]) -> None:
    """A new one belongs into ``CONFIGS``."""
    assert CONFIGS.keys() == entries.keys() - WITHOUT_OUTPUT


@pytest.mark.parametrize("name", CONFIGS)
async def test_real_outputs_fit_their_schema(
    carillon: Carillon, settings: Settings, database: Database, sink: Sink, entries: dict[str, Json], name: str
) -> None:
    """As they are stored in the execution."""
    answers = iter([web.json_response({"a": [1]}), web.Response(), web.Response(text="plain")])

    async def answer(_request: web.Request) -> web.StreamResponse:
        return next(answers)

    sink.answer = answer
    schema = entries[name]["outputs"]
    jsonschema.Draft202012Validator.check_schema(schema)
    await _leave_something_old(carillon, settings, database)
    for config in CONFIGS[name]:
        names = {"SINK": sink.url, **await _targets(carillon)}
        node = {"id": "work", "type": name, "config": _filled(config, names)}
        execution = await fire_and_read(
            carillon, settings, database, await carillon.schedule(await carillon.workflow(node))
        )
        assert "success" == execution["status"], execution["error"]
        jsonschema.validate(execution["nodes"][0]["output"], schema, cls=jsonschema.Draft202012Validator)
        # A schema that accepts anything proves nothing.
        strict = schema["anyOf"][0] if name == "core.http_request" else schema
        jsonschema.validate(execution["nodes"][0]["output"], strict, cls=jsonschema.Draft202012Validator)
        assert not jsonschema.Draft202012Validator(strict).is_valid("no such output")


async def _targets(carillon: Carillon) -> Json:
    """An active schedule, a paused one, and a workflow."""
    target, paused = await carillon.schedule(), await carillon.schedule()
    await carillon.call("POST", f"/schedules/{paused['id']}/pause/")
    return {"TARGET": target["id"], "PAUSED": paused["id"], "WORKFLOW": target["workflow_id"]}


def _filled(value: Any, names: Json) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


async def _leave_something_old(carillon: Carillon, settings: Settings, database: Database) -> None:
    """For the actions that delete or repeat: an execution with a callback, and deliveries that failed."""
    schedule = await carillon.schedule()
    execution = await fire_and_read(carillon, settings, database, schedule)
    await carillon.call("POST", "/notifications/", 201, json={"url": "https://example.com/told"})
    async with database.transaction() as connection:
        await connection.execute(
            text(
                "INSERT INTO deliveries (notification_id, event, data, status, created_at) "
                "SELECT id, 'run_failed', '{}', 'failed', now() - interval '40 days' FROM notifications"
            )
        )
        await connection.execute(
            text(
                "INSERT INTO callbacks (execution_id, node_id, token_hash, state, error) "
                "VALUES (:id, 'work', 'x', 'superseded', '')"
            ),
            {"id": UUID(execution["id"])},
        )
