"""``carillon export``."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from app.cli.operators import OPERATOR, on_database
from app.cli.refusals import bad_input
from app.services.declarations.exporting import ExportService, Selection


def export(
    *,
    namespace: str | None = None,
    owner: str | None = None,
    for_namespace: Annotated[str | None, Parameter(name="--as")] = None,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"))] = None,
) -> None:
    """Write workflows and schedules in the form that `carillon apply` reads; to apply it again changes nothing.

    Parameters
    ----------
    namespace
        Only this one; else all that is managed by files.
    owner
        Only what belongs to this user.
    for_namespace
        Write what no file manages, but what is done, for this namespace. To apply that makes new workflows and
        schedules beside the old ones; a name that occurs twice gets a number.
    output
        The file to write; else standard output.
    """
    wanted = Selection(namespace=namespace, owner=owner, for_namespace=for_namespace)
    with bad_input():
        text = on_database(lambda database: ExportService(database).export(OPERATOR, wanted))
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")
