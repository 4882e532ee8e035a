"""Reading declaration files: checked by the rules of the API, each problem with its line."""

from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec
from msgspec.structs import replace

from app.actions.catalog import Catalog
from app.domain.calendars import canonical_calendar
from app.domain.declarations import Declared, Key, Kind
from app.domain.errors import CarillonError, FieldError, InvalidError
from app.domain.permits import bounds_errors
from app.services.declarations.yaml_text import Document, YamlProblemError, read_documents
from app.services.inputs import CalendarFields, DeclarationInput, DeclaredScheduleInput, LimitFields, WorkflowFields
from app.services.schedules import spec_values
from app.services.validation import checked
from app.services.workflows import check_workflow


class Source(msgspec.Struct, frozen=True):
    """The name and the content of a file."""

    name: str
    content: bytes


class Problem(msgspec.Struct, frozen=True):
    """A problem, and the line that it is on."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        """Return the problem in the form of compilers: ``file:line: message``."""
        return f"{self.file}:{self.line}: {self.message}"


class BadFileError(CarillonError):
    """A file cannot be applied."""

    code = "bad_declaration"
    message = "The file cannot be applied."

    def __init__(self, *problems: Problem) -> None:
        """Name all problems of the file."""
        super().__init__()
        self.problems = problems


class Place(msgspec.Struct, frozen=True):
    """The place in a file where an object is declared."""

    file: str
    document: Document
    within: str = ""
    # The kind and the name of the object, for messages.
    label: str = ""

    def problem(self, field: str, message: str) -> Problem:
        """Return a problem with a field of the object."""
        text = ": ".join(part for part in (self.label, field, message) if part)
        return Problem(self.file, self.line_of(field), text)

    def problems(self, error: CarillonError) -> list[Problem]:
        """Return the problems that an error stands for."""
        field_errors = error.errors if isinstance(error, InvalidError) else (FieldError("", str(error)),)
        return [self.problem(field_error.field, field_error.message) for field_error in field_errors]

    def line_of(self, field: str = "") -> int:
        """Return the line of a field, or of the whole object if the field is not in the file."""
        return self.document.line_of(".".join(part for part in (self.within, field) if part).replace(".[", "["))


class Item(msgspec.Struct, frozen=True):
    """A declared object, and its place."""

    declared: Declared
    place: Place

    @property
    def key(self) -> Key:
        """Return the key of the object."""
        return self.declared.key


class DeclaredFile(msgspec.Struct, frozen=True):
    """The objects that a file declares, and its problems."""

    name: str
    items: tuple[Item, ...] = ()
    # The place where each namespace is first named.
    namespaces: dict[str, Place] = {}
    problems: tuple[Problem, ...] = ()

    @property
    def declared(self) -> Iterator[Key]:
        """Return the keys of the declared objects."""
        return (item.key for item in self.items)

    @property
    def used(self) -> Iterator[Key]:
        """Return the keys of the workflows that the schedules of the file run."""
        return (workflow_of(item.declared) for item in self.items if item.key.kind is Kind.SCHEDULE)

    @property
    def used_names(self) -> set[tuple[Kind, str]]:
        """Return the calendars and limits that the schedules and workflows of the file name."""
        values = [item.declared.values for item in self.items if item.key.kind in {Kind.SCHEDULE, Kind.WORKFLOW}]
        names = ((*one.get("exclude_calendars", ()), *one.get("only_calendars", ())) for one in values)
        limits = [*(one["limit"] for one in values), *(limit for one in values for limit in _limits_of_nodes(one))]
        return {
            *((Kind.CALENDAR, name) for several in names for name in several),
            *((Kind.LIMIT, name) for name in map(_name_of, limits) if isinstance(name, str)),
        }


def _name_of(limit: Any) -> Any:
    """Return the name of a limit, which may have a key beside it."""
    return limit.get("name") if isinstance(limit, dict) else limit


def _limits_of_nodes(workflow: dict[str, Any]) -> Iterator[Any]:
    return (node["config"].get("limit") for node in workflow.get("nodes", ()))


def workflow_of(declared: Declared) -> Key:
    """Return the key of the workflow that a declared schedule runs."""
    return Key(declared.key.namespace, Kind.WORKFLOW, declared.values["workflow"])


def read_files(sources: Iterable[Source], catalog: Catalog) -> list[DeclaredFile]:
    """Read the files; return them in an order in which objects come before what uses them."""
    return _in_order(_with_duplicates_refused([read_file(source, catalog) for source in sources]))


def read_file(source: Source, catalog: Catalog) -> DeclaredFile:
    """Read one file."""
    try:
        documents = read_documents(text_of(source))
    except YamlProblemError as error:
        return DeclaredFile(source.name, problems=(Problem(source.name, error.line, error.message),))
    if not documents:
        return DeclaredFile(source.name, problems=(Problem(source.name, 1, "The file is empty."),))
    file = DeclaredFile(source.name)
    for document in documents:
        file = _with_document(file, Place(source.name, document), catalog)
    return file


def read_values(documents: Sequence[Any], catalog: Catalog) -> DeclaredFile:
    """Read documents that are JSON values already, as one file; problems name the document by its index."""
    file = DeclaredFile("documents")
    for index, value in enumerate(documents):
        file = _with_document(file, Place(f"documents[{index}]", Document(value, {"": 1})), catalog)
    return _with_duplicates_refused([file])[0]


def text_of(source: Source) -> str:
    """Return the content as text. Raise ``YamlProblemError`` with the line that is not UTF-8."""
    try:
        return source.content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = source.content.count(b"\n", 0, error.start) + 1
        raise YamlProblemError(line, "This is not UTF-8.") from None


def _with_document(file: DeclaredFile, whole: Place, catalog: Catalog) -> DeclaredFile:
    try:
        declaration = checked(whole.document.value, DeclarationInput)
    except InvalidError as error:
        return replace(file, problems=(*file.problems, *whole.problems(error)))
    items, problems = list(file.items), list(file.problems)
    parts = {
        Kind.CALENDAR: declaration.calendars,
        Kind.LIMIT: declaration.limits,
        Kind.WORKFLOW: declaration.workflows,
        Kind.SCHEDULE: declaration.schedules,
    }
    for kind, raw_items in parts.items():
        for index, raw in enumerate(raw_items or ()):
            place = _place(whole, f"{kind}s[{index}]", kind, raw)
            try:
                values = _values(kind, raw, catalog)
            except InvalidError as error:
                problems += place.problems(error)
            else:
                items.append(_item(declaration.namespace, kind, values, place))
    namespaces = {declaration.namespace: whole, **file.namespaces}
    return replace(file, items=tuple(items), namespaces=namespaces, problems=tuple(problems))


def _place(whole: Place, within: str, kind: Kind, raw: Any) -> Place:
    name = raw.get("name") if isinstance(raw, dict) else None
    return replace(whole, within=within, label=f"{kind} '{name}'" if isinstance(name, str) else within)


def _item(namespace: str, kind: Kind, values: dict[str, Any], place: Place) -> Item:
    paused = values.pop("paused", False)
    return Item(Declared(Key(namespace, kind, values["name"]), values, paused), place)


def _values(kind: Kind, raw: Any, catalog: Catalog) -> dict[str, Any]:
    match kind:
        case Kind.WORKFLOW:
            return _workflow(raw, catalog)
        case Kind.SCHEDULE:
            return _schedule(raw)
        case Kind.CALENDAR:
            return _calendar(raw)
        case Kind.LIMIT:
            return _limit(raw)


def _calendar(raw: Any) -> dict[str, Any]:
    stored = canonical_calendar(msgspec.structs.asdict(checked(raw, CalendarFields)))
    return {**stored, "dates": list(stored["dates"])}


def _limit(raw: Any) -> dict[str, Any]:
    values = msgspec.structs.asdict(checked(raw, LimitFields))
    errors = bounds_errors(values["max_concurrent"], values["rate"], values["burst"])
    if errors:
        raise InvalidError(*errors)
    return values


def _workflow(raw: Any, catalog: Catalog) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(checked(raw, WorkflowFields))
    check_workflow(values, catalog)
    return values


def _schedule(raw: Any) -> dict[str, Any]:
    return spec_values(checked(raw, DeclaredScheduleInput))


def _with_duplicates_refused(files: Sequence[DeclaredFile]) -> list[DeclaredFile]:
    """Return the files, with a problem for each object that is declared a second time."""
    first: dict[Key, Place] = {}
    checked_files = []
    for file in files:
        problems = list(file.problems)
        for item in file.items:
            other = first.setdefault(item.key, item.place)
            if other is not item.place:
                where = f"{other.file}:{other.line_of('name')}"
                problems.append(item.place.problem("name", f"The namespace has one of this name already, at {where}."))
        checked_files.append(replace(file, problems=tuple(problems)))
    return checked_files


def _in_order(files: Sequence[DeclaredFile]) -> list[DeclaredFile]:
    """Return the files so that each comes after those whose objects it uses, else in the given order."""
    home = {key: index for index, file in enumerate(files) for key in file.declared if key.kind is Kind.WORKFLOW}
    # Calendars and limits are used by their names, whichever namespace declares them.
    homes = {(key.kind, key.name): index for index, file in enumerate(files) for key in file.declared}
    needs = {
        index: {
            *(home[key] for key in file.used if key in home),
            *(homes[name] for name in file.used_names if name in homes),
        }
        - {index}
        for index, file in enumerate(files)
    }
    try:
        return [files[index] for index in TopologicalSorter(needs).static_order()]
    except CycleError as error:
        cycle = set(error.args[1])
        names = " and ".join(sorted(files[index].name for index in cycle))
        problem = f"{names} use objects of each other: put them into one file."
        return [
            replace(file, problems=(*file.problems, Problem(file.name, 1, problem))) if index in cycle else file
            for index, file in enumerate(files)
        ]
