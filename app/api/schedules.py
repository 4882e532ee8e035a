"""``/api/v1/schedules``: schedules, and what they did, do and will do."""

from typing import Annotated
from uuid import UUID

from litestar import Controller, delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from app.api.requests import Acting, AnyRequest, At, Cursor, Limit, Offset, Since, Until, WorkflowFilter, body, listed
from app.domain.schedules import Status
from app.services.executions import ManualRunService
from app.services.inputs import (
    Input,
    LooseScheduleBatch,
    Moment,
    NoteInput,
    PreviewInput,
    RunInput,
    ScheduleBatchInput,
    ScheduleChanges,
    ScheduleIdsInput,
    ScheduleInput,
    Span,
)
from app.services.listing import Encoded
from app.services.schedule_queries import NAMES, ScheduleQueryService, given_fields
from app.services.schedules import ScheduleService
from app.services.validation import checked
from app.services.views import (
    ExecutionView,
    ExplanationView,
    HistoryList,
    LedgerList,
    PreviewView,
    RunList,
    ScheduleList,
    SchedulePage,
    ScheduleView,
)

Schedules = NamedDependency[ScheduleService]
Insight = NamedDependency[ScheduleQueryService]
# The names of fields, with commas between them.
Fields = Annotated[
    str | None,
    QueryParameter(
        max_length=2000,
        schema_extra={"pattern": rf"^(?:{'|'.join(NAMES)})(?:,(?:{'|'.join(NAMES)}))*$", "examples": ["name,status"]},
    ),
]
ManualRuns = NamedDependency[ManualRunService]


class ScheduleController(Controller):
    """Schedules: what runs when."""

    path = "/schedules"
    tags = ("schedules",)

    @post("/", opt={"body": ScheduleInput, "errors": (404, 409)})
    async def create(self, request: AnyRequest, actor: Acting, schedule_service: Schedules) -> ScheduleView:
        """Create a schedule; its first run is planned at once."""
        return await schedule_service.create(actor, await body(request, ScheduleInput))

    @get("/")
    async def list_all(  # noqa: PLR0913 - the filters of one list
        self,
        actor: Acting,
        insight_service: Insight,
        status: Annotated[Status | None, QueryParameter()] = None,
        workflow_id: WorkflowFilter = None,
        fields: Fields = None,
        limit: Limit = 50,
        offset: Offset = 0,
        cursor: Cursor = None,
    ) -> SchedulePage:
        """List schedules, newest first, without `trigger_payload` unless `fields` asks for it; `cursor` goes on."""
        part = listed(limit, cursor, offset)
        wanted = given_fields(fields)
        return await insight_service.list(actor, part, status=status, workflow_id=workflow_id, fields=wanted)

    @post("/batch", opt={"body": ScheduleBatchInput, "errors": (409,)})
    async def create_many(self, request: AnyRequest, actor: Acting, schedule_service: Schedules) -> ScheduleList:
        """Create up to 1,000 schedules, all or none."""
        return await schedule_service.create_many(actor, (await body(request, LooseScheduleBatch)).schedules)

    @post("/batch-delete", status_code=204, opt={"body": ScheduleIdsInput})
    async def delete_many(self, request: AnyRequest, actor: Acting, schedule_service: Schedules) -> None:
        """Delete several; unknown and foreign ids are ignored."""
        await schedule_service.delete_many(actor, (await body(request, ScheduleIdsInput)).schedule_ids)

    @get("/{schedule_id:uuid}")
    async def read(self, actor: Acting, insight_service: Insight, schedule_id: FromPath[UUID]) -> Encoded[ScheduleView]:
        """Read one schedule."""
        return await insight_service.get(actor, schedule_id)

    @patch("/{schedule_id:uuid}", opt={"body": ScheduleChanges, "body_optional": True, "errors": (409,)})
    async def change(
        self, request: AnyRequest, actor: Acting, schedule_service: Schedules, schedule_id: FromPath[UUID]
    ) -> ScheduleView:
        """Change some fields; a changed cadence moves the next run at once."""
        return await schedule_service.change(actor, schedule_id, await body(request, ScheduleChanges))

    @delete("/{schedule_id:uuid}")
    async def remove(self, actor: Acting, schedule_service: Schedules, schedule_id: FromPath[UUID]) -> None:
        """Delete a schedule with its history; what runs is called off."""
        await schedule_service.delete(actor, schedule_id)

    @post("/{schedule_id:uuid}/pause", status_code=200, opt={"body": NoteInput, "body_optional": True})
    async def pause(
        self, request: AnyRequest, actor: Acting, schedule_service: Schedules, schedule_id: FromPath[UUID]
    ) -> ScheduleView:
        """Pause an active schedule."""
        return await schedule_service.pause(actor, schedule_id, await body(request, NoteInput))

    @post("/{schedule_id:uuid}/resume", status_code=200, opt={"body": NoteInput, "body_optional": True})
    async def resume(
        self, request: AnyRequest, actor: Acting, schedule_service: Schedules, schedule_id: FromPath[UUID]
    ) -> ScheduleView:
        """Resume a paused schedule: its next slot is a fresh one."""
        return await schedule_service.resume(actor, schedule_id, await body(request, NoteInput))

    @post("/{schedule_id:uuid}/revive", status_code=200, opt={"errors": (400,)})
    async def revive(
        self, request: AnyRequest, actor: Acting, schedule_service: Schedules, schedule_id: FromPath[UUID]
    ) -> ScheduleView:
        """Bring a dead schedule back, with all its retries."""
        await body(request, Input)
        return await schedule_service.revive(actor, schedule_id)

    @post("/{schedule_id:uuid}/run", status_code=202, opt={"body": RunInput, "body_optional": True, "errors": (409,)})
    async def run(
        self, request: AnyRequest, actor: Acting, manual_run_service: ManualRuns, schedule_id: FromPath[UUID]
    ) -> ExecutionView:
        """Run it now, beside its cadence and its counters."""
        return await manual_run_service.run(actor, schedule_id, await body(request, RunInput))


