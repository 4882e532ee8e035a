"""The catalog of actions, as callers see it."""

from typing import Any

import msgspec

from app.actions.catalog import Action, Catalog
from app.services.views import ActionList, ActionView


class ActionService:
    """Tells what workflows may use."""

    def __init__(self, catalog: Catalog) -> None:
        """All actions that there are in this process."""
        self._catalog = catalog

    def list(self) -> ActionList:
        """Every action by name, with the JSON Schema of its configuration."""
        return ActionList([_view(action) for action in sorted(self._catalog.actions, key=lambda one: one.name)])


def _view(action: Action[Any]) -> ActionView:
    return ActionView(
        name=action.name,
        aliases=list(action.aliases),
        version=action.version,
        origin=action.origin,
        scope=action.scope,
        retry_safe=action.retry_safe,
        description=action.description,
        config_schema=msgspec.json.schema(action.config),
    )
