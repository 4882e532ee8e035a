"""Resources that agents read, and prompts that people choose."""

from typing import Any
from uuid import UUID

import msgspec

from app.domain.access import Actor
from app.domain.errors import CarillonError
from app.mcp.protocol import INVALID_PARAMS, Caller, Json, RpcError
from app.persistence.pagination import Part
from app.services.executions import ExecutionService
from app.services.inputs import Span
from app.services.schedule_queries import ScheduleQueryService
from app.services.slots import SlotService

_SPECS = """\
# When a schedule is due
Give exactly one of:
- `interval_seconds` (at least 1) or `every`: "90s", "5m", "2h", "1d", "hourly", "daily", "weekly", "monthly".
- `cron`: five fields, names, `L`, `#`, "@daily". Day of month OR day of week, as cron does.
- `rrule`: a recurrence rule of iCalendar, such as "FREQ=WEEKLY;BYDAY=TU;BYHOUR=9;BYMINUTE=0".
- `at`: one RFC 3339 time. `after`: one delay from now, such as "10m".
`timezone` (IANA, default UTC) holds for cron, rrule, windows and weekdays. A fixed wall time that a clock change skips
fires at the first moment after the gap; one that it repeats fires once. `preview_schedule` warns of such times.
`only_between` "08:00-18:00" and `not_on` ["saturday"] leave slots out; `start_at` and `end_at` bound them;
`jitter_seconds` spreads them.
Under a lease `total_repeats` is required (not with `at` and `after`): it reserves that many runs.
"""
_OUTCOMES = """\
# What becomes of a slot
- `fired`: a run was started; its own status says how it ended. `queued`: it waits for an earlier run.
- `skipped_overlap`: an earlier run was active and `if_running` is `skip`. Mend: a longer interval, or `queue`.
- `skipped_queue_full`: more waited than `max_queued`. `skipped_retry`: a retry of an earlier slot held the schedule.
- `skipped_guard`: the workflow has `max_concurrent_runs` runs. `skipped_breaker`: its breaker is open after failures.
- `skipped_request`: a person asked to leave this slot out.
- `missed`: no worker handled it within `misfire_grace_seconds`, or the schedule was changed before it fired.
- `coalesced`: `catch_up` `run_once` ran a later slot for it.
A schedule that is `dead` has used up its retries: a person or the owner mends the cause and revives it.
"""
GUIDES = {
    "carillon://guides/specs": ("specs", "How to say when a schedule is due", _SPECS),
    "carillon://guides/outcomes": ("outcomes", "What the outcomes of slots mean, and how to mend them", _OUTCOMES),
}
TEMPLATES = (
    ("carillon://schedules/{id}", "schedule", "A schedule with all its fields"),
    ("carillon://schedules/{id}/slots", "slots", "The newest 100 slots of a schedule, and the next ten"),
    ("carillon://runs/{id}", "run", "A run with the result of each node"),
)
_WHY = """\
Find out why the schedule {schedule} did not run at {at}. Find its id with list_schedules, then call explain_slot and,
if a run failed, get_run. Say what happened in two sentences, and name the one call that mends it. Change nothing
without being asked."""
_PLAN = """\
Plan a schedule for this wish: {wish}. Choose a workflow with list_workflows, write the spec and check it with
preview_schedule until it has no warning that matters. Check lease_status. Show the spec and its next runs, and ask
before create_schedule; give it a `key`, so that a repeated call changes nothing."""
_SPREAD = """\
Call forecast_load for the next day. Name the busiest minutes and which schedules fire then, and propose for each a
`jitter_seconds` or another minute. Change nothing without being asked."""
_REPORT = """\
Report on the last 24 hours: schedules that fail or are dead or silent (list_schedules with `health`), with the reason
of each (explain_slot), and what is to run today (forecast_load). At most ten lines, the most urgent first."""
PROMPTS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "why_did_it_not_run": ("Find out why a schedule did not run, and what to do", ("schedule", "at"), _WHY),
    "plan_a_schedule": ("Plan a new schedule from a wish in plain words", ("wish",), _PLAN),
    "spread_the_load": ("Find times at which too much fires at once", (), _SPREAD),
    "morning_report": ("Report what happened since yesterday", (), _REPORT),
}
_FEW = 100


class Reading:
    """Answers the methods about resources and prompts."""

    def __init__(self, queries: ScheduleQueryService, slots: SlotService, executions: ExecutionService) -> None:
        """Read by these services."""
        self._queries = queries
        self._slots = slots
        self._executions = executions

    async def list_resources(self, _caller: Caller, _params: Json) -> Json:
        """Return the resources with a fixed address: the guides."""
        return {
            "resources": [
                {"uri": uri, "name": name, "description": title, "mimeType": "text/markdown"}
                for uri, (name, title, _) in GUIDES.items()
            ]
        }

    async def list_templates(self, _caller: Caller, _params: Json) -> Json:
        """Return the forms of addresses of schedules and runs."""
        return {
            "resourceTemplates": [
                {"uriTemplate": uri, "name": name, "description": title, "mimeType": "application/json"}
                for uri, name, title in TEMPLATES
            ]
        }

    async def read_resource(self, caller: Caller, params: Json) -> Json:
        """Return the text of a resource."""
        uri = params.get("uri")
        if not isinstance(uri, str):
            raise RpcError(INVALID_PARAMS, "`uri` must be a text.")
        if uri in GUIDES:
            return {"contents": [{"uri": uri, "mimeType": "text/markdown", "text": GUIDES[uri][2]}]}
        try:
            value = await self._read(caller.actor, uri)
        except CarillonError as error:
            raise RpcError(INVALID_PARAMS, error.detail, {"uri": uri[:_FEW]}) from None
        text = msgspec.json.encode(value).decode()
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]}

    async def _read(self, actor: Actor, uri: str) -> Any:
        kind, _, rest = uri.removeprefix("carillon://").partition("/")
        name, _, part = rest.partition("/")
        try:
            identity = UUID(name)
        except ValueError:
            raise _unknown(uri) from None
        if (kind, part) == ("schedules", ""):
            return (await self._queries.get(actor, identity)).view
        if (kind, part) == ("schedules", "slots"):
            return await self._slots.of_schedule(actor, identity, Span(), Part(_FEW, counts=False), 10)
        if (kind, part) == ("runs", ""):
            return await self._executions.get(actor, identity)
        raise _unknown(uri)

    async def list_prompts(self, _caller: Caller, _params: Json) -> Json:
        """Return the prompts with their arguments."""
        listed = []
        for name, (title, names, _) in PROMPTS.items():
            arguments = [{"name": one, "required": True} for one in names]
            listed.append({"name": name, "description": title, "arguments": arguments})
        return {"prompts": listed}

    async def get_prompt(self, _caller: Caller, params: Json) -> Json:
        """Return the text of a prompt with its arguments filled in."""
        name, given = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or name not in PROMPTS:
            raise RpcError(INVALID_PARAMS, "There is no such prompt.")
        title, arguments, text = PROMPTS[name]
        missing = [one for one in arguments if not isinstance(given, dict) or not isinstance(given.get(one), str)]
        if missing:
            raise RpcError(INVALID_PARAMS, f"The prompt needs {', '.join(f'`{one}`' for one in missing)}.")
        for one in arguments:
            text = text.replace(f"{{{one}}}", given[one][:1000])
        return {"description": title, "messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


def _unknown(uri: str) -> RpcError:
    return RpcError(INVALID_PARAMS, "There is no such resource.", {"uri": uri[:_FEW]})
