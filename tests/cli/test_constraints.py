"""Calendars, limits and leases of agents, and which fields an editor offers.

Covers app.cli.constraints, app.cli.leases, app.cli.resources.
"""

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from app.cli.accounts import TOKEN, USER
from app.cli.constraints import CALENDAR, LIMIT
from app.cli.interaction import OPERATION
from app.cli.leases import LEASE
from app.cli.resources import AUDIT, BREAKER, DELIVERY, MEMBER, NOTIFICATION, SECRET, SESSION, TEAM, WEBHOOK
from app.cli.runs import RUN
from app.cli.schedule_changes import PAST_SLOT
from app.cli.schedules import CHANGE, COMING, SCHEDULE, SLOT
from app.cli.workflows import WORKFLOW
from app.services import inputs, views
from app.services.views.leases import LeaseView
from tests.mcp.agent_client import Agent
from tests.support.carillon import Carillon
from tests.support.command_line import CommandLine

ICS = """\
BEGIN:VCALENDAR
VERSION:2.0
PRODID:test
BEGIN:VEVENT
UID:1
DTSTAMP:20260101T000000Z
DTSTART;VALUE=DATE:20301225
SUMMARY:Christmas
END:VEVENT
END:VCALENDAR
"""


def unique(prefix: str) -> str:
    """Return a name that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


async def test_limits_are_managed(cli: CommandLine) -> None:
    """Created by options, shown with what is held, changed, and deleted."""
    name = unique("crm")
    made = (await cli("limit", "create", name, "--max-concurrent", "2", "--rate", "10/m", "--json")).json()
    assert (2, "10/m", 0) == (made["max_concurrent"], made["rate"], made["held"])
    assert [name, "2", "10/m", "-", "0", "0"] == next(
        line.split() for line in (await cli("limit", "list", "--limit", "0")).out.splitlines() if name in line
    )
    assert 5 == (await cli("limit", "edit", name, "--set", "burst=5", "--json")).json()["burst"]
    row = (await cli("limit", "get", name, "-o", "csv", "--fields", "name,public")).out.splitlines()[1]
    assert f"{name},false" == row
    refused = await cli("limit", "create", unique("x"), "--rate", "fast")
    assert (2, True) == (refused.code, "  rate: " in refused.err)
    assert (0, f"Deleted limit {name}.\n") == ((gone := await cli("limit", "delete", name)).code, gone.err)
    assert 3 == (await cli("limit", "get", name)).code


async def test_calendars_are_managed(cli: CommandLine, tmp_path: Path) -> None:
    """From days and from an iCalendar file, which YAML shows as a block."""
    days, events = unique("days"), unique("events")
    own = ("--date", "2030-12-24/2030-12-26", "--date", "--05-01", "--timezone", "Europe/Berlin")
    made = (await cli("calendar", "create", days, *own, "--json")).json()
    assert ({"--05-01", "2030-12-24/2030-12-26"}, "Europe/Berlin") == (set(made["dates"]), made["timezone"])
    file = tmp_path / "events.ics"
    file.write_text(ICS)
    assert 0 == (await cli("calendar", "create", events, "--ics", str(file))).code
    block = await cli("calendar", "get", events, "-o", "yaml")
    assert (True, ICS) == ("ics: |\n  BEGIN:VCALENDAR\n" in block.out, yaml.safe_load(block.out)["ics"])
    listing = (await cli("calendar", "get", events)).out
    assert "BEGIN:VCALENDAR VERSION:2.0 PRODID:test" in listing
    missing = await cli("calendar", "create", unique("x"), "--ics", str(tmp_path / "none.ics"))
    assert (2, True) == (missing.code, "No such file" in missing.err)
    assert 0 == (await cli("calendar", "delete", days, events)).code


async def test_leases_are_granted_approved_and_revoked(cli: CommandLine, standing: Carillon) -> None:
    """By the name of the agent; its token is alone on stdout, and is refused after the end."""
    agent, workflow = unique("agent"), await standing.workflow(name=unique("w"))
    terms = ("--expires", "30d", "--max-schedules", "2", "--max-runs", "9", "--review", "before")
    granted = await cli("lease", "create", agent, *terms, "--workflow", workflow["name"], "--purpose", "reports")
    token = granted.out.strip()
    assert (0, True, True) == (granted.code, token.startswith("carillon_"), "shown only once" in granted.err)
    shown_lease = (await cli("lease", "get", agent, "--json")).json()
    assert ([workflow["id"]], "before", 9) == tuple(shown_lease[one] for one in ("workflows", "review", "max_runs"))
    left = datetime.fromisoformat(shown_lease["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=29) < left <= timedelta(days=30)
    asked = {"name": unique("s"), "workflow_id": workflow["id"], "interval_seconds": 300, "total_repeats": 2}
    made = await Agent(standing, token).call("create_schedule", **asked)
    assert "left schedules=1,runs=7,writes=-" in " ".join((await cli("lease", "get", agent)).out.split())
    approved = await cli("lease", "approve", agent, "--note", "good", "--json")
    assert [] == approved.json()["awaiting_review"]
    assert 12 == (await cli("lease", "edit", agent, "--set", "max_runs=12", "--json")).json()["max_runs"]
    other = await Agent(standing, token).call("create_schedule", **{**asked, "name": unique("s")})
    adopted = (await cli("lease", "adopt", agent, "--schedule", other["id"], "--json")).json()
    assert [made["id"]] == adopted["schedule_ids"]
    second = (await cli("lease", "create", agent, "--expires", "1d", "--json")).json()
    doubtful = await cli("lease", "get", agent)
    assert (2, True) == (doubtful.code, "Give the id instead." in doubtful.err)
    assert "revoked" == (await cli("lease", "revoke", str(second["id"]), "--json")).json()["status"]
    assert shown_lease["id"] == (await cli("lease", "get", agent, "--json")).json()["id"]
    assert 0 == (await cli("lease", "revoke", agent, "--note", "over")).code
    assert 4 == (await cli("whoami", environ={**cli.environ, "CARILLON_TOKEN": token})).code
    assert 2 == (await cli("lease", "create", unique("x"))).code
    assert (3, True) == ((gone := await cli("operation", "get", "nonsense")).code, "no operation" in gone.err)
    assert (3, True) == ((gone := await cli("run", "get", "nonsense")).code, "no run 'nonsense'" in gone.err)


EDITED = (
    (CALENDAR, views.CalendarView, inputs.CalendarChanges),
    (LIMIT, views.LimitView, inputs.LimitChanges),
    (LEASE, LeaseView, inputs.LeaseChanges),
    (NOTIFICATION, views.NotificationView, inputs.NotificationChanges),
    (WEBHOOK, views.WebhookView, inputs.WebhookChanges),
    (TEAM, views.TeamView, inputs.TeamChanges),
    (USER, views.UserView, inputs.UserChanges),
    (WORKFLOW, views.WorkflowView, inputs.WorkflowChanges),
)


def fields_of(struct: Any) -> set[str]:
    """Return the names that the fields of a struct have in JSON."""
    return set(struct.__struct_encode_fields__)


def test_the_editor_offers_what_can_be_changed() -> None:
    """All of it, and nothing that the API would refuse."""
    offered = {resource.noun: fields_of(view) - resource.read_only for resource, view, _ in EDITED}
    accepted = {resource.noun: fields_of(view) & fields_of(changes) for resource, view, changes in EDITED}
    assert accepted == offered


def test_columns_are_fields_of_the_api() -> None:
    """But for those that a table has for itself."""
    shapes = {resource.shape: view for resource, view, _ in EDITED} | {
        SCHEDULE: views.ScheduleView,
        RUN: views.ExecutionView,
        SLOT: views.SlotItem,
        PAST_SLOT: views.PastSlotView,
        CHANGE: views.HistoryItem,
        COMING: views.UpcomingItem,
        AUDIT: views.AuditEventView,
        BREAKER: views.BreakerView,
        TOKEN: views.TokenView,
        OPERATION: views.OperationView,
        SESSION.shape: views.SessionView,
        SECRET.shape: views.SecretView,
        DELIVERY: views.DeliveryView,
        MEMBER: views.MemberView,
    }
    wrong = {
        shape.noun: unknown
        for shape, view in shapes.items()
        if (unknown := {column.path for column in shape.columns} - fields_of(view))
    }
    assert {"schedule": {"timing"}, "workflow": {"steps"}} == wrong
