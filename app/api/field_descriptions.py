"""What fields and parameters mean, for the OpenAPI document.

A table is for the components, or for the tags of calls, with which it is listed in ``FIELDS`` and ``PARAMETERS``. The
first table that has a field describes it. ``tests/api/test_field_descriptions.py`` finds fields without a description,
descriptions without a field, and values of enums that a description leaves out.
"""

from collections.abc import Iterable
from typing import NamedTuple

from app.api.value_descriptions import (
    ACTS,
    BREAKER_STATES,
    BULK_ACTIONS,
    CATCH_UP,
    CHANGES,
    EVENTS,
    EXPLAINED,
    FIRED,
    HEALTHS,
    IF_RUNNING,
    KINDS,
    LEASE_ENDS,
    LEASE_STATUSES,
    OBJECT_TYPES,
    OPERATION_ACTIONS,
    OPERATION_STATUSES,
    ORDERS,
    OUTCOMES,
    OWNER_KINDS,
    REASONS,
    REVIEWS,
    ROLES,
    RUN_STATUSES,
    SCOPES,
    SHOWN,
    SPANS,
    STATUSES,
    TEAM_ROLES,
    TRIGGERS,
    WAYS,
    Texts,
    with_values,
)
from app.domain.attention import AttentionKind
from app.domain.audit import AuditAction


class Table(NamedTuple):
    """Descriptions by the names of fields, for these components or tags; without names, for all."""

    names: tuple[str, ...]
    texts: Texts


def description_of(tables: Iterable[Table], name: str, field: str) -> str | None:
    """Return the description of a field of this component, or of a parameter of calls with this tag."""
    texts = (table.texts for table in tables if name in table.names or not table.names)
    return next((found[field] for found in texts if field in found), None)


