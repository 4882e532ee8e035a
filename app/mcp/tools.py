"""The tools of agents: few, with short answers that say what to do next. Services decide what is allowed."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import groupby
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from app import clock
from app.domain.access import Actor, Scope, require_scope
from app.domain.audit import Via
from app.domain.audited_changes import HIDDEN
from app.domain.errors import CarillonError, ForbiddenError
from app.domain.executions import ExecutionStatus
from app.domain.health import Health
from app.domain.schedules import Status
from app.domain.specs import KINDS
from app.mcp.next_steps import next_step
from app.mcp.protocol import INVALID_PARAMS, Caller, Json, RpcError
from app.persistence.audit import ORIGIN, current_origin
from app.persistence.pagination import Part
from app.persistence.schedule_filters import Filters
from app.services.agent_leases import AgentLeaseService
from app.services.catalog import ActionService
from app.services.edit_plans import EditPlanService
from app.services.executions import ExecutionService, ManualRunService
from app.services.forecasts import ForecastService
from app.services.inputs import (
    Changes,
    ForecastInput,
    Input,
    Instant,
    Moment,
    NoteInput,
    PauseInput,
    PlanInput,
    PreviewInput,
    RunInput,
    ScheduleChanges,
    ScheduleInput,
    Span,
    SpecInput,
    given,
    optional_fields_of,
)
from app.services.schedule_queries import ScheduleQueryService
from app.services.schedules import ScheduleService
from app.services.slots import SlotService
from app.services.validation import checked
from app.services.workflows import WorkflowService

Problem = Callable[[CarillonError], Json]
Few = Annotated[int, Meta(ge=1, le=50)]
Note = Annotated[str, Meta(min_length=1, max_length=1000, description="Why: it is kept in the history.")]
# The fields of a schedule that lists show, and those that one schedule leaves out where they say nothing.
_LISTED = ("name", "status", "health", "next_run_at")
_LONGEST_TEXT = 2000
# 50 schedules with names of this length are less than 4,000 tokens, as text and as structure together.
_LONGEST_NAME = 36
# Up to so many hours a forecast is told by the minute, and further ahead by five minutes.
_HOURS_BY_MINUTE = 33
_BUSIEST = 5


class Nothing(Input):
    """No arguments."""


class ListSchedules(Input, kw_only=True):
    """Which schedules to list."""

    q: Annotated[str, Meta(max_length=255, description="A part of the name or the key.")] | None = None
    status: Status | None = None
    health: Health | None = None
    workflow_id: int | None = None
    limit: Few = 20
    cursor: str | None = None


class OneSchedule(Input, kw_only=True):
    """Which schedule."""

    schedule_id: UUID


class ExplainSlot(OneSchedule, kw_only=True):
    """Which schedule, and when; left out: now, or its last slot."""

    at: Instant | None = None


class GetSlots(OneSchedule, kw_only=True):
    """Which schedule, and which part of its slots."""

    since: Instant | None = None
    until: Instant | None = None
    limit: Few = 20


class ListRuns(Input, kw_only=True):
    """Which runs to list."""

    schedule_id: UUID | None = None
    status: ExecutionStatus | None = None
    limit: Few = 20


class GetRun(Input, kw_only=True):
    """Which run."""

    run_id: UUID


@optional_fields_of(SpecInput)
class PreviewSchedule(Changes, kw_only=True):
    """A spec; with `schedule_id` the change of that schedule to this spec: what is left out stays as it is."""

    schedule_id: UUID | None = None
    count: Few = 10


class ForecastLoad(Input, kw_only=True):
    """How far to look ahead."""

    hours: Annotated[int, Meta(ge=1, le=168)] = 24


class ListWorkflows(Input, kw_only=True):
    """How many workflows to list."""

    limit: Few = 20
    cursor: str | None = None


class UpdateSchedule(OneSchedule, kw_only=True):
    """Which schedule, and its new values. With the `plan_id` of a preview nothing else is changed meanwhile."""

    changes: Annotated[dict[str, Any], Meta(description="Fields as for create_schedule; those left out stay.")]
    note: Annotated[str, Meta(max_length=1000)] = ""


class Noted(OneSchedule, kw_only=True):
    """Which schedule, and why."""

    note: Note


class PauseSchedule(Noted, kw_only=True):
    """Which schedule, why, and until when; left out: until it is resumed."""

    until: Instant | None = None


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool: what it is for, which scope it needs, and its arguments."""

    name: str
    description: str
    arguments: type[Input]
    needs: Scope = Scope.READ
    is_destructive: bool = False
    is_idempotent: bool = False

    @property
    def listed(self) -> Json:
        """Return the tool as clients list it."""
        is_read_only = self.needs is Scope.READ
        hints = {"readOnlyHint": is_read_only, "openWorldHint": False}
        if not is_read_only:
            hints |= {"destructiveHint": self.is_destructive, "idempotentHint": self.is_idempotent}
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": _schema_of(self.arguments),
            "annotations": hints,
        }


