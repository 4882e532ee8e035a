"""Actions that keep house: what is old is deleted, a part at a time."""

from datetime import timedelta
from typing import Annotated, Any

import msgspec

from app.actions.catalog import Action, Skipped
from app.actions.context_part import ActionContext


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


class RetryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many at the most."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000


async def retry_webhooks(config: RetryConfig, context: ActionContext) -> Any:
    """Try again to deliver the owner's notices that were given up."""
    context.require_lease()
    retried = await context.ports.upkeep.retry_deliveries(config.limit)
    return {"retried": retried} if retried else Skipped("Nothing was given up.")


async def purge_webhooks(config: PurgeConfig, context: ActionContext) -> Any:
    """Delete old deliveries of the owner's notices that are over."""
    context.require_lease()
    deleted = await context.ports.upkeep.purge_deliveries(timedelta(days=config.older_than_days), config.limit)
    return {"deleted": deleted} if deleted else Skipped("There is nothing old enough to delete.")


RETRY_WEBHOOKS = Action(name="core.webhooks.retry", config=RetryConfig, handler=retry_webhooks, scope="owner")
PURGE_WEBHOOKS = Action(name="core.webhooks.purge", config=PurgeConfig, handler=purge_webhooks, scope="owner")
PURGE_CALLBACKS = Action(name="core.callbacks.purge", config=PurgeConfig, handler=purge_callbacks, scope="owner")
PURGE_HISTORY = Action(name="core.history.purge", config=PurgeConfig, handler=purge_history, scope="owner")
