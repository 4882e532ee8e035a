"""How ``carillon up`` runs the other commands of Carillon: the program, and the environment it gives them."""

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from app.config import Settings

LOOPBACK = "127.0.0.0/8,::1,localhost"


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What ``carillon up`` found or chose for its children. An empty URL leaves the environment's own in place."""

    port: int
    admin_token: str
    database_url: str = ""
    redis_url: str = ""
    is_terminal: bool = False


def child_environment(settings: Settings, environ: Mapping[str, str], chosen: Surroundings) -> dict[str, str]:
    """The environment with what a Carillon on one's own machine needs; what the operator set stays."""
    fixed = {
        "CARILLON_HOST": settings.host,
        "CARILLON_PORT": str(chosen.port),
        "CARILLON_ADMIN_TOKEN": chosen.admin_token,
        "CARILLON_DATABASE_URL": chosen.database_url,
        "CARILLON_REDIS_URL": chosen.redis_url,
        "CARILLON_HTTP_ALLOW": ",".join((*settings.allowed_hosts, LOOPBACK)),
        "CARILLON_LOG_FORMAT": "console" if settings.log_format == "auto" else settings.log_format,
        "PYTHONUNBUFFERED": "1",
    }
    defaults = {"CARILLON_RATE_LIMIT_PER_MINUTE": "0", "CARILLON_DRAIN_SECONDS": "3"}
    if chosen.is_terminal:
        # Their output is a pipe to us, yet a person reads it.
        defaults["FORCE_COLOR"] = "1"
    return defaults | _not_blank(environ) | _not_blank(fixed)


def carillon_program() -> tuple[str, ...]:
    """What runs ``carillon``; the console script if there is one, so that ``ps`` shows just that."""
    script = Path(sys.executable).with_name("carillon")
    return (str(script),) if script.exists() else (sys.executable, "-m", "app.cli")


def _not_blank(environ: Mapping[str, str]) -> dict[str, str]:
    """A blank setting means the default, here as in the settings."""
    return {name: value for name, value in environ.items() if value.strip()}
