"""Reads YAML as JSON values with their lines, and writes it.

Plain values are read as in JSON: ``true``, ``false``, ``null`` and numbers. All else is text, so that ``on``,
``12:30`` and ``2026-01-01T00:00:00Z`` are not changed.
"""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import msgspec
import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from app.services.validation import MAX_DEPTH

# A few aliases in a small file can expand to millions of values.
MOST_VALUES = 500_000
_TAG = "tag:yaml.org,2002:"
_NUMBER_STARTS = list("-0123456789")
_ODD_BREAK = re.compile("[\r\x85\u2028\u2029]")
_PLAIN = (
    ("null", re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), list("tTfF")),
    ("int", re.compile(r"-?(?:0|[1-9][0-9]*)\Z"), _NUMBER_STARTS),
    ("float", re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?\Z"), _NUMBER_STARTS),
)


class YamlProblemError(Exception):
    """The text is not YAML, or holds what cannot be stored; with the line."""

    code = "bad_yaml"

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        self.message = message
        super().__init__(f"line {line}: {message}")


class Document(msgspec.Struct, frozen=True):
    """A document as JSON values. ``lines`` has the line of each field, by the names that errors use for fields."""

    value: Any
    lines: dict[str, int]

    def line_of(self, place: str) -> int:
        """Return the line of a field, or of the object that it belongs to."""
        while place and place not in self.lines:
            place = place[: max(place.rfind("."), place.rfind("["), 0)]
        return self.lines[place]


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """Parses the nodes; ``_Reader`` makes the values."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML has no types
    """Quotes texts that this reader, or another one, would not read as text."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        """Write no aliases."""
        return True


def _quoted_if_odd(dumper: yaml.SafeDumper, text: str) -> Node:
    """Quote a text with unusual line breaks: only escapes keep them."""
    return dumper.represent_scalar(f"{_TAG}str", text, style='"' if _ODD_BREAK.search(text) else None)


_Dumper.add_representer(str, _quoted_if_odd)
for _name, _pattern, _starts in _PLAIN:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_TAG + _name, _pattern, _starts)


def read_documents(text: str) -> list[Document]:
    """Return the documents of a text, without the empty ones."""
    try:
        documents = [_Reader().read(node) for node in yaml.compose_all(text, Loader=_Loader)]
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(text, error) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlProblemError(line, f"The character {error.character:#x} may not stand here.") from None
    except RecursionError:
        raise YamlProblemError(1, "This is nested too deeply.") from None
    return [document for document in documents if document.value is not None]


def write_documents(documents: Iterable[Any]) -> str:
    """Return the YAML text of JSON values."""
    written: str = yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, explicit_start=True, width=100
    )
    return written


class _Reader:
    """Makes the values of one document, and records their lines."""

    def __init__(self) -> None:
        self._lines: dict[str, int] = {}
        self._left = MOST_VALUES

    def read(self, node: Node) -> Document:
        self._lines[""] = _line(node)
        return Document(self._value(node, "", 0), self._lines)

    def _value(self, node: Node, place: str, depth: int) -> Any:
        self._left -= 1
        if depth > MAX_DEPTH or self._left < 0:
            raise YamlProblemError(_line(node), "This is nested too deeply, or repeated too often.")
        if isinstance(node, MappingNode):
            return {key: self._value(value, at, depth + 1) for key, value, at in self._entries(node, place)}
        if isinstance(node, SequenceNode):
            return [self._item(item, f"{place}[{index}]", depth) for index, item in enumerate(node.value)]
        return _scalar(node)

    def _item(self, node: Node, place: str, depth: int) -> Any:
        self._lines[place] = _line(node)
        return self._value(node, place, depth + 1)

    def _entries(self, node: MappingNode, place: str) -> Iterator[tuple[str, Node, str]]:
        first: dict[str, int] = {}
        for key_node, value in node.value:
            key = _scalar(key_node) if isinstance(key_node, ScalarNode) else None
            if not isinstance(key, str):
                raise YamlProblemError(_line(key_node), "A key has to be text: put it in quotes.")
            if key in first:
                raise YamlProblemError(_line(key_node), f"'{key}' is given twice, first on line {first[key]}.")
            first[key] = _line(key_node)
            at = f"{place}.{key}" if place else key
            self._lines[at] = first[key]
            yield key, value, at


def _scalar(node: ScalarNode) -> Any:
    kind = node.tag.removeprefix(_TAG)
    try:
        if kind == "int":
            return int(node.value)
        if kind == "float":
            return _finite(node.value)
    except ValueError:
        raise YamlProblemError(_line(node), f"'{node.value[:50]}' is no number that can be stored.") from None
    if kind in {"null", "bool"}:
        return None if kind == "null" else node.value.lower() == "true"
    if kind != "str":
        raise YamlProblemError(_line(node), f"The tag '{node.tag}' means nothing here.")
    return node.value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _line(node: Node) -> int:
    line: int = node.start_mark.line + 1
    return line


def _not_yaml(text: str, error: yaml.MarkedYAMLError) -> YamlProblemError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    problem = ", ".join(part for part in (error.context, error.problem) if part)
    return YamlProblemError(line, f"This is not YAML: {problem}.{_hint(text, line, problem)}")


def _hint(text: str, line: int, problem: str) -> str:
    """Return advice for the most common mistakes."""
    lines = (text.splitlines() or [""])[min(line, text.count("\n") + 1) - 1 :][:1]
    if any("\t" in line_text[: len(line_text) - len(line_text.lstrip())] for line_text in lines):
        return " Indent with spaces, not with tabs."
    if "alias" in problem or "start any token" in problem:
        return " A value that begins with *, @, % or & needs quotes."
    return ""
