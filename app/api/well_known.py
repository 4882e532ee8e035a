"""``/.well-known``: what targets need to verify the tokens that calls carry. Nobody has to log in for it."""

from litestar import Controller, Response, get
from litestar.di import NamedDependency

from app.api.requests import AnyRequest, check_query
from app.services.oidc_keys import IssuerService
from app.services.views import IssuerView, JwksView

Issuer = NamedDependency[IssuerService]
CACHE_CONTROL = "public, max-age=300"


class WellKnownController(Controller):
    """The issuer of Carillon's tokens, and its public keys."""

    path = "/.well-known"
    tags = ("tokens of calls",)
    guards = (check_query,)

    @get(
        "/openid-configuration",
        sync_to_thread=False,
        opt={"errors": (404,)},
        summary="Describe the issuer of the tokens that calls carry, as OpenID Connect Discovery does.",
    )
    def configuration(self, issuer_service: Issuer) -> Response[IssuerView]:
        return Response(issuer_service.configuration(), headers={"Cache-Control": CACHE_CONTROL})

    @get(
        "/jwks.json",
        opt={"errors": (404, 503), "empty_statuses": (304,)},
        summary="Return the public keys by which the tokens of calls are verified. 304 if `If-None-Match` names them.",
    )
    async def keys(self, request: AnyRequest, issuer_service: Issuer) -> Response[JwksView]:
        published = await issuer_service.keys()
        headers = {"Cache-Control": CACHE_CONTROL, "ETag": published.etag}
        if published.etag in request.headers.get("if-none-match", ""):
            return Response(b"", status_code=304, headers=headers)  # type: ignore[arg-type]
        return Response(published.view, headers=headers)
