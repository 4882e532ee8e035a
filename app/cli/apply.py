"""``carillon apply``."""

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from app.cli.diffs import diff_lines, summary
from app.cli.operators import OPERATOR
from app.cli.refusals import BAD_INPUT, bad_input, say_problems
from app.cli.stores import settings_with_database
from app.domain.declarations import Act
from app.domain.errors import NotFoundError
from app.observability.logs import set_up_logging
from app.persistence.users import BUILT_IN_ADMIN
from app.services.declarations.applying import Report, Wish
from app.services.declarations.files import Source
from app.wiring import wire_declarations

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
    wish = Wish(owner=owner, prune=prune, dry_run=dry_run)
    with bad_input():
        asyncio.run(_apply(read_sources(file), wish, teller))
    teller.conclude(dry_run=dry_run)


async def _apply(sources: list[Source], wish: Wish, teller: "_Teller") -> None:
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