LIMIT_NAME = (
    "The name of a limit of which its runs need a permit: the owner's, else one of a team, else a public one. "
    "Null: none."
)
COMMON = {
    "created_at": "When it was created.",
    "updated_at": "When it was last changed.",
    "user_profile_id": "The id of the user or the team that owns it. A plugin has a user of its own.",
    "team_id": "The id of the team that owns it; null if a user or a plugin does.",
    "owner_kind": with_values("What owns it.", OWNER_KINDS),
    "owner_id": "The owner within its kind: the id of a user, as text, or the name of a plugin.",
    "items": "The objects of this page.",
    "total": "How many objects the whole list has.",
    "total_is_estimate": "Whether `total` is an estimate. It is exact up to 10,000.",
    "next_cursor": "The `cursor` of the next page; null on the last page.",
}
KEY = (
    "A name of your own, unique for the owner, by which tools create and change the object: `PUT .../by-key/{key}/`. "
    "Null: none."
)
LABELS = "At most 32 pairs of name and value, as Kubernetes has them. A PATCH replaces all of them."
SCHEDULE = {
    "lease_id": "The lease with which an agent made the schedule; null if none did, or it was adopted.",
    "id": "The id of the schedule.",
    "name": "A name for people; runs and notices show it, and triggers can filter by it. It need not be unique.",
    "description": "A text for people. Carillon does not read it.",
    "workflow_id": "The id of the workflow that runs.",
    "workflow_name": "The name of the workflow that runs.",
    "key": KEY,
    "labels": LABELS,
    "health": with_values("How the schedule does, from what became of its slots.", HEALTHS),
    "namespace": "The namespace of the file that declares the schedule; null if no file does.",
    "workflow_owner": "The id of the user who owns the workflow; required if that is another user. It is not stored.",
    "trigger_node_id": "The id of the `trigger_schedule` node at which runs start. Null: the first trigger whose "
    "filters match the schedule. It is looked up when a run starts; if there is no such trigger, the run fails.",
    "trigger_payload": "An object that every run receives as `payload`: templates read it as `trigger.payload`, and "
    "it is in the event that targets are sent. A change applies from the next slot; retries keep what their first "
    "attempt had. Lists leave it out unless `fields` names it.",
    "interval_seconds": "Seconds of elapsed time between two slots. Exactly one of `interval_seconds`, `every`, "
    "`cron`, `rrule`, `at` and `after` is given; null if another one says when.",
    "every": "The interval as a duration (`90s`, `5m`, `1.5h`, `3d`, `2w`) or a word: `hourly`, `daily` (24 hours), "
    "`weekly`, or `monthly`, which keeps the wall time. Responses show it for each interval that has a duration.",
    "cron": "Five fields as in cron, with names, `L`, `LW`, `5L`, `1#2`, or `@daily` and similar; read in `timezone`.",
    "rrule": "A recurrence rule of iCalendar (RFC 5545), such as `FREQ=MONTHLY;BYDAY=2TU;BYHOUR=9;BYMINUTE=0`, read in "
    "`timezone`. It starts at `start_at`, else when the schedule is created, resumed or given another rule.",
    "at": "The only slot: an instant. It fires however late; then the schedule is `done`.",
    "after": "The only slot: this duration after the creation, such as `5m`, or after a later `start_at`.",
    "timezone": "The IANA time zone whose wall clock `cron`, `rrule`, `every: monthly`, `only_between` and `not_on` "
    "use.",
    "jitter_seconds": "Each slot fires later by an offset of less than this many seconds, and before the next slot. "
    "The offset of a slot is always the same.",
    "only_between": "A daily window such as `08:00-18:00`: the start is included, the end is not. It may cross "
    "midnight. Null: the whole day.",
    "not_on": "Weekdays without slots: names, or 0 to 7, where 0 and 7 are Sunday. Responses have names.",
    "exclude_calendars": "Names of calendars whose dates have no slots. `holidays:DE-BE` names public holidays.",
    "only_calendars": "Names of calendars: slots lie only where at least one of them has an entry.",
    "start_at": "No slot lies before this time, and intervals are counted from it. In the past it fires nothing. Null: "
    "counted from the creation.",
    "end_at": "No slot and no retry lies after this time; then the schedule is `done`. Null: no end.",
    "spec_description": "When the schedule is due, in plain words.",
    "total_repeats": "After this many complete repeats (`current_repeat`) the schedule is `done`. 0: no limit.",
    "max_retries": "How many failed runs in a row are retried. If the last retry fails too, the schedule is `dead`.",
    "backoff_base_seconds": "Seconds before the first retry; the wait doubles with each. Null: the interval, else 60.",
    "timeout_seconds": "A run that takes longer than this many seconds is `timed_out`. Waiting for a callback counts.",
    "catch_up": with_values("What happens to missed slots.", CATCH_UP),
    "misfire_grace_seconds": "A slot that is late by at most this many seconds still fires; later it is missed.",
    "if_running": with_values("What a due slot does while a run of the schedule is active.", IF_RUNNING),
    "delete_after_seconds": "How many seconds after it is done the schedule is deleted with its history; 0: never. "
    "Null: as `CARILLON_DELETE_AFTER_SECONDS` says, by default never.",
    "limit": LIMIT_NAME,
    "max_queued": "With `if_running: queue`, how many runs may wait; further slots are `skipped_queue_full`.",
    "status": with_values("The state of the schedule.", STATUSES),
    "status_reason": with_values("Why it has this state; empty while it is active.", REASONS),
    "current_repeat": "How many repeats are complete: runs that ended as `success`, `skipped` or `blocked`.",
    "current_retry": "Failed runs in a row, without the one that makes the schedule `dead`. A complete repeat and "
    "`revive/` reset it to 0.",
    "run_count": "How many runs succeeded. Manual runs do not count here or in any other counter.",
    "error_count": "How many runs failed, timed out or were lost, retries included.",
    "last_run_at": "When the last run of a slot started, retries included; null before the first.",
    "last_fired_at": "When a slot was last fired or retried, also if its run was queued first; null before the first.",
    "last_attempt_at": "When a slot was last fired, retried or accounted for without a run; null before the first.",
    "last_outcome": with_values(
        "What became of the newest slot that has an outcome: the status of its run (`running` while it is under way, "
        "then `success`, `failed` and so on), or why there is no run. Null before the first.",
        OUTCOMES,
    ),
    "last_execution_id": "The last run of the newest slot that fired; null before the first.",
    "last_error": "The error of the last failed run, or what is wrong with the spec; empty after a success.",
    "last_error_at": "When `last_error` occurred; null if it is empty.",
    "last_success_at": "When a run of a slot last succeeded; null before the first.",
    "last_success_execution_id": "The run that last succeeded; null before the first.",
    "next_slot": "The time of the next slot, without jitter; before a retry, the slot that is tried again. Null while "
    "nothing is planned.",
    "next_run_at": "When the next run is due: the slot and its jitter, or the time of a retry. Null while nothing is "
    "planned: unless the schedule is active, and while the last repeat is under way.",
    "dead_at": "When the schedule became `dead`; null in any other state.",
    "paused_until": "When the pause ends by itself; null if the schedule is not paused, or until it is resumed.",
    "updated_at": "When the schedule last changed: by a request, a tick or the end of a run.",
}
PREVIEW_INPUT = {
    "id": "An existing schedule whose jitter is used, and its anchor too if the spec is the same. Null: a new one, "
    "whose times are shown without jitter.",
    "count": "How many of the next runs are returned at most.",
    "timeout_seconds": "How many seconds a run may take; a warning says if slots are closer than that.",
}
PREVIEW = {
    "description": "The spec in plain words.",
    "warnings": "What may surprise about the spec: dates that do not exist, clock changes, slots closer than the "
    "timeout.",
    "next_runs": "The next runs, earliest first; empty if none will come.",
    "at": "When the run would start, with jitter if the request named a schedule.",
    "note": "What a clock change does to this run; empty if nothing.",
}
SCHEDULE_BODIES = {
    "schedules": "The new schedules. If one of them is not valid, none is created.",
    "schedule_ids": "The ids of the schedules to delete.",
    "items": "The new schedules, in the order of the request.",
    "note": "Why, for the history.",
    "until": "When the pause ends by itself. Slots before it are not expected. Null: when the schedule is resumed.",
    "if_running": with_values(
        "What this run does while another is active. Left out: as the schedule says.", IF_RUNNING
    ),
}
BULK = {
    "action": with_values("What is done to each schedule.", BULK_ACTIONS),
    "ids": "The schedules; ids that are unknown or not yours are left out.",
    "filter": "The schedules, by the filters of the list of schedules.",
    "arguments": "What the action needs.",
    "until": "With `pause`: when what was paused is resumed, unless it was changed since. Null: not by itself.",
    "labels": "With `label`: the labels that schedules get and lose.",
    "fields": "With `set`: the new values of the fields.",
    "workflow_id": "With `move`: the workflow that the schedules run from then on.",
    "add": "The labels that are added, or get another value.",
    "remove": "The names of the labels that are removed.",
    "dry_run": "Only say what would change.",
    "expect_count": "How many schedules must match; another number is refused with 409 `count_changed`.",
    "note": "Why, for the history and the audit log.",
}
BULK_FILTER = {
    "status": with_values("Only schedules with this status.", STATUSES),
    "status_reason": with_values("Only schedules with this reason for their status.", REASONS),
    "workflow_id": "Only schedules of this workflow.",
    "owner_kind": with_values("Only schedules of this kind of owner.", OWNER_KINDS),
    "owner_id": "Only schedules of this owner: the id or the name of a user, or the name of a plugin.",
    "team_id": "Only schedules of this team.",
    "q": "Only schedules whose name or key contains this text, or that have this id.",
    "label": "Only schedules with all of these labels, each as `name=value`.",
    "health": with_values("Only schedules with this health.", HEALTHS),
    "namespace": "Only schedules that files of this namespace declare.",
    "target_host": "Only schedules whose workflow calls this host.",
    "kind": with_values("Only schedules that say in this way when they are due.", KINDS),
    "ids": "Only schedules with these ids.",
}
OPERATION = {
    "id": "The id of the operation.",
    "action": with_values("What it does to each schedule.", OPERATION_ACTIONS),
    "status": with_values("The state of the operation.", OPERATION_STATUSES),
    "by": "The name of the user who started it.",
    "user_profile_id": "The id of the user who started it.",
    "note": "Why, as the request said; may be empty.",
    "selection": "What the request named: its `filter`, or how many `ids`; of an undo, the `action` that it restores.",
    "total": "How many schedules it is about.",
    "done": "How many schedules it has changed.",
    "skipped": "How many schedules it has left alone.",
    "skipped_reasons": "Why schedules were left alone, the most frequent reason first.",
    "failed": "How many schedules could not be changed.",
    "errors": "The first 100 schedules that could not be changed.",
    "error": "Why the whole operation failed; empty otherwise.",
    "undoable": "Whether `undo/` can restore what it has changed.",
    "undo_of": "The operation that it restores; null unless it is an undo.",
    "undone_by": "The operation that restores this one; null if none does.",
    "starts_at": "When its next step is due, if it waits for something; null otherwise.",
    "started_at": "When its first batch was carried out; null before that.",
    "finished_at": "When it ended; null before that.",
    "count": "How many schedules match; of a reason, how many schedules are left alone because of it.",
    "would_change": "How many schedules would be changed.",
    "by_status": "How many schedules match, by their status.",
    "reason": "Why they are left alone: `status_` and the status that does not allow the action; `unchanged`: they "
    "have the values already; `running`: a run is active; `invalid_spec`: the spec is not valid; `not_found`: they "
    "do not exist any more, or are not yours; `changed_since`: they were changed after the operation.",
    "schedule_id": "The id of the schedule.",
    "message": "Why it could not be changed.",
}
DRY_RUN = {
    "skipped": "Which schedules would be left alone, and why.",
    "plan": "What would become of the coming fires of some of the schedules; null for an action that moves none.",
}
DECLARATIONS = {
    "documents": "The workflows and schedules by their namespaces, as JSON.",
    "yaml": "The same as the text of a file, with one document or several.",
    "dry_run": "Only say what would be done.",
    "prune": "Delete what the namespaces have and the documents do not declare any more.",
    "namespace": "The group that declared objects belong to. It has one owner.",
    "calendars": "The calendars, each with a name that is unique for the owner.",
    "limits": "The limits, each with a name that is unique for the owner.",
    "workflows": "The workflows, each with a name that is unique in the namespace.",
    "schedules": "The schedules, each with a name that is unique in the namespace.",
    "counts": "How many objects there are for each `act`.",
    "steps": "What was done to each object, or would be.",
    "act": with_values("What was done, or would be.", ACTS),
    "kind": "The kind of the object: `workflow`, `schedule`, `calendar` or `limit`.",
    "name": "The name of the object in its namespace.",
    "id": "The id of the object; null for what a dry run would create.",
    "differences": "The values that differ.",
    "plan": "In a dry run, what the step would do to the coming fires of a schedule that is created or changed; of the "
    "first 100.",
    "status": with_values("The state of a schedule; null for a workflow, and for what is new in a dry run.", STATUSES),
    "path": "The path of the value in the object.",
    "from": "The value that is stored; left out if there is none.",
    "to": "The value that is declared; left out if there is none.",
}
DECLARED_SCHEDULE = {
    "name": "A name that is unique in the namespace.",
    "workflow": "The name of the workflow in the same namespace.",
    "paused": "Whether it is paused if it is active. A pause is never lifted by a document.",
}
LEDGER = {
    "slot": "The slot, without jitter; of a range, the last slot.",
    "outcome": with_values("What became of the slot.", FIRED),
    "reason": "Why the slot did not fire; empty if it did.",
    "execution_id": "The run of the slot, or the run that was in the way; null if there is none.",
    "from": "The first slot of a range; left out for a single slot.",
    "to": "The last slot of a range; left out for a single slot.",
    "count": "How many slots the range has; left out for a single slot.",
    "former_outcome": "What became of the slot before a backfill ran it; left out for other slots.",
}
SLOT = {
    "slot": "The slot, without jitter; of a range, the last slot.",
    "outcome": with_values("What became of the slot, or will.", SHOWN),
    "status": "The status of the last run of the slot; null without a run.",
    "reason": "Why the slot did not fire, or the error of its last run; empty otherwise.",
    "lateness_ms": "Milliseconds from the slot to the start of its first run; null if none has started.",
    "duration_ms": "Milliseconds that its last run took; null until it has ended.",
    "attempts": "How many runs the slot had, retries included; 0 without a run.",
    "execution_id": "The last run of the slot, or the run that was in the way; null if there is none.",
    "trigger": "What started the run; null without a run.",
    "from": "The first slot of a range; left out for a single slot.",
    "to": "The last slot of a range; left out for a single slot.",
    "count": "How many slots the range has; left out for a single slot.",
    "former_outcome": "What became of the slot before a backfill ran it; left out for other slots.",
}
BACKFILL = {
    "from": "The beginning of the span of time, included. It is required.",
    "to": "The end of the span, included. It is required. Slots that have no outcome yet are left out.",
    "only": "Which slots run: `not_fired`, those that did not run, also before the creation and in pauses, or `all`.",
    "order": "Which slots come first: the `oldest` or the `newest`.",
    "max_concurrent": "How many of its runs may be under way at a time.",
    "rate": "How many runs may start, such as `10/s`, `30/m` or `100/h`; a number is for a second. Null: no limit.",
    "dry_run": "Whether to only say which slots would run.",
    "note": "Why, for the audit log.",
    "count": "How many slots would run.",
    "slots": "The first 100 of them, in the order in which they would run.",
    "estimate_seconds": "How long it would take, by the latest runs of the schedule.",
    "slot": "The time of the slot.",
    "outcome": "What became of the slot: an outcome of the ledger, or `not_expected`.",
    "reason": "Why it did not run; may be empty.",
}
SKIP = {
    "slots": "The times of the slots, each of which must be a slot that is still to come.",
    "next": "How many of the next slots that are not skipped yet.",
    "from": "The beginning of a span of time; its slots that are still to come are skipped.",
    "to": "The end of the span, included.",
    "note": "Why, for the ledger and the audit log.",
    "skipped": "The slots that are left out, earliest first.",
}
SPAN = {
    "kind": with_values("Why nothing could fire.", SPANS),
    "from": "When it began.",
    "to": "When it ended; null if it lasts.",
    "by": "Who caused it: a name as in the history. Empty if it is not known any more.",
    "note": "Why, as the request said; may be empty.",
}
STRIPS = {
    "items": "The slots, newest first; those to come stand before the others.",
    "spans": "When nothing could fire, newest first, within the time of these slots.",
    "schedules": "The slots of each schedule, by its id.",
}
EXPLANATION = {
    "slot": "The slot nearest to the time; null if the spec has none.",
    "outcome": with_values("What became of the slot, or will.", EXPLAINED),
    "sentence": "The explanation in one or two sentences.",
    "execution_id": "The last run of the slot, or the run that was in the way; null if there is none.",
    "checks": "The checks in their order, up to the one that did not pass.",
    "check": "The name of the check: spec, start_end, window, weekday, calendar, active, skip, retry, missed, breaker, "
    "guard, overlap.",
    "passed": "Whether the slot passed the check.",
    "detail": "What the check found.",
    "then": "The schedule as it was at the time of the slot; null if its history begins later.",
    "since": "When the change was made that was the last one then.",
    "by": "Who made it: a name as in the history.",
    "note": "Why, as the request said; may be empty.",
    "spec_description": "When it was due, in words.",
    "timezone": "Its time zone then.",
    "status": with_values("Its status then.", STATUSES),
    "changes": "What is different now, of the fields that say whether and when it fires: `from` then, `to` now.",
}
HISTORY = {
    "at": "When the change was made.",
    "by": "Who made it: the name of a user or plugin, `apply:` and the namespace of a file, or `carillon` itself.",
    "user_profile_id": "The id of the user who made it; null for a file and for Carillon itself.",
    "action": with_values("What happened.", CHANGES),
    "changes": "The changed fields, each as `{from, to}`; empty for a creation. Of a workflow the newest 50 changes "
    "have values, older ones only the names of fields.",
    "note": "Why, as the request said; for a change by Carillon itself the error, if there was one.",
}
WORKFLOW = {
    "id": "The id of the workflow.",
    "name": "A name for people. It need not be unique.",
    "nodes": "The triggers and actions. Runs start at a trigger.",
    "edges": "Which node runs after which.",
    "active": "Whether runs may start. Runs of an inactive workflow fail.",
    "max_concurrent_runs": "The guard: how many runs of all its schedules may be under way at once. Null: no bound. "
    "Manual runs are counted, but never refused.",
    "breaker_threshold": "The breaker opens after this many failed runs in a row. Null: no breaker.",
    "limit": LIMIT_NAME,
    "breaker_reset_seconds": "Seconds for which the breaker stays open before one run may try. Null: 60.",
    "key": KEY,
    "labels": LABELS,
}
GRAPH = {
    "id": "The id of the node, unique in the workflow; templates read its output as `nodes.ID.output`.",
    "type": "`trigger_schedule`, or the name of an action that `GET /api/v1/actions/` lists.",
    "config": "The configuration, as the `config_schema` of its type says. Strings may be templates.",
    "from": "The id of the node that runs first.",
    "to": "The id of the node that runs after it.",
}
LIMIT = {
    "name": "The name by which schedules and workflows mean it; unique for the owner.",
    "max_concurrent": "How many runs may hold a permit at once. Null: no bound.",
    "rate": "How many may start in a second, a minute or an hour: `100/s`, `30/m`, `500/h`. Null: no bound.",
    "burst": "How many may start at once after a pause. Null: as many as the rate allows in a second, at least 1.",
    "public": "Whether everybody may name it. Only admins may say so.",
    "held": "How many permits runs hold now.",
    "waiting": "How many runs wait for a permit.",
}
BREAKER = {
    "workflow_id": "The id of the workflow.",
    "workflow_name": "The name of the workflow.",
    "state": with_values("The state of the breaker.", BREAKER_STATES),
    "failure_count": "Failed runs in a row; 0 after a success and after a reset.",
    "opened_at": "When it opened last; null while it is closed.",
    "half_opens_at": "When a run may try again; null unless it is open.",
    "probe_execution_id": "The run that tries while the breaker is half-open; null if none does.",
    "transitions": "The latest changes of its state, newest first.",
    "at": "When the state changed.",
    "from_state": with_values("The state before.", BREAKER_STATES),
    "to_state": with_values("The state after.", BREAKER_STATES),
    "reason": "Why the state changed.",
    "execution_id": "The run that changed it; null if it was reset by hand.",
}
EXECUTION = {
    "id": "The id of the execution.",
    "workflow_id": "The workflow that runs; null for a run of an entity.",
    "scheduled_job_id": "The schedule that it belongs to; null for a run of an entity.",
    "entity_type": "The kind of entity that it belongs to, such as `webhook`; null for a run of a schedule.",
    "entity_id": "The id of that entity; null for a run of a schedule.",
    "trigger": with_values("What started it.", TRIGGERS),
    "status": with_values("The state of the run.", RUN_STATUSES),
    "repeat_number": "Which repeat of the schedule it is, counted from 0; 0 for entities.",
    "retry_attempt": "Which attempt at its slot it is: 0 is the first, 1 the first retry.",
    "scheduled_for": "The slot, without jitter; of a manual run, the time of the request.",
    "started_at": "When it started; null while it waits.",
    "finished_at": "When it ended; null until then.",
    "duration_ms": "Milliseconds from start to end; null until it has ended, or if it never started.",
    "error": "Why it did not succeed; empty after a success.",
    "waiting_for": "What it waits for: `limit:NAME`, a limit; `callback`; `turn`, other runs of its schedule; or null.",
    "reason": "`waiting_for_limit` while it waits for a limit; else empty.",
    "payload": "The `trigger_payload` that it has: the schedule's at the first attempt. Empty for entities.",
    "nodes": "The results of the actions that have run or are under way; triggers have none.",
    "trace_url": "Where its trace is looked at, by `CARILLON_TRACE_URL`; null if that is not set.",
}
NODE_RESULT = {
    "node_id": "The id of the node.",
    "type": "The name of its action.",
    "status": with_values("The state of the node.", RUN_STATUSES),
    "output": "What the action returned, or the target reported; null if nothing. Secrets are replaced by `***`.",
    "error": "Why the node did not succeed; empty after a success.",
    "started_at": "When the node started.",
    "finished_at": "When it ended; null while it runs, sleeps, or waits for a callback.",
}
CALLBACK = {
    "status": "The result of the work: `success` or `failed`.",
    "output": "The output of the node; later nodes read it as `nodes.ID.output`.",
    "error": "Why the work failed.",
    "ok": "Always true.",
}
OWN_QUOTAS = "The quotas that differ from those of the settings. A change replaces them all; only admins may."
QUOTAS = {
    "schedules": "The number of schedules; 0: no limit.",
    "workflows": "The number of workflows; 0: no limit.",
    "webhooks": "The number of webhooks; 0: no limit.",
    "notifications": "The number of notifications; 0: no limit.",
    "parked_runs": "The number of runs that wait for a callback or a delay; 0: no limit.",
    "runs_at_once": "The number of runs that are under way; further ones wait. 0: no limit.",
    "calls_per_second": "The calls of HTTP actions in a second; further ones wait. 0: no limit.",
    "history_days": "The days after which history is deleted; at most those of the settings. 0: as the settings say.",
}
USER = {
    "id": "The id of the user.",
    "username": "The name by which the user is shown; unique.",
    "role": with_values("What the user may do.", ROLES),
    "kind": with_values("What the user is.", OWNER_KINDS),
    "disabled": "Whether the user is disabled: tokens and sessions are refused, schedules go on.",
    "disabled_at": "Since when the user is disabled; null if not.",
    "schedules": "`pause` pauses all schedules of the user; `keep` leaves them as they are.",
    "quotas": OWN_QUOTAS,
}
TEAM = {
    "id": "The id of the team, by which objects name it as their owner.",
    "name": "The name of the team; unique.",
    "role": with_values("Your role in the team; null for an admin who does not belong to it.", TEAM_ROLES),
    "quotas": OWN_QUOTAS,
}
MEMBER = {
    "user_id": "The id of the user.",
    "username": "The name by which the user is shown.",
    "role": with_values("What the user may do with the objects of the team.", TEAM_ROLES),
    "added_at": "When the user was added to the team.",
}
TOKEN = {
    "id": "The id of the token.",
    "name": "A name for people, such as the place where it is used.",
    "prefix": "The beginning of the token, by which it can be recognised. It is not secret.",
    "token": "The token itself, for `Authorization: Bearer`. It is shown only in this response.",
    "user_id": "The id of the user whose token it is.",
    "kind": "`api`, or `feed` for a token that reads calendars and nothing else.",
    "scopes": with_values("What it may be used for; each scope includes those before it.", SCOPES),
    "restrict": "The objects that it is restricted to; null for all that its user reaches.",
    "labels": "Labels that a schedule must have.",
    "namespace": "The namespace that objects must belong to.",
    "workflow_ids": "The workflows that can be reached, and their schedules and runs.",
    "expires_at": "When it ends; null if it does not.",
    "last_used_at": "When it was last used, to the minute; null if it was not.",
    "grace_seconds": "For how many seconds the old token is still accepted.",
}
LEASE = {
    "id": "The id of the lease.",
    "agent": "The name of the agent, for people. Its changes are those of `agent:NAME for OWNER`.",
    "purpose": "What the agent is to do, for people.",
    "user_id": "The user whose rights the agent borrows; by default you, and another one only for admins.",
    "status": with_values("Whether the lease can be used.", LEASE_STATUSES),
    "owner": "The name of the user whose rights the agent borrows.",
    "owner_id": "The id of the user whose rights the agent borrows.",
    "granted_by": "The name of the user who granted the lease.",
    "expires_at": "When it ends: nothing that was made with it fires from then on.",
    "max_schedules": "How many of its schedules may be active or paused at once.",
    "max_runs": "How many runs all its schedules may make together. A schedule reserves its `total_repeats`.",
    "max_retries": "The largest `max_retries` of a schedule. Retries are not counted as runs.",
    "min_interval_seconds": "The shortest time between two slots of a schedule.",
    "max_writes": "How many calls that change something the agent may make; 0: any number.",
    "workflows": "The ids of the workflows that its schedules may run; empty: all that the owner may use.",
    "review": with_values("Whether a person looks at what the agent makes.", REVIEWS),
    "at_end": with_values("What becomes of its schedules when it expires.", LEASE_ENDS),
    "revoked_at": "When it was revoked; null if it was not.",
    "used": "What of it is used.",
    "left": "What is left of it.",
    "schedules": "Schedules that are active or paused.",
    "runs": "Runs that were made or are reserved.",
    "writes": "Calls that changed something; of what is left null if any number is allowed.",
    "schedule_ids": "The schedules that were made with it; at most 500 are listed.",
    "awaiting_review": "The schedules that a person has to approve; at most 500 are listed.",
    "token": "The token of the agent, for `Authorization: Bearer`. It is shown only in this response.",
    "note": "A text for the history and the audit log.",
}
SESSION = {
    "id": "The id of the session.",
    "is_current": "Whether it is the session of this request.",
    "address": "The address that the login came from.",
    "user_agent": "What the browser called itself at the login.",
    "seen_at": "When it was last used. After two hours without use it ends.",
    "expires_at": "When it ends in any case; null for a token without an end.",
    "code": "The code that is exchanged for a session, once.",
    "token": "The token that is exchanged for a session.",
    "user": "The user who is logged in.",
    "logout_url": "Where the browser ends its session at the identity provider too; null if it has none there.",
    "role": with_values("What the user may do.", ROLES),
    "scopes": with_values("What the session may be used for; each scope includes those before it.", SCOPES),
}
SECRET = {
    "name": "The name by which templates use it: `{{ secret.NAME }}`. Unique for its owner.",
    "value": "The secret itself. No response contains it.",
    "owner": "The id of the user or the team that owns it.",
    "shared_to_you": "Whether it belongs to somebody else who shares it with you: your own workflows may use it.",
    "shared_to_teams": "The ids of your teams with which its owner shares it: workflows of these teams may use it.",
    "allowed_hosts": "The hosts that it may be sent to: `api.example.com`, `*.example.com`, either with a port, or `*` "
    "for any. Empty: it is sent nowhere. Null: it lends one of the environment, with the hosts that are "
    "named there.",
    "shared_with": "The ids of the users and teams that may use it besides its owner, or `all`. If it is shared with "
    "you, you see only yourself and your teams.",
}
CALENDAR = {
    "name": "The name by which schedules use it. Unique for its owner.",
    "owner": "The id of the user or the team that owns it.",
    "public": "Whether schedules of everybody may use it. Only admins make a calendar public.",
    "timezone": "The IANA time zone of its dates, and of events without one.",
    "dates": "Dates (`2026-12-25`), ranges with both ends included (`2026-12-24/2027-01-01`), dates of every year "
    "(`--05-01`, `--12-24/--01-02`), and spans of time (`2026-12-24T12:00/2026-12-24T18:00`).",
    "ics": "An iCalendar file, whose events are entries: all-day and timed ones, recurring ones too.",
    "holidays": "Public holidays of a country such as `DE`, a part of one such as `DE-BE`, or an exchange such as "
    "`XNYS`.",
}
SIGNING_KEY = {
    "key_id": "The name of the key.",
    "key": "The key, as Standard Webhooks writes it.",
    "previous": "The key before the last rotation, while calls are signed with it too; null if there is none.",
    "retires_at": "When calls are no longer signed with it.",
}
ISSUER = {
    "keys": "The keys: that which signs now, its successor, and those whose last tokens may not have expired.",
    "kty": "The kind of the key: RSA.",
    "kid": "The name of the key; a token's header has the same.",
    "use": "What it is for: signatures.",
    "alg": "The algorithm that it is used with.",
    "n": "The modulus, in base64url.",
    "e": "The exponent, in base64url.",
    "issuer": "The `iss` of all tokens: `CARILLON_PUBLIC_URL`.",
    "jwks_uri": "Where the keys are.",
    "id_token_signing_alg_values_supported": "The algorithms that sign tokens.",
    "response_types_supported": "Tokens are sent with calls only; Discovery requires this field.",
    "subject_types_supported": "A `sub` is the same for all audiences.",
    "claims_supported": "The claims that a token may have.",
}
NOTIFICATION = {
    "id": "The id of the notification.",
    "url": "The URL that events are posted to.",
    "events": with_values("The events that are delivered.", EVENTS),
    "schedule_id": "Only events of this schedule. Null: not restricted to one.",
    "workflow_id": "Only events of this workflow and its schedules. Null: not restricted to one.",
    "active": "Whether events are delivered.",
}
DELIVERY = {
    "id": "The id of the delivery.",
    "event": with_values("The event.", EVENTS),
    "data": "The data of the event, as it is posted.",
    "status": "`pending`: it is delivered at `next_attempt_at`; `delivered`: the URL accepted it; `failed`: it was "
    "given up.",
    "attempts": "How many times it was sent.",
    "next_attempt_at": "When it is sent next; of no meaning once it is delivered or failed.",
    "last_status": "The HTTP status that accepted it; null until then.",
    "last_error": "Why the last attempt failed; empty after a success.",
    "created_at": "When the event occurred.",
    "delivered_at": "When it was delivered; null until then.",
}
WEBHOOK = {
    "id": "The id of the webhook; the `entity_id` of its runs, whose `entity_type` is `webhook`.",
    "name": "A name for people; may be empty.",
    "url": "The URL that is called. It may contain templates.",
    "method": "The HTTP method of the call.",
    "headers": "Headers that are sent besides those of Carillon. Their values may be templates.",
    "payload": "The JSON body that is sent. If it is empty, the event is sent.",
    "cron": "When it is called: a cron expression, read in `timezone`. Null: `interval_minutes` says when.",
    "interval_minutes": "When it is called: every so many minutes. Null: `cron` says when.",
    "timezone": "The IANA time zone whose wall clock `cron` uses.",
    "active": "Whether it is called.",
    "timeout_seconds": "A call that takes longer than this many seconds is `timed_out`.",
    "max_retries": "How many times a failed call is retried before it is given up. The next time is called anyway.",
    "last_execution_at": "The time of the last run that has started; null before the first.",
    "last_status": with_values("The state of the last run that has started; null before the first.", RUN_STATUSES),
    "next_execution_at": "The time of the next run; null if none is planned.",
    "last_error": "Why no next time can be planned, or the error of the last run; empty if there is none.",
}
ACTION = {
    "items": "The triggers, actions and tools, by name.",
    "problems": "For admins only: plugins that could not be loaded, or not completely.",
    "name": "The `type` of nodes that use it.",
    "kind": "`trigger`: runs start at it; `action`: it does one thing; `tool`: it does one of several things, as its "
    "configuration says.",
    "title": "A short name for people.",
    "description": "What it does, in a sentence.",
    "category": "The group in which an editor shows it.",
    "icon": "The name of a lucide icon.",
    "color": "The color in which an editor shows it, as `#rrggbb`.",
    "aliases": "Other names that nodes may use as `type`.",
    "version": "The version of the action.",
    "origin": "The Python distribution that provides it; `core` is Carillon itself.",
    "scope": "`external`: it uses nothing of Carillon; `owner`: it uses what the schedule's owner may see and change.",
    "retry_safe": "Whether it may be repeated.",
    "publishes": "Whether its runs publish: the sitemap may be pinged after them.",
    "secret_fields": "The fields of its configuration in which templates may name secrets.",
    "config_schema": "The JSON Schema of its configuration.",
    "outputs": "The JSON Schema of its output, or of the event of a trigger. Null: not known, or there is none.",
    "plugin": "The Python distribution of the plugin.",
    "error": "What is wrong with it.",
}
ENTITY_TYPE = {
    "entity_type": "The name of the kind, as executions show it.",
    "description": "What these entities are.",
    "plugin": "The Python distribution of the plugin that provides it; `core` is Carillon itself.",
    "acts_for_users": "Whether its entities may run on behalf of other users than the plugin's own.",
    "pending_runs": "For admins: how many runs wait to be started, counted up to 10,000. Null for members.",
    "running_runs": "For admins: how many runs are under way, counted up to 10,000. Null for members.",
    "problems": "For admins only: entity schedulers that could not be loaded.",
}
SETTINGS = {
    "schedules_enabled": "Whether schedules fire. While it is false slots are `missed`, with the reason `disabled`.",
    "ping_sitemap_on_run": "Whether `sitemap_urls` are called after runs that publish.",
    "sitemap_urls": "The URLs to call after runs that publish. A change to null restores those of "
    "`CARILLON_SITEMAP_URLS`.",
}
PING = {
    "ok": "Always true.",
    "busy": "Whether another ping is under way; then this one did nothing, and there are no counts.",
    "message": "Why nothing was done; left out otherwise.",
    "ran": "Runs that succeeded.",
    "skipped": "Runs that ended as `skipped`.",
    "blocked": "Runs that ended as `blocked`.",
    "errors": "Runs that failed, entities that could not be planned, and internal errors.",
    "dead_lettered": "Runs that failed and left their schedule `dead`.",
    "not_fired": "Slots that got an outcome without a run, and runs that were given up before they began.",
    "waiting": "Runs of this ping that have not ended: they wait for a delay, a callback or other runs.",
}
HEALTH = {
    "status": "`ok`: all is well; `degraded`: Redis cannot be reached, and work goes on; `unavailable`: Postgres "
    "cannot be reached.",
    "postgres": "`ok`, or `away` if it cannot be reached or used.",
    "redis": "`ok`, or `away` if it cannot be reached or used.",
    "mode": "`bell`: Redis wakes the workers; `sweep`: they poll Postgres.",
    "detail": "What is wrong, or may become so; empty if nothing.",
}
PROBLEM = {
    "type": "A URI of the kind of problem: `urn:carillon:problem:` and the code.",
    "title": "The kind of problem, for people.",
    "status": "The HTTP status of the response.",
    "detail": "What is wrong and what to do, for people. The text may change between releases.",
    "code": "The stable code of the problem, for programs.",
    "errors": "The fields that are wrong, at most 100; empty unless the request is not valid.",
    "workflow_owner": "With `foreign_workflow`: the id of the user who owns the workflow.",
    "limit": "With `quota_exceeded`: how many objects a user may have.",
    "used": "With `quota_exceeded`: how many objects this user has.",
    "left": "With `lease_exhausted`: what is left of the lease; null where it has no bound.",
    "extended_by": "With `lease_exhausted`: the name of the user who can extend the lease.",
    "field": "The name of the field or parameter; `a.b` and `a[0]` lead into objects and lists.",
    "message": "What is wrong with it.",
}

