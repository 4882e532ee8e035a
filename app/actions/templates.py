"""Templates in a node's configuration: ``{{ nodes.fetch.output.body.id }}``, and nothing that could run away.

Jinja's sandbox parses and evaluates; beneath it only names, members and a few filters are let through. There are no
statements, no calls and no arithmetic, so that a template can neither loop nor grow beyond what it is given.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from jinja2 import StrictUndefined, TemplateError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

FILTERS = frozenset(
    {"default", "first", "float", "int", "last", "length", "lower", "string", "tojson", "trim", "upper"}
)
LONGEST_TEMPLATE = 20_000
MOST_PARTS = 200
MOST_FILTERS_IN_A_ROW = 3
LONGEST_TEXT = 256 * 1024
MARK = "{{"
_ALLOWED = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Getattr, nodes.Getitem, nodes.Const),
    *(nodes.Filter, nodes.CondExpr, nodes.And, nodes.Or, nodes.Not, nodes.Compare, nodes.Operand),
)
_SINGLE = re.compile(r"\s*\{\{(.*)\}\}\s*", re.DOTALL)


class TemplateProblemError(Exception):
    """A template cannot be read, or not be filled in; the message says why, for people."""

    code = "template_problem"


class _Environment(ImmutableSandboxedEnvironment):
    """Members are those of mappings and lists; no value has attributes."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        try:
            if isinstance(obj, Mapping) or (isinstance(obj, list) and isinstance(argument, int)):
                return obj[argument]
        except (KeyError, IndexError):
            pass
        return self.undefined(obj=obj, name=argument)


def _to_json(value: Any) -> str:
    """As JSON, for a text; Jinja's own escapes for HTML and answers a type of its own."""
    return msgspec.json.encode(value, order="sorted").decode()


_ENVIRONMENT = _Environment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)
_ENVIRONMENT.filters = {name: _ENVIRONMENT.filters[name] for name in FILTERS} | {"tojson": _to_json}
_ENVIRONMENT.globals = {}
_ENVIRONMENT.tests = {}


def is_template(value: Any) -> bool:
    """Whether a value is a text with something to fill in."""
    return isinstance(value, str) and MARK in value


def templates_in(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """All templates in a JSON value, with their places."""
    if is_template(value):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from templates_in(item, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from templates_in(item, f"{path}[{index}]")


def check(text: str) -> None:
    """Refuse a template that could not be filled in whatever the values."""
    _parsed(text)


def filled_in(value: Any, variables: Mapping[str, Any]) -> Any:
    """The same JSON value with every template filled in; ``TemplateProblemError`` if one cannot be."""
    if is_template(value):
        return _filled_in(value, variables)
    if isinstance(value, dict):
        return {key: filled_in(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [filled_in(item, variables) for item in value]
    return value


def _filled_in(text: str, variables: Mapping[str, Any]) -> Any:
    tree = _parsed(text)
    try:
        if _is_single(tree):
            return _value(text, variables)
        return _text(text, variables)
    except (TemplateError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TemplateProblemError(f"'{text[:80]}' cannot be filled in: {error}") from None


def _value(text: str, variables: Mapping[str, Any]) -> Any:
    """A template that is one expression keeps the type of its value."""
    found = _SINGLE.fullmatch(text)
    if found is None:
        raise AssertionError("a single expression has braces around it")
    value = _expression(found.group(1))(variables)
    if isinstance(value, StrictUndefined):
        # Says which name it is.
        str(value)
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        raise ValueError(f"the text is longer than {LONGEST_TEXT} characters")
    return value


def _text(text: str, variables: Mapping[str, Any]) -> str:
    parts, length = [], 0
    for part in _compiled(text).generate(variables):
        length += len(part)
        if length > LONGEST_TEXT:
            raise ValueError(f"the text is longer than {LONGEST_TEXT} characters")
        parts.append(part)
    return "".join(parts)


@lru_cache(maxsize=2048)
def _parsed(text: str) -> nodes.Template:
    if len(text) > LONGEST_TEMPLATE:
        raise TemplateProblemError(f"A template may have {LONGEST_TEMPLATE} characters.")
    try:
        tree = _ENVIRONMENT.parse(text)
    except (TemplateError, RecursionError) as error:
        raise TemplateProblemError(f"'{text[:80]}' is not a template: {error}") from None
    _require_allowed(tree)
    return tree


@lru_cache(maxsize=2048)
def _compiled(text: str) -> Any:
    return _ENVIRONMENT.from_string(text)


@lru_cache(maxsize=2048)
def _expression(source: str) -> Any:
    return _ENVIRONMENT.compile_expression(source, undefined_to_none=False)


def _require_allowed(tree: nodes.Template) -> None:
    parts = list(_all(tree))
    if len(parts) > MOST_PARTS:
        raise TemplateProblemError(f"A template may have {MOST_PARTS} parts.")
    for part in parts:
        if not isinstance(part, _ALLOWED):
            raise TemplateProblemError(
                f"A template may not use {type(part).__name__}: names, members and filters only."
            )
        if isinstance(part, nodes.Filter):
            _require_filter(part)


def _require_filter(part: nodes.Filter) -> None:
    if part.name not in FILTERS:
        raise TemplateProblemError(f"There is no filter '{part.name}'; there are {', '.join(sorted(FILTERS))}.")
    depth, inner = 1, part.node
    while isinstance(inner, nodes.Filter):
        depth, inner = depth + 1, inner.node
    if depth > MOST_FILTERS_IN_A_ROW:
        raise TemplateProblemError(f"At most {MOST_FILTERS_IN_A_ROW} filters may follow each other.")


def _all(tree: nodes.Node) -> Iterator[nodes.Node]:
    yield tree
    for child in tree.iter_child_nodes():
        yield from _all(child)


def _is_single(tree: nodes.Template) -> bool:
    if len(tree.body) != 1 or not isinstance(tree.body[0], nodes.Output):
        return False
    inside = [
        part for part in tree.body[0].nodes if not (isinstance(part, nodes.TemplateData) and not part.data.strip())
    ]
    return len(inside) == 1 and not isinstance(inside[0], nodes.TemplateData)
