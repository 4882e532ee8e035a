"""``core.ping_sitemap``: tell search engines that a sitemap has changed."""

import asyncio
from typing import Annotated, Any

import msgspec
from yarl import URL

from app.actions.catalog import Action, ActionFailedError
from app.actions.context import ActionContext
from app.actions.http_client import CallFailedError
from app.domain.http_urls import HttpUrl, url_problem
from app.domain.limits import MOST_SITEMAP_URLS

CALL_SECONDS = 15.0


class PingSitemapConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The URLs to call."""

    urls: Annotated[list[HttpUrl], msgspec.Meta(min_length=1, max_length=MOST_SITEMAP_URLS)]

    def __post_init__(self) -> None:
        """Refuse a URL that cannot be called."""
        for index, url in enumerate(self.urls):
            if url_problem(url):
                raise ValueError(f"urls[{index}]: {url_problem(url)}")


class PingOutput(msgspec.Struct):
    """One of the URLs, without its query, and the status of its answer."""

    url: str
    status: int


class PingsOutput(msgspec.Struct):
    """The output of ``core.ping_sitemap``."""

    pings: list[PingOutput]


async def ping_sitemap(config: PingSitemapConfig, context: ActionContext) -> Any:
    """Call all URLs at the same time, and fail if one of them does not answer with a status of 2xx."""
    context.require_lease()
    pings = await asyncio.gather(*(_ping(url, context) for url in config.urls))
    failures = [f"{ping['url']}: {ping['error']}" for ping in pings if ping["error"]]
    if failures:
        raise ActionFailedError(f"{len(failures)} of {len(pings)} URLs failed. {' '.join(failures)}")
    return {"pings": [{"url": ping["url"], "status": ping["status"]} for ping in pings]}


async def _ping(url: str, context: ActionContext) -> dict[str, Any]:
    """Call one URL and return its status, or why it failed."""
    # Queries may hold keys, so they are not stored.
    ping: dict[str, Any] = {"url": str(URL(url).with_user(None).with_query(None).with_fragment(None))}
    try:
        async with asyncio.timeout(CALL_SECONDS):
            answer = await context.http.call("GET", url, {}, b"")
    except CallFailedError as error:
        return {**ping, "status": None, "error": str(error)}
    except TimeoutError:
        return {**ping, "status": None, "error": f"No response within {CALL_SECONDS:.0f} seconds."}
    is_success = 200 <= answer.status < 300  # noqa: PLR2004 - any 2xx
    return {**ping, "status": answer.status, "error": "" if is_success else f"It answered {answer.status}."}


PING_SITEMAP = Action(
    name="core.ping_sitemap",
    description="Call URLs that tell search engines of a changed sitemap; each must answer with a status of 2xx.",
    config=PingSitemapConfig,
    handler=ping_sitemap,
    title="Ping a sitemap",
    category="HTTP",
    icon="radar",
    color="#1d4ed8",
    outputs=PingsOutput,
)
