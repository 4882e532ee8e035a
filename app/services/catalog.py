"""What can be used and what is polled: the catalog of actions and triggers, types of entities, and time zones."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from app import clock
from app.actions.catalog import Action, Catalog, Trigger
from app.actions.palette import output_schema
from app.actions.plugins import PluginProblem
from app.domain.access import Actor
from app.domain.local_time import zone, zone_names
from app.engine.entity_schedulers import LoadedScheduler, LoadedSchedulers
from app.persistence import entity_runs
from app.persistence.database import Database
from app.persistence.entity_runs import ActiveRuns
from app.persistence.pagination import Part, page_of
from app.services.views import (
    ActionList,
    ActionView,
    EntityTypeList,
    EntityTypeView,
    PluginProblemView,
    TimezoneList,
    TimezoneView,
)

NO_RUNS = ActiveRuns()
# All of them fit on one page: a choice shows the whole list.
MOST_TIMEZONES = 1000


class ActionService:
    """Lists the actions that workflows may use."""

    def __init__(self, catalog: Catalog, problems: Sequence[PluginProblem] = ()) -> None:
        """List the actions of this catalog, and the plugins that could not be loaded."""
        self._catalog = catalog
        self._problems = problems

    def list(self, actor: Actor) -> ActionList:
        """Return every trigger and action by name, with the JSON Schema of its configuration.

        Only admins see which plugins could not be loaded: the errors may quote paths and settings of the server.
        """
        views = [*map(_trigger_view, self._catalog.triggers), *map(_view, self._catalog.actions)]
        problems = [PluginProblemView(problem.plugin, problem.error) for problem in self._problems if actor.sees_all]
        return ActionList(sorted(views, key=lambda view: view.name), problems)


def _view(action: Action[Any]) -> ActionView:
    return ActionView(
        name=action.name,
        aliases=list(action.aliases),
        version=action.version,
        origin=action.origin,
        scope=action.scope,
        retry_safe=action.retry_safe,
        publishes=action.publishes,
        secret_fields=list(action.secret_fields),
        description=action.description,
        config_schema=msgspec.json.schema(action.config),
        kind=action.kind,
        outputs=output_schema(action.outputs),
        **msgspec.structs.asdict(action.appearance),
    )


def _trigger_view(trigger: Trigger) -> ActionView:
    return ActionView(
        name=trigger.name,
        aliases=[],
        version="1",
        origin="core",
        scope="external",
        retry_safe=True,
        publishes=False,
        secret_fields=[],
        description=trigger.description,
        config_schema=msgspec.json.schema(trigger.config),
        kind="trigger",
        outputs=output_schema(trigger.outputs),
        **msgspec.structs.asdict(trigger.appearance),
    )


class EntityTypeService:
    """Lists the kinds of entities that are polled."""

    def __init__(self, database: Database, entities: LoadedSchedulers) -> None:
        """List these entity schedulers, and what is wrong with those that could not be loaded."""
        self._database = database
        self._entities = entities

    async def list(self, actor: Actor, part: Part) -> EntityTypeList:
        """Return a page of the entity types by name. Only admins see how many runs there are, and problems."""
        types = [_entity_type(loaded) for loaded in self._entities.schedulers]
        page = page_of(types, "entity_type", part)
        if not actor.sees_all:
            return EntityTypeList(list(page.items), page.next_cursor, [])
        async with self._database.reading() as connection:
            counts = await entity_runs.active_by_type(connection, [item.entity_type for item in page.items])
        items = [_with_counts(item, counts.get(item.entity_type, NO_RUNS)) for item in page.items]
        problems = [PluginProblemView(problem.plugin, problem.error) for problem in self._entities.problems]
        return EntityTypeList(items, page.next_cursor, problems)


def _entity_type(loaded: LoadedScheduler) -> EntityTypeView:
    return EntityTypeView(
        entity_type=loaded.scheduler.entity_type,
        description=loaded.description,
        plugin=loaded.plugin,
        acts_for_users=loaded.acts_for_users,
    )


def _with_counts(view: EntityTypeView, runs: ActiveRuns) -> EntityTypeView:
    return msgspec.structs.replace(view, pending_runs=runs.pending, running_runs=runs.running)


async def timezones(part: Part) -> TimezoneList:
    """Return a page of the time zones that schedules can have, by name, with their offsets now."""
    # In a thread: the first call reads several hundred files.
    page = page_of(await asyncio.to_thread(_timezone_views), "name", part)
    return TimezoneList(list(page.items), page.next_cursor)


def _timezone_views() -> list[TimezoneView]:
    now = clock.now()
    return [TimezoneView(name, int(zone(name).offset(now).total_seconds())) for name in zone_names()]
