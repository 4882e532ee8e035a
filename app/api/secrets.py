"""``/api/v1/secrets``."""

from typing import Annotated

from litestar import Controller, Response, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import PathParameter, QueryParameter

from app.api.parameters import Cursor, Limit
from app.api.requests import Acting, AnyRequest, body
from app.domain.parts import Part
from app.services.inputs import INT_MAX, SecretChanges, SecretInput, require_secret_name
from app.services.secrets import SecretService
from app.services.views import SecretPage, SecretView

Secrets = NamedDependency[SecretService]
SecretName = Annotated[str, PathParameter(schema_extra={"pattern": "^[A-Za-z_][A-Za-z0-9_]{0,99}$"})]
Owner = Annotated[int | None, QueryParameter(ge=1, le=INT_MAX)]


class SecretController(Controller):
    """Values that templates may send and nobody can read."""

    path = "/secrets"
    tags = ("secrets",)

    @post("/", opt={"body": SecretInput, "errors": (409,)})
    async def create(self, request: AnyRequest, actor: Acting, secret_service: Secrets) -> SecretView:
        """Keep a secret. Without allowed_hosts it can be sent nowhere."""
        return await secret_service.create(actor, await body(request, SecretInput))

    @get("/")
    async def list_all(
        self, actor: Acting, secret_service: Secrets, limit: Limit = 50, cursor: Cursor = None
    ) -> SecretPage:
        """List secrets without their values, newest first: your own, and those shared with you."""
        return await secret_service.list(actor, Part(limit, cursor=cursor))

    @put(
        "/{secret_name:str}",
        opt={"body": SecretChanges, "body_optional": True, "errors": (409,), "other_statuses": (201,)},
    )
    async def replace(
        self, request: AnyRequest, actor: Acting, secret_service: Secrets, secret_name: SecretName
    ) -> Response[SecretView]:
        """Change or make a secret of yours. An admin's without a value lends the one of the environment."""
        changes = await body(request, SecretChanges)
        view, is_new = await secret_service.put(actor, require_secret_name(secret_name), changes)
        return Response(view, status_code=201 if is_new else 200)

    @delete("/{secret_name:str}", opt={"errors": (403,)})
    async def remove(
        self, actor: Acting, secret_service: Secrets, secret_name: SecretName, owner: Owner = None
    ) -> None:
        """Delete a secret of yours; an admin, of the owner named."""
        await secret_service.delete(actor, require_secret_name(secret_name), owner)
