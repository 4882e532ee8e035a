"""``/api/v1/me``, ``/api/v1/users`` and ``/api/v1/tokens``."""

from litestar import Controller, delete, get, post
from litestar.di import NamedDependency

from app.api.parameters import Cursor, Id, Limit, listed
from app.api.requests import NO_STORE, Acting, AnyRequest, body
from app.services.inputs import TokenInput, UserInput
from app.services.users import UserService
from app.services.views import FreshTokenView, TokenList, UserList, UserView

Users = NamedDependency[UserService]


class UserController(Controller):
    """Users and their tokens; all but ``me`` is for admins."""

    tags = ("users",)

    @get("/me")
    async def me(self, actor: Acting, user_service: Users) -> UserView:
        """Who this token belongs to."""
        return await user_service.me(actor)

    @get("/users", opt={"errors": (403,)})
    async def list_all(self, actor: Acting, user_service: Users, limit: Limit = 500, cursor: Cursor = None) -> UserList:
        """List all users."""
        return await user_service.list(actor, listed(limit, cursor, counts=False))

    @post("/users", opt={"body": UserInput, "errors": (403, 409)})
    async def create(self, request: AnyRequest, actor: Acting, user_service: Users) -> UserView:
        """Create a user."""
        return await user_service.create(actor, await body(request, UserInput))

    @get("/users/{user_id:int}/tokens", opt={"errors": (403,)})
    async def tokens(
        self, actor: Acting, user_service: Users, user_id: Id, limit: Limit = 500, cursor: Cursor = None
    ) -> TokenList:
        """List a user's tokens, without what proves them."""
        return await user_service.tokens(actor, user_id, listed(limit, cursor, counts=False))

    @post("/users/{user_id:int}/tokens", opt={"body": TokenInput, "errors": (403,)}, response_headers=NO_STORE)
    async def create_token(
        self, request: AnyRequest, actor: Acting, user_service: Users, user_id: Id
    ) -> FreshTokenView:
        """Create a token; its text is shown this once."""
        return await user_service.create_token(actor, user_id, await body(request, TokenInput))

    @delete("/tokens/{token_id:int}", opt={"errors": (403,)})
    async def delete_token(self, actor: Acting, user_service: Users, token_id: Id) -> None:
        """Refuse a token from now on."""
        await user_service.delete_token(actor, token_id)
