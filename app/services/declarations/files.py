"""What a file declares: checked by the rules of the API, each problem with its line."""

from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec
from msgspec.structs import replace

from app.actions.catalog import Catalog
from app.domain.declarations import Declared, Key, Kind
from app.domain.errors import CarillonError, FieldError, InvalidError
from app.services.declarations.yaml_text import Document, YamlProblemError, read_documents
from app.services.inputs import DeclarationInput, DeclaredScheduleInput, WorkflowInput
from app.services.schedules import spec_values
from app.services.validation import checked
from app.services.workflows import check_workflow


class Source(msgspec.Struct, frozen=True):
    """A file as it was found."""

    name: str
    content: bytes


class Problem(msgspec.Struct, frozen=True):
    """What is wrong, and where."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        """As compilers say it."""
        return f"{self.file}:{self.line}: {self.message}"


class BadFileError(CarillonError):
    """A file cannot be applied."""

    code = "bad_declaration"
    text = "A file cannot be applied."

    def __init__(self, *problems: Problem) -> None:
        """Name everything that is wrong."""
        super().__init__()
        self.problems = problems


class Place(msgspec.Struct, frozen=True):
    """Where something is declared."""

    file: str
    document: Document
    within: str = ""
    # What people call it.
    label: str = ""

    def problem(self, field: str, message: str) -> Problem:
        """Something is wrong with a field of it."""
        words = ": ".join(part for part in (self.label, field, message) if part)
        return Problem(self.file, self.line_of(field), words)

    def problems(self, error: CarillonError) -> list[Problem]:
        """All that was refused."""
        errors = error.errors if isinstance(error, InvalidError) else (FieldError("", str(error)),)
        return [self.problem(one.field, one.message) for one in errors]

    def line_of(self, field: str = "") -> int:
        """The line of a field, or where there is none, of the whole."""
        return self.document.line_of(".".join(part for part in (self.within, field) if part).replace(".[", "["))


class Item(msgspec.Struct, frozen=True):
    """One workflow or schedule, and where it is declared."""

    declared: Declared
    place: Place

    @property
    def key(self) -> Key:
        """What it is known by."""
        return self.declared.key


class DeclaredFile(msgspec.Struct, frozen=True):
    """All that a file says, or what is wrong with it."""

    name: str
    items: tuple[Item, ...] = ()
    # Where each is named first.
    namespaces: dict[str, Place] = {}
    problems: tuple[Problem, ...] = ()

    @property
    def declared(self) -> Iterator[Key]:
        """What it declares."""
        return (item.key for item in self.items)

    @property
    def used(self) -> Iterator[Key]:
        """The workflows that its schedules run."""
        return (workflow_of(item.declared) for item in self.items if item.key.kind is Kind.SCHEDULE)


def workflow_of(declared: Declared) -> Key:
    """The workflow that a declared schedule runs."""
    return Key(declared.key.namespace, Kind.WORKFLOW, declared.values["workflow"])


def read_files(sources: Iterable[Source], catalog: Catalog) -> list[DeclaredFile]:
    """The files in an order in which each finds the workflows of the others."""
    return _in_order(_without_doubles([read_file(source, catalog) for source in sources]))


def read_file(source: Source, catalog: Catalog) -> DeclaredFile:
    """What one file declares."""
    try:
        documents = read_documents(_text(source))
    except YamlProblemError as error:
        return DeclaredFile(source.name, problems=(Problem(source.name, error.line, error.message),))
    if not documents:
        return DeclaredFile(source.name, problems=(Problem(source.name, 1, "The file is empty."),))
    read = DeclaredFile(source.name)
    for document in documents:
        read = _with_document(read, Place(source.name, document), catalog)
    return read


def _text(source: Source) -> str:
    try:
        return source.content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = source.content.count(b"\n", 0, error.start) + 1
        raise YamlProblemError(line, "This is not UTF-8.") from None


def _with_document(file: DeclaredFile, whole: Place, catalog: Catalog) -> DeclaredFile:
    try:
        wanted = checked(whole.document.value, DeclarationInput)
    except InvalidError as error:
        return replace(file, problems=(*file.problems, *whole.problems(error)))
    items, problems = list(file.items), list(file.problems)
    for kind, raw_items in ((Kind.WORKFLOW, wanted.workflows), (Kind.SCHEDULE, wanted.schedules)):
        for index, raw in enumerate(raw_items or ()):
            place = _place(whole, f"{kind}s[{index}]", kind, raw)
            try:
                values = _workflow(raw, catalog) if kind is Kind.WORKFLOW else _schedule(raw)
            except InvalidError as error:
                problems += place.problems(error)
            else:
                items.append(_item(wanted.namespace, kind, values, place))
    namespaces = {wanted.namespace: whole, **file.namespaces}
    return replace(file, items=tuple(items), namespaces=namespaces, problems=tuple(problems))


def _place(whole: Place, within: str, kind: Kind, raw: Any) -> Place:
    name = raw.get("name") if isinstance(raw, dict) else None
    return replace(whole, within=within, label=f"{kind} '{name}'" if isinstance(name, str) else within)


def _item(namespace: str, kind: Kind, values: dict[str, Any], place: Place) -> Item:
    paused = values.pop("paused", False)
    return Item(Declared(Key(namespace, kind, values["name"]), values, paused), place)


def _workflow(raw: Any, catalog: Catalog) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(checked(raw, WorkflowInput))
    check_workflow(values, catalog)
    return values


def _schedule(raw: Any) -> dict[str, Any]:
    return spec_values(checked(raw, DeclaredScheduleInput))


def _without_doubles(files: Sequence[DeclaredFile]) -> list[DeclaredFile]:
    """The same files; one that declares again what was declared before says so."""
    first: dict[Key, Place] = {}
    judged = []
    for file in files:
        problems = list(file.problems)
        for item in file.items:
            other = first.setdefault(item.key, item.place)
            if other is not item.place:
                where = f"{other.file}:{other.line_of('name')}"
                problems.append(item.place.problem("name", f"The namespace has one of this name already, at {where}."))
        judged.append(replace(file, problems=tuple(problems)))
    return judged


def _in_order(files: Sequence[DeclaredFile]) -> list[DeclaredFile]:
    """Those first whose workflows others use; else as they are given."""
    home = {key: index for index, file in enumerate(files) for key in file.declared if key.kind is Kind.WORKFLOW}
    needs = {index: {home[key] for key in file.used if key in home} - {index} for index, file in enumerate(files)}
    try:
        return [files[index] for index in TopologicalSorter(needs).static_order()]
    except CycleError as error:
        circle = set(error.args[1])
        names = " and ".join(sorted(files[index].name for index in circle))
        problem = f"{names} use workflows of each other: put them into one file."
        return [
            replace(file, problems=(*file.problems, Problem(file.name, 1, problem))) if index in circle else file
            for index, file in enumerate(files)
        ]
