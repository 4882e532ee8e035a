"""``/api/v1/actions``."""

from litestar import Controller, get
from litestar.di import NamedDependency

from app.api.requests import Acting
from app.services.actions import ActionService
from app.services.views import ActionList

ActionsDependency = NamedDependency[ActionService]


class ActionController(Controller):
    """What workflows may do."""

    path = "/actions"
    tags = ("actions",)

    @get("/", sync_to_thread=False)
    def list_all(self, actor: Acting, action_service: ActionsDependency) -> ActionList:
        """List all actions, with the JSON Schema of their configuration."""
        return action_service.list(actor)
