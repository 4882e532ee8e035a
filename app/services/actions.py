"""The catalog of actions, as callers see it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from app.actions.catalog import Action, Catalog
from app.actions.entry_points import PluginProblem
from app.domain.access import Actor
from app.services.views import ActionList, ActionView, PluginProblemView


class ActionService:
    """Tells what workflows may use."""

    def __init__(self, catalog: Catalog, problems: Sequence[PluginProblem] = ()) -> None:
        """All actions that there are in this process, and the plugins that could not be used."""
        self._catalog = catalog
        self._problems = problems

    def list(self, actor: Actor) -> ActionList:
        """Every action by name, with the JSON Schema of its configuration; for admins, what could not be loaded too.

        Why a plugin cannot be loaded may quote paths and settings of the server.
        """
        actions = sorted(self._catalog.actions, key=lambda one: one.name)
        problems = [PluginProblemView(problem.plugin, problem.error) for problem in self._problems if actor.sees_all]
        return ActionList([_view(action) for action in actions], problems)


def _view(action: Action[Any]) -> ActionView:
    return ActionView(
        name=action.name,
        aliases=list(action.aliases),
        version=action.version,
        origin=action.origin,
        scope=action.scope,
        retry_safe=action.retry_safe,
        secret_fields=list(action.secret_fields),
        description=action.description,
        config_schema=msgspec.json.schema(action.config),
    )
