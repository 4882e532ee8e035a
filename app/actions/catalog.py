"""Actions by name, each with the type of its configuration, and what they answer."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec

from app.actions.context import ActionContext
from app.actions.templates import TemplateProblemError, check, filled_in, templates_in
from app.bounded_cache import BoundedCache
from app.domain.errors import FieldError
from app.domain.fields import field_error
from app.domain.workflows import Node

MOST_FIXED = 2000
# Of configurations, as JSON.
MOST_FIXED_BYTES = 16 * 1024 * 1024

Config = TypeVar("Config", bound=msgspec.Struct)


class ActionFailedError(Exception):
    """The action did its work and the work failed; the message says how, for people."""

    code = "action_failed"


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


Result = Done | Skipped | Blocked | Awaiting


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
        errors = []
        for index, node in enumerate(nodes):
            if node.type in self._by_name:
                found = self._template_errors(node) or self._type_errors(node)
                errors += [
                    FieldError(f"nodes[{index}].config.{one.field}".rstrip("."), f"Node '{node.id}': {one.message}")
                    for one in found
                ]
        return errors

    async def run(self, node: Node, context: ActionContext, variables: Callable[[], Mapping[str, Any]]) -> Result:
        """Do what a node says, its templates filled in with the variables."""
        if node.type not in self._by_name:
            return Skipped(f"There is no action '{node.type}' here.")
        try:
            config = self._fixed_config(node) or self._convert(node, filled_in(node.config, variables()))
        except TemplateProblemError as error:
            return Blocked(str(error))
        except msgspec.ValidationError as error:
            return Blocked(f"The configuration is not valid: {error}")
        result = await self._by_name[node.type].handler(config, context)
        return result if isinstance(result, Skipped | Blocked | Awaiting) else Done(result)

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
        for place, text in templates_in(node.config):
            try:
                check(text)
            except TemplateProblemError as error:
                errors.append(FieldError(place, str(error)))
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
        return []

    def _convert(self, node: Node, config: dict[str, Any]) -> msgspec.Struct:
        converted: msgspec.Struct = msgspec.convert(config, self._by_name[node.type].config)
        return converted
