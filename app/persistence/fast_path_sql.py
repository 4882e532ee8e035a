"""The statements of the fast path: each claims or settles many plain ticks at once, fenced by the versions of rows."""

from datetime import UTC, datetime

from app.domain.executions import FIRST_TOKEN
from app.domain.notifications import NoticeEvent
from app.domain.overlap import runs_alone
from app.domain.schedules import IfRunning
from app.persistence.leases import LEASE_HOLDS, SCHEDULES_ENABLED
from app.persistence.tables import IS_LIMITED

# Moments are sent as integers, microseconds since this epoch: encoding datetimes costs five times as much.
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MOMENT = f"timestamptz '{EPOCH.isoformat()}' + {{}} * interval '1 microsecond'"
_ALONE = ", ".join(f"'{policy}'" for policy in IfRunning if runs_alone(policy))
_OTHERS = "SELECT FROM active_executions AS a WHERE a.scheduled_job_id = j.id"

# The versions of schedules that have no gate and no other run, and whether anyone is notified of missed slots.
VERSIONS = f"""
SELECT clock_timestamp(), j.id, j.xmin,
  EXISTS (SELECT FROM notifications AS n WHERE n.active AND n.events ? '{NoticeEvent.SLOTS_MISSED}')
FROM unnest($1::uuid[]) AS asked(id)
CROSS JOIN LATERAL (
  SELECT j.id, j.xmin
  FROM scheduled_jobs AS j JOIN workflows AS w ON w.id = j.workflow_id AND NOT {IS_LIMITED}
  WHERE j.id = asked.id AND NOT EXISTS ({_OTHERS})
  OFFSET 0
) AS j
WHERE {SCHEDULES_ENABLED}
"""  # noqa: S608

# The entry that a tick brings for slots that do not fire, as a further part of a claim.
_ENTERED = """), entered AS (
  INSERT INTO ledger_entries (scheduled_job_id, first_slot, last_slot, slot_count, outcome, reason, execution_id)
  SELECT p.id, l.first_slot, l.last_slot, l.slot_count, l.outcome, l.reason, l.execution_id
  FROM passed AS p CROSS JOIN LATERAL jsonb_to_record(p.entry::jsonb) AS l(
    first_slot timestamptz, last_slot timestamptz, slot_count bigint, outcome text, reason text, execution_id uuid
  )
  WHERE p.entry IS NOT NULL
"""

# Each row is looked up by its key in a lateral subquery: no statistics can make a plan that scans.
# Parameters: the worker, the trigger; then, for each tick, the schedule and its version, the new execution, the slot
# that fires and the one after it, when that is due if not at its slot, an entry for the ledger, the moment.
CLAIM = f"""
WITH passed AS MATERIALIZED (
  SELECT j.*, r.run_id, r.entry,
    {_MOMENT.format("r.slot")} AS slot, {_MOMENT.format("r.following")} AS following, {_MOMENT.format("r.due")} AS due,
    -- A moment that all ticks share is sent once.
    coalesce(r.moment, ($10::timestamptz[])[1]) AS moment
  FROM unnest(
    $3::uuid[], $4::xid[], $5::uuid[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[], $10::timestamptz[]
  ) AS r(id, version, run_id, slot, following, due, entry, moment)
  CROSS JOIN LATERAL (
    SELECT j.id, j.user_profile_id, j.workflow_id, j.if_running, j.current_repeat, j.trigger_payload,
      j.timeout_seconds, w.xmin AS flow_version, u.xmin AS user_version,
      -- Looked up only for a workflow of somebody else: its condition is judged before the row is read.
      (SELECT o.xmin FROM user_profiles AS o
        WHERE o.id = w.user_profile_id AND w.user_profile_id <> j.user_profile_id) AS flow_owner_version
    FROM scheduled_jobs AS j
    JOIN workflows AS w ON w.id = j.workflow_id AND NOT {IS_LIMITED}
    JOIN user_profiles AS u ON u.id = j.user_profile_id
    WHERE j.id = r.id AND j.xmin = r.version AND j.next_run_at <= clock_timestamp() AND NOT EXISTS ({_OTHERS})
    FOR NO KEY UPDATE OF j SKIP LOCKED
  ) AS j
  WHERE {LEASE_HOLDS.format(worker="$1")} AND {SCHEDULES_ENABLED}
), moved AS (
  UPDATE scheduled_jobs AS t
  SET generation = t.generation + 1, cadence_slot = p.following, next_slot = p.following,
    next_run_at = coalesce(p.due, p.following), next_attempt = 0, last_slot = p.slot,
    last_run_at = p.moment, last_fired_at = p.moment, last_attempt_at = p.moment, last_execution_id = p.run_id,
    last_outcome = 'running', updated_at = clock_timestamp()
  FROM passed AS p WHERE t.id = p.id
), begun AS (
  INSERT INTO workflow_executions (
    id, user_profile_id, scheduled_job_id, workflow_id, trigger, status, exclusive, repeat_number, retry_attempt,
    scheduled_for, payload, timeout_seconds, token, worker_id, error, created_at, started_at, queued, due_at
  )
  SELECT p.run_id, p.user_profile_id, p.id, p.workflow_id, $2, 'running', p.if_running IN ({_ALONE}),
    p.current_repeat, 0, p.slot, p.trigger_payload, p.timeout_seconds, {FIRST_TOKEN}, $1, '', p.moment, p.moment,
    false, p.moment
  FROM passed AS p
{_ENTERED})
SELECT id, pg_current_xact_id()::xid, flow_version, user_version, flow_owner_version FROM passed
"""  # noqa: S608

