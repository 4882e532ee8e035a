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

from app.cli.main import BAD_INPUT, bad_input, say_problems
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

LONGEST_VALUE = 60
MARKS = {
    Act.CREATE: ("+", "green"),
    Act.CHANGE: ("~", "yellow"),
    Act.KEEP: ("=", "dim"),
    Act.DELETE: ("-", "red"),
    Act.LEAVE: ("?", "cyan"),
}
WORDS = {Act.CREATE: "created", Act.CHANGE: "changed", Act.KEEP: "unchanged", Act.DELETE: "deleted", Act.LEAVE: "left"}


def diff_lines(steps: Iterable[Step], *, verbose: bool) -> list[Text]:
    """A line for each thing that is not as it was, or, if that is wanted, for each."""
    shown = [step for step in steps if verbose or step.act is not Act.KEEP]
    several = len({step.key.namespace for step in shown}) > 1
    return [_line(step, several=several) for step in shown]


def summary(counts: Counter[Act], *, dry_run: bool) -> str:
    """How many of each."""
    told = [f"{counts[act]} {word}" for act, word in WORDS.items() if act is not Act.LEAVE or counts[act]]
    return f"{'Dry run, nothing is written: ' if dry_run else ''}{', '.join(told)}."


def _line(step: Step, *, several: bool) -> Text:
    mark, style = MARKS[step.act]
    name = f"{step.key.namespace}/{step.key.name}" if several else step.key.name
    parts = (f"{mark} {step.key.kind} {name}", ", ".join(map(_difference, step.differences)), _remark(step))
    return Text("  ".join(part for part in parts if part), style=style)


def _remark(step: Step) -> str:
    if step.act is Act.LEAVE:
        return "(no longer declared; --prune deletes it)"
    return "" if step.act is Act.DELETE or step.status in {None, Status.ACTIVE} else f"({step.status})"


def _difference(one: Difference) -> str:
    return f"{one.path}: {_value(one.before)} -> {_value(one.after)}"


def _value(value: Any) -> str:
    if value is ABSENT:
        return "nothing"
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    text = msgspec.json.encode(whole).decode()
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."


STDIN = Path("-")
SUFFIXES = {".yaml", ".yml"}

Files = Annotated[list[Path], Parameter(name=("--file", "-f"), negative=(), allow_leading_hyphen=True)]
Flag = Annotated[bool, Parameter(negative="")]


def apply(
    *, file: Files, prune: Flag = False, dry_run: Flag = False, verbose: Flag = False, owner: str = BUILT_IN_ADMIN
) -> None:
    """Make workflows and schedules as files declare them, all of a file or nothing; what is paused stays paused.

    Exit codes: 0 done, 2 something is wrong with a file, 1 the database is away.

    Parameters
    ----------
    file
        A YAML file, a folder of them, or - for standard input; several may be given.
    prune
        Delete what carries a namespace of these files and is in none of them any more.
    dry_run
        Show what would be done, and do nothing.
    verbose
        Show what is unchanged too.
    owner
        The user to whom it all belongs.
    """
    teller = _Teller(heading=_is_many(file), verbose=verbose)
    # What cannot be rung for now, the workers find by themselves: no word about it.
    set_up_logging("auto", "error")
    wish = ApplyRequest(owner=owner, prune=prune, dry_run=dry_run)
    with bad_input():
        asyncio.run(_apply(read_sources(file), wish, teller))
    teller.conclude(dry_run=dry_run)


async def _apply(sources: list[Source], wish: ApplyRequest, teller: "_Teller") -> None:
    async with wire_declarations(settings_with_database()) as service:
        await service.apply(OPERATOR, sources, wish, teller.tell)


class _Teller:
    """Says what becomes of each file as soon as it is known."""

    def __init__(self, *, heading: bool, verbose: bool) -> None:
        self._console = Console()
        self._heading = heading
        self._verbose = verbose
        self._counts: Counter[Act] = Counter()
        self._failed = False

    def tell(self, report: Report) -> None:
        """One file; then, what is in none of them."""
        lines = diff_lines(report.steps, verbose=self._verbose)
        if lines and report.file and self._heading:
            self._console.print(f"{report.file}:", markup=False, highlight=False, soft_wrap=True)
        for line in lines:
            self._console.print(line, soft_wrap=True)
        say_problems([str(problem) for problem in report.problems])
        self._counts.update(step.act for step in report.steps)
        self._failed = self._failed or bool(report.problems)

    def conclude(self, *, dry_run: bool) -> None:
        """All of them."""
        self._console.print(summary(self._counts, dry_run=dry_run), highlight=False, soft_wrap=True)
        if self._failed:
            sys.exit(BAD_INPUT)


def read_sources(paths: list[Path]) -> list[Source]:
    """The files, and those of the folders by name; one that is given twice is one."""
    return [_source(path) for path in dict.fromkeys(found for given in paths for found in _found(given))]


def _source(path: Path) -> Source:
    if path == STDIN:
        return Source("<stdin>", sys.stdin.buffer.read())
    try:
        return Source(str(path), path.read_bytes())
    except OSError as error:
        raise NotFoundError(f"{path}: {error.strerror}") from None


def _found(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(one for one in path.iterdir() if one.suffix in SUFFIXES and one.name[0] != "." and one.is_file())
    if not files:
        raise NotFoundError(f"{path}: there is no .yaml file in this folder")
    return files


def _is_many(paths: list[Path]) -> bool:
    return len(paths) > 1 or any(path.is_dir() for path in paths)


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
