"""A content management system's plugin: what it does, and what it wants done when Carillon starts."""

from app.plugin import Capability, Plugin, PluginScheduleInput, PluginSchedulesPort
from carillon_cms.content import PUBLISH, UNPUBLISH
from carillon_cms.upkeep import CLEAN_UP_MEDIA


async def start(schedules: PluginSchedulesPort) -> None:
    """Media is cleaned up every night, whoever installed this."""
    await schedules.ensure(
        PluginScheduleInput(
            name="Clean up media",
            action=CLEAN_UP_MEDIA.name,
            config={"older_than_days": 30, "limit": 500},
            cron="15 3 * * *",
        )
    )


PLUGIN = Plugin(
    actions=(PUBLISH, UNPUBLISH, CLEAN_UP_MEDIA),
    capabilities=frozenset({Capability.SCHEDULE_JOBS}),
    start=start,
)
