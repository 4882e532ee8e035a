"""``/api/v1/me``, ``users``, ``tokens``, ``secrets`` and ``signing-key``."""

from typing import Annotated, Any

from litestar import Controller, Response, delete, get, patch, post, put
from litestar.datastructures import CacheControlHeader
from litestar.di import NamedDependency
from litestar.params import JSONBody, PathParameter, QueryParameter

from app.api.requests import (
    NO_STORE,
    RESTRICTABLE,
    SCOPE,
    Acting,
    Cursor,
    Id,
    Limit,
    OptionalBody,
    TeamFilter,
    listed,
)
from app.domain.access import Scope
from app.persistence.pagination import Part
from app.services.inputs import (
    INT_MAX,
    Input,
    RotationInput,
    SecretChanges,
    SecretInput,
    TokenInput,
    UserChanges,
    UserInput,
    require_secret_name,
)
from app.services.removal import Fate
from app.services.secrets import SecretService, SigningKeyService
from app.services.users import UserService
from app.services.views import FreshTokenView, SecretPage, SecretView, SigningKeyView, TokenList, UserList, UserView

Users = NamedDependency[UserService]
FOR_ADMINS: dict[str, Any] = {"errors": (403,), SCOPE: Scope.ADMIN}
Owner = Annotated[int | None, QueryParameter(ge=1, le=INT_MAX)]
Schedules = Annotated[Fate | None, QueryParameter()]


class UserController(Controller):
    """Users and their tokens; everything but ``me`` is for admins."""

    tags = ("users",)

    @get("/me", opt={RESTRICTABLE: True}, summary="Return the user that the token belongs to.")
    async def me(self, actor: Acting, user_service: Users) -> UserView:
        return await user_service.me(actor)

    @get("/users", opt=FOR_ADMINS, summary="List all users.")
    async def list_all(self, actor: Acting, user_service: Users, limit: Limit = 500, cursor: Cursor = None) -> UserList:
        return await user_service.list(actor, listed(limit, cursor, counts=False))

    @post("/users", opt={**FOR_ADMINS, "errors": (403, 409)}, summary="Create a user.")
    async def create(self, actor: Acting, user_service: Users, data: JSONBody[UserInput]) -> UserView:
        return await user_service.create(actor, data)

    @get("/users/{user_id:int}", opt=FOR_ADMINS, summary="Return a user.")
    async def read(self, actor: Acting, user_service: Users, user_id: Id) -> UserView:
        return await user_service.get(actor, user_id)

    @patch(
        "/users/{user_id:int}",
        opt={**FOR_ADMINS, "errors": (403, 409)},
        summary="Change the role of a user, disable or enable a user, and say what becomes of the schedules.",
    )
    async def change(
        self, actor: Acting, user_service: Users, user_id: Id, data: OptionalBody[UserChanges]
    ) -> UserView:
        return await user_service.change(actor, user_id, data)

    @delete(
        "/users/{user_id:int}",
        opt={**FOR_ADMINS, "errors": (403, 409)},
        summary="Delete a user. `schedules` says what becomes of what the user has.",
    )
    async def remove(
        self,
        actor: Acting,
        user_service: Users,
        user_id: Id,
        schedules: Schedules = None,
        to: Owner = None,
    ) -> None:
        await user_service.delete(actor, user_id, schedules, to)

    @get("/users/{user_id:int}/tokens", opt=FOR_ADMINS, summary="List a user's tokens, without their text.")
    async def tokens(
        self, actor: Acting, user_service: Users, user_id: Id, limit: Limit = 500, cursor: Cursor = None
    ) -> TokenList:
        return await user_service.tokens(actor, user_id, listed(limit, cursor, counts=False))

    @post(
        "/users/{user_id:int}/tokens",
        opt={**FOR_ADMINS, "errors": (403, 409)},
        response_headers=NO_STORE,
        summary="Create a token for a user. Its text is shown only in this response.",
    )
    async def create_token(
        self, actor: Acting, user_service: Users, user_id: Id, data: JSONBody[TokenInput]
    ) -> FreshTokenView:
        return await user_service.create_token(actor, user_id, data)


