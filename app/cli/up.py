"""``carillon up``: everything on this machine in one supervised command."""

import asyncio
import os
import sys

from rich.console import Console
from rich.text import Text

from app.config import SettingsError, load_settings
from app.embedded import EmbeddedError
from app.embedded.output import standard_output
from app.embedded.stack import run_stack


def up() -> None:
    """Run the API and a worker here, on embedded Postgres and Valkey unless URLs name others."""
    try:
        asyncio.run(run_stack(load_settings(), os.environ, standard_output()))
    except (SettingsError, EmbeddedError, OSError) as error:
        _print_error(error)
        sys.exit(1)


def _print_error(error: Exception) -> None:
    """One red line; a server's last words may have been several."""
    words = " ".join(str(error).split())
    Console(stderr=True).print(Text(f"carillon up: {words}", style="red"), soft_wrap=True)