def _schema_of(kind: type[Input]) -> Json:
    """Return the JSON schema of a tool's arguments, with an object at the top as the protocol wants it."""
    schema = msgspec.json.schema(kind)
    definitions = schema["$defs"]
    top = definitions.pop(schema["$ref"].rpartition("/")[2])
    top.pop("title", None)
    return {**top, "additionalProperties": False, **({"$defs": definitions} if definitions else {})}


TOOLS = (
    Tool(
        name="list_schedules",
        description="List schedules, newest first: id, name, status, health, next run. Filter by text, status, health.",
        arguments=ListSchedules,
    ),
    Tool(name="get_schedule", description="Return one schedule, without empty fields.", arguments=OneSchedule),
    Tool(
        name="explain_slot",
        description="Say why a schedule did or did not run at a time, and which call mends it.",
        arguments=ExplainSlot,
    ),
    Tool(
        name="get_slots",
        description="List what became of the slots of a schedule, newest first, and the next five to come.",
        arguments=GetSlots,
    ),
    Tool(name="list_runs", description="List runs, newest first, of one schedule or of all.", arguments=ListRuns),
    Tool(name="get_run", description="Return one run with the result of each node.", arguments=GetRun),
    Tool(
        name="preview_schedule",
        description="Describe a spec in words, with warnings (clock changes, long gaps) and its next runs. Nothing is "
        "stored. With `schedule_id` it also returns a plan of the change with a `plan_id` that holds for 10 minutes.",
        arguments=PreviewSchedule,
    ),
    Tool(
        name="forecast_load",
        description="Count the coming runs by hour; name the busiest minutes (beyond 33 hours: five) and schedules.",
        arguments=ForecastLoad,
    ),
    Tool(name="list_workflows", description="List workflows: id, name, types of nodes.", arguments=ListWorkflows),
    Tool(name="list_actions", description="List the actions that nodes of workflows can have.", arguments=Nothing),
    Tool(
        name="lease_status",
        description="Say what your lease allows, what is left of it, and when it ends.",
        arguments=Nothing,
    ),
    Tool(
        name="create_schedule",
        description="Create a schedule: `name`, `workflow_id`, one of interval_seconds, every, cron, rrule, at, after, "
        "and under a lease `total_repeats`. With a `key` a repeated call changes the same schedule and makes no other.",
        arguments=ScheduleInput,
        needs=Scope.WRITE,
        is_idempotent=True,
    ),
    Tool(
        name="update_schedule",
        description="Change fields of a schedule. The answer says which fires it adds, removes and moves.",
        arguments=UpdateSchedule,
        needs=Scope.WRITE,
        is_destructive=True,
        is_idempotent=True,
    ),
    Tool(
        name="pause_schedule",
        description="Pause a schedule: nothing fires `until` a time, or until it is resumed.",
        arguments=PauseSchedule,
        needs=Scope.OPERATE,
    ),
    Tool(
        name="resume_schedule",
        description="Resume a paused schedule, from a fresh slot on.",
        arguments=Noted,
        needs=Scope.OPERATE,
    ),
    Tool(
        name="run_schedule_now",
        description="Start a run of a schedule now. Under a lease it takes one of its runs.",
        arguments=OneSchedule,
        needs=Scope.OPERATE,
    ),
    Tool(
        name="stop_schedule",
        description="Delete a schedule that was made with a lease, with its history. What it did not use goes back.",
        arguments=OneSchedule,
        needs=Scope.WRITE,
        is_destructive=True,
    ),
)
BY_NAME = {tool.name: tool for tool in TOOLS}


class ToolServices(msgspec.Struct, frozen=True, kw_only=True):
    """The services that carry out the tools."""

    queries: ScheduleQueryService
    slots: SlotService
    executions: ExecutionService
    plans: EditPlanService
    forecasts: ForecastService
    workflows: WorkflowService
    actions: ActionService
    leases: AgentLeaseService
    schedules: ScheduleService
    manual_runs: ManualRunService


