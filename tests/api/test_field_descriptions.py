"""Every field and parameter of the OpenAPI document is described, and nothing else is.

Covers app.api.field_descriptions, app.api.value_descriptions.
"""

from collections.abc import Callable, Iterable, Iterator

import pytest

from app.api.field_descriptions import FIELDS, PARAMETERS, Table, description_of
from app.domain.executions import ExecutionStatus
from app.domain.ledger import QUEUED, LedgerOutcome
from tests.support.carillon import Json
from tests.support.unconnected_api import DOCUMENT

COMPONENTS: Json = DOCUMENT["components"]["schemas"]
# The values of these explain themselves.
SELF_EXPLANATORY = {"method"}


def fields() -> Iterator[tuple[str, str, Json]]:
    """Return the component, the name and the schema of every field."""
    for component, schema in COMPONENTS.items():
        for name, field in schema.get("properties", {}).items():
            yield component, name, field


def parameters() -> Iterator[tuple[str, str, Json]]:
    """Return the tag of the call, the name and the whole of every parameter of a path or a query."""
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            for parameter in (one for one in operation.get("parameters", ()) if one["in"] != "header"):
                yield operation["tags"][0], parameter["name"], parameter


def values_of(schema: Json) -> set[str]:
    """Return the values of the enums in a schema."""
    if "$ref" in schema:
        return values_of(COMPONENTS[schema["$ref"].rpartition("/")[2]])
    inner = [*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else [])]
    found = {value for value in schema.get("enum", ()) if isinstance(value, str) and value}
    # Objects inside have fields of their own.
    return found.union(*(values_of(one) for one in inner if "properties" not in one))


def untold_values(description: str, values: Iterable[str]) -> list[str]:
    """Return the values that a description does not name."""
    return [value for value in values if f"`{value}`" not in description]


def test_every_field_is_described() -> None:
    """By at least one sentence."""
    assert [] == [(component, name) for component, name, _ in fields() if not description_of(FIELDS, component, name)]
    assert [] == [name for _, name, field in fields() if not field["description"].endswith(".")]


def test_every_parameter_is_described() -> None:
    """In paths and in queries alike."""
    assert [] == [(tag, name) for tag, name, found in parameters() if not (found["description"] or "").endswith(".")]


@pytest.mark.parametrize(("tables", "described"), [(FIELDS, fields), (PARAMETERS, parameters)])
def test_no_description_is_left_over(
    tables: tuple[Table, ...], described: Callable[[], Iterator[tuple[str, str, Json]]]
) -> None:
    """Each text describes something that exists, and each table something of each component that it names."""
    used: set[tuple[int, str]] = set()
    named: set[tuple[int, str]] = set()
    for owner, field, _ in described():
        index = next(i for i, one in enumerate(tables) if field in one.texts and (not one.names or owner in one.names))
        used.add((index, field))
        named.add((index, owner))
    assert [] == [
        (index, field) for index, one in enumerate(tables) for field in one.texts if (index, field) not in used
    ]
    assert [] == [(index, name) for index, one in enumerate(tables) for name in one.names if (index, name) not in named]


def test_values_of_enums_are_explained() -> None:
    """Wherever a field or a parameter has an enum, its description names all of the values."""
    told = [(name, field["description"], values_of(field)) for _, name, field in fields()]
    told += [(name, found["description"], values_of(found["schema"])) for _, name, found in parameters()]
    assert [] == [
        (name, untold)
        for name, text, values in told
        if name not in SELF_EXPLANATORY and (untold := untold_values(text, values))
    ]


def test_words_of_the_ledger_are_explained() -> None:
    """Outcomes are texts in the document, as later releases may have more of them; those of this one are named."""
    outcomes = [QUEUED, *LedgerOutcome]
    for component, name in (
        ("ScheduleView", "last_outcome"),
        ("LedgerItem", "outcome"),
        ("ExplanationView", "outcome"),
    ):
        description = COMPONENTS[component]["properties"][name]["description"]
        assert [] == untold_values(description, outcomes)
    last_outcome = COMPONENTS["ScheduleView"]["properties"]["last_outcome"]["description"]
    assert [] == untold_values(last_outcome, [ExecutionStatus.RUNNING, ExecutionStatus.SUCCESS, ExecutionStatus.FAILED])


def test_a_bound_of_the_type_follows_the_meaning() -> None:
    """The size of payloads depends on the type, and is said after what a payload is for."""
    for component in ("ScheduleInput", "ScheduleChanges", "WebhookInput"):
        name = "payload" if component == "WebhookInput" else "trigger_payload"
        text = COMPONENTS[component]["properties"][name]["description"]
        assert text == f"{description_of(FIELDS, component, name)} At most 65536 bytes of JSON."
