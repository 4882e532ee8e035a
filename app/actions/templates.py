"""Templates in a node's configuration, such as ``{{ nodes.fetch.output.body.id }}``, filled in within a size limit."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from jinja2 import StrictUndefined, TemplateError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing

from app.actions.template_rules import (
    FILTERS,
    TemplateProblemError,
    is_single,
    not_known,
    require_allowed,
    require_known,
    secret_names,
)
from app.cache import BoundedCache

MOST_BYTES = 1024 * 1024
MOST_TEMPLATES = 20_000
# Each has to be compiled, which takes about a third of a millisecond.
MOST_DIFFERENT_TEMPLATES = 500
# Deeper values could exhaust the stack of a JSON encoder.
MOST_LEVELS = 100
# The approximate size of a number, a literal, or the punctuation around a value.
SMALL_BYTES = 8


class OverBudgetError(Exception):
    """A configuration would become too large or too deep; the message names the limit."""

    code = "over_budget"


class Budget:
    """The limits of one configuration. Every reference to a value counts with the value's whole size."""

    def __init__(self) -> None:
        """Start with nothing used."""
        self._bytes_left = MOST_BYTES
        self._templates_left = MOST_TEMPLATES
        self._different: set[str] = set()
        # Sizes of objects and lists by id; the value is kept too, so that no other value can get its id meanwhile.
        self._sizes: dict[int, tuple[Any, int]] = {}

    def use_template(self, text: str) -> None:
        """Count a template before it is parsed."""
        self._templates_left -= 1
        self._different.add(text)
        if self._templates_left < 0 or len(self._different) > MOST_DIFFERENT_TEMPLATES:
            raise OverBudgetError(
                f"at most {MOST_TEMPLATES} templates are allowed, {MOST_DIFFERENT_TEMPLATES} different ones"
            )

    def use_bytes(self, count: int) -> None:
        """Count bytes of the configuration."""
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise OverBudgetError(f"the configuration would be larger than {MOST_BYTES} bytes")

    def use_value(self, value: Any) -> None:
        """Count a value by its size in JSON."""
        if isinstance(value, Mapping | list | tuple):
            entry = self._sizes.get(id(value))
            if entry is None:
                entry = self._sizes[id(value)] = (value, self._size_of_container(value))
            self.use_bytes(entry[1])
        else:
            self.use_bytes(self._size_of_scalar(value))

    def _size_of_container(self, value: Any) -> int:
        """Add up sizes level by level, so that no depth can exhaust the stack; stop once the sum is too large."""
        size, layer = 0, [value]
        for _ in range(MOST_LEVELS):
            inner: list[Any] = []
            for item in layer:
                if isinstance(item, Mapping):
                    size += sum(len(str(key)) + SMALL_BYTES for key in item)
                    inner += item.values()
                elif isinstance(item, list | tuple):
                    size += len(item) + SMALL_BYTES
                    inner += item
                else:
                    size += self._size_of_scalar(item)
                if size > self._bytes_left:
                    return size
            if not inner:
                return size
            layer = inner
        raise OverBudgetError(f"a value is nested more than {MOST_LEVELS} levels deep")

    def _size_of_scalar(self, value: Any) -> int:
        if isinstance(value, str):
            is_small = value.isascii() or len(value) > self._bytes_left
            return len(value) if is_small else len(value.encode(errors="surrogatepass"))
        if value is None or isinstance(value, bool | float):
            return SMALL_BYTES
        if isinstance(value, int):
            return SMALL_BYTES + value.bit_length() // 3
        # A value of another type, from a plugin: count its JSON.
        return len(msgspec.json.encode(value))


LONGEST_TEMPLATE = 20_000
LONGEST_TEXT = 256 * 1024
# The size of the cache of parsed templates, in characters of source.
MOST_CACHED = 1_000_000
MOST_ENTRIES = 5000
# What a compiled template costs in addition to its length, in the same unit.
LEAST_WEIGHT = 200
MARK = "{{"
_SINGLE = re.compile(r"\s*\{\{(.*)\}\}\s*", re.DOTALL)
# Jinja and Python's compiler raise any of these on templates that they cannot handle.
_PARSE_ERRORS = (TemplateError, RecursionError, ValueError, OverflowError, SyntaxError, MemoryError)
_RENDER_ERRORS = (*_PARSE_ERRORS, TypeError, OverBudgetError)


class _Missing(StrictUndefined):
    """A value that does not exist. Its use raises an error that says which one."""

    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        name, owner = self._undefined_name, self._undefined_obj
        if owner is missing:
            return not_known(name)
        if isinstance(owner, Mapping):
            return f"There is no '{name}'."
        if isinstance(owner, list):
            return f"The list has no item {name}."
        return f"'{name}' is looked for in a value that is neither an object nor a list."