AUDIT = {
    "at": "When it happened; for refusals, the minute in which they happened.",
    "actor": "The name of the user who did it; null if no user is known.",
    "on_behalf_of": "The name of the user for whom it was done: the one who started an operation that a worker carries "
    "out, or the owner for whom a file was applied. Null if the actor did it for itself.",
    "via": with_values("By which way it came.", WAYS),
    "action": f"What happened: {', '.join(f'`{action}`' for action in AuditAction)}.",
    "object_type": with_values("The kind of the object that it happened to.", OBJECT_TYPES),
    "object_id": "The id of the object, as text; null if it has none.",
    "object_name": "The name that the object had; may be empty.",
    "changes": "The fields that were changed, each with `from` and `to`. Values that may be secret are left out.",
    "note": "Why, in the words of the actor; may be empty.",
    "request_id": "The `X-Request-Id` of the request; null if there was none.",
    "address": "The address of the client; null if there was none. A new address of a token, or one that was refused, "
    "is a /64 network in IPv6.",
    "details": "What else is known: `token_id` and `session_id` of the actor, and what the action says of itself. For "
    "refusals `count` says how many there were.",
}

_DUE = "How many pending ticks are due now; at most 100,000 are counted."
_OLDEST = "For how many seconds the longest overdue tick has been due; 0 if none is."
_MODE = "`bell`: Redis wakes the workers. `sweep`: Redis cannot be reached, and workers poll Postgres."
_WORKERS = "How many workers have a valid lease."
_ENABLED = "Whether schedules fire at all; false if the settings or the environment switch them off."
_P50 = "The lateness in milliseconds that half of the runs do not exceed, to a tenth; null without runs."
_P99 = "The lateness in milliseconds that 99 % of the runs do not exceed, to a tenth; null without runs."
OVERVIEW = {
    "counts": "How many of the schedules that you see have each status and each health.",
    "status": "Schedules by status; each is a filter of the list of schedules.",
    "health": "Schedules by health; each is a filter of the list of schedules.",
    "due": _DUE,
    "oldest_overdue_seconds": _OLDEST,
    "running": "How many executions run now.",
    "workers": _WORKERS,
    "mode": _MODE,
    "schedules_enabled": _ENABLED,
    "attention": "What is wrong, the greatest harm first; at most 50.",
    "kind": f"What is wrong: {', '.join(f'`{kind}`' for kind in AttentionKind)}.",
    "object_type": "`schedule`, `workflow`, or `settings` if it is about the whole deployment.",
    "id": "The id of the object, as text; null if it is about the whole deployment.",
    "name": "The name of the object; may be empty.",
    "since": "Since when; null if that is not known.",
    "sentence": "What is wrong, for people.",
}
FIGURES = {
    "step": "The length of a step in seconds.",
    "items": "The steps for which there are figures, oldest first.",
    "at": "The beginning of the step.",
    "outcomes": "How many runs ended with each status, and how many slots did not fire with each outcome.",
    "count": "How many runs were measured: first attempts of schedules without jitter.",
    "p50_ms": _P50,
    "p99_ms": _P99,
}
WORKER = {
    "id": "The id of the worker.",
    "name": "The host and the process.",
    "started_at": "When it started.",
    "lease_expires_at": "Until when it may run executions, unless it renews its lease.",
    "is_live": "Whether its lease is valid.",
    "running": "How many executions it runs.",
}
PULSE = {
    "at": "The time of the database.",
    "due": _DUE,
    "oldest_overdue_seconds": _OLDEST,
    "running": "How many executions run now.",
    "workers": _WORKERS,
    "mode": _MODE,
    "schedules_enabled": _ENABLED,
    "open_breakers": "How many breakers are open.",
    "outcomes": "What became of the slots of the last whole minute.",
    "p50_ms": _P50,
    "p99_ms": _P99,
    "version": "It changes whenever an object is changed that you see; null with a restricted token.",
}

