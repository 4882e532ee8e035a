"""Examples of bodies and responses in the OpenAPI document.

The body of a call has an example of its own in ``BODIES``, or its required fields. A response shows all its fields,
with values by their names from ``VALUES`` or, where a name has none, with the simplest value that its schema allows.
"""

import re
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

SCHEDULE_ID = "00000000-0000-4000-8000-000000000000"
MOMENT = "2026-11-18T03:00:00Z"
_NODES: list[Json] = [
    {"id": "start", "type": "trigger_schedule", "config": {}},
    {"id": "call", "type": "core.http_request", "config": {"url": "https://example.com/hook"}},
]
_EDGES = [{"from": "start", "to": "call"}]
_LABELS = {"env": "prod", "app": "billing"}
_SCHEDULE: Json = {"name": "nightly report", "workflow_id": 7, "cron": "0 3 * * *", "timezone": "Europe/Berlin"}

# By the name of the type. Bodies that are not here show their required fields.
BODIES: dict[str, Any] = {
    "ApplyInput": {
        "documents": [
            {
                "namespace": "billing",
                "workflows": [{"name": "report", "nodes": _NODES, "edges": _EDGES}],
                "schedules": [{"name": "nightly report", "workflow": "report", "cron": "0 3 * * *"}],
            }
        ],
        "dry_run": True,
    },
    "BulkInput": {"action": "pause", "filter": {"label": ["env=prod"]}, "note": "maintenance", "dry_run": True},
    "CompletionInput": {"status": "success", "output": {"rows": 120}},
    "MemberChanges": {"role": "editor"},
    "MemberInput": {"user_id": 5, "role": "operator"},
    "NoteInput": {"note": "maintenance"},
    "NotificationChanges": {"active": False},
    "NotificationInput": {"url": "https://example.com/notices", "events": ["schedule.dead"]},
    "PreviewInput": {"cron": "0 3 * * *", "timezone": "Europe/Berlin", "count": 3},
    "RotationInput": {"grace_seconds": 3600},
    "RunInput": {"if_running": "allow"},
    "ScheduleBatchInput": {"schedules": [_SCHEDULE]},
    "ScheduleChanges": {"cron": "30 3 * * *", "labels": _LABELS},
    "ScheduleIdsInput": {"schedule_ids": [SCHEDULE_ID]},
    "ScheduleInput": {**_SCHEDULE, "labels": _LABELS},
    "SecretChanges": {"value": "s3cr3t", "allowed_hosts": ["api.example.com"]},
    "SecretInput": {"name": "API_KEY", "value": "s3cr3t", "allowed_hosts": ["api.example.com"]},
    "SessionInput": {"token": "YOUR-TOKEN"},
    "SettingsChanges": {"schedules_enabled": True},
    "TeamChanges": {"name": "operations"},
    "TokenInput": {"name": "ci", "scopes": ["operate"]},
    "UserChanges": {"role": "member"},
    "UserInput": {"username": "maria", "role": "member"},
    "WebhookChanges": {"interval_minutes": 10},
    "WebhookInput": {"url": "https://example.com/hook", "interval_minutes": 5},
    "WorkflowChanges": {"name": "report"},
    "WorkflowInput": {"name": "report", "nodes": _NODES, "edges": _EDGES},
}
# By the name of the field, behind that of its type where the name alone says too little. A value that does not fit the
# schema of a field is not used for it.
VALUES: dict[str, Any] = {
    "AttentionView.kind": "failing",
    "AttentionView.sentence": "Its last run failed.",
    "AuditView.action": "schedule_paused",
    "CountsView.health": {"healthy": 1140, "failing": 3, "paused": 20},
    "CountsView.status": {"active": 1143, "paused": 20, "done": 5, "dead": 0},
    "OperationView.action": "pause",
    "OperationView.status": "done",
    "ScheduleView.at": None,
    "ListedSchedule.at": None,
    "WorkflowView.edges": _EDGES,
    "WorkflowView.nodes": _NODES,
    "Problem.status": 404,
    "actor": "maria",
    "address": "192.0.2.7",
    "at": MOMENT,
    "author": "maria",
    "by": "maria",
    "catch_up": "skip",
    "code": "not_found",
    "cron": "0 3 * * *",
    "description": "",
    "detail": "There is no such schedule.",
    "duration_ms": 128,
    "error": "",
    "errors": [],
    "failed": 0,
    "health": "healthy",
    "if_running": "skip",
    "key": "billing/nightly-report",
    "labels": _LABELS,
    "last_attempt_at": MOMENT,
    "last_error": "",
    "last_outcome": "success",
    "last_success_at": MOMENT,
    "lateness_ms": 3,
    "match": "name",
    "max_retries": 3,
    "misfire_grace_seconds": 60,
    "name": "nightly report",
    "namespace": "billing",
    "next_run_at": MOMENT,
    "not_on": [],
    "note": "maintenance",
    "object_name": "nightly report",
    "object_type": "schedule",
    "outcome": "fired",
    "outcomes": {"fired": 60},
    "owner_id": "5",
    "owner_kind": "user",
    "p50_ms": 2.0,
    "p99_ms": 12.0,
    "prefix": "carillon_0f2c4d6e8a9b1c3d",
    "schedules_enabled": True,
    "sentence": "The slot fired 3 ms after it was due.",
    "skipped": 0,
    "skipped_reasons": [],
    "spec_description": "At 03:00 every day",
    "status": "active",
    "status_reason": "",
    "timeout_seconds": 600,
    "timezone": "Europe/Berlin",
    "title": "Not Found",
    "total_repeats": 0,
    "trigger": "schedule",
    "type": "schedule",
    "url": "https://example.com/hook",
    "user": "maria",
    "username": "maria",
    "version": "0.2.0",
    "workflow_id": 7,
    "workflow_name": "report",
}
# Responses that are not JSON.
TEXTS = {
    "application/yaml": "namespace: billing\nschedules:\n- name: nightly\n  workflow: report\n  cron: 0 3 * * *\n",
    "application/x-ndjson": '{"at":"2026-11-18T03:00:00Z","actor":"maria","action":"schedule_paused"}\n',
    "text/plain": "# TYPE carillon_due gauge\ncarillon_due 0.0\n",
    "text/calendar": "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nEND:VCALENDAR\r\n",
}
# The simplest texts that patterns of names, addresses and times allow.
_SIMPLE = ("example", "a", "1", "https://example.com/", "08:00-18:00", "2026-11-18", "DE-BE", "10/s", "a=b", "A", "")
_FORMATS = {"uuid": SCHEDULE_ID, "date-time": MOMENT, "date": "2026-11-18", "time": "03:00:00", "byte": "AA=="}
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}
# Objects that hold themselves, such as the filters of a filter, end here.
MOST_LEVELS = 8