class TokenController(Controller):
    """One's own tokens. A token never makes one that reaches further than itself."""

    path = "/tokens"
    tags = ("tokens",)

    @get("/", opt={RESTRICTABLE: True}, summary="List your tokens, without their text.")
    async def list_all(
        self, actor: Acting, user_service: Users, limit: Limit = 500, cursor: Cursor = None
    ) -> TokenList:
        return await user_service.own_tokens(actor, listed(limit, cursor, counts=False))

    # A new token reaches no further than the one in use: even a token that only reads may make one.
    @post(
        "/",
        opt={SCOPE: Scope.READ, RESTRICTABLE: True, "errors": (403, 409)},
        response_headers=NO_STORE,
        summary="Create a token for yourself. Its text is shown only in this response.",
    )
    async def create(self, actor: Acting, user_service: Users, data: JSONBody[TokenInput]) -> FreshTokenView:
        return await user_service.create_own_token(actor, data)

    @post(
        "/{token_id:int}/rotate",
        opt={SCOPE: Scope.READ, RESTRICTABLE: True, "errors": (403, 409)},
        response_headers=NO_STORE,
        summary="Replace a token. The old one is accepted for `grace_seconds` more.",
    )
    async def rotate(
        self, actor: Acting, user_service: Users, token_id: Id, data: OptionalBody[RotationInput]
    ) -> FreshTokenView:
        return await user_service.rotate_token(actor, token_id, data)

    @delete(
        "/{token_id:int}",
        opt={SCOPE: Scope.READ, RESTRICTABLE: True},
        summary="Delete a token. Requests that use it are refused from then on.",
    )
    async def remove(self, actor: Acting, user_service: Users, token_id: Id) -> None:
        await user_service.delete_token(actor, token_id)


Secrets = NamedDependency[SecretService]
SecretName = Annotated[str, PathParameter(schema_extra={"pattern": "^[A-Za-z_][A-Za-z0-9_]{0,99}$"})]


class SecretController(Controller):
    """Values that templates may send and that cannot be read back."""

    path = "/secrets"
    tags = ("secrets",)

    @post(
        "/",
        opt={"errors": (404, 409)},
        summary="Store a secret. Without `allowed_hosts` it cannot be sent anywhere.",
    )
    async def create(self, actor: Acting, secret_service: Secrets, data: JSONBody[SecretInput]) -> SecretView:
        return await secret_service.create(actor, data)

    @get("/", summary="List your secrets and those shared with you, newest first, without their values.")
    async def list_all(
        self,
        actor: Acting,
        secret_service: Secrets,
        team_id: TeamFilter = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> SecretPage:
        return await secret_service.list(actor, Part(limit, cursor=cursor), team_id)

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
        self,
        actor: Acting,
        secret_service: Secrets,
        secret_name: SecretName,
        owner: Owner = None,
        team_id: TeamFilter = None,
    ) -> None:
        await secret_service.delete(actor, require_secret_name(secret_name), owner, team_id)


SigningKeys = NamedDependency[SigningKeyService]


class SigningKeyController(Controller):
    """The key by which targets verify that a call comes from you."""

    path = "/signing-key"
    tags = ("signing key",)
    cache_control = CacheControlHeader(no_store=True)

    # Whoever has the key can sign: reading it needs as much as changing it.
    @get(
        "/",
        opt={SCOPE: Scope.WRITE, "errors": (404,)},
        summary="Return your signing key, or that of a team. The first call creates it.",
    )
    async def read(self, actor: Acting, signing_key_service: SigningKeys, team_id: TeamFilter = None) -> SigningKeyView:
        return await signing_key_service.get(actor, team_id)

    @post(
        "/rotate",
        status_code=200,
        opt={"errors": (404,)},
        summary="Replace your signing key, or that of a team. For 24 hours calls are signed with the previous key too.",
    )
    async def rotate(
        self,
        actor: Acting,
        signing_key_service: SigningKeys,
        data: OptionalBody[Input],  # noqa: ARG002 - checked to be empty
        team_id: TeamFilter = None,
    ) -> SigningKeyView:
        return await signing_key_service.rotate(actor, team_id)
