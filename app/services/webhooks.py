"""Webhooks: URLs that are called at times of their own, without a workflow."""

from collections.abc import Sequence
from typing import Any

import msgspec

from app.domain.access import Actor
from app.domain.audit import AuditAction, ObjectType, Subject
from app.domain.audited_changes import shown_differences
from app.domain.entity_jobs import ScheduledJobConfig, first_time
from app.domain.errors import FieldError, InvalidError
from app.domain.limits import Quota
from app.domain.specs import canonical
from app.domain.workflows import Node
from app.engine.ringing import Ringer
from app.persistence import audit, entity_runs, webhooks
from app.persistence.database import Connection, Database, database_now
from app.persistence.entity_runs import EntityRun
from app.persistence.pagination import Page, Part
from app.persistence.webhooks import ENTITY_TYPE, Webhook
from app.services.admission import Admission, new_owner, require_owned, require_quota
from app.services.inputs import IDS, WebhookChanges, WebhookInput, given, require_url
from app.services.listing import read_views, visible
from app.services.preconditions import require_match, tag_of
from app.services.views import WebhookPage, WebhookView

_TIMES = ("cron", "interval_minutes", "timezone", "active")
# The fields that say what is sent, and where to.
_SENT = frozenset({"url", "headers", "payload"})
_CHANGED = "Cancelled before it ran: the webhook was changed."
_NODE = "work"
ONE_KIND = "Exactly one of cron, interval_minutes is needed."


class WebhookService:
    """Use cases about webhooks."""

    def __init__(self, database: Database, ringer: Ringer, admission: Admission) -> None:
        """Check webhooks before they are stored; workers poll for those that are due."""
        self._database = database
        self._ringer = ringer
        self._admission = admission

    async def create(self, actor: Actor, webhook: WebhookInput) -> WebhookView:
        """Create a webhook of the actor or of a team, and plan its first call."""
        values = _stored(msgspec.structs.asdict(webhook))
        team_id = values.pop("team_id")
        _require_one_kind(values)
        self._require_small(values)
        async with self._database.transaction() as connection:
            owner = await new_owner(connection, actor, team_id)
            await require_quota(connection, self._admission.limits, Quota.WEBHOOKS, owner.user_profile_id)
            owned = {"user_profile_id": owner.user_profile_id, "team_id": owner.team_id}
            row = await webhooks.add(connection, {**await _planned(connection, values), **owned})
            self._require_callable(row)
            await self._require_secrets(connection, actor, row)
            await audit.record(connection, actor, AuditAction.WEBHOOK_CREATED, _subject(row))
            (view,) = await _views(connection, [row])
        return view

    async def list(self, actor: Actor, part: Part, team_id: int | None = None) -> WebhookPage:
        """Return a page of the webhooks that the actor may see, of this team if one is named, newest first."""
        runs: dict[str, list[EntityRun]] = {}
        async with self._database.reading() as connection:
            owners = (await visible(connection, actor, team_id)).owners

            async def read(part: Part) -> Page[Webhook]:
                rows = await webhooks.page(connection, owners, part)
                runs.update(await _latest_runs(connection, rows.items))
                return rows

            page = await read_views(read, lambda row: _view(row, runs.get(str(row.id), [])), part)
        return WebhookPage(page.items, page.total, page.total_is_estimate, page.next_cursor)

    async def get(self, actor: Actor, webhook_id: int) -> WebhookView:
        """Return a webhook."""
        async with self._database.transaction() as connection:
            row = await webhooks.get(connection, webhook_id) if webhook_id in IDS else None
            (view,) = await _views(connection, [_owned(actor, row)])
        return view

    async def change(self, actor: Actor, webhook_id: int, changes: WebhookChanges) -> WebhookView:
        """Give a webhook new values; runs that are planned and have not started get them too."""
        values = _stored(given(changes))
        async with self._database.transaction() as connection:
            before = await _locked(connection, actor, webhook_id)
            (known,) = await _views(connection, [before])
            require_match(lambda: tag_of(known))
            if "cron" in values and "interval_minutes" not in values and values["cron"] is not None:
                values["interval_minutes"] = None
            if "interval_minutes" in values and "cron" not in values and values["interval_minutes"] is not None:
                values["cron"] = None
            values = {name: value for name, value in values.items() if getattr(before, name) != value}
            if not values:
                (view,) = await _views(connection, [before])
                return view
            self._require_small(values)
            if values.keys() & set(_TIMES):
                whole = {name: getattr(before, name) for name in _TIMES} | values
                _require_one_kind(whole)
                await entity_runs.withdraw(connection, ENTITY_TYPE, str(webhook_id), _CHANGED)
                values |= await _planned(connection, {name: whole[name] for name in _TIMES})
            after = await webhooks.save(connection, webhook_id, values)
            if values.keys() & _SENT:
                self._require_callable(after)
                await self._require_secrets(connection, actor, after)
            await entity_runs.replace_work(connection, webhooks.to_job(after))
            differing = shown_differences(_editable(before), _editable(after))
            await audit.record(connection, actor, AuditAction.WEBHOOK_CHANGED, _subject(after), changes=differing)
            (view,) = await _views(connection, [after])
        return view

    async def delete(self, actor: Actor, webhook_id: int) -> None:
        """Delete a webhook with its history, and cancel its runs."""
        async with self._database.transaction() as connection:
            row = await _locked(connection, actor, webhook_id)
            (known,) = await _views(connection, [row])
            require_match(lambda: tag_of(known))
            await audit.record(connection, actor, AuditAction.WEBHOOK_DELETED, _subject(row))
            await webhooks.remove(connection, webhook_id)
            running = await entity_runs.remove(connection, ENTITY_TYPE, str(webhook_id))
        await self._ringer.call_off(running)

    def _require_small(self, values: dict[str, Any]) -> None:
        errors = self._admission.limits.caps.errors(values)
        if errors:
            raise InvalidError(*errors)

    def _require_callable(self, row: Webhook) -> None:
        """Refuse what a node of a workflow could not send either."""
        errors = self._admission.catalog.config_errors([_as_node(row)])
        if errors:
            raise InvalidError(*map(_as_field, errors))

    async def _require_secrets(self, connection: Connection, actor: Actor, row: Webhook) -> None:
        """Refuse secrets that the webhook's owner may not use, or not send to that host."""
        owned = row.user_profile_id, "webhook"
        errors = await self._admission.secret_errors(connection, actor, owned, [_as_node(row)])
        if errors:
            raise InvalidError(*map(_as_field, errors))


