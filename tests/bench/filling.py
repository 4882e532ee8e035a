"""A large deployment as rows: owners, workflows, and schedules with labels, states and outcomes of every kind."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from app.domain.run_ids import execution_id
from tests.bench.stand import Stand

OWNERS = 1_000
WORKFLOWS = 2_000
NAMESPACES = 50
# The owner of a fifth of all schedules, and one of those who have few.
LARGE_OWNER, SMALL_OWNER = 2, 500

_OWNERS = (
    "INSERT INTO user_profiles (id, username, role) OVERRIDING SYSTEM VALUE "
    "SELECT n, 'owner-' || n, 'member' FROM generate_series(2, $1::int) AS n"
)
_NEXT_OWNER = "SELECT setval(pg_get_serial_sequence('user_profiles', 'id'), $1::int)"
_WORKFLOWS = """
INSERT INTO workflows (user_profile_id, owner_id, name, nodes, edges, target_hosts)
SELECT o.owner, o.owner::text, 'flow-' || n, '[{"id": "start", "type": "trigger_schedule", "config": {}}]', '[]',
    'host-' || n % 400 || '.example.com'
FROM generate_series(1, $1::int) AS n
CROSS JOIN LATERAL (SELECT CASE WHEN n % 5 = 0 THEN 2 ELSE 2 + n % $2::int END AS owner) AS o
RETURNING id, user_profile_id
"""
# Nine of ten are active; of these some never ran, some have failed last, and some are overdue.
_SCHEDULES = """
INSERT INTO scheduled_jobs (id, user_profile_id, owner_id, workflow_id, name, description, key, labels,
    trigger_payload, interval_seconds, cron, every, at, total_repeats, max_retries, timeout_seconds, catch_up,
    misfire_grace_seconds, if_running, status, status_reason, dead_at, generation, anchor_at, cadence_slot, next_slot,
    next_run_at, next_attempt, current_repeat, current_retry, run_count, error_count, last_error, last_attempt_at,
    last_success_at, last_error_at, last_outcome, created_at, updated_at)
SELECT gen_random_uuid(), w.user_profile_id, w.user_profile_id::text, w.id,
    (ARRAY['report', 'invoice', 'backup', 'cleanup', 'sync', 'export', 'digest'])[1 + n % 7] || '-' || n, '',
    CASE WHEN n % 3 = 0 THEN 'app-' || n % 1000 || '/job-' || n END,
    jsonb_build_object('env', CASE WHEN n % 10 < 7 THEN 'prod' ELSE 'stage' END, 'app', 'app-' || n % 1000),
    '{}', CASE WHEN k.kind < 12 THEN 3600 END, CASE WHEN k.kind BETWEEN 12 AND 16 THEN '0 5 * * *' END,
    CASE WHEN k.kind IN (17, 18) THEN 'monthly' END, CASE WHEN k.kind = 19 THEN t.due END,
    0, 3, 600, 'skip', 60, 'skip', s.status, s.reason, CASE WHEN s.status = 'dead' THEN t.now END, 0, t.now, t.planned,
    t.planned, t.planned, 0, 0, 0, 0, 0, '', a.attempted, CASE WHEN n % 100 <> 5 THEN a.attempted END,
    CASE WHEN n % 100 = 5 THEN a.attempted END, CASE WHEN a.attempted IS NULL THEN NULL
    WHEN n % 100 = 5 THEN 'failed' ELSE 'success' END, t.now - make_interval(secs => n), t.now
FROM generate_series(1, $1::int) AS n
JOIN (SELECT row_number() OVER (ORDER BY id) AS place, id, user_profile_id FROM workflows) AS w
    ON w.place = 1 + n % $2::int
CROSS JOIN LATERAL (SELECT (n / 7) % 20 AS kind) AS k
CROSS JOIN LATERAL (SELECT CASE WHEN n % 100 < 90 THEN 'active' WHEN n % 100 < 97 THEN 'paused'
    WHEN n % 100 < 99 THEN 'done' ELSE 'dead' END AS status,
    CASE WHEN n % 100 < 90 THEN '' WHEN n % 100 < 97 THEN (CASE WHEN n % 10000 = 95 THEN 'invalid_spec'
    ELSE 'manual' END) WHEN n % 100 < 99 THEN 'repeat_limit' ELSE 'max_retries' END AS reason) AS s
CROSS JOIN LATERAL (SELECT now() AS now, CASE WHEN n % 5000 = 0 THEN now() - interval '20 seconds'
    ELSE now() + make_interval(secs => 86400 + (n * 7919::bigint) % 604800) END AS due) AS d
CROSS JOIN LATERAL (SELECT d.now, d.due, CASE WHEN s.status = 'active' THEN d.due END AS planned) AS t
CROSS JOIN LATERAL (SELECT CASE WHEN n % 50 <> 7 THEN t.now - make_interval(secs => (n * 104729::bigint) % 86400)
    END AS attempted) AS a
"""
_NAMESPACES = (
    "INSERT INTO managed_schedules (namespace, name, scheduled_job_id) "
    "SELECT 'namespace-' || hashtext(name) % $1::int, name, id FROM scheduled_jobs WHERE key IS NULL AND "
    "status = 'active' AND hashtext(name) % 10 = 0"
)
_RUNS = """
INSERT INTO workflow_executions (id, user_profile_id, scheduled_job_id, workflow_id, trigger, status, exclusive,
    due_at, repeat_number, retry_attempt, scheduled_for, payload, timeout_seconds, token, error, created_at,
    started_at, finished_at)
SELECT r.id, j.user_profile_id, j.id, j.workflow_id, 'schedule', 'success', true, r.slot, 0, 0, r.slot, '{}', 600, 2,
    '', r.slot, r.slot + interval '3 milliseconds', r.slot + interval '40 milliseconds'
FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) AS r(id, job, slot) JOIN scheduled_jobs AS j ON j.id = r.job
"""
# In parts: a statement holds what its triggers need in memory.
PART = 100_000


async def fill(stand: Stand, count: int) -> None:
    """Write so many schedules, of a thousand owners and two thousand workflows, and put the tables in order."""
    await stand.forget()
    await stand.sql("DELETE FROM user_profiles WHERE username LIKE 'owner-%'")
    await fill_rows(stand.sql, count, OWNERS, WORKFLOWS)
    await stand.put_in_order()


async def fill_rows(sql: Callable[..., Awaitable[Any]], count: int, owners: int, workflows: int) -> None:
    """Write so many owners, workflows and schedules by a function that runs SQL."""
    await sql(_OWNERS, owners)
    await sql(_NEXT_OWNER, owners)
    await sql(_WORKFLOWS, workflows, owners - 1)
    for first in range(0, count, PART):
        numbers = f"generate_series({first + 1}, least({first + PART}, $1::int))"
        await sql(_SCHEDULES.replace("generate_series(1, $1::int)", numbers), count, workflows)
    await sql(_NAMESPACES, NAMESPACES)


async def fill_runs(stand: Stand, schedules: int, slots: int) -> list[UUID]:
    """Give some schedules so many runs each, one an hour, and return the ids of the schedules."""
    ids = [row["id"] for row in await stand.sql("SELECT id FROM scheduled_jobs ORDER BY id LIMIT $1", schedules)]
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    runs = [(job, now - timedelta(hours=number + 1)) for job in ids for number in range(slots)]
    await stand.sql(
        _RUNS, [execution_id(job, slot, 0) for job, slot in runs], *([run[part] for run in runs] for part in (0, 1))
    )
    return ids
