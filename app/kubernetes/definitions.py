"""The CustomResourceDefinitions of schedules and workflows, made from the types that ``apply`` reads.

``python -m app.kubernetes.definitions FOLDER`` writes them; ``make crds`` writes those of the chart.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec

from app.api.field_descriptions import FIELDS, description_of
from app.domain.declarations import Kind
from app.domain.kubernetes_objects import GROUP, KINDS, PLURALS, POLICY_FIELD, VERSION, DeletionPolicy
from app.services.declarations.yaml_text import write_documents
from app.services.inputs import DeclaredScheduleInput, Input, WorkflowFields

HEADING = "# Written by `make crds` from the types of the API. Do not edit.\n"
FORMS: dict[Kind, type[Input]] = {Kind.SCHEDULE: DeclaredScheduleInput, Kind.WORKFLOW: WorkflowFields}
# Fields whose largest value is a setting of the server.
BOUNDED_BY_SETTINGS = {"max_retries", "timeout_seconds"}
WAYS_TO_SAY_WHEN = ("interval_seconds", "every", "cron", "rrule", "at", "after")
# The keywords of JSON Schema that Kubernetes knows and that are taken over as they are.
TAKEN_OVER = (
    *("type", "format", "enum", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
    *("maxProperties", "required"),
)

Json = dict[str, Any]


def definition(kind: Kind) -> Json:
    """Return the CustomResourceDefinition of a kind."""
    plural, name = PLURALS[kind], kind.value.capitalize()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": name,
                "listKind": f"{name}List",
                "plural": plural,
                "singular": kind.value,
                "categories": ["carillon"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": _columns(kind),
                    "schema": {"openAPIV3Schema": _object_schema(kind)},
                }
            ],
        },
    }


def _object_schema(kind: Kind) -> Json:
    return {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec_schema(kind),
            "status": _status_schema(kind),
        },
    }


def spec_schema(kind: Kind) -> Json:
    """Return the schema of a spec: the fields of a document, and what becomes of the object when it is deleted."""
    form = FORMS[kind]
    (reference,), components = msgspec.json.schema_components([form], ref_template="{name}")
    whole = components[reference["$ref"]]
    properties = {
        name: _structural(value, components, _description(form, name)) for name, value in whole["properties"].items()
    }
    for name in BOUNDED_BY_SETTINGS & properties.keys():
        del properties[name]["maximum"]
    properties["name"]["description"] = f"The name of the {kind} in Carillon. Left out: the name of this object."
    properties[POLICY_FIELD] = {
        "type": "string",
        "enum": [policy.value for policy in DeletionPolicy if kind is Kind.SCHEDULE or policy != DeletionPolicy.PAUSE],
        "default": DeletionPolicy.DELETE.value,
        "description": f"What becomes of the {kind} when this object is deleted.",
    }
    return {
        "type": "object",
        "description": f"The fields of a {kind} in a file, and what becomes of it in the end.",
        "required": [name for name in whole["required"] if name != "name"],
        "properties": properties,
        "x-kubernetes-validations": RULES[kind],
    }


def _unchangeable(field: str) -> Json:
    same = f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"
    return {
        "rule": same,
        "message": f"`{field}` cannot be changed. Create another object instead.",
        "fieldPath": f".{field}",
    }


RULES: dict[Kind, list[Json]] = {
    Kind.SCHEDULE: [
        {
            "rule": f"[{', '.join(f'has(self.{way})' for way in WAYS_TO_SAY_WHEN)}].exists_one(given, given)",
            "message": "Exactly one of interval_seconds, every, cron, rrule, at and after is needed.",
        },
        {
            "rule": "!has(self.start_at) || !has(self.end_at) || self.start_at < self.end_at",
            "message": "`end_at` must be after `start_at`.",
            "fieldPath": ".end_at",
        },
        _unchangeable("name"),
        _unchangeable("key"),
    ],
    Kind.WORKFLOW: [_unchangeable("name"), _unchangeable("key")],
}


def _structural(schema: Json, components: Json, description: str) -> Json:
    """Return a schema as Kubernetes wants it: without references, null and what it does not know."""
    options = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    if len(options) > 1:
        # The only union that Kubernetes knows; what it may contain is for the API to say.
        return _described({"x-kubernetes-int-or-string": True}, description)
    (one,) = options
    one = components[one["$ref"]] if "$ref" in one else one
    made = {name: one[name] for name in TAKEN_OVER if name in one}
    made.setdefault("type", "string")
    if "pattern" in one:
        # `$` never matches before a last line break in the patterns of Kubernetes.
        made["pattern"] = one["pattern"].replace(r"(?!\n)", "")
    if made["type"] == "array":
        made["items"] = _structural(one["items"], components, "")
    elif "properties" in one:
        made["properties"] = {name: _structural(part, components, "") for name, part in one["properties"].items()}
    elif isinstance(one.get("additionalProperties"), dict):
        made["additionalProperties"] = _structural(one["additionalProperties"], components, "")
    elif made["type"] == "object":
        made["x-kubernetes-preserve-unknown-fields"] = True
    return _described(made, description)


def _described(schema: Json, description: str) -> Json:
    return {**schema, "description": description} if description else schema


def _description(form: type[Input], field: str) -> str:
    """Return what the API says of a field. Objects have no null: what is left out has its default."""
    return (description_of(FIELDS, form.__name__, field) or "").replace("Null: ", "Left out: ")


def _status_schema(kind: Kind) -> Json:
    text = {"type": "string"}
    condition = {
        "type": "object",
        "required": ["type", "status", "reason", "message", "lastTransitionTime"],
        "properties": {
            "type": {**text, "maxLength": 316},
            "status": {**text, "enum": ["True", "False", "Unknown"]},
            "reason": {**text, "maxLength": 1024},
            "message": {**text, "maxLength": 32768},
            "lastTransitionTime": {**text, "format": "date-time"},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        },
    }
    of_schedules = {
        "state": {**text, "description": "The status of the schedule, such as active or paused."},
        "nextRunAt": {**text, "description": "When it runs next."},
        "lastOutcome": {**text, "description": "What became of its newest slot."},
    }
    return {
        "type": "object",
        "properties": {
            "id": {**text, "description": f"The id of the {kind} in Carillon."},
            **(of_schedules if kind is Kind.SCHEDULE else {}),
            "observedGeneration": {
                "type": "integer",
                "format": "int64",
                "description": "The generation of the object that the status is about.",
            },
            "conditions": {
                "type": "array",
                "items": condition,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        },
    }


def _columns(kind: Kind) -> list[Json]:
    ready = {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'}
    reason = {**ready, "name": "Reason", "jsonPath": '.status.conditions[?(@.type=="Ready")].reason', "priority": 1}
    of_schedules = [
        {"name": "State", "type": "string", "jsonPath": ".status.state"},
        # As text: kubectl shows the age of a date, and none for one that is to come.
        {"name": "Next run", "type": "string", "jsonPath": ".status.nextRunAt"},
        {"name": "Last outcome", "type": "string", "jsonPath": ".status.lastOutcome"},
    ]
    age = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    identity = {"name": "Id", "type": "string", "jsonPath": ".status.id", "priority": 1}
    return [ready, reason, *(of_schedules if kind is Kind.SCHEDULE else []), identity, age]


def definition_files() -> dict[str, str]:
    """Return the files of the definitions by name."""
    return {f"{PLURALS[kind]}.yaml": HEADING + write_documents([definition(kind)]) for kind in KINDS}


def main() -> None:
    """Write the files into the folder that the command line names."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in definition_files().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
