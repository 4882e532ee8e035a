"""``/api/v1/signing-key``."""

from litestar import Controller, get, post
from litestar.datastructures import CacheControlHeader
from litestar.di import NamedDependency

from app.api.requests import Acting, AnyRequest, body
from app.services.inputs import Input
from app.services.signing_keys import SigningKeyService
from app.services.views import SigningKeyView

SigningKeys = NamedDependency[SigningKeyService]


class SigningKeyController(Controller):
    """The key by which targets tell your calls from others'."""

    path = "/signing-key"
    tags = ("signing key",)
    cache_control = CacheControlHeader(no_store=True)

    @get("/")
    async def read(self, actor: Acting, signing_key_service: SigningKeys) -> SigningKeyView:
        """Read your signing key; the first call makes it."""
        return await signing_key_service.get(actor)

    @post("/rotate", status_code=200)
    async def rotate(self, request: AnyRequest, actor: Acting, signing_key_service: SigningKeys) -> SigningKeyView:
        """Make a new key; for 24 hours calls are signed with the one before as well."""
        await body(request, Input)
        return await signing_key_service.rotate(actor)
