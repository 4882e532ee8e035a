"""``carillon apply`` and ``carillon export``: workflows and schedules as files."""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from app.cli.main import BAD_INPUT, exit_on_bad_input, print_errors
from app.cli.operators import OPERATOR, on_database
from app.domain.declarations import ABSENT, Act, Difference, Step
from app.domain.errors import NotFoundError
from app.domain.schedules import Status
from app.embedded.data_folder import settings_with_database
from app.observability.logs import set_up_logging
from app.persistence.users import BUILT_IN_ADMIN
from app.services.declarations.applying import ApplyRequest, Report
from app.services.declarations.exporting import ExportService, Selection
from app.services.declarations.files import Source
from app.wiring import wire_declarations

STDIN = Path("-")
SUFFIXES = {".yaml", ".yml"}
LONGEST_VALUE = 60
MARKS = {
    Act.CREATE: ("+", "green"),
    Act.CHANGE: ("~", "yellow"),
    Act.KEEP: ("=", "dim"),
    Act.DELETE: ("-", "red"),
    Act.LEAVE: ("?", "cyan"),
}
SUMMARY_WORDS = {
    Act.CREATE: "created",
    Act.CHANGE: "changed",
    Act.KEEP: "unchanged",
    Act.DELETE: "deleted",
    Act.LEAVE: "left",
}

Files = Annotated[list[Path], Parameter(name=("--file", "-f"), negative=(), allow_leading_hyphen=True)]
Flag = Annotated[bool, Parameter(negative="")]


def apply(
    *, file: Files, prune: Flag = False, dry_run: Flag = False, verbose: Flag = False, owner: str = BUILT_IN_ADMIN
) -> None:
    """Create and change workflows and schedules as files declare them.

    Parameters
    ----------
    file
        A YAML file, a folder of YAML files, or - for standard input. May be given several times.
    prune
        Delete workflows and schedules of the namespaces of these files that none of the files declares any more.
    dry_run
        Show what would change, and change nothing.
    verbose
        Show unchanged workflows and schedules too.
    owner
        The user who owns what is created.
    """
    printer = _ReportPrinter(with_file_names=_is_several(file), verbose=verbose)
    # Only errors: if Redis cannot be reached now, the workers find the changed schedules by themselves.
    set_up_logging("auto", "error")
    request = ApplyRequest(owner=owner, prune=prune, dry_run=dry_run)
    with exit_on_bad_input():
        asyncio.run(_apply(read_sources(file), request, printer))
    printer.print_summary(dry_run=dry_run)


def _is_several(paths: list[Path]) -> bool:
    return len(paths) > 1 or any(path.is_dir() for path in paths)


async def _apply(sources: list[Source], request: ApplyRequest, printer: "_ReportPrinter") -> None:
    async with wire_declarations(settings_with_database()) as service:
        await service.apply(OPERATOR, sources, request, printer.print_report)


def read_sources(paths: list[Path]) -> list[Source]:
    """Read the files, and those of folders in order of name; a file that is given twice is read once."""
    return [_read_source(file) for file in dict.fromkeys(file for path in paths for file in _files_at(path))]


def _files_at(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if _is_yaml(file))
    if not files:
        raise NotFoundError(f"{path}: there is no .yaml or .yml file in this folder")
    return files


def _is_yaml(file: Path) -> bool:
    return file.suffix in SUFFIXES and not file.name.startswith(".") and file.is_file()


def _read_source(path: Path) -> Source:
    if path == STDIN:
        return Source("<stdin>", sys.stdin.buffer.read())
    try:
        return Source(str(path), path.read_bytes())
    except OSError as error:
        raise NotFoundError(f"{path}: {error.strerror}") from None


class _ReportPrinter:
    """Prints the result of each file as soon as it is known, and a summary at the end."""

    def __init__(self, *, with_file_names: bool, verbose: bool) -> None:
        self._console = Console()
        self._with_file_names = with_file_names
        self._verbose = verbose
        self._counts: Counter[Act] = Counter()
        self._has_failed = False

    def print_report(self, report: Report) -> None:
        """Print the report of one file, or the last one, which is about objects that no file declares."""
        lines = diff_lines(report.steps, verbose=self._verbose)
        if lines and report.file and self._with_file_names:
            self._console.print(f"{report.file}:", markup=False, highlight=False, soft_wrap=True)
        for line in lines:
            self._console.print(line, soft_wrap=True)
        print_errors([str(problem) for problem in report.problems])
        self._counts.update(step.act for step in report.steps)
        self._has_failed = self._has_failed or bool(report.problems)

    def print_summary(self, *, dry_run: bool) -> None:
        """Print the totals of all files; exit with code 2 if a file has errors."""
        self._console.print(summary(self._counts, dry_run=dry_run), highlight=False, soft_wrap=True)
        if self._has_failed:
            sys.exit(BAD_INPUT)


def summary(counts: Counter[Act], *, dry_run: bool) -> str:
    """Return how many objects were created, changed and so on, as a sentence."""
    parts = [f"{counts[act]} {word}" for act, word in SUMMARY_WORDS.items() if act is not Act.LEAVE or counts[act]]
    return f"{'Dry run, nothing is written: ' if dry_run else ''}{', '.join(parts)}."


def diff_lines(steps: Iterable[Step], *, verbose: bool) -> list[Text]:
    """Return a line for each object that changes; with ``verbose`` for each object."""
    shown = [step for step in steps if verbose or step.act is not Act.KEEP]
    with_namespace = len({step.key.namespace for step in shown}) > 1
    return [_line(step, with_namespace=with_namespace) for step in shown]


def _line(step: Step, *, with_namespace: bool) -> Text:
    mark, style = MARKS[step.act]
    name = f"{step.key.namespace}/{step.key.name}" if with_namespace else step.key.name
    parts = (f"{mark} {step.key.kind} {name}", ", ".join(map(_difference, step.differences)), _remark(step))
    return Text("  ".join(part for part in parts if part), style=style)


def _difference(difference: Difference) -> str:
    return f"{difference.path}: {_value(difference.before)} -> {_value(difference.after)}"


def _value(value: Any) -> str:
    if value is ABSENT:
        return "nothing"
    number_or_value = int(value) if isinstance(value, float) and value.is_integer() else value
    text = msgspec.json.encode(number_or_value).decode()
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."


def _remark(step: Step) -> str:
    if step.act is Act.LEAVE:
        return "(no longer declared; --prune deletes it)"
    return "" if step.act is Act.DELETE or step.status in {None, Status.ACTIVE} else f"({step.status})"


def export(
    *,
    namespace: str | None = None,
    owner: str | None = None,
    for_namespace: Annotated[str | None, Parameter(name="--as")] = None,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"))] = None,
) -> None:
    """Write workflows and schedules as YAML that `carillon apply` reads.

    Parameters
    ----------
    namespace
        Export only this namespace. The default is every namespace that files manage.
    owner
        Export only what this user owns.
    for_namespace
        Export what no file manages, except for finished schedules, under this namespace. Applying the result creates
        new workflows and schedules beside the old ones. A name that occurs twice gets a number.
    output
        The file to write. The default is standard output.
    """
    selection = Selection(namespace=namespace, owner=owner, for_namespace=for_namespace)
    with exit_on_bad_input():
        text = on_database(lambda database: ExportService(database).export(OPERATOR, selection))
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")
