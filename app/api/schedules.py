"""``/api/v1/schedules``: schedules, their history and their future runs."""

from typing import Annotated
from uuid import UUID

from litestar import Controller, Response, delete, get, patch, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from app.api.etags import IF_MATCH, unless_known
from app.api.filters import (
    UUIDS,
    IdsFilter,
    KeyInPath,
    LabelFilter,
    Search,
    given_ids,
    given_labels,
    key_of,
    new_key_of,
)
from app.api.requests import (
    KEEPS_TO_RESTRICTIONS,
    LEASABLE,
    SCOPE,
    Acting,
    AnyRequest,
    At,
    Cursor,
    Limit,
    Offset,
    OptionalBody,
    Since,
    TeamFilter,
    TextFilter,
    Until,
    WorkflowFilter,
    listed,
)
from app.domain.access import OwnerKind, Scope
from app.domain.health import Health
from app.domain.schedules import Reason, Status
from app.persistence.schedule_filters import Filters, Kind
from app.persistence.schedule_lists import Sort
from app.services.edit_plans import EditPlanService
from app.services.executions import ManualRunService
from app.services.inputs import (
    Input,
    LooseScheduleBatch,
    Moment,
    NoteInput,
    PauseInput,
    PlanInput,
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
from app.services.slots import MOST_SCHEDULES, SlotService
from app.services.validation import checked
from app.services.views import (
    ExecutionView,
    ExplanationView,
    HistoryList,
    LedgerList,
    PlanView,
    PreviewView,
    RunList,
    ScheduleList,
    SchedulePage,
    ScheduleView,
    SlotList,
    SlotStrips,
)

Schedules = NamedDependency[ScheduleService]
ScheduleQueries = NamedDependency[ScheduleQueryService]
Fields = Annotated[
    str | None,
    QueryParameter(
        max_length=2000,
        schema_extra={"pattern": rf"^(?:{'|'.join(NAMES)})(?:,(?:{'|'.join(NAMES)}))*$", "examples": ["name,status"]},
    ),
]
ManualRuns = NamedDependency[ManualRunService]
Slots = NamedDependency[SlotService]
EXAMPLE_ID = "00000000-0000-4000-8000-000000000000"
# How many slots to come are listed.
Ahead = Annotated[int, QueryParameter(ge=0, le=100)]


class ScheduleController(Controller):
    """Schedules: which workflow runs when."""

    path = "/schedules"
    tags = ("schedules",)
    opt = KEEPS_TO_RESTRICTIONS

    @post("/", opt={"errors": (404, 409), LEASABLE: True}, summary="Create a schedule and plan its first run.")
    async def create(self, actor: Acting, schedule_service: Schedules, data: JSONBody[ScheduleInput]) -> ScheduleView:
        return await schedule_service.create(actor, data)

    @get(
        "/by-key/{key:path}",
        summary="Return the schedule with this key, of a team if `team_id` names one.",
    )
    async def read_by_key(
        self,
        request: AnyRequest,
        actor: Acting,
        schedule_service: Schedules,
        schedule_queries: ScheduleQueries,
        key: KeyInPath,
        team_id: TeamFilter = None,
    ) -> Response[Encoded[ScheduleView]]:
        schedule_id = await schedule_service.id_of_key(actor, key_of(key, request), team_id)
        schedule = await schedule_queries.get(actor, schedule_id)
        return unless_known(schedule.view, schedule.tag, is_stable=schedule.is_stable)

    @put(
        "/by-key/{key:path}",
        opt={"errors": (404, 409), "other_statuses": (201,), LEASABLE: True},
        summary="Create the schedule with this key (201), or change it where it differs (200). A pause is not lifted.",
    )
    async def put_by_key(
        self,
        request: AnyRequest,
        actor: Acting,
        schedule_service: Schedules,
        key: KeyInPath,
        data: JSONBody[ScheduleInput],
    ) -> Response[ScheduleView]:
        view, is_new = await schedule_service.put(actor, new_key_of(key, request), data)
        return Response(view, status_code=201 if is_new else 200)

    @delete(
        "/by-key/{key:path}",
        opt={LEASABLE: True},
        summary="Delete the schedule with this key, of a team if `team_id` names one.",
    )
    async def remove_by_key(
        self,
        request: AnyRequest,
        actor: Acting,
        schedule_service: Schedules,
        key: KeyInPath,
        team_id: TeamFilter = None,
    ) -> None:
        await schedule_service.delete(actor, await schedule_service.id_of_key(actor, key_of(key, request), team_id))

    @get("/", summary="List schedules, newest first. `trigger_payload` is left out unless `fields` names it.")
    async def list_all(  # noqa: PLR0913 - the filters of one list
        self,
        actor: Acting,
        schedule_queries: ScheduleQueries,
        status: Annotated[Status | None, QueryParameter()] = None,
        status_reason: Annotated[Reason | None, QueryParameter()] = None,
        workflow_id: WorkflowFilter = None,
        owner_kind: Annotated[OwnerKind | None, QueryParameter()] = None,
        owner_id: TextFilter = None,
        team_id: TeamFilter = None,
        q: Search = None,
        label: LabelFilter = None,
        health: Annotated[Health | None, QueryParameter()] = None,
        namespace: TextFilter = None,
        target_host: TextFilter = None,
        kind: Annotated[Kind | None, QueryParameter()] = None,
        ids: IdsFilter = None,
        sort: Annotated[Sort, QueryParameter()] = Sort.NEWEST,
        fields: Fields = None,
        limit: Limit = 50,
        offset: Offset = 0,
        cursor: Cursor = None,
    ) -> SchedulePage:
        part, names = listed(limit, cursor, offset), given_fields(fields)
        filters = Filters(
            status=status,
            status_reason=status_reason,
            workflow_id=workflow_id,
            owner_kind=owner_kind,
            owner_id=owner_id,
            team_id=team_id,
            q=q,
            labels=given_labels(label),
            health=health,
            namespace=namespace,
            target_host=target_host,
            kind=kind,
            ids=given_ids(ids),
        )
        return await schedule_queries.list(actor, part, filters, sort, fields=names)

    @post(
        "/batch",
        opt={"body_schema": ScheduleBatchInput, "errors": (409,), LEASABLE: True},
        summary="Create up to 1,000 schedules, all or none.",
    )
    async def create_many(
        self, actor: Acting, schedule_service: Schedules, data: JSONBody[LooseScheduleBatch]
    ) -> ScheduleList:
        return await schedule_service.create_many(actor, data.schedules)

    @post(
        "/batch-delete",
        status_code=204,
        opt={LEASABLE: True},
        summary="Delete several schedules. Ids that are unknown or not yours are ignored.",
    )
    async def delete_many(self, actor: Acting, schedule_service: Schedules, data: JSONBody[ScheduleIdsInput]) -> None:
        await schedule_service.delete_many(actor, data.schedule_ids)

    @get("/{schedule_id:uuid}", summary="Return one schedule.")
    async def read(
        self, actor: Acting, schedule_queries: ScheduleQueries, schedule_id: FromPath[UUID]
    ) -> Response[Encoded[ScheduleView]]:
        schedule = await schedule_queries.get(actor, schedule_id)
        return unless_known(schedule.view, schedule.tag, is_stable=schedule.is_stable)

    @patch(
        "/{schedule_id:uuid}",
        opt={"errors": (409,), LEASABLE: True},
        summary="Change some fields of a schedule. A changed cadence moves the next run at once.",
    )
    async def change(
        self,
        actor: Acting,
        schedule_service: Schedules,
        schedule_id: FromPath[UUID],
        data: OptionalBody[ScheduleChanges],
    ) -> ScheduleView:
        return await schedule_service.change(actor, schedule_id, data)

    @delete(
        "/{schedule_id:uuid}",
        opt={LEASABLE: True},
        summary="Delete a schedule and its history. Its running executions are cancelled.",
    )
    async def remove(self, actor: Acting, schedule_service: Schedules, schedule_id: FromPath[UUID]) -> None:
        await schedule_service.delete(actor, schedule_id)

    @post(
        "/{schedule_id:uuid}/pause",
        status_code=200,
        opt={SCOPE: Scope.OPERATE, IF_MATCH: True, LEASABLE: True},
        summary="Pause an active schedule, with `until` for a time only. A pause that lasts gets another end, or none.",
    )
    async def pause(
        self,
        actor: Acting,
        schedule_service: Schedules,
        schedule_id: FromPath[UUID],
        data: OptionalBody[PauseInput],
    ) -> ScheduleView:
        return await schedule_service.pause(actor, schedule_id, data)

    @post(
        "/{schedule_id:uuid}/resume",
        status_code=200,
        opt={SCOPE: Scope.OPERATE, IF_MATCH: True, LEASABLE: True},
        summary="Resume a paused schedule. Its next slot is computed from now.",
    )
    async def resume(
        self,
        actor: Acting,
        schedule_service: Schedules,
        schedule_id: FromPath[UUID],
        data: OptionalBody[NoteInput],
    ) -> ScheduleView:
        return await schedule_service.resume(actor, schedule_id, data)

    @post(
        "/{schedule_id:uuid}/revive",
        status_code=200,
        opt={"errors": (400,), SCOPE: Scope.OPERATE, IF_MATCH: True, LEASABLE: True},
        summary="Make a dead schedule active again, with all its retries.",
    )
    async def revive(
        self,
        actor: Acting,
        schedule_service: Schedules,
        schedule_id: FromPath[UUID],
        data: OptionalBody[Input],  # noqa: ARG002 - checked to be empty
    ) -> ScheduleView:
        return await schedule_service.revive(actor, schedule_id)

    @post(
        "/{schedule_id:uuid}/run",
        status_code=202,
        opt={"errors": (409,), SCOPE: Scope.OPERATE, IF_MATCH: True, LEASABLE: True},
        summary="Run a schedule now. Its cadence and counters do not change.",
    )
    async def run(
        self,
        actor: Acting,
        manual_run_service: ManualRuns,
        schedule_id: FromPath[UUID],
        data: OptionalBody[RunInput],
    ) -> ExecutionView:
        return await manual_run_service.run(actor, schedule_id, data)


class ScheduleQueryController(Controller):
    """Previews, runs, outcomes and explanations of schedules."""

    path = "/schedules"
    tags = ("schedules",)
    opt = KEEPS_TO_RESTRICTIONS

    @post(
        "/preview",
        status_code=200,
        opt={"errors": (404,), SCOPE: Scope.READ, LEASABLE: True},
        summary="Describe a spec in plain words, with warnings and its next runs. Nothing is stored.",
    )
    async def preview(
        self, actor: Acting, schedule_queries: ScheduleQueries, data: JSONBody[PreviewInput]
    ) -> PreviewView:
        return await schedule_queries.preview(actor, data)

    @post(
        "/{schedule_id:uuid}/plan",
        status_code=200,
        opt={"errors": (409,), SCOPE: Scope.READ, IF_MATCH: True, LEASABLE: True},
        summary="Say what a change would do in the next days: which fires stay, move, appear and vanish.",
    )
    async def plan(
        self,
        actor: Acting,
        edit_plan_service: NamedDependency[EditPlanService],
        schedule_id: FromPath[UUID],
        data: OptionalBody[PlanInput],
    ) -> PlanView:
        return await edit_plan_service.plan(actor, schedule_id, data)

    @get("/{schedule_id:uuid}/runs", summary="List the runs of a schedule, newest first.")
    async def runs(
        self,
        actor: Acting,
        schedule_queries: ScheduleQueries,
        schedule_id: FromPath[UUID],
        limit: Limit = 20,
        cursor: Cursor = None,
    ) -> RunList:
        return await schedule_queries.runs(actor, schedule_id, listed(limit, cursor, counts=False))

    @get(
        "/{schedule_id:uuid}/ledger",
        summary="List the outcome of every slot, newest first: fired, or not fired and why.",
    )
    async def ledger(  # noqa: PLR0913 - the filters of one list
        self,
        actor: Acting,
        schedule_queries: ScheduleQueries,
        schedule_id: FromPath[UUID],
        since: Since = None,
        until: Until = None,
        limit: Limit = 100,
        cursor: Cursor = None,
    ) -> LedgerList:
        span = checked({"from": since, "to": until}, Span)
        return await schedule_queries.ledger(actor, schedule_id, span, listed(limit, cursor, counts=False))

    @get(
        "/{schedule_id:uuid}/slots",
        summary="List the slots of a schedule, newest first: what became of each, and the next ones to come.",
    )
    async def slots(  # noqa: PLR0913 - the filters of one list
        self,
        actor: Acting,
        slot_service: Slots,
        schedule_id: FromPath[UUID],
        since: Since = None,
        until: Until = None,
        limit: Limit = 100,
        cursor: Cursor = None,
        ahead: Ahead = 10,
    ) -> SlotList:
        span = checked({"from": since, "to": until}, Span)
        return await slot_service.of_schedule(actor, schedule_id, span, listed(limit, cursor, counts=False), ahead)

    @get(
        "/{schedule_id:uuid}/explain",
        summary="Explain why a schedule did or did not run at a time. For a future time, say what is expected.",
    )
    async def explain(
        self, actor: Acting, schedule_queries: ScheduleQueries, schedule_id: FromPath[UUID], at: At = None
    ) -> ExplanationView:
        return await schedule_queries.explain(actor, schedule_id, checked({"at": at}, Moment))

    @get(
        "/{schedule_id:uuid}/history",
        summary="List every change and pause of a schedule, newest first: who, when, what, and the note.",
    )
    async def history(
        self,
        actor: Acting,
        schedule_queries: ScheduleQueries,
        schedule_id: FromPath[UUID],
        limit: Limit = 100,
        cursor: Cursor = None,
    ) -> HistoryList:
        return await schedule_queries.history(actor, schedule_id, listed(limit, cursor, counts=False))


class SlotController(Controller):
    """The slots of several schedules at once."""

    path = "/slots"
    tags = ("schedules",)
    opt = KEEPS_TO_RESTRICTIONS

    @get(
        "/",
        summary="Return the newest slots of up to 100 schedules, by their ids. Ids that are not yours are left out.",
    )
    async def newest_slots(
        self,
        actor: Acting,
        slot_service: Slots,
        schedule_ids: Annotated[
            str,
            QueryParameter(schema_extra={"pattern": UUIDS, "maxLength": 37 * MOST_SCHEDULES, "examples": [EXAMPLE_ID]}),
        ],
        last: Annotated[int, QueryParameter(ge=1, le=200)] = 60,
        ahead: Ahead = 10,
    ) -> SlotStrips:
        return await slot_service.of_schedules(actor, given_ids(schedule_ids, "schedule_ids") or (), last, ahead)
