"""The arguments of ``scheduler_tools``: what is accepted when a workflow is written has the right shape when it runs.

Covers app.actions.builtin.schedules.
"""

from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.actions.builtin import BUILTIN
from app.actions.builtin.schedules import TOOLS, ToolsConfig
from app.actions.catalog import Catalog
from app.domain.limits import DEFAULT_CAPS, Caps
from app.domain.schedule_input import ScheduleInput
from app.domain.workflows import Node
from app.services.schedules import spec_values
from app.services.validation import checked
from tests.support.hypothesis_examples import examples

CATALOG = Catalog(BUILTIN)
SCHEMA = msgspec.json.schema(TOOLS.config)
ID = "0198a0c0-0000-7000-8000-000000000001"
NEW = {"name": "n", "workflow_id": 1, "interval_seconds": 60}
# Values that some argument takes, and some that none does.
VALUES = st.sampled_from(
    [
        *(
            None,
            True,
            0,
            1,
            60,
            -5,
            1.5,
            10**12,
            "",
            "x",
            "   ",
            ID,
            "5m",
            "monthly",
            "soon",
            "* * * * *",
            "0 0 31 2 *",
        ),
        *("2030-01-01T00:00:00Z", "2030-01-01T00:00:00", "1000-01-01T00:00:00Z", "Europe/Berlin", "Mars/Base"),
        *("08:00-18:00", "skip", "run_all", "allow", "active", [], ["monday"], ["moonday"], {}, {"a": [1]}),
        *("{{ trigger.payload.x }}", "{{ oops", "{{ nowhere }}"),
    ]
)
NAMES = st.sampled_from([*ScheduleInput.__struct_fields__, "schedule_id", "note", "status", "limit", "extra"])
TOOL_NAMES = ["create_schedule", "pause_schedule", "resume_schedule", "stop_schedule", "list_schedules"]


def errors(tool: Any, catalog: Catalog = CATALOG, **config: Any) -> dict[str, str]:
    """The errors of a node with this tool, by field."""
    node = Node("work", "scheduler_tools", {"tool": tool, **config})
    found = catalog.config_errors([node])
    return {error.field.removeprefix("nodes[0].config."): error.message for error in found}


@pytest.mark.parametrize(
    ("tool", "arguments", "fields"),
    [
        ("create_schedule", NEW, []),
        ("create_schedule", NEW | {"interval_seconds": "x"}, ["arguments.interval_seconds"]),
        ("create_schedule", NEW | {"interval_seconds": None, "cron": "0 0 31 2 *"}, ["arguments.cron"]),
        ("create_schedule", NEW | {"every": "5m"}, ["arguments.every"]),
        ("create_schedule", {"name": "n", "workflow_id": 1}, ["arguments.interval_seconds"]),
        ("create_schedule", NEW | {"max_retries": 5000}, ["arguments.max_retries"]),
        ("create_schedule", NEW | {"start_at": "1000-01-01T00:00:00Z"}, ["arguments.start_at"]),
        ("create_schedule", NEW | {"color": "red", "name": " "}, ["arguments.name", "arguments.color"]),
        ("create_schedule", {}, ["arguments.name", "arguments.workflow_id"]),
        ("create_schedule", NEW | {"timezone": "Mars/Base", "name": "{{ slot }}"}, ["arguments.timezone"]),
        ("create_schedule", {"name": "{{ slot }}", "workflow_id": 1}, ["arguments.interval_seconds"]),
        ("create_schedule", {"name": "n", "workflow_id": 1, "cron": "{{ trigger.payload.cron }}"}, []),
        ("create_schedule", NEW | {"trigger_payload": {"a": ["{{ slot }}"]}}, []),
        ("create_schedule", NEW | {"trigger_payload": {"a": ["{{ oops"]}}, ["arguments.trigger_payload.a[0]"]),
        ("pause_schedule", {"schedule_id": ID, "note": "why"}, []),
        ("pause_schedule", {"schedule_id": "{{ schedule.id }}"}, []),
        ("pause_schedule", {"schedule_id": "x", "nte": "why"}, ["arguments.schedule_id", "arguments.nte"]),
        ("resume_schedule", {"note": "x" * 1001}, ["arguments.note", "arguments.schedule_id"]),
        ("stop_schedule", {"schedule_id": ID, "note": "why"}, ["arguments.note"]),
        ("list_schedules", {}, []),
        ("list_schedules", {"status": None, "limit": 500, "workflow_id": None}, []),
        ("list_schedules", {"status": "odd", "limit": 501}, ["arguments.status", "arguments.limit"]),
        ("drop_schedule", {}, ["tool"]),
        ("{{ trigger.payload.tool }}", {"anything": 1}, []),
        ("create_schedule", "{{ trigger.payload }}", []),
        ("create_schedule", [], ["arguments"]),
    ],
)
def test_arguments_are_checked_by_tool(tool: str, arguments: Any, fields: list[str]) -> None:
    """Each wrong one is named; templates wait until they are filled in."""
    assert fields == list(errors(tool, arguments=arguments))


def test_arguments_may_be_left_out_where_none_is_needed() -> None:
    """As in 0.1."""
    assert {} == errors("list_schedules")
    assert {"arguments": "Node 'work': This field is required."} == errors("pause_schedule")


def test_the_largest_values_are_those_of_the_settings() -> None:
    """Not only the defaults."""
    catalog = Catalog(BUILTIN, Caps(max_retries=9000))
    assert {} == errors("create_schedule", catalog, arguments=NEW | {"max_retries": 9000})
    assert ["arguments.max_retries"] == [*errors("create_schedule", catalog, arguments=NEW | {"max_retries": 9001})]


def test_the_schema_is_discriminated_by_the_tool() -> None:
    """Each tool has its own arguments."""
    assert "tool" == SCHEMA["discriminator"]["propertyName"]
    assert TOOL_NAMES == list(SCHEMA["discriminator"]["mapping"])
    arguments = {
        tool: SCHEMA["$defs"][reference.rpartition("/")[2]]["properties"]["arguments"]
        for tool, reference in SCHEMA["discriminator"]["mapping"].items()
    }
    assert "#/$defs/ScheduleInput" == arguments["create_schedule"]["$ref"]
    assert {"interval_seconds", "cron", "trigger_payload"} < SCHEMA["$defs"]["ScheduleInput"]["properties"].keys()


@examples(200)
@given(
    st.sampled_from(TOOL_NAMES),
    st.sampled_from([{}, NEW, {"schedule_id": ID}]),
    st.dictionaries(NAMES, VALUES, max_size=3),
)
def test_what_is_accepted_has_the_right_shape_when_it_runs(tool: str, plain: Any, varied: dict[str, Any]) -> None:
    """And fits the schema, if it has no templates."""
    config = {"tool": tool, "arguments": plain | varied}
    if errors(tool, arguments=config["arguments"]) or "{{" in repr(config):
        return
    jsonschema.validate(config, SCHEMA, cls=jsonschema.Draft202012Validator)
    converted = msgspec.convert(config, ToolsConfig)
    if tool == "create_schedule":
        assert isinstance(converted.arguments, ScheduleInput)
        values = spec_values(checked(msgspec.to_builtins(converted.arguments), ScheduleInput))
        assert [] == DEFAULT_CAPS.errors(values)
