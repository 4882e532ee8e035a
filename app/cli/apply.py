"""``carillon apply``, ``plan`` and ``export``: workflows and schedules as files, over HTTP or on the database."""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from app.cli.accounts import OnDatabase, uses_database
from app.cli.interaction import Progress
from app.cli.main import BAD_INPUT, exit_on_bad_input, print_errors
from app.cli.options import REACH, Reach
from app.cli.plans import effect_lines
from app.client.connection import API, Connection
from app.client.errors import ApiError, ClientError, Exit
from app.domain.declarations import ABSENT, Act, Difference, Key, Kind, Step
from app.domain.errors import NotFoundError
from app.domain.schedules import Status

if TYPE_CHECKING:
    from app.services.declarations.files import Source

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
CHANGES = {Act.CREATE, Act.CHANGE, Act.DELETE}
_LINE = re.compile(r"line (\d+): ")

Files = Annotated[
    list[Path],
    Parameter(
        name=("--file", "-f"),
        negative=(),
        allow_leading_hyphen=True,
        help="A YAML file, a folder of YAML files, or - for standard input. May be given several times.",
    ),
]
Flag = Annotated[bool, Parameter(negative="")]
Prune = Annotated[
    bool,
    Parameter(negative="", help="Delete objects of the namespaces of these files that none of the files declares."),
]
Verbose = Annotated[bool, Parameter(negative="", help="Show unchanged workflows and schedules too.")]
Owner = Annotated[str, Parameter(help="The user who owns what is created; it needs the database.")]


def apply(  # noqa: PLR0913 - the wishes of one command
    *,
    file: Files,
    prune: Prune = False,
    dry_run: Annotated[bool, Parameter(negative="", help="Show what would change, and change nothing.")] = False,
    verbose: Verbose = False,
    owner: Owner = "",
    database: OnDatabase = False,
    options: Reach = REACH,
) -> None:
    """Create and change workflows and schedules as files declare them."""
    wish = Wish(prune=prune, dry_run=dry_run, owner=owner)
    printer = _carry_out(file, wish, verbose=verbose, database=database, options=options)
    printer.print_summary(dry_run=dry_run)


def plan(
    *,
    file: Files,
    prune: Prune = False,
    verbose: Verbose = False,
    owner: Owner = "",
    database: OnDatabase = False,
    options: Reach = REACH,
) -> int:
    """Show what `carillon apply` would change. The exit code is 8 if something would change."""
    wish = Wish(prune=prune, dry_run=True, owner=owner)
    printer = _carry_out(file, wish, verbose=verbose, database=database, options=options)
    printer.print_summary(dry_run=True)
    return Exit.WOULD_CHANGE if printer.has_changes else Exit.DONE


# What changes do to coming runs, as lines by object.
Effects = Mapping[Key, Sequence[str]]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """How files are applied."""

    prune: bool = False
    dry_run: bool = False
    owner: str = ""


def _carry_out(file: list[Path], wish: Wish, *, verbose: bool, database: bool, options: Reach) -> "ReportPrinter":
    printer = ReportPrinter(with_file_names=_is_several(file), verbose=verbose)
    with exit_on_bad_input():
        sources = read_sources(file)
        if wish.owner or uses_database(options, database=database):
            from app.cli.apply_database import apply_sources

            apply_sources(sources, wish, printer)
        else:
            with options.connect() as connection:
                apply_over_http(connection, sources, wish, printer)
    return printer


def _is_several(paths: list[Path]) -> bool:
    return len(paths) > 1 or any(path.is_dir() for path in paths)


def apply_over_http(connection: Connection, sources: Sequence["Source"], wish: Wish, printer: "ReportPrinter") -> None:
    """Apply files one by one, each as a whole; with pruning together, since each may declare what another does not."""
    groups = [list(sources)] if wish.prune else [[source] for source in sources]
    left: dict[Key, Step] = {}
    declared: set[Key] = set()
    progress = Progress("apply")
    for done, group in enumerate(groups):
        progress.show(done, len(groups))
        try:
            steps, effects = _applied(connection, group, wish)
        except ApiError as error:
            if error.code is not Exit.BAD_INPUT or not error.lines:
                raise _too_large(error) from None
            printer.print_problems([located(line, group) for line in error.lines])
            continue
        finally:
            progress.end()
        left |= {step.key: step for step in steps if step.act is Act.LEAVE}
        declared |= {step.key for step in steps if step.act is not Act.LEAVE}
        kept = [step for step in steps if step.act is not Act.LEAVE]
        printer.print_steps(group[0].name if len(group) == 1 else "", kept, effects)
    if not printer.has_failed:
        # What one file does not declare another one may.
        printer.print_steps("", [step for key, step in left.items() if key not in declared])


def _applied(connection: Connection, sources: Sequence["Source"], wish: Wish) -> tuple[list[Step], Effects]:
    """Return the steps, and for changed schedules what a dry run says of their coming runs."""
    body = {"yaml": "\n---\n".join(map(_text, sources)), "dry_run": wish.dry_run, "prune": wish.prune}
    views = connection.call("POST", "/apply/", body)["steps"]
    steps = [step_of(view) for view in views]
    planned = ((step.key, view["plan"]) for step, view in zip(steps, views, strict=True) if step.act is Act.CHANGE)
    return steps, {key: effect_lines(plan) for key, plan in planned if plan}