def add_examples(operation: Json, schemas: Mapping[str, Json]) -> None:
    """Add an example to the body and to each response of an operation that has a content."""
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        content["example"] = example_of_content(media_type, content["schema"], schemas, is_body=True)
    for response in operation["responses"].values():
        for media_type, content in response.get("content", {}).items():
            content["example"] = example_of_content(media_type, content["schema"], schemas)


def example_of_content(media_type: str, schema: Json, schemas: Mapping[str, Json], *, is_body: bool = False) -> Any:
    """Return an example of a body or a response."""
    return TEXTS.get(media_type) or _Examples(schemas, is_body=is_body).of(schema)


class _Examples:
    """Builds values that fit schemas."""

    def __init__(self, schemas: Mapping[str, Json], *, is_body: bool) -> None:
        """Show the required fields of a body, and all fields of a response."""
        self._schemas = schemas
        self._is_body = is_body

    def of(self, schema: Json, field: str = "", level: int = 0) -> Any:
        """Return a value of a schema, which is that of ``Type.field`` if it is given."""
        component = str(schema.get("$ref", "")).rpartition("/")[2]
        if self._is_body and component in BODIES:
            return BODIES[component]
        for name in (field, field.rpartition(".")[2]):
            if name in VALUES and self._fits(VALUES[name], schema):
                return VALUES[name]
        if component:
            return self._built(self._schemas[component], component, level)
        options = _options(schema)
        if any(option.get("type") == "null" for option in options):
            return None
        return self.of(options[0], field, level) if options else self._built(schema, field, level)

    def _built(self, schema: Json, name: str, level: int) -> Any:
        if "const" in schema or "enum" in schema:
            return schema["const"] if "const" in schema else schema["enum"][0]
        if "anyOf" in schema:
            return self.of(schema["anyOf"][0], name, level)
        kind = schema.get("type")
        if kind == "object":
            return self._object(schema, name, level)
        if kind == "array":
            has_items = "items" in schema and level < MOST_LEVELS
            return [self.of(schema["items"], name, level + 1)] if has_items else []
        number = min(max(schema.get("minimum", 0), 1), schema.get("maximum", 1))
        return {"string": _text(schema), "integer": number, "number": number, "boolean": False}.get(str(kind))

    def _object(self, schema: Json, name: str, level: int) -> Json:
        fields = schema.get("properties", {})
        if self._is_body or level >= MOST_LEVELS:
            fields = {field: fields[field] for field in schema.get("required", ())}
        others = schema.get("additionalProperties")
        if not fields and isinstance(others, dict) and "$ref" in others and level < MOST_LEVELS:
            return {SCHEDULE_ID: self.of(others, name, level + 1)}
        return {field: self.of(described, f"{name}.{field}", level + 1) for field, described in fields.items()}

    def _fits(self, value: Any, schema: Json) -> bool:
        """Return whether a value has the type of a schema and is one of its values."""
        if "$ref" in schema:
            return self._fits(value, self._schemas[schema["$ref"].rpartition("/")[2]])
        options = _options(schema)
        if options:
            return any(self._fits(value, option) for option in options)
        if "enum" in schema or "const" in schema:
            return value in (schema["enum"] if "enum" in schema else (schema["const"],))
        kind = _TYPES.get(schema.get("type", ""), object)
        is_number = isinstance(value, int) and not isinstance(value, bool)
        fits = is_number if kind is int else isinstance(value, kind)
        if not fits or not isinstance(value, str):
            return fits
        wanted = _FORMATS.get(schema.get("format", ""))
        return _matches(value, schema) and (wanted is None or value == wanted)


def _options(schema: Json) -> list[Json]:
    options: list[Json] = schema.get("anyOf") or schema.get("oneOf") or []
    return options


def _text(schema: Json) -> str:
    if schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]]
    return next((text for text in _SIMPLE if _matches(text, schema)), "example")


def _matches(text: str, schema: Json) -> bool:
    is_long_enough = schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", len(text))
    return is_long_enough and re.search(schema.get("pattern", ""), text) is not None
