"""``/api/v1/schedules``: what they did, do and will do."""

from uuid import UUID

from litestar import Controller, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from app.api.parameters import At, Cursor, Limit, Since, Until, listed
from app.api.requests import Acting, AnyRequest, body
from app.services.inputs import Moment, PreviewInput, Span
from app.services.schedule_queries import InsightService
from app.services.validation import checked
from app.services.views import ExplanationView, HistoryList, LedgerList, PreviewView, RunList

Insight = NamedDependency[InsightService]


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
