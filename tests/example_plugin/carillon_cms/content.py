"""Publishing content, and taking it back."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec

from app.plugin import Action, ActionContext, Blocked, EnsureMode, PluginScheduleInput, Skipped
from carillon_cms.store import opened


class PublishConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to publish, and for how long."""

    content_id: int
    unpublish_after_seconds: Annotated[int, msgspec.Meta(ge=1)] | None = None


class UnpublishConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to take back."""

    content_id: int


async def publish(config: PublishConfig, context: ActionContext) -> Any:
    """Publish content; what is empty must not be, what is out already need not be."""
    context.require_lease()
    async with opened() as connection:
        row = await connection.fetchrow("SELECT * FROM cms_content WHERE id = $1", config.content_id)
        if row is None or not row["body"]:
            return Blocked(f"There is nothing to publish as content {config.content_id}.")
        if row["published_at"] is not None:
            return Skipped(f"Content {config.content_id} is published already.")
        # First that it will be taken back, then that it is out: whatever fails in between can be done again.
        await _plan_the_end(config, context)
        await connection.execute("UPDATE cms_content SET published_at = now() WHERE id = $1", config.content_id)
    return {"content_id": config.content_id, "title": row["title"]}


async def _plan_the_end(config: PublishConfig, context: ActionContext) -> None:
    if config.unpublish_after_seconds is None:
        return
    await context.plugin.ensure(
        PluginScheduleInput(
            name=f"Unpublish {config.content_id}",
            action=UNPUBLISH.name,
            config={"content_id": config.content_id},
            at=datetime.now(UTC) + timedelta(seconds=config.unpublish_after_seconds),
        ),
        # Wanted anew each time, also if somebody has deleted it after the last.
        EnsureMode.ENFORCE,
    )


async def unpublish(config: UnpublishConfig, context: ActionContext) -> Any:
    """Take content back."""
    context.require_lease()
    async with opened() as connection:
        taken = await connection.execute(
            "UPDATE cms_content SET published_at = NULL WHERE id = $1 AND published_at IS NOT NULL", config.content_id
        )
    return {"content_id": config.content_id} if taken.endswith("1") else Skipped("It was not published.")


class PublishOutput(msgspec.Struct):
    """What was published."""

    content_id: int
    title: str


# Both change what search engines shall see: after their runs Carillon pings the sitemap, if that is turned on.
PUBLISH = Action(
    name="cms.content.publish",
    title="Publish content",
    description="Publish content, and take it back after some time if asked to.",
    category="Content",
    icon="newspaper",
    color="#0f766e",
    config=PublishConfig,
    handler=publish,
    outputs=PublishOutput,
    version="1",
    publishes=True,
)
# It says nothing of how it is shown, and gets defaults.
UNPUBLISH = Action(name="cms.content.unpublish", config=UnpublishConfig, handler=unpublish, version="1", publishes=True)
