"""Switches that an admin turns at run time."""

from app.domain.access import Actor, require_admin
from app.persistence import switches
from app.persistence.database import Database
from app.services.inputs import SettingsChanges, given
from app.services.views import SettingsView


class SwitchService:
    """Use cases about what is on and off as a whole."""

    def __init__(self, database: Database, *, enabled_by_environment: bool) -> None:
        """What the environment switches off stays off."""
        self._database = database
        self._enabled_by_environment = enabled_by_environment

    async def get(self, actor: Actor) -> SettingsView:
        """As it is now."""
        require_admin(actor)
        async with self._database.transaction() as connection:
            is_on = await switches.schedules_enabled(connection)
        return SettingsView(schedules_enabled=is_on and self._enabled_by_environment)

    async def change(self, actor: Actor, changes: SettingsChanges) -> SettingsView:
        """Turn what is given; workers heed it from their next tick on."""
        require_admin(actor)
        wanted = given(changes)
        if "schedules_enabled" in wanted:
            async with self._database.transaction() as connection:
                await switches.turn_schedules(connection, on=wanted["schedules_enabled"])
        return await self.get(actor)
