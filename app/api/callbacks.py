"""``/api/v1/executions``: what targets say later, with the token that they were sent."""

from uuid import UUID

from litestar import Controller, post
from litestar.di import NamedDependency
from litestar.params import FromPath

from app.api.requests import AnyRequest, body, count_request, counting_failures, required_token
from app.services.callbacks import CallbackService
from app.services.inputs import CompletionInput
from app.services.views import AcceptedView

Callbacks = NamedDependency[CallbackService]


class CallbackController(Controller):
    """Callbacks of executions that wait for them."""

    path = "/executions"
    tags = ("callbacks",)

    @post("/{execution_id:uuid}/complete", status_code=200, opt={"body": CompletionInput, "errors": (409,)})
    async def complete(
        self, request: AnyRequest, callback_service: Callbacks, execution_id: FromPath[UUID]
    ) -> AcceptedView:
        """Say how work ended that was started earlier; the nodes after it run now."""
        async with counting_failures(request):
            token = required_token(request)
            return await callback_service.complete(execution_id, token, await body(request, CompletionInput))

    @post("/{execution_id:uuid}/heartbeat", status_code=200, opt={"errors": (409,)})
    async def heartbeat(
        self, request: AnyRequest, callback_service: Callbacks, execution_id: FromPath[UUID]
    ) -> AcceptedView:
        """Say that the work goes on; its deadline stays."""
        async with counting_failures(request):
            token = required_token(request)
            accepted = await callback_service.heartbeat(execution_id, token)
        await count_request(request, token)
        return accepted
