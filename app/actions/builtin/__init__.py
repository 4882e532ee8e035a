"""The actions that come with Carillon."""

from typing import Any

from app.actions.builtin.flow import DELAY, FAIL, LOG, NOOP
from app.actions.builtin.http_request import HTTP_REQUEST
from app.actions.builtin.ping_sitemap import PING_SITEMAP
from app.actions.builtin.schedules import (
    PAUSE,
    PURGE_CALLBACKS,
    PURGE_HISTORY,
    PURGE_WEBHOOKS,
    RESUME,
    RETRY_WEBHOOKS,
    RUN,
    TOOLS,
)
from app.actions.catalog import Action

BUILTIN: tuple[Action[Any], ...] = (
    *(HTTP_REQUEST, PING_SITEMAP, DELAY, NOOP, FAIL, LOG),
    *(PAUSE, RESUME, RUN, TOOLS),
    *(PURGE_HISTORY, PURGE_CALLBACKS, RETRY_WEBHOOKS, PURGE_WEBHOOKS),
)
