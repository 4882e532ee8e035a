"""A thousand runs whose templates meet payloads that mean harm: bounded time and memory, and clear words."""

import resource
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace
from sqlalchemy import text

from app.config import Settings
from app.persistence.database import Database
from tests.support.carillon import Carillon, Json, until, working

RUNS = 1000
MEGABYTE = 1_000_000
# What a process may grow by: less than a tenth of what the payloads are together.
MOST_GROWTH_KILOBYTES = 250_000

SMALL: list[Json] = [
    {"x": "{{ ''.__class__.__mro__[1].__subclasses__() }}"},
    {"x": "{% for i in range(1000000000) %}{{ i }}{% endfor %}"},
    {"x": "{{ 9 ** 9 ** 9 }}"},
    {"x": "{{ secret.TOKEN }}"},
    {"x": None},
    {"x": [[]] * 1000},
    {"__class__": "x"},
    {"x": "\u202e\ud7ff\U0001f600" * 1000},
]
# One run in fifty has to carry one of these.
GREAT: list[Json] = [
    {"x": "x" * MEGABYTE},
    {"x": {str(number): {"deep": [number] * 10} for number in range(5000)}},
]
# Each is one expression of what a node may say; the payload decides what becomes of it.
TEMPLATES = [
    "{{ trigger.payload.x }}",
    "{{ trigger.payload.x }}{{ trigger.payload.x }}" * 20,
    "{{ trigger.payload.x | tojson }}",
    "{{ trigger.payload.x.y.z }}",
    "{{ trigger.payload.__class__ }}",
]


async def test_a_thousand_hostile_runs_are_bounded(carillon: Carillon, database: Database, settings: Settings) -> None:
    """Each ends, either with what it was given as plain data or blocked with a reason; and nobody else waits long."""
    for template in TEMPLATES:
        workflow = await carillon.workflow({"id": "say", "type": "core.log", "config": {"message": "x"}})
        await _set_template(database, workflow, template)
        for number in range(20):
            schedule = await carillon.schedule(workflow, if_running="allow", max_retries=0)
            payload = (
                GREAT[number // 10] if number % 10 == 0 and template == TEMPLATES[1] else SMALL[number % len(SMALL)]
            )
            await _set_payload(database, schedule, payload)
    await _ask_for_runs(database, RUNS // 100)
    before = _peak_kilobytes()
    # A machine that stalls for seconds must not cost the lease of the worker: a lost run would not be its own doing.
    async with working(replace(settings, worker_concurrency=100, lease_seconds=60)):

        async def all_ended() -> Any:
            async with database.transaction() as connection:
                query = "SELECT count(*) FROM workflow_executions WHERE finished_at IS NOT NULL"
                return (await connection.execute(text(query))).scalar_one() == RUNS

        await until(all_ended, 180)
    async with database.transaction() as connection:
        rows = list(await connection.execute(text("SELECT status, error FROM workflow_executions")))
    assert {"success", "blocked"} == {row.status for row in rows}
    assert RUNS == len(rows)
    reasons = {row.error for row in rows if row.status == "blocked"}
    assert all(reason.startswith("Node 'say': ") and len(reason) < 3000 for reason in reasons)
    assert any("longer than" in reason for reason in reasons)
    assert not any("<class" in row.error or "subclasses" in row.error for row in rows)
    assert _peak_kilobytes() - before < MOST_GROWTH_KILOBYTES


async def _set_template(database: Database, workflow: Json, template: str) -> None:
    """Behind the API's back, which refuses some of them today."""
    async with database.transaction() as connection:
        await connection.execute(
            text(
                "UPDATE workflows SET nodes = jsonb_set(nodes, '{1,config,message}', "
                "to_jsonb(CAST(:template AS text))) WHERE id = :id"
            ),
            {"template": template, "id": workflow["id"]},
        )


async def _set_payload(database: Database, schedule: Json, payload: Json) -> None:
    """Behind the API's back, which takes no body of a megabyte."""
    async with database.transaction() as connection:
        await connection.execute(
            text("UPDATE scheduled_jobs SET trigger_payload = CAST(:payload AS jsonb) WHERE id = :id"),
            {"payload": msgspec.json.encode(payload).decode(), "id": UUID(schedule["id"])},
        )


async def _ask_for_runs(database: Database, times: int) -> None:
    """So many of every schedule."""
    columns = "scheduled_job_id, user_profile_id, workflow_id, payload, timeout_seconds"
    constants = "trigger, status, exclusive, repeat_number, retry_attempt, scheduled_for, token, error"
    async with database.transaction() as connection:
        await connection.execute(
            text(
                f"INSERT INTO workflow_executions (id, {columns}, {constants}) SELECT gen_random_uuid(), "
                "id, user_profile_id, workflow_id, trigger_payload, timeout_seconds, 'manual', 'pending', false, 0, 0, "
                "now(), 1, '' FROM scheduled_jobs, generate_series(1, :times)"
            ),
            {"times": times},
        )


def _peak_kilobytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
