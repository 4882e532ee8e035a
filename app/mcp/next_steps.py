"""What an agent does next about a schedule that did not run: one sentence with the call that mends it."""

from typing import Any

Json = dict[str, Any]

_BY_REASON = {
    "awaiting_review": "It awaits review: ask its owner to approve it (POST /api/v1/leases/{lease_id}/approve/).",
    "lease_expired": "Its lease has expired: ask its owner to extend the lease {lease_id}, or to adopt the schedule.",
    "lease_revoked": "Its lease was revoked: ask its owner to adopt the schedule.",
    "invalid_spec": "Its spec is no longer valid: call update_schedule with schedule_id {id} and a valid spec.",
    "poisoned": "Its runs crash their workers: call get_run for the last one, mend the workflow, then resume_schedule.",
}
_BY_OUTCOME = {
    "skipped_overlap": "An earlier run was still active: call update_schedule with schedule_id {id} and changes "
    '{{"if_running": "queue"}}, or a longer interval.',
    "skipped_queue_full": "Too many runs waited: call update_schedule with schedule_id {id} and a larger `max_queued`, "
    "or a longer interval.",
    "skipped_retry": "A retry of an earlier slot held it: call list_runs with schedule_id {id}, mend the failure.",
    "skipped_guard": "Its workflow had no place: ask the owner for a larger `max_concurrent_runs`, or move the slot "
    "with update_schedule (schedule_id {id}).",
    "skipped_breaker": "Its workflow fails, and its breaker is open: call list_runs with schedule_id {id} and "
    "status failed.",
    "skipped_request": "A person asked to leave this slot out: nothing to do, or, if they agree, run_schedule_now with "
    "schedule_id {id}.",
    "missed": "It was not handled in time: call run_schedule_now with schedule_id {id}, or update_schedule with "
    'changes {{"catch_up": "run_once"}} for the next time.',
    "coalesced": "A later slot ran for it: nothing to do, or update_schedule with changes "
    '{{"catch_up": "run_all"}} (schedule_id {id}).',
}


def next_step(schedule: Json, explained: Json) -> str:
    """Return the call that mends a schedule, or says that nothing has to be done."""
    return _by_state(schedule) or _by_outcome(schedule, explained) or "Nothing has to be mended."


def _by_state(schedule: Json) -> str:
    known = {"id": schedule["id"], "lease_id": schedule.get("lease_id")}
    status, reason = schedule["status"], schedule.get("status_reason", "")
    if status != "active" and reason in _BY_REASON:
        return _BY_REASON[reason].format(**known)
    if status == "paused":
        return f"It is paused: call resume_schedule with schedule_id {known['id']} and a note, if that is wanted."
    if status == "dead":
        error = schedule.get("last_error", "")[:200]
        revive = f"POST /api/v1/schedules/{known['id']}/revive/"
        return f"Its retries are used up ({error}). Mend the cause; then its owner revives it: {revive}."
    if status == "done":
        raised = "a larger `total_repeats` or a later end"
        return f"It is done: call update_schedule with schedule_id {known['id']} and {raised}."
    return ""


def _by_outcome(schedule: Json, explained: Json) -> str:
    run = explained.get("execution_id")
    if schedule.get("health") == "failing" and run:
        return f"Its run failed: call get_run with run_id {run}, mend the cause, then call run_schedule_now."
    text = _BY_OUTCOME.get(explained["outcome"], "")
    return text.format(id=schedule["id"])
