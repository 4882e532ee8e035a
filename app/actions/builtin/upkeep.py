"""Actions that keep house: what is old is deleted, a part at a time."""

from datetime import timedelta
from typing import Annotated, Any

import msgspec

from app.actions.catalog import Action, Skipped
from app.actions.context import ActionContext


class PurgeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How old, and how many at the most."""

    older_than_days: Annotated[float, msgspec.Meta(ge=0, le=36_500)] = 30
    limit: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000


async def purge_history(config: PurgeConfig, context: ActionContext) -> Any:
    """Delete ended executions and ledger entries of the owner's schedules that are old."""
    context.require_lease()
    deleted = await context.ports.history.purge(timedelta(days=config.older_than_days), config.limit)
    return {"deleted": deleted} if deleted else Skipped("There is nothing old enough to delete.")


async def purge_callbacks(config: PurgeConfig, context: ActionContext) -> Any:
    """Delete the callbacks of the owner's executions that ended long ago."""
    context.require_lease()
    deleted = await context.ports.upkeep.purge_callbacks(timedelta(days=config.older_than_days), config.limit)
    return {"deleted": deleted} if deleted else Skipped("There is nothing old enough to delete.")


PURGE_CALLBACKS = Action(name="core.callbacks.purge", config=PurgeConfig, handler=purge_callbacks, scope="owner")
PURGE_HISTORY = Action(name="core.history.purge", config=PurgeConfig, handler=purge_history, scope="owner")
