"""Templates in a node's configuration: ``{{ nodes.fetch.output.body.id }}``, and nothing that could run away.

Jinja's sandbox parses and evaluates; beneath it only names, members and a few filters are let through. There are no
statements, no calls and no arithmetic, so that a template can neither loop nor grow beyond what it is given. What a
whole configuration may become is bounded by a ``Budget``.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from jinja2 import StrictUndefined, TemplateError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from app.actions.budgets import SMALL_BYTES, Budget, OverBudgetError
from app.actions.template_rules import FILTERS, TemplateProblemError, is_single, require_allowed, secret_names
from app.cache import BoundedCache

LONGEST_TEMPLATE = 20_000
LONGEST_TEXT = 256 * 1024
# What templates and their compiled forms may take together, in characters of source.
MOST_CACHED = 1_000_000
MOST_ENTRIES = 5000
# What a compiled template costs whatever its length, in the same unit.
LEAST_WEIGHT = 200
MARK = "{{"
_SINGLE = re.compile(r"\s*\{\{(.*)\}\}\s*", re.DOTALL)
# Jinja and the compiler below it say in all of these ways that they cannot go on.
_NOT_READ = (TemplateError, RecursionError, ValueError, OverflowError, SyntaxError, MemoryError)
_NOT_FILLED_IN = (*_NOT_READ, TypeError, OverBudgetError)


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


class _Template:
    """A template that was read and found sound."""

    def __init__(self, text: str) -> None:
        tree = _tree(text)
        self.text = text
        self.is_single = is_single(tree)
        self._evaluate: Callable[..., Any] | None = None
        self._misuse = ""
        self._secrets: frozenset[str] = frozenset()
        try:
            self._secrets = secret_names(tree)
        except TemplateProblemError as error:
            self._misuse = str(error)

    @property
    def secrets(self) -> frozenset[str]:
        """The secrets that it names; refused where it does more with them than send them."""
        if self._misuse:
            raise TemplateProblemError(self._misuse)
        return self._secrets

    @property
    def evaluate(self) -> Callable[..., Any]:
        """Its value by variables, or the parts of its text; compiled when it is first needed."""
        if self._evaluate is None:
            found = _SINGLE.fullmatch(self.text) if self.is_single else None
            if found is not None:
                self._evaluate = _ENVIRONMENT.compile_expression(found.group(1), undefined_to_none=False)
            else:
                self._evaluate = _ENVIRONMENT.from_string(self.text).generate
        return self._evaluate


_known: BoundedCache[str, _Template] = BoundedCache(MOST_ENTRIES, MOST_CACHED)


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
    _read(text)


def secrets_in(text: str) -> frozenset[str]:
    """The secrets that a template names; refused unless each is sent exactly as it is."""
    return _read(text).secrets


def filled_in(value: Any, variables: Mapping[str, Any], budget: Budget | None = None) -> Any:
    """The same JSON value with every template filled in; ``TemplateProblemError`` if one cannot be."""
    try:
        return _filled_in(value, variables, budget or Budget())
    except OverBudgetError as error:
        raise TemplateProblemError(f"The configuration cannot be filled in: {error}.") from None


def _filled_in(value: Any, variables: Mapping[str, Any], budget: Budget) -> Any:
    if isinstance(value, str):
        if MARK in value:
            return _one_filled_in(value, variables, budget)
        budget.use_bytes(len(value))
    elif isinstance(value, dict):
        budget.use_bytes(sum(map(len, value)) + SMALL_BYTES * len(value))
        return {key: _filled_in(item, variables, budget) for key, item in value.items()}
    elif isinstance(value, list):
        budget.use_bytes(SMALL_BYTES)
        return [_filled_in(item, variables, budget) for item in value]
    else:
        budget.use_bytes(SMALL_BYTES)
    return value


def _one_filled_in(text: str, variables: Mapping[str, Any], budget: Budget) -> Any:
    budget.use_template(text)
    template = _read(text)
    try:
        if template.is_single:
            return _value(template, variables, budget)
        return _text(template, variables, budget)
    except _NOT_FILLED_IN as error:
        raise TemplateProblemError(f"'{text[:80]}' cannot be filled in: {_words(error)}") from None


def _value(template: _Template, variables: Mapping[str, Any], budget: Budget) -> Any:
    """A template that is one expression keeps the type of its value."""
    value = template.evaluate(variables)
    if isinstance(value, StrictUndefined):
        # Says which name it is.
        str(value)
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        raise ValueError(f"the text is longer than {LONGEST_TEXT} characters")
    budget.use_value(value)
    return value


def _text(template: _Template, variables: Mapping[str, Any], budget: Budget) -> str:
    parts, length = [], 0
    for part in template.evaluate(variables):
        length += len(part)
        if length > LONGEST_TEXT:
            raise ValueError(f"the text is longer than {LONGEST_TEXT} characters")
        budget.use_value(part)
        parts.append(part)
    return "".join(parts)


def _read(text: str) -> _Template:
    if len(text) > LONGEST_TEMPLATE:
        raise TemplateProblemError(f"A template may have {LONGEST_TEMPLATE} characters.")
    return _known.get_or_make(text, _Template, len(text) + LEAST_WEIGHT)


def _tree(text: str) -> nodes.Template:
    try:
        tree = _ENVIRONMENT.parse(text)
    except _NOT_READ as error:
        raise TemplateProblemError(f"'{text[:80]}' is not a template: {_words(error)}") from None
    require_allowed(tree)
    return tree


def _words(error: Exception) -> str:
    """What a library says, at a bounded length; of a stack that ran out it has nothing to say that helps."""
    if isinstance(error, RecursionError | MemoryError):
        return "it is nested too deeply"
    return str(error)[:300]
