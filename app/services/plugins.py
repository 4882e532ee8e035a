"""Plugins: each gets access to its own schedules, and is started with the process."""

import asyncio

import structlog

from app.actions.plugins import Capability, LoadedActions, LoadedPlugin
from app.domain.errors import UnavailableError
from app.services.plugin_schedules import Collaborators, PluginSchedules

OUTAGE_PAUSE_SECONDS = 1.0
START_SECONDS = 60.0

log = structlog.get_logger(__name__)


class PluginService:
    """Gives each plugin access to its own schedules, and starts the plugins."""

    def __init__(self, loaded: LoadedActions, collaborators: Collaborators) -> None:
        """Let those of the loaded plugins schedule that declare it."""
        self._loaded = loaded
        self._collaborators = collaborators

    def schedules_of(self, plugin: str) -> PluginSchedules:
        """Return the port of one plugin."""
        may_schedule = self._loaded.declares(plugin, Capability.SCHEDULE_JOBS)
        return PluginSchedules(plugin, self._collaborators, may_schedule=may_schedule)

    async def start_all(self) -> None:
        """Start all plugins concurrently. One that fails or takes too long is logged, and affects no other."""
        await asyncio.gather(*(self._start(loaded) for loaded in self._loaded.plugins))

    async def _start(self, loaded: LoadedPlugin) -> None:
        while loaded.plugin.start is not None:
            try:
                async with asyncio.timeout(START_SECONDS):
                    await loaded.plugin.start(self.schedules_of(loaded.name))
            except UnavailableError:
                await asyncio.sleep(OUTAGE_PAUSE_SECONDS)
            except Exception as error:
                log.exception("plugin_failed", plugin=loaded.name, error=str(error))
                return
            else:
                log.info("plugin_started", plugin=loaded.name)
                return