class _Environment(ImmutableSandboxedEnvironment):
    """An environment where members are items of mappings and lists; attributes of Python objects are not reachable."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, _Missing):
            # The first name that is missing is the one to report.
            return obj
        try:
            if isinstance(obj, Mapping) or (isinstance(obj, list) and isinstance(argument, int)):
                return obj[argument]
        except (KeyError, IndexError):
            pass
        return self.undefined(obj=obj, name=argument)


def _to_json(value: Any) -> str:
    """Return a value as JSON text; Jinja's own filter escapes for HTML and returns another type."""
    return msgspec.json.encode(value, order="sorted").decode()


_ENVIRONMENT = _Environment(undefined=_Missing, autoescape=False, keep_trailing_newline=True)
_ENVIRONMENT.filters = {name: _ENVIRONMENT.filters[name] for name in FILTERS} | {"tojson": _to_json}
_ENVIRONMENT.globals = {}
_ENVIRONMENT.tests = {}


class _Template:
    """A template that was parsed and follows the rules."""

    def __init__(self, text: str) -> None:
        tree = _tree(text)
        self.text = text
        self.is_single = is_single(tree)
        self._evaluate: Callable[..., Any] | None = None
        self._misuse = ""
        self._mistake = ""
        self._secrets: frozenset[str] = frozenset()
        try:
            self._secrets = secret_names(tree)
        except TemplateProblemError as error:
            self._misuse = str(error)
        try:
            require_known(tree)
        except TemplateProblemError as error:
            self._mistake = str(error)

    def require_known(self) -> None:
        """Refuse it if it names what never exists. At run time a default may stand in for that."""
        if self._mistake:
            raise TemplateProblemError(self._mistake)

    @property
    def secrets(self) -> frozenset[str]:
        """Return the secrets that it names; refuse it if it does not use each of them as a whole."""
        if self._misuse:
            raise TemplateProblemError(self._misuse)
        return self._secrets

    @property
    def evaluate(self) -> Callable[..., Any]:
        """Return the function from variables to its value, or to the parts of its text; compiled on first use."""
        if self._evaluate is None:
            single = _SINGLE.fullmatch(self.text) if self.is_single else None
            if single is not None:
                self._evaluate = _ENVIRONMENT.compile_expression(single.group(1), undefined_to_none=False)
            else:
                self._evaluate = _ENVIRONMENT.from_string(self.text).generate
        return self._evaluate


_parsed: BoundedCache[str, _Template] = BoundedCache(MOST_ENTRIES, MOST_CACHED)


def is_template(value: Any) -> bool:
    """Return whether a value is a text with something to fill in."""
    return isinstance(value, str) and MARK in value


def templates_in(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield all templates in a JSON value with their places."""
    if is_template(value):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from templates_in(item, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from templates_in(item, f"{path}[{index}]")


def check(text: str) -> None:
    """Raise ``TemplateProblemError`` if a template cannot be filled in with any values."""
    _read(text).require_known()


def secrets_in(text: str) -> frozenset[str]:
    """Return the secrets that a template names; refuse a template that does not use each of them as a whole."""
    return _read(text).secrets


def filled_in(value: Any, variables: Mapping[str, Any], budget: Budget | None = None) -> Any:
    """Return a JSON value with every template filled in; raise ``TemplateProblemError`` if one cannot be."""
    try:
        return _filled_in(value, variables, budget or Budget())
    except OverBudgetError as error:
        raise TemplateProblemError(f"The configuration cannot be filled in: {error}.") from None


def _filled_in(value: Any, variables: Mapping[str, Any], budget: Budget) -> Any:
    if isinstance(value, str):
        if MARK in value:
            return _rendered(value, variables, budget)
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


def _rendered(text: str, variables: Mapping[str, Any], budget: Budget) -> Any:
    budget.use_template(text)
    template = _read(text)
    try:
        if template.is_single:
            return _value(template, variables, budget)
        return _text(template, variables, budget)
    except _RENDER_ERRORS as error:
        raise TemplateProblemError(f"'{text[:80]}' cannot be filled in: {_reason(error)}") from None


def _value(template: _Template, variables: Mapping[str, Any], budget: Budget) -> Any:
    """Return the value of a single expression, with its type."""
    value = template.evaluate(variables)
    if isinstance(value, StrictUndefined):
        # Raises an error that names the missing variable.
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
        raise TemplateProblemError(f"A template may have at most {LONGEST_TEMPLATE} characters.")
    return _parsed.get_or_make(text, _Template, len(text) + LEAST_WEIGHT)


def _tree(text: str) -> nodes.Template:
    try:
        tree = _ENVIRONMENT.parse(text)
    except _PARSE_ERRORS as error:
        raise TemplateProblemError(f"'{text[:80]}' is not a valid template: {_reason(error)}") from None
    require_allowed(tree)
    return tree


def _reason(error: Exception) -> str:
    """Return an error's text, shortened; that of an exhausted stack would not help and is replaced."""
    if isinstance(error, RecursionError | MemoryError):
        return "it is nested too deeply"
    return str(error)[:300]
