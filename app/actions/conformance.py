"""What every action has to be: for the authors of plugins to check theirs, and checked when one is loaded.

assert [] == shortcomings(MY_ACTION)
"""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from app.actions.catalog import Action

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
