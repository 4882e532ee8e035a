"""The catalog of actions: their configuration types, their results, and the check that plugin authors run."""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec

from app.actions.context import ActionContext
from app.actions.template_rules import SECRET, TemplateProblemError
from app.actions.templates import Budget, OverBudgetError, check, filled_in, secrets_in, templates_in
from app.cache import BoundedCache
from app.domain.errors import FieldError, field_error
from app.domain.workflows import Node

# Configurations that are kept ready, and what they weigh as JSON.
MOST_FIXED = 2000
MOST_FIXED_BYTES = 16 * 1024 * 1024
# Templates of one workflow that differ: each is read when it is written.
MOST_DIFFERENT_TEMPLATES = 2000

Config = TypeVar("Config", bound=msgspec.Struct)


class ActionFailedError(Exception):
    """The action did its work and the work failed; the message says how, for people."""

    code = "action_failed"


class SecretMisusedError(TemplateProblemError):
    """A template uses a secret where it may not, or in a way that it may not; ``place`` says which template."""

    code = "secret_misused"

    def __init__(self, place: str, message: str) -> None:
        """Name the place and say what is wrong there."""
        super().__init__(message)
        self.place = place


class Done(msgspec.Struct, frozen=True):
    """The work is done; its output feeds later nodes."""

    output: Any = None


class Skipped(msgspec.Struct, frozen=True):
    """There was nothing to do; the run ends here, without a failure."""

    reason: str


class Blocked(msgspec.Struct, frozen=True):
    """It must not be done as it stands; the run ends here, and trying again would not help."""

    reason: str


class Awaiting(msgspec.Struct, frozen=True):
    """The work has been started elsewhere; a callback will say how it ended."""

    output: Any = None


class Sleeping(msgspec.Struct, frozen=True):
    """The run goes on after so many seconds; until then it is put aside and takes nobody's place."""

    seconds: float
    output: Any = None


Result = Done | Skipped | Blocked | Awaiting | Sleeping


class Action(msgspec.Struct, Generic[Config], frozen=True, kw_only=True):
    """A named handler. It returns its output, ``Skipped`` or ``Blocked``; or it raises, which is a failure.

    ``scope`` says what of Carillon it touches: nothing (``external``), or what the schedule's owner may see and change
    (``owner``). ``retry_safe`` says whether doing it twice does no harm.
    """

    name: str
    config: type[Config]
    handler: Callable[[Config, ActionContext], Awaitable[Any]]
    aliases: tuple[str, ...] = ()
    version: str = "1"
    scope: Literal["external", "owner"] = "external"
    retry_safe: bool = True
    # Whether it answers without ever waiting: nobody needs to watch over its time.
    instant: bool = False
    # Who brings it: Carillon itself, or a plugin.
    origin: str = "core"
    # The fields of its configuration in which templates may name secrets. Whatever it calls by ``context.http`` goes
    # to the allowed hosts of those secrets only; it must not keep them, nor hand them to anybody else.
    secret_fields: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """What it does, in a sentence."""
        return (self.handler.__doc__ or "").strip().partition("\n")[0]