# Claim and end of a run at once: what ``CLAIM`` and then ``SETTLE`` would have written. Parameters: the trigger; for
# each tick, the schedule and its version, the execution, its slot, the one after it and when that is due, the moment
# of the claim, the results of the nodes, and the versions of the workflow and of its user by which it was run; then the
# worker; and for each tick an entry for the ledger.
CLAIM_ENDED = f"""
WITH passed AS MATERIALIZED (
  SELECT j.*, r.run_id, r.results, r.entry,
    {_MOMENT.format("r.slot")} AS slot, {_MOMENT.format("r.following")} AS following, {_MOMENT.format("r.due")} AS due,
    {_MOMENT.format("r.moment")} AS moment, clock_timestamp() AS finished
  FROM unnest(
    $2::uuid[], $3::xid[], $4::uuid[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[],
    $10::xid[], $11::xid[], $13::text[]
  ) AS r(id, version, run_id, slot, following, due, moment, results, flow_version, user_version, entry)
  CROSS JOIN LATERAL (
    SELECT j.id, j.user_profile_id, j.workflow_id, j.if_running, j.current_repeat, j.trigger_payload, j.timeout_seconds
    FROM scheduled_jobs AS j
    JOIN workflows AS w ON w.id = j.workflow_id AND NOT {IS_LIMITED} AND w.user_profile_id = j.user_profile_id
    JOIN user_profiles AS u ON u.id = j.user_profile_id
    WHERE j.id = r.id AND j.xmin = r.version AND j.next_run_at <= clock_timestamp() AND NOT EXISTS ({_OTHERS})
      AND w.xmin = r.flow_version AND u.xmin = r.user_version
    FOR NO KEY UPDATE OF j SKIP LOCKED
  ) AS j
  WHERE {LEASE_HOLDS.format(worker="$12")} AND {SCHEDULES_ENABLED}
), ended AS (
  INSERT INTO workflow_executions (
    id, user_profile_id, scheduled_job_id, workflow_id, trigger, status, exclusive, repeat_number, retry_attempt,
    scheduled_for, payload, timeout_seconds, token, error, created_at, started_at, finished_at, queued, due_at, results
  )
  SELECT p.run_id, p.user_profile_id, p.id, p.workflow_id, $1, 'success', p.if_running IN ({_ALONE}),
    p.current_repeat, 0, p.slot, p.trigger_payload, p.timeout_seconds, {FIRST_TOKEN} + 1, '', p.moment, p.moment,
    p.finished, false, p.moment, coalesce(p.results::jsonb, '[]'::jsonb)
  FROM passed AS p
{_ENTERED})
UPDATE scheduled_jobs AS t
SET generation = t.generation + 1, cadence_slot = p.following, next_slot = p.following,
  next_run_at = coalesce(p.due, p.following), next_attempt = 0, last_slot = p.slot,
  last_run_at = p.moment, last_fired_at = p.moment, last_attempt_at = p.moment, last_execution_id = p.run_id,
  last_outcome = 'success', current_repeat = t.current_repeat + 1, current_retry = 0, run_count = t.run_count + 1,
  last_success_execution_id = p.run_id, last_success_at = p.finished, updated_at = clock_timestamp()
FROM passed AS p WHERE t.id = p.id
RETURNING t.id, pg_current_xact_id()::xid
"""  # noqa: S608

# Parameters, for each run: the schedule and its version, the execution, the results of its nodes.
# A run ends at the moment in which its end is written: everything that its nodes did lies before that.
SETTLE = f"""
WITH passed AS MATERIALIZED (
  SELECT j.id, r.run_id, r.results, clock_timestamp() AS moment
  FROM unnest($1::uuid[], $2::xid[], $3::uuid[], $4::text[]) AS r(id, version, run_id, results)
  CROSS JOIN LATERAL (
    SELECT j.id
    FROM scheduled_jobs AS j
    JOIN workflows AS w ON w.id = j.workflow_id AND w.breaker_threshold IS NULL
    WHERE j.id = r.id AND j.xmin = r.version AND NOT EXISTS ({_OTHERS} AND a.id <> r.run_id)
    FOR NO KEY UPDATE OF j SKIP LOCKED
  ) AS j
), ended AS (
  UPDATE workflow_executions AS t
  SET status = 'success', error = '', token = t.token + 1, worker_id = NULL, queued = false, awaiting = false,
    results = coalesce(p.results::jsonb, t.results), finished_at = p.moment
  FROM passed AS p WHERE t.id = p.run_id AND t.token = {FIRST_TOKEN} AND t.status = 'running'
  RETURNING p.id, p.run_id, p.moment
)
UPDATE scheduled_jobs AS t
SET current_repeat = t.current_repeat + 1, current_retry = 0, run_count = t.run_count + 1,
  last_success_execution_id = e.run_id, last_success_at = e.moment, last_outcome = 'success',
  updated_at = clock_timestamp()
FROM ended AS e WHERE t.id = e.id
RETURNING e.run_id, pg_current_xact_id()::xid
"""  # noqa: S608