async def _locked(connection: Connection, actor: Actor, webhook_id: int) -> Webhook:
    return _owned(actor, await webhooks.lock(connection, webhook_id) if webhook_id in IDS else None)


def _owned(actor: Actor, row: Webhook | None) -> Webhook:
    return require_owned(actor, row, "webhook")


def _subject(row: Webhook) -> Subject:
    return Subject(ObjectType.WEBHOOK, str(row.id), row.name, row.user_profile_id)


def _editable(row: Webhook) -> dict[str, Any]:
    return {name: getattr(row, name) for name in WebhookChanges.__struct_fields__}


def _as_node(row: Webhook) -> Node:
    job = webhooks.to_job(row)
    return Node(_NODE, job.job_type, job.job_data)


def _as_field(error: FieldError) -> FieldError:
    """Return an error of a node under the name that the field has in a webhook."""
    field = error.field.removeprefix("nodes[0].config").removeprefix(".")
    if field.partition(".")[0] == "json":
        field = field.replace("json", "payload", 1)
    return FieldError(field or "url", error.message.removeprefix(f"Node '{_NODE}': "))


def _stored(values: dict[str, Any]) -> dict[str, Any]:
    """Return the given values in the form that is stored; ``InvalidError`` names what is wrong."""
    if "url" in values:
        require_url(values["url"])
    spec = {name: values[name] for name in ("cron", "timezone") if values.get(name) is not None}
    stored = {name: value for name, value in canonical(spec).items() if name in spec}
    return values | stored


def _require_one_kind(values: dict[str, Any]) -> None:
    if (values["cron"] is None) == (values["interval_minutes"] is None):
        raise InvalidError(FieldError("cron", ONE_KIND))


async def _planned(connection: Connection, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with the next time, counted from now; an inactive webhook has none."""
    if not values["active"]:
        return {**values, "next_execution_at": None, "last_error": ""}
    now = await database_now(connection)
    job = ScheduledJobConfig(
        id="",
        entity_id="",
        entity_type=ENTITY_TYPE,
        job_type="",
        next_execution_time=None,
        cron_expression=values["cron"],
        interval_minutes=values["interval_minutes"],
        timezone=values["timezone"],
    )
    try:
        return {**values, "next_execution_at": first_time(job, anchor=now, after=now), "last_error": ""}
    except ValueError as error:
        field = "interval_minutes" if values["cron"] is None else "cron"
        raise InvalidError(FieldError(field, str(error))) from None


async def _views(connection: Connection, rows: Sequence[Webhook]) -> list[WebhookView]:
    """Return the views of webhooks, with the times and errors of their latest runs."""
    runs = await _latest_runs(connection, rows)
    return [_view(row, runs.get(str(row.id), [])) for row in rows]


async def _latest_runs(connection: Connection, rows: Sequence[Webhook]) -> dict[str, list[EntityRun]]:
    return await entity_runs.latest(connection, ENTITY_TYPE, [str(row.id) for row in rows])


def _view(row: Webhook, runs: list[EntityRun]) -> WebhookView:
    fields = {name: getattr(row, name) for name in WebhookView.__struct_fields__ if name != "last_status"}
    queued = [run.scheduled_for for run in runs if run.started_at is None and run.status == "pending"]
    last = next((run for run in runs if run.started_at is not None), None)
    fields["next_execution_at"] = min(filter(None, (*queued, row.next_execution_at)), default=None)
    fields["last_execution_at"] = last.scheduled_for if last else None
    fields["last_error"] = row.last_error or (last.error if last else "")
    fields["last_status"] = last.status if last else None
    return WebhookView(**fields)