class Catalog:
    """All actions that workflows may use."""

    def __init__(self, actions: Iterable[Action[Any]]) -> None:
        """Each action is found by its name and its aliases."""
        self.actions = tuple(actions)
        self._by_name = {name: action for action in self.actions for name in (action.name, *action.aliases)}
        self._instant = {name for name, action in self._by_name.items() if action.instant}
        # Configurations in which nothing is to be filled in, by the node, which is kept along with it.
        self._fixed: BoundedCache[int, tuple[Node, msgspec.Struct]] = BoundedCache(MOST_FIXED, MOST_FIXED_BYTES)

    def __contains__(self, name: object) -> bool:
        """Whether there is such an action."""
        return name in self._by_name

    @property
    def names(self) -> frozenset[str]:
        """Every name that a node's type may be."""
        return frozenset(self._by_name)

    def origin_of(self, name: str) -> str:
        """Who brings an action; nobody, if there is none of this name."""
        return self._by_name[name].origin if name in self._by_name else ""

    def scope_of(self, name: str) -> str:
        """What of Carillon an action touches."""
        return self._by_name[name].scope if name in self._by_name else "external"

    def are_instant(self, names: frozenset[str]) -> bool:
        """Whether all of these actions answer without ever waiting."""
        return names <= self._instant

    def config_errors(self, nodes: Iterable[Node]) -> list[FieldError]:
        """What is wrong with the configurations of these nodes, each named by node and field."""
        errors: list[FieldError] = []
        different: set[str] = set()
        for index, node in enumerate(nodes):
            if node.type in self._by_name:
                different.update(text for _, text in templates_in(node.config))
                if len(different) > MOST_DIFFERENT_TEMPLATES:
                    too_many = f"A workflow may have {MOST_DIFFERENT_TEMPLATES} different templates."
                    return [*errors, FieldError(f"nodes[{index}].config", f"Node '{node.id}': {too_many}")]
                errors += node_errors(index, node, self._template_errors(node) or self._type_errors(node))
        return errors

    def secret_uses(self, node: Node) -> dict[str, frozenset[str]]:
        """The secrets that a node's templates name, by the place of the template.

        ``SecretMisusedError`` where one stands in a field that takes none, or is not sent as it is.
        """
        uses = {}
        allowed = self._by_name[node.type].secret_fields if node.type in self._by_name else ()
        for place, text in templates_in(node.config):
            # A cheap look first: most templates name none.
            names = _names_at(place, text) if SECRET in text else None
            if names:
                if _field_of(place) not in allowed:
                    raise SecretMisusedError(place, _not_here(node.type, place, allowed))
                uses[place] = names
        return uses

    def secrets_named_by(self, nodes: Iterable[Node]) -> frozenset[str]:
        """All secrets that these nodes can be shown."""
        names: set[str] = set()
        for node in nodes:
            try:
                names.update(*self.secret_uses(node).values())
            except SecretMisusedError:
                # It will be blocked, and shown nothing.
                continue
        return frozenset(names)

    async def run(self, node: Node, context: ActionContext, variables: Callable[[], Mapping[str, Any]]) -> Result:
        """Do what a node says, its templates filled in with the variables."""
        if node.type not in self._by_name:
            return Skipped(f"There is no action '{node.type}' here.")
        try:
            config = self._fixed_config(node)
            if config is None:
                context, config = await self._filled_in(node, context, variables)
        except TemplateProblemError as error:
            return Blocked(str(error))
        except msgspec.ValidationError as error:
            return Blocked(_not_valid(error, context))
        except OverflowError:
            return Blocked("The configuration is not valid: a number in it is too large.")
        result = await self._by_name[node.type].handler(config, context)
        return result if isinstance(result, Skipped | Blocked | Awaiting | Sleeping) else Done(result)

    async def _filled_in(
        self, node: Node, context: ActionContext, variables: Callable[[], Mapping[str, Any]]
    ) -> tuple[ActionContext, msgspec.Struct]:
        """A node's configuration with its templates filled in, and the context that goes with its secrets."""
        named = frozenset[str]().union(*self.secret_uses(node).values())
        values: Mapping[str, Any] = variables()
        if named:
            context, secrets = await context.with_secrets(named)
            values = {**values, SECRET: secrets}
        filled = filled_in(node.config, values)
        try:
            return context, self._convert(node, filled)
        except msgspec.ValidationError as error:
            raise TemplateProblemError(_not_valid(error, context)) from None

    def _fixed_config(self, node: Node) -> msgspec.Struct | None:
        """The configuration of a node without templates, read once; None if it has some."""
        known = self._fixed.get(id(node))
        if known is not None:
            return known[1]
        if any(templates_in(node.config)):
            return None
        config = self._convert(node, node.config)
        self._fixed.keep(id(node), (node, config), len(msgspec.json.encode(node.config)))
        return config

    def _template_errors(self, node: Node) -> list[FieldError]:
        errors = []
        budget = Budget()
        for place, text in templates_in(node.config):
            try:
                budget.use_template(text)
                check(text)
            except TemplateProblemError as error:
                errors.append(FieldError(place, str(error)))
            except OverBudgetError as error:
                return [*errors, FieldError("", f"{error}.".capitalize())]
        return errors

    def _type_errors(self, node: Node) -> list[FieldError]:
        """Fields with templates are judged when they are filled in; the others, now."""
        later = {name for name, value in node.config.items() if any(templates_in(value))}
        known = {name: value for name, value in node.config.items() if name not in later}
        try:
            self._convert(node, known)
        except msgspec.ValidationError as error:
            found = field_error(error)
            return [] if found.field in later or (later and not found.field) else [found]
        except OverflowError:
            return [FieldError("", "A number is too large.")]
        return []

    def _convert(self, node: Node, config: dict[str, Any]) -> msgspec.Struct:
        converted: msgspec.Struct = msgspec.convert(config, self._by_name[node.type].config)
        return converted


def node_errors(index: int, node: Node, errors: Iterable[FieldError]) -> list[FieldError]:
    """Errors in the configuration of a node, each with its place in the workflow."""
    return [
        FieldError(f"nodes[{index}].config.{one.field}".rstrip("."), f"Node '{node.id}': {one.message}")
        for one in errors
    ]


def _names_at(place: str, text: str) -> frozenset[str]:
    try:
        return secrets_in(text)
    except TemplateProblemError as error:
        raise SecretMisusedError(place, str(error)) from None


def _field_of(place: str) -> str:
    """The field of the configuration that a place is in: of ``json.a[0]`` it is ``json``."""
    return place.partition(".")[0].partition("[")[0]


def _not_here(action: str, place: str, allowed: tuple[str, ...]) -> str:
    where = f"only in {', '.join(allowed)}" if allowed else "in none of its fields"
    return f"'{place}' may not use a secret: '{action}' takes secrets {where}."


def _not_valid(error: msgspec.ValidationError, context: ActionContext) -> str:
    """What is wrong with a configuration; a check of the action's own may quote a part of a secret."""
    if context.was_shown_secrets and error.__cause__ is not None:
        return "The configuration is not valid once its secrets are filled in."
    return f"The configuration is not valid: {error}"


_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
LONGEST_NAME = 255


def shortcomings(action: Action[Any]) -> list[str]:
    """What is wrong with an action; nothing, if workflows may use it."""
    return [*_names(action), *_config(action), *_handler(action)]


def _names(action: Action[Any]) -> Iterator[str]:
    for name in (action.name, *action.aliases):
        if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
            yield f"'{name[:50]}' is no name: lower-case words with dots between them"
    if not action.version:
        yield "it has no version"


def _config(action: Action[Any]) -> Iterator[str]:
    if not (isinstance(action.config, type) and issubclass(action.config, msgspec.Struct)):
        yield "its config is not a msgspec Struct"
        return
    if not action.config.__struct_config__.forbid_unknown_fields:
        yield "its config does not forbid unknown fields"
    try:
        msgspec.json.schema(action.config)
    except TypeError as error:
        yield f"its config has no JSON Schema: {error}"


def _handler(action: Action[Any]) -> Iterator[str]:
    if not inspect.iscoroutinefunction(action.handler):
        yield "its handler is not a coroutine function"
    elif len(inspect.signature(action.handler).parameters) != 2:  # noqa: PLR2004 - the config and the context
        yield "its handler does not take a config and a context"
    if not action.description:
        yield "its handler does not say what it does"
