"""Every field of ``app.domain.schedules.ScheduleDefinition`` can be created, changed, shown, exported and declared.

Nothing has to be added here for a new field, unless its values follow a grammar of their own (``SPELLED``).
"""

from datetime import datetime
from enum import StrEnum
from types import NoneType
from typing import Any, get_args

import msgspec
import pytest

from app.actions.context import PluginSchedule, PluginScheduleChanges, PluginScheduleInput
from app.cli.operators import OPERATOR
from app.config import Settings
from app.domain.schedules import DEFAULTS, EDITABLE, ScheduleDefinition
from app.persistence.database import Database
from app.services.declarations.exporting import ExportService, Selection
from app.services.inputs import ScheduleInput
from tests.support.carillon import Carillon, Json
from tests.support.declarations import applying

TYPES = {field.name: field.type for field in msgspec.structs.fields(ScheduleDefinition)}
# Values that follow a grammar, or name something that has to exist.
SPELLED = {
    "interval_seconds": 60,
    "every": "monthly",
    "cron": "0 9 * * *",
    "rrule": "FREQ=WEEKLY;BYDAY=TU;BYHOUR=9;BYMINUTE=0",
    "after": "3d",
    "timezone": "Europe/Berlin",
    "only_between": "08:00-18:00",
    "not_on": ["saturday", "sunday"],
    "exclude_calendars": ["holidays:DE-BE"],
    "only_calendars": ["holidays:FR"],
    "trigger_node_id": "start",
    "labels": {"team": "shop"},
}
# What a plugin calls otherwise, or says of its workflow.
PLUGINS_OWN = {"action", "config", "payload", "version"}


def other_value(name: str) -> Any:
    """Return a JSON value of a field's type that is not the field's default."""
    if name in SPELLED:
        return SPELLED[name]
    default = getattr(DEFAULTS, name)
    kind = TYPES[name]
    if NoneType in get_args(kind):
        kind = next(part for part in get_args(kind) if part is not NoneType)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return next(member.value for member in kind if member is not default)
    if kind is bool:
        return not default
    if kind is int:
        return (default or 0) + 1
    if kind is datetime:
        return "2040-01-01T00:00:00Z"
    return "other" if kind is str else {"other": 1}


@pytest.mark.parametrize("name", EDITABLE)
async def test_a_field_is_offered_everywhere(
    name: str, carillon: Carillon, settings: Settings, database: Database
) -> None:
    """A value that is created or patched is shown, listed, in the history, in the export, and in what that declares."""
    value = other_value(name)
    if name == "workflow_id":
        value = (await carillon.workflow(name="other"))["id"]
    if name == "limit":
        await carillon.call("POST", "/limits/", 201, json={"name": value, "max_concurrent": 1, "public": True})
    created = await carillon.schedule(**{name: value})
    assert value == created[name]
    await carillon.call("DELETE", f"/schedules/{created['id']}/", 204)
    schedule = await carillon.schedule()
    assert value != schedule[name]
    patched = await carillon.call("PATCH", f"/schedules/{schedule['id']}/", json={name: value})
    assert value == patched[name] == (await carillon.get(schedule))[name]
    page = await carillon.call("GET", "/schedules/", params={"fields": name})
    assert [{"id": schedule["id"], name: value}] == page["items"]
    assert value == (await carillon.history(schedule))[-1]["changes"][name]["to"]

    text = await ExportService(database).export(OPERATOR, Selection(for_namespace="copy"))
    if name == "key":
        # Two schedules of an owner cannot have one key: what is declared takes it over.
        await carillon.call("PATCH", f"/schedules/{schedule['id']}/", json={"key": None})
    async with applying(settings) as apply:
        report = await apply(text)
        assert [] == report.problems
        assert [] == (await apply(text)).lines
    items = (await carillon.call("GET", "/schedules/", params={"fields": f"{name},workflow_id"}))["items"]
    (declared,) = [item for item in items if item["id"] != schedule["id"]]
    assert await _shown(carillon, patched, name) == await _shown(carillon, declared, name)


async def _shown(carillon: Carillon, schedule: Json, name: str) -> Any:
    """Return a field as it is shown; of the workflow its name, as a declared one is a copy."""
    if name != "workflow_id":
        return schedule[name]
    return (await carillon.call("GET", f"/workflows/{schedule['workflow_id']}/"))["name"]


def test_plugins_can_change_what_they_can_create() -> None:
    """Plugins are offered every field of a schedule that users have; its workflow is made from the action."""
    of_users = {*EDITABLE} - {"workflow_id", "trigger_node_id", "trigger_payload", "key"}
    offered = set(PluginScheduleInput.__struct_fields__)
    assert of_users | PLUGINS_OWN == offered
    assert offered - {"action", "version"} == set(PluginScheduleChanges.__struct_fields__)
    assert offered <= set(PluginSchedule.__struct_fields__)


@pytest.mark.parametrize("form", [ScheduleInput, PluginScheduleInput])
def test_defaults_are_those_of_the_definition(form: type[msgspec.Struct]) -> None:
    """A caller who leaves a field out gets what the domain's struct says, wherever the schedule comes from."""
    fields = [field for field in msgspec.structs.fields(form) if field.name in EDITABLE and not field.required]
    factories = {field.name: field.default_factory for field in fields}
    given = {field.name: field.default for field in fields}
    given |= {name: factory() for name, factory in factories.items() if factory is not msgspec.NODEFAULT}
    expected = {name: getattr(DEFAULTS, name) for name in given}
    # As JSON, in which a tuple and a list are the same.
    assert msgspec.json.encode(expected) == msgspec.json.encode(given)
