"""Actions by name, each with the type of its configuration."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from app.actions.context import ActionContext
from app.domain.errors import FieldError
from app.domain.fields import field_error
from app.domain.workflows import Node

Config = TypeVar("Config", bound=msgspec.Struct)


class ActionFailedError(Exception):
    """The action did its work and the work failed; the message says how, for people."""

    code = "action_failed"


class Action(msgspec.Struct, Generic[Config], frozen=True, kw_only=True):
    """A named handler. It returns its output, or raises ``ActionFailedError``."""

    name: str
    config: type[Config]
    handler: Callable[[Config, ActionContext], Awaitable[Any]]
    aliases: tuple[str, ...] = ()


class Catalog:
    """All actions that workflows may use."""

    def __init__(self, actions: Iterable[Action[Any]]) -> None:
        """Each action is found by its name and its aliases."""
        self._actions = {name: action for action in actions for name in (action.name, *action.aliases)}

    def __contains__(self, name: object) -> bool:
        """Whether there is such an action."""
        return name in self._actions

    @property
    def names(self) -> frozenset[str]:
        """Every name that a node's type may be."""
        return frozenset(self._actions)

    def config_errors(self, nodes: Iterable[Node]) -> list[FieldError]:
        """What is wrong with the configurations of these nodes, each named by node and field."""
        errors = []
        for index, node in enumerate(nodes):
            if node.type in self._actions:
                try:
                    self._config(node)
                except msgspec.ValidationError as error:
                    found = field_error(error, f"nodes[{index}].config")
                    errors.append(FieldError(found.field, f"Node '{node.id}': {found.message}"))
        return errors

    async def run(self, node: Node, context: ActionContext) -> Any:
        """Do what a node says."""
        if node.type not in self._actions:
            raise ActionFailedError(f"There is no action '{node.type}'.")
        try:
            config = self._config(node)
        except msgspec.ValidationError as error:
            raise ActionFailedError(f"The configuration is not valid: {error}") from error
        return await self._actions[node.type].handler(config, context)

    def _config(self, node: Node) -> msgspec.Struct:
        config: msgspec.Struct = msgspec.convert(node.config, self._actions[node.type].config)
        return config
