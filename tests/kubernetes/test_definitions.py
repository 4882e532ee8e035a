"""The CustomResourceDefinitions are those of the code, and Kubernetes would take them."""

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from app.actions.catalog import Catalog
from app.actions.plugins import load_actions
from app.domain.declarations import Kind
from app.domain.kubernetes_objects import KINDS, document_of, resource_of
from app.kubernetes.definitions import RULES, definition, definition_files, spec_schema
from app.services.declarations.files import read_values
from app.services.inputs import DeclaredScheduleInput, WorkflowFields
from tests.chart.kubernetes import problems
from tests.chart.rendering import CHART, ROOT, objects

Json = dict[str, Any]
# Of a structural schema: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources
KEYWORDS = {
    *("type", "format", "description", "enum", "default", "required", "properties", "items", "additionalProperties"),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties", "pattern"),
    *("x-kubernetes-validations", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
}
EXAMPLES = [
    manifest
    for block in re.findall(
        r"^```yaml\n(.*?)^```$", (ROOT / "docs/kubernetes-objects.md").read_text(), re.MULTILINE | re.DOTALL
    )
    for manifest in objects(block)
    if manifest.get("apiVersion", "").startswith("carillon.dev/")
]
WHEN = {"workflow": "w"}


def test_the_files_of_the_chart_are_up_to_date() -> None:
    """`make crds` writes them."""
    assert definition_files() == {path.name: path.read_text() for path in (CHART / "files/crds").glob("*.yaml")}


def schemas(schema: Json) -> Iterator[Json]:
    """Yield a schema and all that it contains."""
    yield schema
    inner = [*schema.get("properties", {}).values()]
    inner += [schema[name] for name in ("items", "additionalProperties") if name in schema]
    for one in inner:
        yield from schemas(one)


@pytest.mark.parametrize("kind", KINDS)
def test_schemas_are_structural(kind: Kind) -> None:
    """The object is valid in every version; every schema has a type, no reference and no keyword that is unknown."""
    made = definition(kind)
    assert [] == problems(made)
    (version,) = made["spec"]["versions"]
    for schema in schemas(version["schema"]["openAPIV3Schema"]):
        assert set() == set(schema) - KEYWORDS
        assert "type" in schema or schema.get("x-kubernetes-int-or-string")
        assert not {"properties", "additionalProperties"} <= set(schema)
        # Go's patterns know no look-around.
        assert not re.search(r"\(\?[!=<]", schema.get("pattern", ""))
        assert isinstance(schema.get("exclusiveMinimum", False), bool)
    assert {"status": {}} == version["subresources"]


def test_specs_have_the_fields_of_documents() -> None:
    """A field of the API that the definition lacks would be dropped by the API server without a word."""
    for kind, form in ((Kind.SCHEDULE, DeclaredScheduleInput), (Kind.WORKFLOW, WorkflowFields)):
        assert {*form.__struct_fields__, "deletionPolicy"} == set(spec_schema(kind)["properties"])


def test_examples_of_the_page_are_valid() -> None:
    """By the schemas and the rules of the definitions, and by those of `apply`."""
    assert {"Schedule", "Workflow"} == {example["kind"] for example in EXAMPLES}
    for example in EXAMPLES:
        kind = Kind(example["kind"].lower())
        jsonschema.validate(example["spec"], {**spec_schema(kind), "additionalProperties": False})
        assert [] == broken(kind, example["spec"], example["spec"])
        document = document_of(resource_of(kind, example), example["metadata"]["namespace"])
        assert () == read_values([document], Catalog(load_actions().actions)).problems


@pytest.mark.parametrize(
    ("kind", "before", "after", "field"),
    [
        (Kind.SCHEDULE, {**WHEN}, {**WHEN}, ""),
        (Kind.SCHEDULE, {**WHEN, "cron": "x"}, {**WHEN, "cron": "x", "every": "5m"}, ""),
        (Kind.SCHEDULE, {**WHEN, "cron": "x"}, {**WHEN, "after": "5m", "start_at": "2", "end_at": "1"}, ".end_at"),
        (Kind.SCHEDULE, {**WHEN, "at": "1", "name": "a"}, {**WHEN, "at": "1", "name": "b"}, ".name"),
        (Kind.SCHEDULE, {**WHEN, "at": "1", "name": "a"}, {**WHEN, "at": "1"}, ".name"),
        (Kind.WORKFLOW, {}, {"key": "k"}, ".key"),
        (Kind.SCHEDULE, {**WHEN, "at": "1", "key": "k"}, {**WHEN, "rrule": "1", "key": "k"}, None),
        (Kind.WORKFLOW, {"name": "a"}, {"name": "a", "key": ""}, ".key"),
    ],
)
def test_rules_refuse_what_they_say(kind: Kind, before: Json, after: Json, field: str | None) -> None:
    """Exactly one way to say when, an end after the start, and neither the name nor the key changes."""
    assert ([] if field is None else [field]) == broken(kind, before, after)


def broken(kind: Kind, before: Json, after: Json) -> list[str]:
    """Return the fields of the rules that a change breaks. The rules use a part of CEL that is close to Python."""
    return [
        rule.get("fieldPath", "")
        for rule in RULES[kind]
        if not eval(_as_python(rule["rule"]), {}, {"self": after, "old": before, "bool": bool, "sum": sum})
    ]


def _as_python(rule: str) -> str:
    text = re.sub(r"has\((self|oldSelf)\.(\w+)\)", lambda found: f"('{found[2]}' in {_variable(found[1])})", rule)
    text = re.sub(r"\b(self|oldSelf)\.(\w+)", lambda found: f"{_variable(found[1])}['{found[2]}']", text)
    text = re.sub(r"(\[.*\])\.exists_one\(given, given\)", r"(sum(\1) == 1)", text)
    return text.replace("&&", " and ").replace("||", " or ").replace("!(", "not (")


def _variable(name: str) -> str:
    return "old" if name == "oldSelf" else "self"


def test_columns_show_what_people_ask_for() -> None:
    """`kubectl get schedules` shows readiness, the next run and the last outcome; their paths are in the status."""
    (version,) = definition(Kind.SCHEDULE)["spec"]["versions"]
    columns = {column["name"]: column["jsonPath"] for column in version["additionalPrinterColumns"]}
    assert {"Ready", "State", "Next run", "Last outcome", "Age"} <= set(columns)
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    named = {re.split(r"\W+", path)[2] for path in columns.values() if path.startswith(".status.")}
    assert set() == named - set(status)


def test_definitions_are_yaml_that_others_read_alike() -> None:
    """PyYAML, as other tools, reads the same values."""
    for kind, text in zip(KINDS, definition_files().values(), strict=True):
        assert definition(kind) == yaml.safe_load(text)
