"""``carillon import``: schedules of other tools as YAML for ``carillon apply``. It needs no database."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from app import clock
from app.cli.apply import STDIN, Flag
from app.cli.main import BAD_INPUT, exit_on_bad_input, print_errors
from app.domain.errors import CarillonError, NotFoundError
from app.domain.local_time import canonical_zone
from app.services.declarations.files import Source, text_of
from app.services.declarations.yaml_text import YamlProblemError, write_documents
from app.services.imports.conversion import Conversion, Import, Notice, Target, declare
from app.services.imports.cronjob import read_cronjobs
from app.services.imports.crontab import CrontabOptions, read_crontab
from app.services.imports.ductile import read_ductile

MOST_BYTES = 8 * 1024 * 1024
HEADING = """\
# Schedules that were converted by `carillon import`. To apply them: carillon apply -f FILE
# A run that takes longer than `timeout_seconds` (600) fails. A failed run is repeated `max_retries` (3) times; if
# none of them succeeds, the schedule is dead until it is revived.
"""
PLACEHOLDERS = "# The workflows do nothing yet: replace their `core.noop` nodes.\n"
NOTHING = "There is no schedule to convert."

File = Annotated[Path, Parameter(allow_leading_hyphen=True)]
# Returns the schedules of a text; the second argument is the timezone that the operator names.
Reader = Callable[[str, str | None], Conversion]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of all formats.

    Attributes
    ----------
    timezone
        The timezone of schedules that name none: that of the machine on which they run today.
    namespace
        The namespace of the result. The default is the name of the format.
    workflow
        A workflow of that namespace for all schedules. The default is a new one for each, which does nothing.
    keep_going
        Exit with code 0 even if schedules were left out.
    output
        The file to write. The default is standard output.
    """

    timezone: str | None = None
    namespace: str | None = None
    workflow: str | None = None
    keep_going: Flag = False
    output: Annotated[Path | None, Parameter(name=("--output", "-o"))] = None


Common = Annotated[Options, Parameter(name="*")]
DEFAULTS = Options()


def crontab(file: File, /, *, system: Flag = False, options: Common = DEFAULTS) -> None:
    """Convert a crontab.

    Parameters
    ----------
    file
        The crontab, or - for standard input.
    system
        The lines name a user before the command, as in /etc/crontab and /etc/cron.d.
    """

    def reader(text: str, timezone: str | None) -> Conversion:
        return read_crontab(text, CrontabOptions(system=system, timezone=timezone))

    _convert(file, reader, "crontab", options)


def cronjob(file: File, /, *, options: Common = DEFAULTS) -> None:
    """Convert Kubernetes CronJobs.

    Parameters
    ----------
    file
        Manifests as YAML or JSON, or - for standard input.
    """
    _convert(file, read_cronjobs, "cronjob", options)


def ductile(file: File, /, *, options: Common = DEFAULTS) -> None:
    """Convert the schedules of Ductile's plugins.

    Parameters
    ----------
    file
        The configuration, or - for standard input.
    """
    _convert(file, read_ductile, "ductile", options)


def _convert(file: Path, reader: Reader, format_name: str, options: Options) -> None:
    """Read, convert and write; exit with code 2 if something is left out, unless the operator accepts that."""
    target = Target(options.namespace or format_name, options.workflow)
    with exit_on_bad_input():
        source = _read(file)
        result = declare(_conversion(source, reader, options.timezone), target, clock.now())
        _print_notices(source.name, result.notices)
        _write(result, target, options.output)
    if result.document is None:
        print_errors([f"carillon: {source.name}: {NOTHING}"])
    if not options.keep_going and (result.document is None or not result.is_complete):
        sys.exit(BAD_INPUT)


def _conversion(source: Source, reader: Reader, timezone: str | None) -> Conversion:
    try:
        zone = None if timezone is None else canonical_zone(timezone)
        return reader(text_of(source), zone)
    except YamlProblemError as error:
        raise CarillonError(f"{source.name}:{error.line}: {error.message}") from None
    except ValueError as error:
        raise CarillonError(f"--timezone: {error}") from None


def _read(path: Path) -> Source:
    """Read a file of limited size: it may be a device without an end."""
    try:
        if path == STDIN:
            source = Source("<stdin>", sys.stdin.buffer.read(MOST_BYTES + 1))
        else:
            with path.open("rb") as file:
                source = Source(str(path), file.read(MOST_BYTES + 1))
    except (OSError, ValueError) as error:
        raise NotFoundError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if len(source.content) > MOST_BYTES:
        raise CarillonError(f"{source.name}: The file is larger than {MOST_BYTES} bytes. Split it.")
    return source


def _write(result: Import, target: Target, output: Path | None) -> None:
    if result.document is None:
        return
    text = HEADING + (PLACEHOLDERS if target.workflow is None else "") + write_documents([result.document])
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise NotFoundError(f"{output}: {error.strerror}") from None


def _print_notices(name: str, notices: tuple[Notice, ...]) -> None:
    console = Console(stderr=True)
    for notice in notices:
        kind, style = ("left out", "red") if notice.left_out else ("warning", "yellow")
        console.print(Text(_printable(f"{name}:{notice.line}: {kind}: {notice.message}"), style=style), soft_wrap=True)


def _printable(text: str) -> str:
    """Return a text without characters that a terminal would obey."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
