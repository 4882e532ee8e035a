"""The ASGI application. ``carillon api`` serves it with the limits of ``app.api.server``, which other servers lack."""

from litestar import Litestar

from app.config import load_settings
from app.observability.logs import set_up_logging
from app.wiring import wire_api


def application() -> Litestar:
    """Return the API, configured by the environment."""
    settings = load_settings()
    set_up_logging(settings.log_format, settings.log_level)
    return wire_api(settings)