UPCOMING = {
    "items": "The coming fires, in the order of their due times.",
    "at": "When it is due: the slot and its jitter.",
    "slot": "The slot, without the jitter.",
    "schedule_id": "The id of the schedule.",
    "schedule_name": "The name of the schedule.",
    "workflow_id": "The id of the workflow that runs.",
    "workflow_name": "The name of the workflow that runs.",
    "timezone": "The time zone of the schedule.",
    "is_complete": "Whether these are all fires before `to`; else `limit` or the time of the search ended the list.",
}
PLAN = {
    "plan_id": "An id for the PATCH: with it, the PATCH is refused (409) if the schedule was changed since "
    "(`plan_outdated`), or if it is not the planned change (`plan_differs`).",
    "expires_at": "Until when `plan_id` is accepted.",
    "days": "How many days ahead fires are compared.",
    "changes": "The fields that would change, each with `from` and `to`.",
    "fires_now": "Whether a fire would be due at once.",
    "status": with_values("The state that the schedule would have.", STATUSES),
    "next_run_at": "When the next run is due, without the change (`from`) and with it (`to`).",
    "slots": "What would become of the fires of the next days.",
    "lost": "What the change would give up beside single fires.",
    "warnings": "What may surprise about the change.",
    "until": "Until when fires were compared. Earlier than asked for if there are more than 2,000.",
    "kept": "How many fires stay as they are.",
    "added": "The fires that appear.",
    "removed": "The fires that vanish.",
    "moved": "The fires that move: the same slot with another jitter, or, on days on which as many fires vanish as "
    "appear, the first to the first, and so on.",
    "repeats": "How many of the repeats that `total_repeats` still allows would not come.",
    "retry": "Whether a pending retry would be dropped.",
}
PLANNED = {
    "at": "When it is due: the slot and its jitter.",
    "slot": "The slot, without the jitter.",
    "from": "Without the change.",
    "to": "With the change.",
    "days": "The days of the schedule's time zone that have fires now, and would have none.",
}
FORECAST_INPUT = {
    "from": "The beginning of the forecast. Left out: that of the bucket of now.",
    "to": "The end of the forecast, not included. Left out: a day after the beginning. At most 31 days.",
    "bucket_seconds": "The length of a bucket; at most 2,016 buckets are returned.",
    "by": "What `groups` tell apart: each `schedule`, `workflow`, `owner` or `host` that is called. Null: nothing.",
    "changes": "Changes and new schedules to lay over the forecast; nothing of it is stored.",
    "filter": "Which schedules are counted, by the filters of the list. Null: all that you see.",
    "id": "The id of the schedule that would be changed.",
    "set": "The fields that would change, as a PATCH takes them.",
    "draft": "A schedule that would be created, as a POST takes it.",
    "name": "The name of the schedule, as in the changes that a spread proposes. It changes nothing.",
}
FORECAST = {
    "buckets": "The load by bucket, in the order of time.",
    "groups": "The parts of it with the most fires, at most 100; empty without `by`. A fire counts for every host that "
    "its workflow calls.",
    "peak": "The first of the buckets with the most fires.",
    "quiet": "Spans in which no bucket has more than a tenth of the fires of the peak; the 20 longest.",
    "closed": "Spans that calendars of these schedules leave out, in the order of time; the first 100.",
    "calendar": "The name of the calendar.",
    "entry": "The date as it was written, or the name of the event or the holiday.",
    "is_estimate": "Whether some fires may be counted in a neighbouring bucket: the average of many jitters is taken, "
    "or there are too many different intervals.",
    "at": "The beginning of the bucket.",
    "fires": "How many fires are due.",
    "busy_seconds": "How many seconds the runs that begin then will take, if they take as long as the newest ones did.",
    "key": "The id of the schedule, the workflow or the owner, or the host; null for no host.",
    "name": "Its name.",
    "from": "The beginning of the span.",
    "to": "The end of the span.",
}
SPREAD = {
    "max_shift_seconds": "How far a fire may be moved; never to another day of the schedule's time zone.",
    "filter": "Which schedules may be changed, by the filters of the list. Null: all that you see.",
    "by_jitter": "Whether schedules get a jitter of up to `max_shift_seconds` instead of another time.",
    "before": "The minute of the next 24 hours with the most fires.",
    "after": "The minute with the most fires after the changes.",
    "changes": "The changes that are proposed, at most 5,000; equal ones stand beside each other.",
    "id": "The id of the schedule.",
    "name": "The name of the schedule.",
    "set": "The fields to change, as a PATCH takes them.",
    "is_estimate": "Whether the peaks are estimates.",
}
FORECAST_GROUP = {"buckets": "Its fires by bucket, in the order of time."}
TIMEZONES = {
    "name": "The name, as `timezone` of a schedule takes it.",
    "offset_seconds": "How many seconds its clocks are ahead of UTC now.",
}
VALIDATION = {
    "valid": "Whether the workflow could be created.",
    "errors": "What is wrong with it; empty if it is valid.",
    "node": "The id of the node that it is about; null if it is about none.",
    "field": "The place in the body, such as `nodes[1].config.url`.",
    "message": "What is wrong, for people.",
}

