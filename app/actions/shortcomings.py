"""What is wrong with an action: checked when plugins are loaded, and by the authors of plugins in their own tests."""

import inspect
import re
from collections.abc import Iterator
from typing import Any, get_args

import msgspec

from app.actions.catalog import Action
from app.actions.palette import palette_shortcomings

_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
LONGEST_NAME = 255


def shortcomings(action: Action[Any]) -> list[str]:
    """Return what is wrong with an action; an empty list if workflows may use it."""
    return [*_names(action), *_config(action), *_handler(action), *_palette(action)]


def _names(action: Action[Any]) -> Iterator[str]:
    for name in (action.name, *action.aliases):
        if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
            yield f"'{name[:50]}' is not a valid name: use lower-case words with dots between them"
    if not action.version:
        yield "it has no version"


def _config(action: Action[Any]) -> Iterator[str]:
    structs: tuple[Any, ...] = get_args(action.config) or (action.config,)
    if not all(isinstance(struct, type) and issubclass(struct, msgspec.Struct) for struct in structs):
        yield "its config is not a msgspec Struct"
        return
    if not all(struct.__struct_config__.forbid_unknown_fields for struct in structs):
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
        yield "it has no description: say in a sentence what it does"


def _palette(action: Action[Any]) -> Iterator[str]:
    yield from palette_shortcomings(action.look, action.outputs)
    if action.kind not in {"action", "tool"}:
        yield "its kind is neither 'action' nor 'tool'"
