"""Cleaning up."""

from typing import Annotated, Any

import msgspec

from app.plugin import Action, ActionContext, Skipped
from carillon_cms.store import opened


class CleanUpConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How old, how much at once, and of which site."""

    older_than_days: Annotated[int, msgspec.Meta(ge=0)]
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 500
    site_id: int | None = None


async def clean_up(config: CleanUpConfig, context: ActionContext) -> Any:
    """Delete media that nothing uses and that is old."""
    context.require_lease()
    async with opened() as connection:
        rows = await connection.fetch(
            "DELETE FROM cms_media WHERE id IN (SELECT id FROM cms_media WHERE NOT used "
            "AND uploaded_at < now() - make_interval(days => $1) AND ($2::int IS NULL OR site_id = $2) "
            "ORDER BY uploaded_at LIMIT $3) RETURNING id",
            config.older_than_days,
            config.site_id,
            config.limit,
        )
    return {"deleted": len(rows)} if rows else Skipped("There is nothing to clean up.")


CLEAN_UP_MEDIA = Action(
    name="cms.media.cleanup",
    title="Clean up media",
    category="Content",
    icon="image-off",
    color="#b45309",
    config=CleanUpConfig,
    handler=clean_up,
    outputs={"type": "object", "properties": {"deleted": {"type": "integer"}}, "required": ["deleted"]},
    version="1",
)