class InsightController(Controller):
    """Questions about schedules."""

    path = "/schedules"
    tags = ("schedules",)

    @post("/preview", status_code=200, opt={"body": PreviewInput, "errors": (404,)})
    async def preview(self, request: AnyRequest, actor: Acting, insight_service: Insight) -> PreviewView:
        """Look at a spec: in plain words, with its traps and its next runs. Nothing is stored."""
        return await insight_service.preview(actor, await body(request, PreviewInput))

    @get("/{schedule_id:uuid}/runs")
    async def runs(
        self,
        actor: Acting,
        insight_service: Insight,
        schedule_id: FromPath[UUID],
        limit: Limit = 20,
        cursor: Cursor = None,
    ) -> RunList:
        """The audit: the latest runs, newest first."""
        return await insight_service.runs(actor, schedule_id, listed(limit, cursor, counts=False))

    @get("/{schedule_id:uuid}/ledger")
    async def ledger(  # noqa: PLR0913 - the filters of one list
        self,
        actor: Acting,
        insight_service: Insight,
        schedule_id: FromPath[UUID],
        since: Since = None,
        until: Until = None,
        limit: Limit = 100,
        cursor: Cursor = None,
    ) -> LedgerList:
        """The account of every slot, newest first: fired, or not and why."""
        span = checked({"from": since, "to": until}, Span)
        return await insight_service.ledger(actor, schedule_id, span, listed(limit, cursor, counts=False))

    @get("/{schedule_id:uuid}/explain")
    async def explain(
        self, actor: Acting, insight_service: Insight, schedule_id: FromPath[UUID], at: At = None
    ) -> ExplanationView:
        """Why it did, or did not, run at a time; for one to come, what would happen as far as known."""
        return await insight_service.explain(actor, schedule_id, checked({"at": at}, Moment))

    @get("/{schedule_id:uuid}/history")
    async def history(
        self,
        actor: Acting,
        insight_service: Insight,
        schedule_id: FromPath[UUID],
        limit: Limit = 100,
        cursor: Cursor = None,
    ) -> HistoryList:
        """Every change and pause, newest first: by whom, when, what, and the note."""
        return await insight_service.history(actor, schedule_id, listed(limit, cursor, counts=False))