def _too_large(error: ApiError) -> ClientError:
    if error.status != 413:  # noqa: PLR2004 - too large
        return error
    return ClientError(
        error.message,
        error.code,
        hint="Split the files and apply them without --prune, or use --database on the server.",
    )


def _text(source: "Source") -> str:
    try:
        return source.content.decode()
    except UnicodeDecodeError:
        raise ClientError(f"{source.name}: the file is not UTF-8 text.", Exit.BAD_INPUT) from None


def located(line: str, sources: Sequence["Source"]) -> str:
    """Return an error of the API with the file and the line that it is about, as compilers write it."""
    message = line.removeprefix("yaml: ")
    found = _LINE.match(message)
    if found is None:
        return f"{sources[0].name}: {message}"
    number, text = int(found[1]), message[found.end() :]
    for source in sources:
        length = source.content.count(b"\n") + 1
        if number <= length or source is sources[-1]:
            return f"{source.name}:{number}: {text}"
        # The line that separates two documents.
        number -= length + 1
    return message


def step_of(view: dict[str, Any]) -> Step:
    """Return the step that the API describes."""
    differences = tuple(
        Difference(one["path"], one.get("from", ABSENT), one.get("to", ABSENT)) for one in view["differences"]
    )
    status = None if view["status"] is None else Status(view["status"])
    return Step(Act(view["act"]), Key(view["namespace"], Kind(view["kind"]), view["name"]), differences, status)


def read_sources(paths: list[Path]) -> "list[Source]":
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


def _read_source(path: Path) -> "Source":
    from app.services.declarations.files import Source

    if path == STDIN:
        return Source("<stdin>", sys.stdin.buffer.read())
    try:
        return Source(str(path), path.read_bytes())
    except OSError as error:
        raise NotFoundError(f"{path}: {error.strerror}") from None


class ReportPrinter:
    """Prints the result of each file as soon as it is known, and a summary at the end."""

    def __init__(self, *, with_file_names: bool, verbose: bool) -> None:
        self._console = Console()
        self._with_file_names = with_file_names
        self._verbose = verbose
        self._counts: Counter[Act] = Counter()
        self.has_failed = False

    @property
    def has_changes(self) -> bool:
        """Whether something was changed, or would be."""
        return any(self._counts[act] for act in CHANGES)

    def print_steps(self, file: str, steps: Iterable[Step], effects: Effects | None = None) -> None:
        """Print the steps of one file, or those about objects that no file declares; with their effects on runs."""
        steps = list(steps)
        lines = diff_lines(steps, effects or {}, verbose=self._verbose)
        if lines and file and self._with_file_names:
            self._console.print(f"{file}:", markup=False, highlight=False, soft_wrap=True)
        for line in lines:
            self._console.print(line, soft_wrap=True)
        self._counts.update(step.act for step in steps)

    def print_problems(self, problems: list[str]) -> None:
        """Print what is wrong with a file."""
        print_errors(problems)
        self.has_failed = self.has_failed or bool(problems)

    def print_summary(self, *, dry_run: bool) -> None:
        """Print the totals of all files; exit with code 2 if a file has errors."""
        self._console.print(summary(self._counts, dry_run=dry_run), highlight=False, soft_wrap=True)
        if self.has_failed:
            sys.exit(BAD_INPUT)


def summary(counts: Counter[Act], *, dry_run: bool) -> str:
    """Return how many objects were created, changed and so on, as a sentence."""
    parts = [f"{counts[act]} {word}" for act, word in SUMMARY_WORDS.items() if act is not Act.LEAVE or counts[act]]
    return f"{'Dry run, nothing is written: ' if dry_run else ''}{', '.join(parts)}."


def diff_lines(steps: Iterable[Step], effects: Effects, *, verbose: bool) -> list[Text]:
    """Return a line for each object that changes, and its effects below; with ``verbose`` for each object."""
    shown = [step for step in steps if verbose or step.act is not Act.KEEP]
    with_namespace = len({step.key.namespace for step in shown}) > 1
    lines: list[Text] = []
    for step in shown:
        lines.append(_line(step, with_namespace=with_namespace))
        lines += (Text(f"  {line}", style="dim") for line in effects.get(step.key, ()))
    return lines


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
    namespace: Annotated[
        str | None, Parameter(help="Export only this namespace. The default is every namespace that files manage.")
    ] = None,
    owner: Annotated[str | None, Parameter(help="Export only what this user owns; it needs the database.")] = None,
    for_namespace: Annotated[
        str | None,
        Parameter(
            name="--as",
            help="Export what no file manages, except for finished schedules, under this namespace; it needs the "
            "database. Applying the result creates new workflows and schedules beside the old ones. A name that occurs "
            "twice gets a number.",
        ),
    ] = None,
    output: Annotated[
        Path | None, Parameter(name=("--output", "-o"), help="The file to write. The default is standard output.")
    ] = None,
    database: OnDatabase = False,
    options: Reach = REACH,
) -> None:
    """Write workflows and schedules as YAML that `carillon apply` reads."""
    with exit_on_bad_input():
        if owner or for_namespace or uses_database(options, database=database):
            from app.cli.apply_database import exported

            text = exported(namespace=namespace, owner=owner, for_namespace=for_namespace)
        else:
            with options.connect() as connection:
                headers = {"Accept": "application/yaml"}
                answer = connection.send("GET", f"{API}/export/", params={"namespace": namespace}, headers=headers)
            text = answer.body.decode()
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ClientError(f"{output}: {error.strerror}", Exit.BAD_INPUT) from None