FLEET_PLAN = {
    "until": "Until when fires are compared; of a schedule with many fires, `slots.until` is earlier.",
    "schedules": "How many schedules the change concerns.",
    "planned": "How many of them were compared, at most 100. Those that stay as they are do not count.",
    "fires_now": "How many of the planned schedules would fire at once.",
    "slots": "The fires of all planned schedules, counted.",
    "items": "The planned schedules that change most, at most 20.",
    "refused": "Schedules that refuse the change, and why, at most 20.",
    "changes": "The fields of the calendar that would change, each with `from` and `to`.",
    "kept": "How many fires stay as they are.",
    "added": "How many fires appear.",
    "removed": "How many fires vanish.",
    "moved": "How many fires come at another time.",
    "days": "How many days ahead fires are compared.",
}
SCHEDULE_PLAN = {"id": "The id of the schedule.", "name": "The name of the schedule."}

FIELDS = (
    Table(("FleetPlanView", "CalendarPlanView", "SlotCountsView", "CalendarPlanInput"), FLEET_PLAN),
    Table(("SchedulePlanView",), SCHEDULE_PLAN),
    Table(("UpcomingItem", "UpcomingList"), UPCOMING),
    Table(("FireView", "MovedFireView", "NextRunsView", "LossesView"), PLANNED),
    Table(
        (
            "PlanView",
            "EditPlanView",
            "SchedulePlanView",
            "PlannedSlotsView",
            "LossesView",
            "PlanInput",
            "ScheduleChanges",
        ),
        PLAN,
    ),
    Table(("ForecastInput", "ForecastChange"), FORECAST_INPUT),
    Table(("SpreadInput", "SpreadView", "SpreadChangeView"), SPREAD),
    Table(("ForecastGroupView",), FORECAST_GROUP),
    Table(("ForecastView", "BucketView", "PeakView", "QuietView", "ClosedView", "ForecastGroupView"), FORECAST),
    Table(("TimezoneView",), TIMEZONES),
    Table(("ValidationView", "WorkflowProblemView"), VALIDATION),
    Table(("PreviewInput",), PREVIEW_INPUT),
    Table(("DeclaredScheduleInput",), DECLARED_SCHEDULE),
    Table(
        (
            "ScheduleInput",
            "ScheduleChanges",
            "PlanInput",
            "ForecastSet",
            "BulkFields",
            "ScheduleView",
            "ListedSchedule",
            "PreviewInput",
            "DeclaredScheduleInput",
        ),
        SCHEDULE,
    ),
    Table(("PreviewView", "PreviewRun"), PREVIEW),
    Table(
        ("ScheduleBatchInput", "ScheduleIdsInput", "ScheduleList", "NoteInput", "PauseInput", "RunInput"),
        SCHEDULE_BODIES,
    ),
    Table(("LedgerItem",), LEDGER),
    Table(("BulkFilter",), BULK_FILTER),
    Table(("ApplyInput", "DeclaredDocument", "ApplyView", "StepView", "DifferenceView", "ExportView"), DECLARATIONS),
    Table(("BulkInput", "BulkArguments", "LabelChanges"), BULK),
    Table(("DryRunView",), DRY_RUN),
    Table(("OperationView", "DryRunView", "SkippedView", "RowErrorView"), OPERATION),
    Table(("SlotItem",), SLOT),
    Table(("SkipInput", "SkippedSlots"), SKIP),
    Table(("BackfillInput", "BackfillDryRun", "PastSlotView"), BACKFILL),
    Table(("SpanView",), SPAN),
    Table(("SlotStrip", "SlotList", "SlotStrips"), STRIPS),
    Table(("ExplanationView", "CheckView", "ScheduleThenView"), EXPLANATION),
    Table(("HistoryItem",), HISTORY),
    Table(("BreakerView", "BreakerDetail", "TransitionView"), BREAKER),
    Table(
        ("WorkflowInput", "WorkflowChanges", "WorkflowFields", "WorkflowView", "BreakerView", "BreakerDetail"), WORKFLOW
    ),
    Table(("Node", "NodeInput", "Edge"), GRAPH),
    Table(("ExecutionView", "ExecutionDetail", "RunView"), EXECUTION),
    Table(("NodeResultView",), NODE_RESULT),
    Table(("CompletionInput", "AcceptedView"), CALLBACK),
    Table(("UserView", "UserInput", "UserChanges"), USER),
    Table(("OwnQuotas",), QUOTAS),
    Table(("TeamView", "TeamInput", "TeamChanges"), TEAM),
    Table(("MemberView", "MemberInput", "MemberChanges"), MEMBER),
    Table(("TokenView", "TokenInput", "FreshTokenView", "RestrictionView", "RestrictionInput", "RotationInput"), TOKEN),
    Table(
        (
            *("LeaseInput", "LeaseChanges", "ListedLease", "LeaseView", "FreshLeaseView"),
            *("LeaseUsage", "LeaseRest", "AdoptInput", "ApproveInput"),
        ),
        LEASE,
    ),
    Table(("SessionView", "SessionInput", "SessionCodeView", "CurrentSessionView"), SESSION),
    Table(("SecretView", "SecretInput", "SecretChanges"), SECRET),
    Table(("CalendarView", "CalendarFields", "CalendarInput", "CalendarChanges", "CalendarPlanInput"), CALENDAR),
    Table(("SigningKeyView", "PreviousKeyView"), SIGNING_KEY),
    Table(("JwkView", "JwksView", "IssuerView"), ISSUER),
    Table(("LimitView", "LimitFields", "LimitInput", "LimitChanges"), LIMIT),
    Table(("NotificationView", "NotificationInput", "NotificationChanges"), NOTIFICATION),
    Table(("DeliveryView",), DELIVERY),
    Table(
        ("FoundView",),
        {
            "type": "What was found: a `schedule` or a `workflow`.",
            "id": "The id of the schedule or the workflow.",
            "name": "Its name.",
            "status": "The status of the schedule; of a workflow whether it is `active` or `inactive`.",
            "match": "What matches the text: the `id`, the `name`, the `key`, or a `target_host` that is called.",
        },
    ),
    Table(("WebhookView", "WebhookInput", "WebhookChanges"), WEBHOOK),
    Table(("ActionList", "ActionView", "PluginProblemView"), ACTION),
    Table(("EntityTypeView", "EntityTypeList"), ENTITY_TYPE),
    Table(("SettingsView", "SettingsChanges"), SETTINGS),
    Table(("PingView",), PING),
    Table(("Alive", "Readiness"), HEALTH),
    Table(("Problem", "FieldError"), PROBLEM),
    Table(("AuditEventView",), AUDIT),
    Table(("OverviewView", "CountsView", "AttentionView"), OVERVIEW),
    Table(("OutcomeFigures", "OutcomeStep", "LatenessFigures", "LatenessStep"), FIGURES),
    Table(("WorkerView",), WORKER),
    Table(("PulseView",), PULSE),
    Table((), COMMON),
)
PARAMETERS = (
    Table(
        ("users",),
        {
            "schedules": "What becomes of all that the user has. `delete`: it is deleted. `transfer`: `to` gets it. "
            "`pause`: its schedules are paused, and `to` or you get it.",
            "to": "The id of the user who gets what the deleted one has.",
        },
    ),
    Table(
        ("audit",),
        {
            "actor": "Only what the user with this name did.",
            "via": with_values("Only what came by this way.", WAYS),
            "object_type": with_values("Only what is about this kind of object.", OBJECT_TYPES),
            "object_id": "Only what is about the object with this id; best together with `object_type`.",
            "action": f"Only this action: {', '.join(f'`{action}`' for action in AuditAction)}.",
            "from": "Only events at or after this time. Left out: no bound.",
            "to": "Only events at or before this time. Left out: no bound.",
        },
    ),
    Table(
        ("stats",),
        {
            "from": "The beginning of the figures. Left out: an hour before `to`.",
            "to": "The end of the figures. Left out: now.",
            "step": "The length of a step in seconds, a multiple of 60. At most 1,500 steps are returned.",
        },
    ),
    Table(
        ("calendars",),
        {
            "team_id": "Of a list: only calendars of this team. Of one calendar: the one that this team owns.",
            "owner": "The id of the user or the team whose calendar is meant. Left out: yours, else one of your teams, "
            "else a public one.",
        },
    ),
    Table(
        ("teams",),
        {
            "schedules": "What becomes of the schedules and all else that the team has: `delete`, `transfer` to `to`, "
            "or `pause` and transfer.",
            "to": "The user or the team that gets what the team has. Left out with `pause`: yourself.",
        },
    ),
    Table(
        ("schedules",),
        {
            "status": with_values("Only schedules with this status.", STATUSES),
            "q": "Only schedules whose name or key contains this text, in any case of letters, or that have this id.",
            "label": "Only schedules with this label, as `name=value`. If it is repeated, with all of them.",
            "health": with_values("Only schedules with this health.", HEALTHS),
            "namespace": "Only schedules that files of this namespace declare.",
            "target_host": "Only schedules whose workflow calls this host.",
            "kind": with_values("Only schedules that say in this way when they are due.", KINDS),
            "ids": "Only schedules with these ids, with commas between them; at most 500.",
            "sort": with_values("The order of the list. Schedules without the value come last.", ORDERS),
            "key": "The key of the schedule. It may have slashes.",
            "schedule_ids": "The ids of the schedules, with commas between them; at most 100.",
            "last": "How many of the newest slots of each schedule are returned.",
            "ahead": "How many slots to come are returned besides; on the first page of a list only.",
        },
    ),
    Table(
        ("search",),
        {
            "q": "A part of a name, a key or a host that is called, in any case of letters; or an id.",
            "limit": "At most this many objects.",
        },
    ),
    Table(
        ("limits",),
        {
            "limit_name": "The name of the limit.",
            "team_id": "The id of the team whose limits are meant. Left out: yours, those of your teams, public ones.",
        },
    ),
    Table(("declarations",), {"namespace": "Only what this namespace declares. Left out: all namespaces."}),
    Table(("workflows",), {"key": "The key of the workflow. It may have slashes."}),
    Table(
        ("executions",),
        {
            "status": with_values("Only executions with this status.", RUN_STATUSES),
            "active": "True: only executions that are pending or running. False: only those that have ended.",
        },
    ),
    Table(
        ("upcoming",),
        {
            "from": "Only what is due at or after this time. Left out: now.",
            "to": "Only what is due before this time. Left out: 366 days after `from`.",
            "limit": "At most this many fires.",
            "feed": "A token of the kind `feed`, instead of a bearer token.",
        },
    ),
    Table(("breakers",), {"limit": "At most this many: breakers of the list, or transitions of one breaker."}),
    Table(
        (),
        {
            "user_id": "The id of the user.",
            "team_id": "The id of the team. As a filter of a list: only what this team owns.",
            "token_id": "The id of the token.",
            "lease_id": "The id of the lease.",
            "session_id": "The id of the session.",
            "schedule_id": "The id of the schedule.",
            "execution_id": "The id of the execution.",
            "operation_id": "The id of the operation.",
            "notification_id": "The id of the notification.",
            "webhook_id": "The id of the webhook.",
            "secret_name": "The name of the secret.",
            "calendar_name": "The name of the calendar.",
            "workflow_id": "The id of the workflow. As a filter of a list: only what belongs to this workflow.",
            "limit": "At most this many objects on the page. A page also ends at 1 MiB.",
            "cursor": "The `next_cursor` of the previous page; left out for the first page.",
            "offset": "How many objects to pass over. For long lists use `cursor`.",
            "status_reason": with_values("Only schedules with this reason for their status.", REASONS),
            "owner_kind": with_values("Only schedules of this kind of owner.", OWNER_KINDS),
            "owner_id": "Only schedules of this owner: the id or the name of a user, or the name of a plugin.",
            "fields": "The names of the fields to return besides `id`, with commas between them. Left out: all but "
            "`trigger_payload`.",
            "scheduled_job_id": "Only runs of this schedule.",
            "entity_type": "Only runs of this kind of entity, such as `webhook`.",
            "entity_id": "Only runs of entities with this id.",
            "from": "Only slots at or after this time. Left out: no bound.",
            "to": "Only slots at or before this time. Left out: no bound.",
            "at": "The time to explain. Left out: now; for a schedule that is not active, its next slot.",
            "owner": "For admins: the id of the user whose secret is deleted. Left out: yourself.",
        },
    ),
)