class Toolbox:
    """Lists and calls the tools."""

    def __init__(self, services: ToolServices, problem_of: Problem) -> None:
        """Carry tools out by these services; ``problem_of`` returns an error as the API shows it."""
        self._services = services
        self._problem_of = problem_of
        self._calls: dict[str, Callable[[Actor, Any], Awaitable[Json]]] = {
            tool.name: getattr(self, f"_{tool.name}") for tool in TOOLS
        }

    async def list_tools(self, caller: Caller, _params: Json) -> Json:
        """Return the tools for which the token has the scope."""
        return {"tools": [tool.listed for tool in TOOLS if caller.actor.scope.includes(tool.needs)]}

    async def call_tool(self, caller: Caller, params: Json) -> Json:
        """Carry out a tool. What is refused is a result that tells the agent why, and not an error of the protocol."""
        name, given = params.get("name"), params.get("arguments")
        tool = BY_NAME.get(name) if isinstance(name, str) else None
        if tool is None:
            raise RpcError(INVALID_PARAMS, "There is no such tool. `tools/list` names them.")
        arguments = {} if given is None else given
        if not isinstance(arguments, dict):
            raise RpcError(INVALID_PARAMS, "`arguments` must be an object.")
        try:
            require_scope(caller.actor, tool.needs)
            values = checked(arguments, tool.arguments)
            with _as_origin(caller, tool.name, arguments):
                answer = await self._calls[tool.name](replace(caller.actor, needs=tool.needs), values)
        except CarillonError as error:
            return _refusal(self._problem_of(error))
        return _result(answer)

    async def _list_schedules(self, actor: Actor, asked: ListSchedules) -> Json:
        filters = Filters(q=asked.q, status=asked.status, health=asked.health, workflow_id=asked.workflow_id)
        part = Part(asked.limit, cursor=asked.cursor)
        page = await self._services.queries.list(actor, part, filters, fields=frozenset({"id", *_LISTED}))
        items = [{**item, "name": _shortened(item["name"])} for item in _plain(page)["items"]]
        lines = [" ".join(str(item.get(name) or "-") for name in ("id", *_LISTED)) for item in items]
        text = f"{page.total} schedules; id, name, status, health, next run:\n" + "\n".join(lines)
        return {"schedules": items, "total": page.total, "next_cursor": page.next_cursor, _TEXT: text}

    async def _get_schedule(self, actor: Actor, asked: OneSchedule) -> Json:
        return await self._shown(actor, asked.schedule_id)

    async def _shown(self, actor: Actor, schedule_id: UUID) -> Json:
        view = _plain((await self._services.queries.get(actor, schedule_id)).view)
        return {name: value for name, value in view.items() if value not in (None, "", [], {}, 0)}

    async def _explain_slot(self, actor: Actor, asked: ExplainSlot) -> Json:
        schedule = await self._shown(actor, asked.schedule_id)
        explained = _plain(await self._services.queries.explain(actor, asked.schedule_id, Moment(at=asked.at)))
        failed = [check for check in explained["checks"] if not check["passed"]]
        about = {"slot": explained["slot"], "outcome": explained["outcome"], "sentence": explained["sentence"]}
        known = ("status", "status_reason", "health", "last_error")
        state = {name: schedule[name] for name in known if name in schedule}
        run = {"run_id": explained["execution_id"]} if explained["execution_id"] else {}
        return {**about, **run, "failed_checks": failed, **state, "next_step": next_step(schedule, explained)}

    async def _get_slots(self, actor: Actor, asked: GetSlots) -> Json:
        span = Span(since=asked.since, until=asked.until)
        found = await self._services.slots.of_schedule(
            actor, asked.schedule_id, span, Part(asked.limit, counts=False), 5
        )
        view = _plain(found)
        shown = ("slot", "outcome", "status", "reason", "lateness_ms", "execution_id", "from", "to", "count")
        view["items"] = [{k: item[k] for k in shown if item.get(k) not in (None, "")} for item in view["items"]]
        return {"slots": view["items"], "spans": view.get("spans", [])}

    async def _list_runs(self, actor: Actor, asked: ListRuns) -> Json:
        filters = {"scheduled_job_id": asked.schedule_id, "status": asked.status}
        page = _plain(await self._services.executions.list(actor, filters, Part(asked.limit, counts=False)))
        shown = ("id", "scheduled_job_id", "trigger", "status", "scheduled_for", "duration_ms", "error")
        return {"runs": [{k: _cut(item[k]) for k in shown if item.get(k) not in (None, "")} for item in page["items"]]}

    async def _get_run(self, actor: Actor, asked: GetRun) -> Json:
        run = _plain(await self._services.executions.get(actor, asked.run_id))
        run.pop("payload", None)
        for node in run["nodes"]:
            node["output"] = _cut(node["output"])
        run["nodes"] = run["nodes"][:50]
        return {**run, "resource": f"carillon://runs/{asked.run_id}"}

    async def _preview_schedule(self, actor: Actor, asked: PreviewSchedule) -> Json:
        named = given(asked)
        changes = {name: msgspec.to_builtins(named[name]) for name in SpecInput.__struct_fields__ if name in named}
        wanted = {"count": asked.count}
        if asked.schedule_id is None:
            return await self._preview(actor, wanted | changes)
        stored = _plain((await self._services.queries.get(actor, asked.schedule_id)).view)
        preview = await self._preview(actor, {**wanted, "id": stored["id"], **_changed_spec(stored, changes)})
        plan = _plain(await self._services.plans.plan(actor, asked.schedule_id, checked(changes, PlanInput)))
        return {**preview, "plan": _short_plan(plan), "plan_id": plan.get("plan_id")}

    async def _preview(self, actor: Actor, wanted: Json) -> Json:
        preview: Json = _plain(await self._services.queries.preview(actor, checked(wanted, PreviewInput)))
        return preview

    async def _forecast_load(self, actor: Actor, asked: ForecastLoad) -> Json:
        now = clock.now()
        bucket_seconds = 60 if asked.hours <= _HOURS_BY_MINUTE else 300
        minutes = bucket_seconds // 60
        since = now.replace(minute=now.minute // minutes * minutes, second=0, microsecond=0)
        until = since + timedelta(hours=asked.hours)
        wanted = ForecastInput(since=since, until=until, bucket_seconds=bucket_seconds, by="schedule")
        told = _plain(await self._services.forecasts.forecast(actor, wanted))
        buckets = [(bucket["at"], bucket["fires"]) for bucket in told["buckets"] if bucket["fires"]]
        hours = {hour: sum(fires for _, fires in some) for hour, some in groupby(buckets, lambda one: one[0][:13])}
        busiest = sorted(buckets, key=lambda bucket: (-bucket[1], bucket[0]))[:_BUSIEST]
        return {
            "fires": sum(hours.values()),
            "is_estimate": told["is_estimate"],
            "by_hour": {f"{hour}:00Z": fires for hour, fires in hours.items()},
            "busiest_minutes": [{"at": at, "fires": fires} for at, fires in busiest],
            "busiest_schedules": [
                {"id": group["key"], "name": group["name"], "fires": group["fires"]}
                for group in told["groups"][:_BUSIEST]
            ],
        }

    async def _list_workflows(self, actor: Actor, asked: ListWorkflows) -> Json:
        page = _plain(await self._services.workflows.list(actor, Part(asked.limit, cursor=asked.cursor)))
        listed = [
            {
                "id": one["id"],
                "name": one["name"],
                "active": one["active"],
                "nodes": sorted({node["type"] for node in one["nodes"]}),
            }
            for one in page["items"]
        ]
        return {"workflows": listed, "next_cursor": page.get("next_cursor")}

    async def _list_actions(self, actor: Actor, _asked: Nothing) -> Json:
        found = _plain(self._services.actions.list(actor))
        return {"actions": [{"name": one["name"], "description": one["description"]} for one in found["items"]]}

    async def _lease_status(self, actor: Actor, _asked: Nothing) -> Json:
        if actor.grant is None:
            text = "This token has no lease: it has the rights and quotas of its user."
            return {"lease": None, "scopes": [scope for scope in Scope if actor.scope.includes(scope)], _TEXT: text}
        lease = _plain(await self._services.leases.get(actor, actor.grant.lease_id))
        lease["schedule_ids"] = lease["schedule_ids"][:50]
        return {"lease": lease}

    async def _create_schedule(self, actor: Actor, asked: ScheduleInput) -> Json:
        if asked.key is None:
            made = _plain(await self._services.schedules.create(actor, asked))
            return {"created": True, **_brief(made)}
        view, is_new = await self._services.schedules.put(actor, asked.key, asked)
        return {"created": is_new, **_brief(_plain(view))}

    async def _update_schedule(self, actor: Actor, asked: UpdateSchedule) -> Json:
        plan_id = {name: asked.changes[name] for name in ("plan_id",) if name in asked.changes}
        values = {name: value for name, value in asked.changes.items() if name != "plan_id"}
        planned = await self._services.plans.plan(
            replace(actor, needs=Scope.READ), asked.schedule_id, checked(values, PlanInput)
        )
        changes = checked({**values, **plan_id}, ScheduleChanges)
        changed = await self._services.schedules.change(actor, asked.schedule_id, changes)
        return {**_brief(_plain(changed)), "plan": _short_plan(_plain(planned))}

    async def _pause_schedule(self, actor: Actor, asked: PauseSchedule) -> Json:
        wanted = PauseInput(note=asked.note, until=asked.until)
        return _brief(_plain(await self._services.schedules.pause(actor, asked.schedule_id, wanted)))

    async def _resume_schedule(self, actor: Actor, asked: Noted) -> Json:
        note = NoteInput(note=asked.note)
        return _brief(_plain(await self._services.schedules.resume(actor, asked.schedule_id, note)))

    async def _run_schedule_now(self, actor: Actor, asked: OneSchedule) -> Json:
        run = _plain(await self._services.manual_runs.run(actor, asked.schedule_id, RunInput()))
        ahead = "Call get_run with this id to see how it ends."
        return {"run_id": run["id"], "status": run["status"], "next_step": ahead}

    async def _stop_schedule(self, actor: Actor, asked: OneSchedule) -> Json:
        schedule = await self._shown(replace(actor, needs=Scope.READ), asked.schedule_id)
        if "lease_id" not in schedule:
            raise ForbiddenError(
                "stop_schedule deletes only what was made with a lease. Use pause_schedule, or let a person delete it."
            )
        await self._services.schedules.delete(actor, asked.schedule_id)
        return {"stopped": str(asked.schedule_id), "name": schedule["name"]}


_TEXT = "_text"


def _brief(schedule: Json) -> Json:
    shown = ("id", "name", "status", "status_reason", "next_run_at", "end_at", "total_repeats", "spec_description")
    brief = {name: schedule[name] for name in shown if schedule.get(name) not in (None, "", 0)}
    if schedule.get("status_reason") == "awaiting_review":
        brief["next_step"] = "A person has to approve it; tell them, and wait."
    return brief


def _changed_spec(stored: Json, changes: Json) -> Json:
    """Return the spec of a stored schedule with changes; another way to say when replaces the stored one."""
    spec = {name: stored[name] for name in SpecInput.__struct_fields__ if stored.get(name) is not None}
    says_when = [name for name in KINDS if name in spec]
    left_out = says_when if any(name in changes for name in KINDS) else says_when[1:]
    return {name: value for name, value in spec.items() if name not in left_out} | changes


def _short_plan(plan: Json) -> Json:
    """Return a plan with at most five slots of each kind."""
    slots = plan.get("slots", {})
    few = {name: value[:5] if isinstance(value, list) else value for name, value in slots.items()}
    return {**{name: value for name, value in plan.items() if name != "slots"}, "slots": few}


def _plain(view: Any) -> Any:
    """Return a view as JSON values; some are encoded already."""
    return msgspec.json.decode(msgspec.json.encode(view))


def _cut(value: Any) -> Any:
    """Return a value that is short enough for an answer."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return value if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}... (read the resource for all of it)"


def _shortened(name: str) -> str:
    """Return a name that leaves room for the others of a list; `get_schedule` returns all of it."""
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


def _result(answer: Json) -> Json:
    text = answer.pop(_TEXT, None) or msgspec.json.encode(answer).decode()
    return {"content": [{"type": "text", "text": text}], "structuredContent": answer, "isError": False}


def _refusal(problem: Json) -> Json:
    wrong = "".join(f"\n- {error['field']}: {error['message']}" for error in problem.get("errors", []))
    text = f"{problem['detail']}{wrong}"
    return {"content": [{"type": "text", "text": text}], "structuredContent": problem, "isError": True}


@contextmanager
def _as_origin(caller: Caller, tool: str, arguments: Json) -> Iterator[None]:
    """Let the audit log tell by which tool, with which arguments and from which client a change comes."""
    shown = {name: "..." if name in HIDDEN else _cut(value) for name, value in arguments.items()}
    changes = arguments.get("changes")
    if isinstance(changes, dict):
        shown["changes"] = {name: "..." if name in HIDDEN else _cut(value) for name, value in changes.items()}
    details = {"tool": tool, "arguments": shown, "client": caller.client}
    before = ORIGIN.set(replace(current_origin(), via=Via.MCP, details=details))
    try:
        yield
    finally:
        ORIGIN.reset(before)
