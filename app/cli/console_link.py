"""``carillon console``: a link that opens the console and logs in once."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from app.cli.main import FAILED, print_errors
from app.config import load_settings
from app.embedded.console_link import LinkRefused, console_link
from app.embedded.data_folder import TOKEN_NAME
from app.embedded.stack import LOOPBACK_OF, base_url


def console(
    *,
    server: Annotated[str, Parameter(env_var="CARILLON_URL")] = "",
    token: Annotated[str, Parameter(env_var="CARILLON_TOKEN")] = "",
) -> None:
    """Print a link that opens the console and logs you in. It works once, within ten minutes.

    Parameters
    ----------
    server
        The address of the server; by default that of `carillon up` on this machine.
    token
        A token of yours; by default the admin token of `carillon up`.
    """
    settings = load_settings()
    address = server or base_url(LOOPBACK_OF.get(settings.host, settings.host), settings.port)
    # The admin's token belongs to the own machine: it is not sent to a server that somebody names.
    secret = token or ("" if server else settings.admin_token or stored_token(Path(settings.data_dir)))
    if not secret:
        print_errors(["carillon console: no token is known; give --token, or set CARILLON_TOKEN"])
        sys.exit(FAILED)
    try:
        # Not by rich, which would break a long line.
        sys.stdout.write(f"{console_link(address, secret)}\n")
    except LinkRefused as error:
        print_errors([f"carillon console: {error}"])
        sys.exit(FAILED)


def stored_token(data_dir: Path) -> str:
    """Return the admin token of `carillon up` on a data folder, or an empty text."""
    try:
        return (data_dir.expanduser() / TOKEN_NAME).read_text().strip()
    except OSError:
        return ""
