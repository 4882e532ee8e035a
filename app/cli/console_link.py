"""``carillon console``: a link that opens the console and logs in once."""

from app.cli.options import REACH, Reach
from app.cli.output import write
from app.client.errors import ClientError, Exit
from app.embedded.console_link import LinkRefused, console_link


def console(*, options: Reach = REACH) -> None:
    """Print a link that opens the console and logs you in. It works once, within ten minutes."""
    with options.connect() as connection:
        target = connection.target
    if not target.token:
        raise ClientError("No token is known.", Exit.NOT_ALLOWED, hint="Give --token, or set CARILLON_TOKEN.")
    try:
        write(f"{console_link(target.url, target.token)}\n")
    except LinkRefused as error:
        raise ClientError(str(error), Exit.FAILED) from None
