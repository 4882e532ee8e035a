"""``/api/v1/settings``."""

from litestar import Controller, get, patch
from litestar.di import NamedDependency

from app.api.requests import Acting, AnyRequest, body
from app.services.inputs import SettingsChanges
from app.services.switches import SwitchService
from app.services.views import SettingsView

Switches = NamedDependency[SwitchService]


class SettingsController(Controller):
    """What an admin turns at run time."""

    path = "/settings"
    tags = ("settings",)

    @get("/", opt={"errors": (403,)})
    async def read(self, actor: Acting, switch_service: Switches) -> SettingsView:
        """What is on."""
        return await switch_service.get(actor)

    @patch("/", opt={"body": SettingsChanges, "body_optional": True, "errors": (403,)})
    async def change(self, request: AnyRequest, actor: Acting, switch_service: Switches) -> SettingsView:
        """Turn it on or off, for all processes at once."""
        return await switch_service.change(actor, await body(request, SettingsChanges))
