"""``/api/v1/me``, ``users``, ``tokens``, ``secrets`` and ``signing-key``."""

from typing import Annotated

from litestar import Controller, Response, delete, get, post, put
from litestar.datastructures import CacheControlHeader
from litestar.di import NamedDependency
from litestar.params import JSONBody, PathParameter, QueryParameter

from app.api.requests import NO_STORE, Acting, Cursor, Id, Limit, OptionalBody, listed
from app.persistence.pagination import Part
from app.services.inputs import INT_MAX, Input, SecretChanges, SecretInput, TokenInput, UserInput, require_secret_name
from app.services.secrets import SecretService, SigningKeyService
from app.services.users import UserService
from app.services.views import FreshTokenView, SecretPage, SecretView, SigningKeyView, TokenList, UserList, UserView

Users = NamedDependency[UserService]


class UserController(Controller):
    """Users and their tokens; everything but ``me`` is for admins."""

    tags = ("users",)

    @get("/me", summary="Return the user that the token belongs to.")
    async def me(self, actor: Acting, user_service: Users) -> UserView:
        return await user_service.me(actor)

    @get("/users", opt={"errors": (403,)}, summary="List all users.")
    async def list_all(self, actor: Acting, user_service: Users, limit: Limit = 500, cursor: Cursor = None) -> UserList:
        return await user_service.list(actor, listed(limit, cursor, counts=False))

    @post("/users", opt={"errors": (403, 409)}, summary="Create a user.")
    async def create(self, actor: Acting, user_service: Users, data: JSONBody[UserInput]) -> UserView:
        return await user_service.create(actor, data)

    @get("/users/{user_id:int}/tokens", opt={"errors": (403,)}, summary="List a user's tokens, without their text.")
    async def tokens(
        self, actor: Acting, user_service: Users, user_id: Id, limit: Limit = 500, cursor: Cursor = None
    ) -> TokenList:
        return await user_service.tokens(actor, user_id, listed(limit, cursor, counts=False))

    @post(
        "/users/{user_id:int}/tokens",
        opt={"errors": (403,)},
        response_headers=NO_STORE,
        summary="Create a token. Its text is shown only in this response.",
    )
    async def create_token(
        self, actor: Acting, user_service: Users, user_id: Id, data: JSONBody[TokenInput]
    ) -> FreshTokenView:
        return await user_service.create_token(actor, user_id, data)

    @delete(
        "/tokens/{token_id:int}",
        opt={"errors": (403,)},
        summary="Delete a token. Requests that use it are refused from then on.",
    )
    async def delete_token(self, actor: Acting, user_service: Users, token_id: Id) -> None:
        await user_service.delete_token(actor, token_id)


Secrets = NamedDependency[SecretService]
SecretName = Annotated[str, PathParameter(schema_extra={"pattern": "^[A-Za-z_][A-Za-z0-9_]{0,99}$"})]
Owner = Annotated[int | None, QueryParameter(ge=1, le=INT_MAX)]


class SecretController(Controller):
    """Values that templates may send and that cannot be read back."""

    path = "/secrets"
    tags = ("secrets",)

    @post(
        "/",
        opt={"errors": (409,)},
        summary="Store a secret. Without `allowed_hosts` it cannot be sent anywhere.",
    )
    async def create(self, actor: Acting, secret_service: Secrets, data: JSONBody[SecretInput]) -> SecretView:
        return await secret_service.create(actor, data)

    @get("/", summary="List your secrets and those shared with you, newest first, without their values.")
    async def list_all(
        self, actor: Acting, secret_service: Secrets, limit: Limit = 50, cursor: Cursor = None
    ) -> SecretPage:
        return await secret_service.list(actor, Part(limit, cursor=cursor))

    @put(
        "/{secret_name:str}",
        opt={"errors": (409,), "other_statuses": (201,)},
        summary="Create or change one of your secrets. If an admin gives no value, the environment's value is shared.",
    )
    async def replace(
        self,
        actor: Acting,
        secret_service: Secrets,
        secret_name: SecretName,
        data: OptionalBody[SecretChanges],
    ) -> Response[SecretView]:
        view, is_new = await secret_service.put(actor, require_secret_name(secret_name), data)
        return Response(view, status_code=201 if is_new else 200)

    @delete(
        "/{secret_name:str}",
        opt={"errors": (403,)},
        summary="Delete one of your secrets, or as an admin one of the user `owner`.",
    )
    async def remove(
        self, actor: Acting, secret_service: Secrets, secret_name: SecretName, owner: Owner = None
    ) -> None:
        await secret_service.delete(actor, require_secret_name(secret_name), owner)


SigningKeys = NamedDependency[SigningKeyService]


class SigningKeyController(Controller):
    """The key by which targets verify that a call comes from you."""

    path = "/signing-key"
    tags = ("signing key",)
    cache_control = CacheControlHeader(no_store=True)

    @get("/", summary="Return your signing key. The first call creates it.")
    async def read(self, actor: Acting, signing_key_service: SigningKeys) -> SigningKeyView:
        return await signing_key_service.get(actor)

    @post(
        "/rotate",
        status_code=200,
        summary="Replace your signing key. For 24 hours calls are signed with the previous key too.",
    )
    async def rotate(
        self,
        actor: Acting,
        signing_key_service: SigningKeys,
        data: OptionalBody[Input],  # noqa: ARG002 - checked to be empty
    ) -> SigningKeyView:
        return await signing_key_service.rotate(actor)
